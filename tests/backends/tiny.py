"""Tiny models of every family: a config each, and random weights for whatever a graph asks for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from backends.tiny_gpt import TINY_GPT
from backends.tiny_llama import TINY_LLAMA
from backends.tiny_moe import TINY_MOE
from forwardpass.backends.reference import Cache, Reference
from forwardpass.describe import describe_config
from forwardpass.graph.graph import Graph, Weight
from forwardpass.graph.references import F32

VOCABULARY = 61
_LLAMA: dict[str, object] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 24,
    "intermediate_size": 40,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 10,
    "max_position_embeddings": 512,
    "rms_norm_eps": 1e-3,
}

CONFIGS: dict[str, dict[str, object]] = {
    "gpt2": {
        "model_type": "gpt2",
        "vocab_size": VOCABULARY,
        "n_embd": 24,
        "n_layer": 2,
        "n_head": 3,
        "n_positions": 160,
    },
    "llama": {**_LLAMA, "model_type": "llama", "attention_bias": True, "mlp_bias": True},
    "llama-scaled": {
        **_LLAMA,
        "model_type": "llama",
        "tie_word_embeddings": True,
        "rope_scaling": {
            "rope_type": "llama3",
            "factor": 4.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 32,
        },
    },
    "llama-factors": {**_LLAMA, "model_type": "llama"},
    "qwen2": {
        **_LLAMA,
        "model_type": "qwen2",
        "use_sliding_window": True,
        "sliding_window": 7,
        "max_window_layers": 1,
    },
    "qwen3": {**_LLAMA, "model_type": "qwen3", "attention_bias": True},
    "gemma3": {
        **_LLAMA,
        "model_type": "gemma3_text",
        "num_hidden_layers": 3,
        "sliding_window": 9,
        "sliding_window_pattern": 3,
        "query_pre_attn_scalar": 12,
        "final_logit_softcapping": 20.0,
    },
    **TINY_LLAMA,
    **TINY_GPT,
    **TINY_MOE,
}
WITH_KERNELS = tuple(name for name in CONFIGS if name not in TINY_MOE)
"""Those that the native backend runs."""


@dataclass
class RandomWeights:
    """Weights by name: tables that keep the size of what they multiply, gains near 1."""

    graph: Graph
    seed: int = 0
    replaced: Mapping[str, F32] = field(default_factory=dict)

    def numpy(self, name: str) -> F32:
        if name in self.replaced:
            return self.replaced[name]
        return random_weight(self.graph.weights[name], self.seed)


def random_weight(weight: Weight, seed: int = 0) -> F32:
    """The same numbers for the same name, shape and seed."""
    random = np.random.default_rng([seed, *weight.name.encode()])
    values = random.standard_normal(weight.shape)
    if weight.name.endswith("bias"):
        values *= 0.5
    elif len(weight.shape) > 1:
        lookup = any(word in weight.name for word in ("embed", "wte", "wpe"))
        values *= 1.0 if lookup else 1.5 * weight.shape[-1] ** -0.5
    else:
        values = 1 + 0.3 * values
    return values.astype(np.float32)


def tiny_graph(name: str, **changes: object) -> Graph:
    """The graph of the config, changed; `llama-factors` has the rope divisors of a GGUF."""
    described = describe_config(name, {**CONFIGS[name], **changes})
    if name != "llama-factors":
        return described.graph
    return described.family.build(replace(described.config, rope_factors=True))


def tiny_model(name: str, **changes: object) -> Reference:
    graph = tiny_graph(name, **changes)
    return Reference(graph, RandomWeights(graph))


def random_tokens(count: int, seed: int = 1) -> list[int]:
    return [int(token) for token in np.random.default_rng(seed).integers(0, VOCABULARY, count)]


def whole_pass(model: Reference, tokens: list[int]) -> F32:
    """The logits of every row of one prompt's pass, n v."""
    return model.run(model.new_cache(), tokens, wanted=range(len(tokens)))


def prefilled(model: Reference, tokens: list[int]) -> Cache:
    cache = model.new_cache()
    model.run(cache, tokens)
    return cache
