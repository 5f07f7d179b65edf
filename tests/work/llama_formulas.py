"""How the closed formulas of the families beside Llama differ from its own.

For each, the arguments of `gated` in test_closed_formulas.py, from the sizes, n tokens and r rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from forwardpass.config import ModelConfig

Differences = Callable[[ModelConfig, int, int], dict[str, int]]


def _turned(c: ModelConfig, n: int, elements: int) -> int:
    """FLOP of turning so many elements of each query and key head."""
    return 3 * n * (c.num_attention_heads + c.num_key_value_heads) * elements


def gemma(c: ModelConfig, n: int, r: int) -> dict[str, int]:
    return {"activation": 8, "extra": n * c.hidden_size}


def gemma2(c: ModelConfig, n: int, r: int) -> dict[str, int]:
    return {"norms": 4, "activation": 8, "extra": n * c.hidden_size + 3 * r * c.vocab_size}


def phi3(c: ModelConfig, n: int, r: int) -> dict[str, int]:
    # 0.6 of a head of 10 elements are turned, 4 are not.
    return {"extra": -c.num_hidden_layers * _turned(c, n, 4)}


def olmo(c: ModelConfig, n: int, r: int) -> dict[str, int]:
    return {"head_norms": True}  # over all heads together: as many elements


def granite(c: ModelConfig, n: int, r: int) -> dict[str, int]:
    added = 2 * c.num_hidden_layers * n * c.hidden_size
    return {"extra": n * c.hidden_size + added + r * c.vocab_size}


def smollm3(c: ModelConfig, n: int, r: int) -> dict[str, int]:
    return {"extra": -(c.num_hidden_layers // 4) * _turned(c, n, c.head_dim)}


def cohere(c: ModelConfig, n: int, r: int) -> dict[str, int]:
    return {"norms": 1, "head_norms": True, "extra": r * c.vocab_size}


LLAMA_DIFFERENCES: Mapping[str, Differences] = {
    "mistral": lambda c, n, r: {},
    "gemma": gemma,
    "gemma2": gemma2,
    "phi3": phi3,
    "olmo2": olmo,
    "olmo3": olmo,
    "granite": granite,
    "smollm3": smollm3,
    "cohere": cohere,
}
