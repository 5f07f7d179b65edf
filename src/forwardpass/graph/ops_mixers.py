"""Rows of the op table for layers that mix tokens otherwise than by attention to all of them.

No backend computes these yet: they are counted. Each recurrent layer keeps a state of fixed size
for a sequence. Its FLOP are those of the recurrence, token by token, as a decoding pass computes
it: engines that compute prompts in chunks do more arithmetic in larger products.

Axes beyond those of `ops.py`: c channels, w taps of a convolution, z elements of a channel's state,
m heads of a mixer, p elements of such a head.
"""

from __future__ import annotations

from forwardpass.graph.op import Op

MIXERS = (
    Op(
        "causal_conv",
        axes="n c, c w -> n c",
        flops=lambda n, c, w, **_: 2 * n * c * w,
        counted_only=True,
        source="each channel's last w values times its taps; arXiv:2312.00752 section 3.4",
    ),
    Op(
        "causal_conv_bias",
        axes="n c, c w, c -> n c",
        flops=lambda n, c, w, **_: 2 * n * c * w,
        counted_only=True,
        source="the same, its sums starting at a bias",
    ),
    Op(
        "silu",
        axes="... f -> ... f",
        other=lambda elements, **_: 4 * elements,
        counted_only=True,
        source="x × sigmoid(x); arXiv:1702.03118",
    ),
    Op(
        "sigmoid_multiply",
        axes="... f, ... f -> ... f",
        other=lambda elements, **_: 5 * elements,
        counted_only=True,
        source="sigmoid(gate) × x: a gated output; arXiv:2505.06708",
    ),
)
