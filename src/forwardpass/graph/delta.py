"""Gated delta layers: linear attention whose state forgets, and corrects what it holds for a key.

A value head keeps a matrix of key elements × value elements, whatever the length of the sequence,
and a short convolution the last rows of what goes into it.

Source: arXiv:2412.06464 section 3.4; transformers 5.24, models/qwen3_next (`GatedDeltaNet`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from forwardpass.errors import GraphError
from forwardpass.graph.builder import GraphBuilder
from forwardpass.graph.graph import RECURRENT, Role, Value
from forwardpass.graph.mixers import causal_conv, split


@dataclass(frozen=True)
class DeltaSizes:
    """Key and value heads of a delta layer, their elements, and the taps of its convolution.

    `state_bytes`: those of an element of the state, where a config says.
    """

    key_heads: int
    value_heads: int
    key_width: int
    value_width: int
    taps: int
    state_bytes: int | None = None

    def __post_init__(self) -> None:
        if self.value_heads % self.key_heads:
            raise GraphError(
                f"{self.value_heads} value heads are not a multiple of {self.key_heads} key heads"
            )

    @property
    def keys(self) -> int:
        """Elements of all key heads."""
        return self.key_heads * self.key_width

    @property
    def values(self) -> int:
        """Elements of all value heads."""
        return self.value_heads * self.value_width

    @property
    def channels(self) -> int:
        """What the convolution sees: queries, keys and values."""
        return 2 * self.keys + self.values


def delta_layer(g: GraphBuilder, x: Value, name: str, sizes: DeltaSizes, fused: bool) -> Value:
    """The layer's result, n d, of x, n d; weights below `name`.

    `fused`: queries, keys, values and gates are of one projection, β and decay of another. The
    graph has the rows of such tables by kind; checkpoints store them by key head.
    """
    heads, channels = sizes.value_heads, sizes.channels
    if fused:
        both = g.linear(x, f"{name}.in_proj_qkvz", channels + sizes.values, Role.MIXER_IN)
        mixed, gate = split(g, both, (channels, sizes.values))
        both = g.linear(x, f"{name}.in_proj_ba", 2 * heads, Role.MIXER_IN)
        beta, decay = split(g, both, (heads, heads))  # n m each
    else:
        mixed = g.linear(x, f"{name}.in_proj_qkv", channels, Role.MIXER_IN)
        gate = g.linear(x, f"{name}.in_proj_z", sizes.values, Role.MIXER_IN)
        beta = g.linear(x, f"{name}.in_proj_b", heads, Role.MIXER_IN)
        decay = g.linear(x, f"{name}.in_proj_a", heads, Role.MIXER_IN)
    y = _scanned(g, mixed, beta, decay, name, sizes)  # n m p
    gain = g.weight(f"{name}.norm.weight", sizes.value_width)
    gate = g.heads(gate, sizes.value_width)
    y = g.apply("norm_silu_multiply", [y, gate], [gain], role=Role.MIXER_OUT, eps=g.config.norm_eps)
    return g.linear(g.flat(y), f"{name}.out_proj", g.config.hidden_size, Role.MIXER_OUT)


def _scanned(
    g: GraphBuilder, mixed: Value, beta: Value, decay: Value, name: str, sizes: DeltaSizes
) -> Value:
    """What the recurrence reads, n m p, of queries, keys and values in one row."""
    mixed = g.apply("silu", [causal_conv(g, mixed, f"{name}.conv1d", sizes.taps)])
    parts = split(g, mixed, (sizes.keys, sizes.keys, sizes.values))
    widths = (sizes.key_width, sizes.key_width, sizes.value_width)
    query, key, value = (g.heads(part, width) for part, width in zip(parts, widths, strict=True))
    query = g.scale(g.apply("l2_norm", [query]), sizes.key_width**-0.5)  # n g z
    key = g.apply("l2_norm", [key])  # n g z
    vectors = [g.weight(f"{name}.{end}", sizes.value_heads) for end in ("A_log", "dt_bias")]
    decay = g.apply("delta_decay", [decay], vectors, role=Role.MIXER_SCAN)
    beta = g.apply("sigmoid", [beta])
    kept = (sizes.value_heads, sizes.key_width, sizes.value_width)
    state = g.state(f"{name}.memory", RECURRENT, *kept)
    return g.apply(
        "gated_delta_rule",
        [query, key, value, decay, beta],
        role=Role.MIXER_SCAN,
        state=replace(state, width=sizes.state_bytes),
    )
