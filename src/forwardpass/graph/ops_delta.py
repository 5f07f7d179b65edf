"""Rows of the op table for gated delta layers.

No backend computes these yet. The recurrence is counted token by token, as a decoding pass computes
it: engines that compute prompts in chunks do more arithmetic in larger products.

Axes beyond those of `ops.py`: m value heads of a mixer, z and p the elements of its key and value
heads; its state is z p for each of the m heads.
"""

from __future__ import annotations

from forwardpass.graph.op import Op

DELTA = (
    Op(
        "gated_delta_rule",
        axes="n g z, n g z, n m p, n m, n m -> n m p",
        # S decayed: 1 an element; S·k, the outer product added, q·S: 2 each; β (v − S·k): 2 p.
        flops=lambda n, m, z, p, **_: n * m * (7 * z * p + 2 * p),
        counted_only=True,
        source="arXiv:2412.06464 equation 10: S ← αS + k ⊗ β (v − αS·k), then q·S; each key head "
        "serves m/g value heads",
    ),
    Op(
        "delta_decay",
        axes="n m, m, m -> n m",
        other=lambda elements, **_: 6 * elements,
        counted_only=True,
        source="exp(−exp(A) × softplus(x + bias)); arXiv:2412.06464 section 3.4, arXiv:2405.21060",
    ),
    Op(
        "sigmoid",
        axes="... f -> ... f",
        other=lambda elements, **_: 4 * elements,
        counted_only=True,
        source="1 ÷ (1 + exp(−x)): how much of a value a delta layer writes",
    ),
    Op(
        "l2_norm",
        axes="... d -> ... d",
        other=lambda elements, **_: 4 * elements,
        counted_only=True,
        source="x divided by its length: queries and keys of delta layers; arXiv:2406.06484",
    ),
    Op(
        "norm_silu_multiply",
        axes="... d, ... d, d -> ... d",
        other=lambda elements, **_: 9 * elements,
        attributes=("eps",),
        counted_only=True,
        source="rms_norm(x) × gain × silu(gate): the gated output of delta layers; "
        "arXiv:2412.06464 section 3.4",
    ),
)
