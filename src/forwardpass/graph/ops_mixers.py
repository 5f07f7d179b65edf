"""Rows of the op table for layers that mix tokens otherwise than by attention to all of them.

No backend computes these yet: they are counted. Each recurrent layer keeps a state of fixed size
for a sequence. Its FLOP are those of the recurrence, token by token, as a decoding pass computes
it: engines that compute prompts in chunks do more arithmetic in larger products.

Axes beyond those of `ops.py`: c channels, w taps of a convolution, z elements of a channel's state,
m heads of a mixer, p elements of such a head, q groups of heads that share B and C.

The scans count, beyond their products, the exponential of the decay; the decay itself, −exp(A_log),
is a constant of the model and counts nothing.
"""

from __future__ import annotations

from forwardpass.graph.op import Op

MIXERS = (
    Op(
        "causal_conv",
        axes="n c, c one w -> n c",
        flops=lambda n, c, w, **_: 2 * n * c * w,
        counted_only=True,
        source="each channel's last w values times its taps; arXiv:2312.00752 section 3.4",
    ),
    Op(
        "causal_conv_bias",
        axes="n c, c one w, c -> n c",
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
    Op(
        "multiply",
        axes="... d, ... d -> ... d",
        other=lambda elements, **_: elements,
        counted_only=True,
        source="two vectors, element by element: the gates around a short convolution; LFM2 "
        "(arXiv:2511.23404)",
    ),
    Op(
        "plain_rms_norm",
        axes="... d -> ... d",
        other=lambda elements, **_: 3 * elements,
        attributes=("eps",),
        counted_only=True,
        source="arXiv:1910.07467 equation 4 without a gain; Falcon Mamba (arXiv:2410.05355)",
    ),
    Op(
        "group_rms_norm",
        axes="n c, c -> n c",
        other=lambda elements, **_: 4 * elements,
        attributes=("eps", "groups"),
        counted_only=True,
        source="arXiv:1910.07467 equation 4 over each group of channels; Mamba-2 "
        "(arXiv:2405.21060 section 7.1)",
    ),
    Op(
        "softplus",
        axes="... d -> ... d",
        other=lambda elements, **_: 3 * elements,
        counted_only=True,
        source="log(1 + exp(x)): the size of a time step; arXiv:2312.00752 section 3.2",
    ),
    Op(
        "softplus_bias",
        axes="n m, m -> n m",
        other=lambda elements, **_: 4 * elements,
        counted_only=True,
        source="the same of x plus a bias; Mamba-2 (arXiv:2405.21060)",
    ),
    Op(
        "relu_squared",
        axes="... f -> ... f",
        other=lambda elements, **_: 2 * elements,
        counted_only=True,
        source="max(x, 0)²; arXiv:2109.08668",
    ),
    Op(
        # A state element: step × decay, exponential, state × that, its input × B, sum; × C, sum.
        # A channel: step × input; input × D, sum.
        "selective_scan",
        axes="n c, n c, n z, n z, c z, c -> n c",
        flops=lambda n, c, z, **_: n * c * (7 * z + 3),
        counted_only=True,
        source="h = exp(step · A) h + step · B x, y = C · h + D x, of inputs x, step, B, C and "
        "weights A_log, D; arXiv:2312.00752 algorithm 2",
    ),
    Op(
        # A head: step × decay, exponential. A state element: state × that, its input × B, sum; × C,
        # sum. A channel: step × input; input × D, sum.
        "state_space_scan",
        axes="n m p, n m, n (q z), n (q z), m, m -> n m p",
        flops=lambda n, m, p, z, **_: n * m * (2 + p * (5 * z + 3)),
        counted_only=True,
        source="the same with one decay for all elements of a head, B and C for each group of "
        "heads; arXiv:2405.21060 section 7",
    ),
)
