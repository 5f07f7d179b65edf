"""Rows of the op table for mixtures of experts.

Axes beyond those of `ops.py`: x experts, k of them chosen for each token. What a pass reads of the
experts' tables are those of the experts that any of its tokens chose; docs/accounting.md says how
many that is expected to be.
"""

from __future__ import annotations

from forwardpass.graph.op import Op

EXPERTS = (
    Op(
        "expert_scores",
        axes="n x -> n x",
        other=lambda elements, **_: 3 * elements,
        attributes=("scoring",),
        source="softmax over all experts (arXiv:1701.06538) or a sigmoid of each "
        "(arXiv:2412.19437 equation 15)",
    ),
    Op(
        "route",
        axes="n x -> n k",
        attributes=("k", "groups", "kept", "group_best"),
        integers=True,
        source="the k best experts of each token, the lower number where scores are equal; of the "
        "best groups alone where there are groups (arXiv:2405.04434 section 2.1.4)",
        tolerance=0.0,
    ),
    Op(
        "route_biased",
        axes="n x, x -> n k",
        attributes=("k", "groups", "kept", "group_best"),
        integers=True,
        constant=True,
        source="the same of scores plus a bias that training steers without a gradient and that "
        "weighs nothing (arXiv:2408.15664)",
        tolerance=0.0,
    ),
    Op(
        "expert_weights",
        axes="n x, n k -> n k",
        other=lambda elements, **_: 3 * elements,
        attributes=("normal", "factor"),
        source="the scores of the chosen experts, brought to a sum of 1 or not, times a factor",
    ),
    Op(
        "to_experts",
        axes="n d, n k -> n k d",
        source="a view: each token's row, once for each expert that it goes to",
        tolerance=0.0,
    ),
    Op(
        "expert_linear",
        axes="n k i, n k, x o i -> n k o",
        table=True,
        flops=lambda n, k, i, o, **_: 2 * n * k * i * o,
        experts=True,
        phased=True,
        source="a projection by each chosen expert's own table; arXiv:1701.06538",
    ),
    Op(
        "expert_linear_bias",
        axes="n k i, n k, x o i, x o -> n k o",
        table=True,
        flops=lambda n, k, i, o, **_: 2 * n * k * i * o,
        experts=True,
        phased=True,
        source="the same, its sums starting at the expert's bias; gpt-oss",
    ),
    Op(
        "combine",
        axes="n k d, n k -> n d",
        other=lambda n, k, d, **_: 2 * n * k * d,
        source="the experts' rows times their weights, added up; arXiv:1701.06538 equation 1",
    ),
    Op(
        "clamped_silu_multiply",
        axes="... f, ... f -> ... f",
        other=lambda elements, **_: 8 * elements,
        attributes=("alpha", "limit"),
        source="gate × sigmoid(alpha × gate) × (up + 1), gate at most the limit and up within it; "
        "gpt-oss (arXiv:2508.10925)",
    ),
    Op(
        "sigmoid_scale",
        axes="n d, n one -> n d",
        other=lambda elements, n, **_: elements + 4 * n,
        source="each row times the sigmoid of its own number: the gate of a shared expert; "
        "Qwen1.5-MoE",
    ),
    Op(
        "attention_sinks",
        axes="n h e, g s e, g s w, n, h -> n h w",
        flops=lambda h, e, w, pairs, **_: 2 * h * (e + w) * pairs,
        other=lambda n, h, pairs, **_: 3 * h * (pairs + n),
        attributes=("scale", "window", "softcap", "slopes", "absorbed"),
        phased=True,
        source="attention with one more score a head in the softmax, which no value follows; "
        "gpt-oss (arXiv:2508.10925), arXiv:2309.17453",
    ),
)
