"""The op table: every op that a model may be made of, stated once.

A row (`graph/op.py`) holds the op's named axes, its FLOP rule, its byte rule, the tolerance that a
backend is held to, and a source. This file has the rows of dense models, `ops_experts.py` those of
mixtures of experts, `ops_latent.py` those of latent attention, `ops_mixers.py` and `ops_delta.py`
those of recurrent layers, `ops_variants.py` those of single families. The NumPy reference is the
function of the same name in `graph/references*.py` (kept apart so that counting needs no NumPy).
Rules take axis sizes by name; `pairs` is the number of (query, visible key) pairs of the pass in
this layer. A multiply-add is 2 FLOP.

FLOP of the op's own role and FLOP of `other` (norms, activations, softmax, adds, rope) are separate
rules that are never added to each other. The per-element rules of `other`: norm 4, softmax 3 a
pair and head, residual add 1, GELU 8, SiLU 4, ReLU 1, a product of two vectors 1, rope 3 (of what
is turned), scale 1, soft cap 3; a bias, also one of ALiBi, is the start value of its sum and a
table look-up moves bytes: 0. docs/accounting.md gives the reasons.

Axes: n tokens of the pass, r rows whose logits are wanted, s tokens visible in the cache, d hidden,
h query heads, g key/value heads, e head_dim, w elements of a value's head, f intermediate, v
vocabulary, i and o the inputs and outputs of a table.
"""

from __future__ import annotations

from forwardpass.graph.op import Op
from forwardpass.graph.ops_delta import DELTA
from forwardpass.graph.ops_experts import EXPERTS
from forwardpass.graph.ops_latent import LATENT_OPS
from forwardpass.graph.ops_mixers import MIXERS
from forwardpass.graph.ops_variants import VARIANTS

_DENSE = (
    Op(
        "embed",
        axes="n, v d -> n d",
        table=True,
        lookup=True,
        source="row look-up",
        tolerance=0.0,
    ),
    Op(
        "add_positions",
        axes="n d, n, p d -> n d",
        table=True,
        attributes=("offset",),
        lookup=True,
        source="learned positions, added as part of the look-up; GPT-2 (Radford et al. 2019), "
        "from row 2 on in OPT (arXiv:2205.01068)",
    ),
    Op(
        "scale",
        axes="... d -> ... d",
        other=lambda elements, **_: elements,
        attributes=("factor",),
        source="embedding scale; Gemma (arXiv:2403.08295)",
    ),
    Op(
        "linear",
        axes="n i, o i -> n o",
        table=True,
        flops=lambda n, i, o, **_: 2 * n * i * o,
        phased=True,
        source="every projection; docs/accounting.md",
    ),
    Op(
        "linear_bias",
        axes="n i, o i, o -> n o",
        table=True,
        flops=lambda n, i, o, **_: 2 * n * i * o,
        phased=True,
        source="a projection whose sums start at a bias",
    ),
    Op(
        "columns",
        axes="... i -> ... o",
        attributes=("start", "stop"),
        source="a part of a fused projection's outputs",
        tolerance=0.0,
    ),
    Op("heads", axes="n (h e) -> n h e", source="a view, by head", tolerance=0.0),
    Op("flat", axes="n h e -> n (h e)", source="a view, heads joined", tolerance=0.0),
    Op(
        "rms_norm",
        axes="... d, d -> ... d",
        other=lambda elements, **_: 4 * elements,
        attributes=("eps",),
        source="arXiv:1910.07467 equation 4",
    ),
    Op(
        "layer_norm",
        axes="... d, d, d -> ... d",
        other=lambda elements, **_: 4 * elements,
        attributes=("eps",),
        source="arXiv:1607.06450 section 3.1",
    ),
    Op(
        "plain_layer_norm",
        axes="... d, d -> ... d",
        other=lambda elements, **_: 4 * elements,
        attributes=("eps",),
        source="arXiv:1607.06450 section 3.1 without the bias; Command R",
    ),
    Op(
        "head_layer_norm",
        axes="n h e, h e -> n h e",
        other=lambda elements, **_: 4 * elements,
        attributes=("eps",),
        source="arXiv:1607.06450 section 3.1 over head_dim, a gain for each head and no bias; "
        "StableLM 2 12B, Command R+",
    ),
    Op(
        "rope",
        axes="n h e, n -> n h e",
        other=lambda elements, e, dims, **_: 3 * elements * dims // e,
        attributes=("rope", "dims", "interleaved"),
        source="arXiv:2104.09864 equation 34, of the first dims elements of a head: their halves "
        "paired, or neighbors where interleaved",
    ),
    Op(
        "rope_factors",
        axes="n h e, n, k -> n h e",
        other=lambda elements, e, dims, **_: 3 * elements * dims // e,
        attributes=("rope", "dims", "interleaved"),
        constant=True,
        source="rope whose k = dims/2 angles are divided by a stored vector; GGUF "
        "rope_freqs.weight, rope_factors_short.weight",
    ),
    Op(
        "cache",
        axes="n g e -> g s e",
        state=True,
        source="writes the new rows behind the cached ones, returns all; arXiv:1911.02150",
        tolerance=0.0,
    ),
    Op(
        "attention",
        axes="n h e, g s e, g s w, n -> n h w",
        flops=lambda h, e, w, pairs, **_: 2 * h * (e + w) * pairs,
        other=lambda h, pairs, **_: 3 * h * pairs,
        attributes=("scale", "window", "softcap", "slopes", "absorbed"),
        phased=True,
        source="arXiv:1706.03762 section 3.2, grouped as in arXiv:2305.13245; windows as in "
        "arXiv:2310.06825, soft caps as in arXiv:2408.00118, slopes as in arXiv:2108.12409",
    ),
    Op(
        "gelu",
        axes="n f -> n f",
        other=lambda elements, **_: 8 * elements,
        source="arXiv:1606.08415, the tanh form",
    ),
    Op(
        "gelu_erf",
        axes="n f -> n f",
        other=lambda elements, **_: 8 * elements,
        source="arXiv:1606.08415, the form by the error function",
    ),
    Op(
        "relu",
        axes="n f -> n f",
        other=lambda elements, **_: elements,
        source="max(x, 0); OPT (arXiv:2205.01068)",
    ),
    Op(
        "silu_multiply",
        axes="... f, ... f -> ... f",
        other=lambda elements, **_: 5 * elements,
        source="SwiGLU: silu(gate) × up; arXiv:2002.05202",
    ),
    Op(
        "gelu_multiply",
        axes="... f, ... f -> ... f",
        other=lambda elements, **_: 9 * elements,
        source="GeGLU with the tanh form: gelu(gate) × up; arXiv:2002.05202",
    ),
    Op(
        "add",
        axes="n d, n d -> n d",
        other=lambda elements, **_: elements,
        source="residual connection",
    ),
    Op(
        "softcap",
        axes="r v -> r v",
        other=lambda elements, **_: 3 * elements,
        attributes=("cap",),
        source="cap × tanh(x / cap); arXiv:2408.00118",
    ),
    Op(
        "wanted_rows",
        axes="n d, r -> r d",
        source="the rows whose logits are asked for",
        tolerance=0.0,
    ),
)
_ALL = (*_DENSE, *EXPERTS, *LATENT_OPS, *MIXERS, *DELTA, *VARIANTS)
OPS: dict[str, Op] = {op.name: op for op in _ALL}

# `hidden_act` in configs -> the op of an MLP without a gate. `gelu_fast` rounds √(2/π) otherwise.
ACTIVATIONS: dict[str, str] = {
    "gelu": "gelu_erf",
    "gelu_new": "gelu",
    "gelu_pytorch_tanh": "gelu",
    "gelu_fast": "gelu",
    "relu": "relu",
}
