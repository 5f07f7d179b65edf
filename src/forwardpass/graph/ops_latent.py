"""Rows of the op table for latent attention, and for attention to selected tokens alone.

Keys and values are expanded from one narrow row a token, which is what the cache holds; a part of
each key that turns is shared by all heads (arXiv:2405.04434 section 2.1). An indexer may select the
tokens that attention reads at all (DeepSeek-V3.2); no backend computes those ops yet.
"""

from __future__ import annotations

from forwardpass.graph.op import Op

LATENT_OPS = (
    Op(
        "head_columns",
        axes="n h i -> n h o",
        attributes=("start", "stop"),
        source="a part of each head",
        tolerance=0.0,
    ),
    Op(
        "join_heads",
        axes="n h a, n k b -> n h c",
        source="each head's two parts as one; the second may be one for all heads (k = 1); "
        "arXiv:2405.04434 equation 17",
        tolerance=0.0,
    ),
    Op(
        "select_tokens",
        axes="n h e, g s e, n h, n -> n k",
        flops=lambda h, e, pairs, **_: 2 * h * (e + 1) * pairs,
        other=lambda h, pairs, **_: h * pairs,
        attributes=("k",),
        integers=True,
        counted_only=True,
        source="the k visible tokens of the highest index score, all of them where they are fewer: "
        "the sum over the indexer's heads of the ReLU of query × key, weighted; DeepSeek-V3.2",
        tolerance=0.0,
    ),
    Op(
        "selected_attention",
        axes="n h e, g s e, g s w, n, n k -> n h w",
        flops=lambda h, e, w, pairs, **_: 2 * h * (e + w) * pairs,
        other=lambda h, pairs, **_: 3 * h * pairs,
        attributes=("scale", "window", "softcap", "slopes", "absorbed", "selected"),
        phased=True,
        counted_only=True,
        source="attention to the selected tokens alone; DeepSeek-V3.2",
    ),
)
