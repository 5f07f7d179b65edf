"""Recurrent layers and short convolutions, as families write them.

Each is a projection in (role mixer.in), what mixes the tokens (mixer.scan) and a projection out
(mixer.out). Between passes a sequence keeps the last inputs of the convolution and, of a scan, its
state. Weight names as in checkpoints, below `name`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from forwardpass.errors import GraphError
from forwardpass.graph.builder import GraphBuilder
from forwardpass.graph.graph import RECURRENT, Role, Value


@dataclass(frozen=True)
class SelectiveScan:
    """Sizes of a Mamba-1 layer.

    `channels` of `state` elements each; `taps` of the convolution; `rank` of what makes the time
    step. `bias`: whether the projections in and out have one, `conv_bias` the convolution. `norms`
    of time step, B and C: "none", "plain" (without a gain, `eps` within) or "gain".
    """

    channels: int
    state: int
    taps: int
    rank: int
    bias: bool = False
    conv_bias: bool = True
    norms: str = "none"
    eps: float = 1e-6


@dataclass(frozen=True)
class StateSpace:
    """Sizes of a Mamba-2 layer.

    `heads` of `head` channels, each with `state` elements; `groups` of heads share B and C; `taps`
    of the convolution. `bias`: whether the projections in and out have one, `conv_bias` the
    convolution. `width`: bytes of an element of the scan's state, where a config says.
    """

    heads: int
    head: int
    state: int
    groups: int
    taps: int
    bias: bool = False
    conv_bias: bool = True
    width: int | None = None

    def __post_init__(self) -> None:
        if self.heads % self.groups:
            raise GraphError(f"{self.heads} heads of a mixer do not share {self.groups} groups")


def causal_conv(g: GraphBuilder, x: Value, name: str, taps: int, bias: bool = False) -> Value:
    """Each channel's last `taps` values, x's own included, times the channel's taps, n c."""
    channels = _width(x, name)
    weights = [g.weight(f"{name}.weight", channels, 1, taps)]
    if bias:
        weights.append(g.weight(f"{name}.bias", channels))
    return g.apply(
        "causal_conv_bias" if bias else "causal_conv",
        [x],
        weights,
        role=Role.MIXER_SCAN,
        state=g.state(f"{name}.inputs", RECURRENT, channels, taps - 1),
    )


def split(g: GraphBuilder, x: Value, widths: Sequence[int]) -> tuple[Value, ...]:
    """x cut into columns of these widths."""
    starts = [sum(widths[:i]) for i in range(len(widths))]
    return tuple(
        g.columns(x, start, start + width) for start, width in zip(starts, widths, strict=True)
    )


def mamba1(g: GraphBuilder, x: Value, name: str, size: SelectiveScan) -> Value:
    """A selective scan with its projections and gate, n d.

    Source: arXiv:2312.00752 section 3.4, figure 3.
    """
    c, z = size.channels, size.state
    both = g.linear(x, f"{name}.in_proj", 2 * c, Role.MIXER_IN, size.bias)
    inner, gate = split(g, both, (c, c))  # n c each
    inner = causal_conv(g, inner, f"{name}.conv1d", size.taps, size.conv_bias)
    inner = g.apply("silu", [inner])
    chosen = g.linear(inner, f"{name}.x_proj", size.rank + 2 * z, Role.MIXER_IN)
    parts = split(g, chosen, (size.rank, z, z))
    step, write, read = (
        _normed(g, part, f"{name}.{kind}_layernorm", size)
        for part, kind in zip(parts, ("dt", "b", "c"), strict=True)
    )
    step = g.linear(step, f"{name}.dt_proj", c, Role.MIXER_IN, bias=True)
    y = g.apply(
        "selective_scan",
        [inner, g.apply("softplus", [step]), write, read],
        [g.weight(f"{name}.A_log", c, z), g.weight(f"{name}.D", c)],
        role=Role.MIXER_SCAN,
        state=g.state(f"{name}.scan", RECURRENT, c, z),
    )
    y = g.silu_multiply(gate, y)
    return g.linear(y, f"{name}.out_proj", g.config.hidden_size, Role.MIXER_OUT, size.bias)


def mamba2(g: GraphBuilder, x: Value, name: str, size: StateSpace) -> Value:
    """A scan with one decay a head, with its projections, gate and norm, n d.

    Source: arXiv:2405.21060 section 7.1, figure 6.
    """
    m, z = size.heads, size.groups * size.state
    c = m * size.head
    whole = g.linear(x, f"{name}.in_proj", 2 * c + 2 * z + m, Role.MIXER_IN, size.bias)
    gate, inner, step = split(g, whole, (c, c + 2 * z, m))
    inner = causal_conv(g, inner, f"{name}.conv1d", size.taps, size.conv_bias)
    inner, write, read = split(g, g.apply("silu", [inner]), (c, z, z))
    bias = g.weight(f"{name}.dt_bias", m)
    step = g.apply("softplus_bias", [step], [bias], role=Role.MIXER_SCAN)  # n m
    kept = g.state(f"{name}.scan", RECURRENT, m, size.head, size.state)
    y = g.apply(
        "state_space_scan",
        [g.heads(inner, size.head), step, write, read],
        [g.weight(f"{name}.A_log", m), g.weight(f"{name}.D", m)],
        role=Role.MIXER_SCAN,
        state=replace(kept, width=size.width),
        given={"q": size.groups},
    )
    y = g.silu_multiply(gate, g.flat(y))
    gain = g.weight(f"{name}.norm.weight", c)
    y = g.apply("group_rms_norm", [y], [gain], eps=g.config.norm_eps, groups=size.groups)
    return g.linear(y, f"{name}.out_proj", g.config.hidden_size, Role.MIXER_OUT, size.bias)


def short_conv(g: GraphBuilder, x: Value, name: str, taps: int, bias: bool = False) -> Value:
    """A short convolution between two gates, n d: out(C × conv(B × x)).

    Source: arXiv:2511.23404 section 2.
    """
    d = g.config.hidden_size
    write, read, inner = split(
        g, g.linear(x, f"{name}.in_proj", 3 * d, Role.MIXER_IN, bias), (d, d, d)
    )
    y = causal_conv(g, g.apply("multiply", [write, inner]), f"{name}.conv", taps, bias)
    y = g.apply("multiply", [read, y])
    return g.linear(y, f"{name}.out_proj", d, Role.MIXER_OUT, bias)


def _normed(g: GraphBuilder, x: Value, name: str, size: SelectiveScan) -> Value:
    if size.norms == "none":
        return x
    if size.norms == "gain":
        return g.rms_norm(x, name)
    return g.apply("plain_rms_norm", [x], eps=size.eps)


def _width(x: Value, name: str) -> int:
    width = x.shape[-1]
    if not isinstance(width, int):
        raise GraphError(f"{name}: its input has no fixed width")
    return width
