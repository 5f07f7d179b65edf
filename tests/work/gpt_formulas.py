"""Closed formulas of the families that come from GPT; symbols as in test_closed_formulas.py."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from forwardpass.config import ModelConfig
from forwardpass.graph.graph import Role

Formula = Callable[[ModelConfig, int, int, Sequence[int]], dict[Role, int]]


def _ungated(
    c: ModelConfig,
    n: int,
    r: int,
    p: Sequence[int],
    *,
    norms: int = 2,
    turned: int = 0,
    activation: int = 8,
    tables: int = 1,
    extra: int = 0,
) -> dict[Role, int]:
    """`turned`: elements of a head that rope turns; `tables`: those that expand; `extra`: other."""
    d, f, v, layers = c.hidden_size, c.intermediate_size, c.vocab_size, c.num_hidden_layers
    h, g, e = c.num_attention_heads, c.num_key_value_heads, c.head_dim
    layer = norms * 4 * n * d + 3 * n * (h + g) * turned + activation * n * f + 2 * n * d
    return {
        Role.EMBEDDING: 0,
        Role.QKV: layers * 2 * n * d * (h + 2 * g) * e,
        Role.READ: 4 * h * e * sum(p),
        Role.ATTENTION_OUTPUT: layers * 2 * n * h * e * d,
        Role.MLP_UP: layers * 2 * n * d * tables * f,
        Role.MLP_DOWN: layers * 2 * n * f * d,
        Role.HEAD: 2 * r * d * v,
        Role.OTHER: layers * layer + 3 * h * sum(p) + 4 * r * d + extra,
    }


def stablelm(c: ModelConfig, n: int, r: int, p: Sequence[int]) -> dict[Role, int]:
    h, g, e = c.num_attention_heads, c.num_key_value_heads, c.head_dim
    if c.use_parallel_residual:
        head_norms = c.num_hidden_layers * 4 * n * (h + g) * e
        return _ungated(c, n, r, p, norms=1, turned=2, activation=5, tables=2, extra=head_norms)
    return _ungated(c, n, r, p, turned=4, activation=5, tables=2)


def starcoder2(c: ModelConfig, n: int, r: int, p: Sequence[int]) -> dict[Role, int]:
    return _ungated(c, n, r, p, turned=6)


def gpt_neox(c: ModelConfig, n: int, r: int, p: Sequence[int]) -> dict[Role, int]:
    return _ungated(c, n, r, p, turned=2)


def gptj(c: ModelConfig, n: int, r: int, p: Sequence[int]) -> dict[Role, int]:
    return _ungated(c, n, r, p, norms=1, turned=4)


def phi(c: ModelConfig, n: int, r: int, p: Sequence[int]) -> dict[Role, int]:
    return _ungated(c, n, r, p, norms=1, turned=2)


def falcon(c: ModelConfig, n: int, r: int, p: Sequence[int]) -> dict[Role, int]:
    return _ungated(c, n, r, p, norms=1 if c.num_key_value_heads == 1 else 2, turned=6)


def bloom(c: ModelConfig, n: int, r: int, p: Sequence[int]) -> dict[Role, int]:
    return _ungated(c, n, r, p, extra=4 * n * c.hidden_size)


def opt(c: ModelConfig, n: int, r: int, p: Sequence[int]) -> dict[Role, int]:
    found = _ungated(c, n, r, p, activation=1)
    d, v, width = c.hidden_size, c.vocab_size, 10
    if not c.do_layer_norm_before:
        found[Role.EMBEDDING] = 2 * n * width * d
        found[Role.HEAD] = 2 * r * (d * width + width * v)
        found[Role.OTHER] -= 4 * r * d
    return found


GPT_FORMULAS: Mapping[str, Formula] = {
    "stablelm": stablelm,
    "starcoder2": starcoder2,
    "gpt_neox": gpt_neox,
    "gptj": gptj,
    "phi": phi,
    "falcon": falcon,
    "bloom": bloom,
    "opt": opt,
}
GPT_WINDOWS: Mapping[str, Sequence[int | None]] = {"starcoder2": (9, 9)}
