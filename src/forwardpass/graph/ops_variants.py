"""Rows of the op table for what single families do otherwise than all others.

No backend computes these yet.
"""

from __future__ import annotations

from forwardpass.graph.op import Op

VARIANTS = (
    Op(
        "chunked_attention",
        axes="n h e, g s e, g s w, n -> n h w",
        flops=lambda h, e, w, pairs, **_: 2 * h * (e + w) * pairs,
        other=lambda h, pairs, **_: 3 * h * pairs,
        attributes=("scale", "window"),
        counted_only=True,
        source="attention to the tokens of one's own chunk, counted as a window of its size; "
        "Llama 4",
    ),
    Op(
        "shared_cache",
        axes="g s e -> g s e",
        state=True,
        counted_only=True,
        source="the cache of an earlier layer, read again; arXiv:2405.12981, Gemma 3n and 4",
        tolerance=0.0,
    ),
    Op(
        "rope_proportional",
        axes="n h e, n -> n h e",
        other=lambda elements, e, dims, **_: 3 * elements * dims // e,
        attributes=("rope", "dims"),
        counted_only=True,
        source="rope of whole heads whose slowest pairs stand still: only dims elements turn; "
        "Gemma 4",
    ),
    Op(
        "position_scale",
        axes="n h e, n -> n h e",
        other=lambda elements, n, **_: elements + 6 * n,
        attributes=("floor", "factor"),
        counted_only=True,
        source="queries × (1 + factor × ln(1 + ⌊(position + 1) ÷ floor⌋)); Llama 4, after "
        "arXiv:2501.19399",
    ),
    Op(
        "weigh_experts",
        axes="n k d, n k -> n k d",
        other=lambda elements, **_: elements,
        counted_only=True,
        source="each expert's input times its weight; Llama 4",
    ),
    Op(
        "add_experts",
        axes="n k d -> n d",
        other=lambda n, k, d, **_: n * k * d,
        counted_only=True,
        source="the experts' rows added up; Llama 4",
    ),
    Op(
        "expert_gain",
        axes="n k, n k, x -> n k",
        other=lambda elements, **_: elements,
        counted_only=True,
        source="the chosen experts' weights times a learned gain of each; Gemma 4",
    ),
    Op(
        "layer_scale",
        axes="n d, one -> n d",
        other=lambda elements, **_: elements,
        constant=True,
        counted_only=True,
        source="a layer's result times a stored constant; Gemma 4",
    ),
)
