"""Closed formulas of the mixtures of experts; symbols as in test_closed_formulas.py.

x experts, k of them chosen for each token; which layers have experts is said here by hand.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from forwardpass.config import ModelConfig
from forwardpass.graph.graph import Role

Formula = Callable[[ModelConfig, int, int, Sequence[int]], dict[Role, int]]


@dataclass(frozen=True)
class _Mixture:
    """`layers` of experts of `width`; the others have one MLP of intermediate_size.

    `activation`: FLOP an element, product included. `shared`: width of the expert of all tokens.
    """

    layers: int
    experts: int
    chosen: int
    width: int
    scored: bool = True
    activation: int = 5
    shared: int = 0
    head_norms: bool = False
    sinks: bool = False


def _mixed(c: ModelConfig, n: int, r: int, p: Sequence[int], mixture: _Mixture) -> dict[Role, int]:
    d, f, v, layers = c.hidden_size, c.intermediate_size, c.vocab_size, c.num_hidden_layers
    h, g, e = c.num_attention_heads, c.num_key_value_heads, c.head_dim
    sparse, dense = mixture.layers, layers - mixture.layers
    x, k, w, s = mixture.experts, mixture.chosen, mixture.width, mixture.shared
    every = 2 * 4 * n * d + 3 * n * (h + g) * e + 2 * n * d
    every += 4 * n * (h + g) * e if mixture.head_norms else 0
    every += 3 * h * n if mixture.sinks else 0
    routed = (3 * n * x if mixture.scored else 0) + 3 * n * k + 2 * n * k * d
    routed += mixture.activation * n * k * w
    # A shared expert: its activation, its gate (a sigmoid a token, a product an element), an add.
    routed += 5 * n * s + (n * d + 4 * n) + n * d if s else 0
    return {
        Role.EMBEDDING: 0,
        Role.QKV: layers * 2 * n * d * (h + 2 * g) * e,
        Role.READ: 4 * h * e * sum(p),
        Role.ATTENTION_OUTPUT: layers * 2 * n * h * e * d,
        Role.MLP_ROUTER: sparse * 2 * n * d * (x + (1 if s else 0)),
        Role.MLP_UP: (sparse * (k * w + s) + dense * f) * 2 * n * d * 2,
        Role.MLP_DOWN: (sparse * (k * w + s) + dense * f) * 2 * n * d,
        Role.HEAD: 2 * r * d * v,
        Role.OTHER: layers * every
        + sparse * routed
        + dense * 5 * n * f
        + 3 * h * sum(p)
        + 4 * r * d,
    }


def _of(mixture: _Mixture) -> Formula:
    return lambda c, n, r, p: _mixed(c, n, r, p, mixture)


def deepseek_v3(c: ModelConfig, n: int, r: int, p: Sequence[int]) -> dict[Role, int]:
    d, f, v, h, layers = c.hidden_size, c.intermediate_size, c.vocab_size, 4, 3
    rank, query_rank, still, turned, value = 14, 18, 8, 6, 10
    x, k, w, s, sparse = 12, 3, 18, 2 * 18, 2
    down = d * query_rank + d * (rank + turned)
    up = query_rank * h * (still + turned) + rank * h * (still + value)
    every = 4 * n * (2 * d + query_rank + rank) + 3 * n * (h + 1) * turned + 2 * n * d
    routed = 3 * n * x + 3 * n * k + 5 * n * k * w + 2 * n * k * d + 5 * n * s + n * d
    return {
        Role.EMBEDDING: 0,
        Role.QKV: layers * 2 * n * (down + up),
        Role.READ: 2 * h * (still + turned + value) * sum(p),
        Role.ATTENTION_OUTPUT: layers * 2 * n * h * value * d,
        Role.MLP_ROUTER: sparse * 2 * n * d * x,
        Role.MLP_UP: (sparse * (k * w + s) + f) * 2 * n * d * 2,
        Role.MLP_DOWN: (sparse * (k * w + s) + f) * 2 * n * d,
        Role.HEAD: 2 * r * d * v,
        Role.OTHER: layers * every + sparse * routed + 5 * n * f + 3 * h * sum(p) + 4 * r * d,
    }


MOE_FORMULAS: Mapping[str, Formula] = {
    "mixtral": _of(_Mixture(2, 5, 2, 40)),
    "qwen2_moe": _of(_Mixture(1, 6, 3, 18, shared=28)),
    "qwen3_moe": _of(_Mixture(1, 6, 3, 18, head_norms=True)),
    "olmoe": _of(_Mixture(2, 8, 3, 40, head_norms=True)),
    "gpt_oss": _of(_Mixture(2, 6, 3, 40, scored=False, activation=8, sinks=True)),
    "deepseek_v3": deepseek_v3,
}
