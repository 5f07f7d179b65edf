"""The fused steps of a pass: plain data, from which a program is made.

Each step keeps the numbers of the graph nodes that it stands for, so that the time that it takes
can be shown beside their counted work.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from forwardpass.backends.slots import View
from forwardpass.graph.graph import Value
from forwardpass.rope import Rope


@dataclass(frozen=True)
class Rows:
    """Rows `start` to `stop` of a weight: of a table, or of a vector's elements."""

    weight: str
    start: int
    stop: int


@dataclass(frozen=True)
class Turning:
    """How rope turns: its angles, of `dims` elements, divided by a stored vector where named."""

    rope: Rope
    dims: int
    factors: str | None


@dataclass(frozen=True)
class RowOp:
    """What is done to one row; `kind` and the other fields as in csrc/program.h."""

    kind: str
    node: int
    a: View | None = None
    b: View | None = None
    out: View | None = None
    width: int = 0
    heads: int = 1
    weight: str | None = None
    bias: str | None = None
    number: float = 0.0
    offset: int = 0
    table: Rows | None = None
    rope: int = -1
    state: int = -1
    pairs: int = 0
    interleaved: bool = False


@dataclass(frozen=True)
class RowStep:
    """Operations on one row after another, without waiting in between."""

    ops: tuple[RowOp, ...]
    wanted: bool
    nodes: tuple[int, ...]


@dataclass(frozen=True)
class Sums:
    """The sums of one product, and what is done to them before they are stored."""

    table: Rows
    up: Rows | None = None
    bias: Rows | None = None
    up_bias: Rows | None = None
    residual: View | None = None
    gate: str = "none"
    act: str = "none"
    cap: float = 0.0


@dataclass(frozen=True)
class Segment:
    """One product of a linear step, and where its results go.

    `quantize`: products read them. `floats`: something else does.
    """

    node: int
    sums: Sums
    out: View
    quantize: bool = False
    floats: bool = True


@dataclass(frozen=True)
class LinearStep:
    """Products of one input with one or more tables."""

    input: View
    segments: tuple[Segment, ...]
    wanted: bool
    nodes: tuple[int, ...]


@dataclass(frozen=True)
class AttentionStep:
    """Each query's mix of the values that it sees in the state of that number."""

    node: int
    q: View
    out: View
    state: int
    heads: int
    groups: int
    width: int
    scale: float
    softcap: float
    window: int
    slopes: tuple[float, ...]
    quantize: bool
    nodes: tuple[int, ...]
    wanted: bool = False


@dataclass(frozen=True)
class HostStep:
    """A node without a kernel: its reference is run on the rows between two parts of the program.

    `inputs` are the node's values, in its order.
    """

    node: int
    inputs: tuple[View, ...]
    out: View
    wanted: bool
    nodes: tuple[int, ...]


Step = RowStep | LinearStep | AttentionStep | HostStep


@dataclass(frozen=True)
class Plan:
    """The steps of a pass, in order; those of wanted rows are the last.

    `states`: groups and width of the keys and values that a layer keeps. `ropes`: the ways to turn,
    in the order of their numbers.
    """

    steps: tuple[Step, ...]
    states: tuple[tuple[int, int], ...]
    ropes: tuple[Turning, ...]
    logits: Value
    fallbacks: tuple[int, ...] = field(default=())

    @property
    def common(self) -> int:
        """How many steps there are before the first of wanted rows."""
        return sum(not step.wanted for step in self.steps)
