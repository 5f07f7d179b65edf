"""`Graph`: a flat list of ops over named values.

An architecture is written once as such a list. Counting reads it with sizes and no weights,
running reads it with weights; nothing else knows what a family is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from fractions import Fraction
from math import prod

from forwardpass.config import ModelConfig
from forwardpass.graph.axes import Dim, Shape
from forwardpass.graph.op import Op
from forwardpass.rope import Rope

Attribute = int | float | str | Rope | tuple[float, ...] | None


class Role(StrEnum):
    """What a node's work counts as; the order is the order of a pass."""

    EMBEDDING = "embedding"
    QKV = "attention.qkv"
    READ = "attention.read"
    ATTENTION_OUTPUT = "attention.output"
    MIXER_IN = "mixer.in"
    MIXER_SCAN = "mixer.scan"
    MIXER_OUT = "mixer.out"
    MLP_ROUTER = "mlp.router"
    MLP_UP = "mlp.up"
    MLP_DOWN = "mlp.down"
    HEAD = "head"
    OTHER = "other"


_SPECIAL = {Role.MIXER_IN, Role.MIXER_SCAN, Role.MIXER_OUT, Role.MLP_ROUTER}


@dataclass(frozen=True)
class Value:
    """An intermediate result: its place in the list of values, and its shape."""

    index: int
    shape: Shape


@dataclass(frozen=True)
class Weight:
    """A tensor that the graph reads, under its checkpoint name."""

    name: str
    shape: tuple[int, ...]

    @property
    def elements(self) -> int:
        return prod(self.shape)


KV, LATENT, RECURRENT = "kv", "latent", "recurrent"  # kinds of states


@dataclass(frozen=True)
class State:
    """What a sequence keeps between passes.

    `kv` and `latent`: one row of `shape` a token; `recurrent`: `shape` once, however many tokens
    there are. With a `window` only that many rows are ever visible again. A state that is
    `shared_with` another is that one: keys and values of a latent row are both made from it.
    `width`: bytes of an element, where the config says how it is kept. `selected`: the most rows
    that a token reads, whichever they are. `again`: one that an earlier layer keeps, and this one
    reads too.
    """

    name: str
    kind: str
    shape: tuple[int, ...]
    layer: int
    window: int | None = None
    shared_with: str | None = None
    width: int | None = None
    selected: int | None = None
    again: bool = False

    @property
    def reach(self) -> int | None:
        """The most of its rows that one token reads."""
        return min((end for end in (self.window, self.selected) if end is not None), default=None)

    @property
    def elements_per_token(self) -> int:
        """Elements that one more token adds."""
        return 0 if self.kind == RECURRENT or self.shared_with else prod(self.shape)

    @property
    def elements_per_sequence(self) -> int:
        """Elements that a sequence keeps whatever its length."""
        return prod(self.shape) if self.kind == RECURRENT and not self.shared_with else 0


@dataclass(frozen=True)
class Node:
    """One op applied: to values, then weights; what it makes; whose work it is."""

    op: Op
    inputs: tuple[Value, ...]
    weights: tuple[Weight, ...]
    attributes: Mapping[str, Attribute]
    sizes: Mapping[str, Dim]
    output: Value
    role: Role
    layer: int | None
    state: State | None = None

    @property
    def reach(self) -> int | None:
        """The most keys that a query of this node reads: its window, or what is selected."""
        ends = (self.attributes.get("window"), self.attributes.get("selected"))
        return min((end for end in ends if isinstance(end, int)), default=None)

    @property
    def name(self) -> str:
        """Where the node is, for messages: `layer 3, linear model.layers.3.mlp.up_proj.weight`."""
        place = "" if self.layer is None else f"layer {self.layer}, "
        return place + " ".join([self.op.name, *(w.name for w in self.weights[:1])])


@dataclass(frozen=True)
class Graph:
    """One architecture with the sizes of one config.

    `tokens`, `positions` (n each) and `rows` (r) are the inputs; `logits` (r v) is the output.
    `weights` are in the order of first use; a tied table occurs once. What is not `proven` is
    counted and never run: nothing has held its logits to another implementation's.
    """

    config: ModelConfig
    nodes: tuple[Node, ...]
    tokens: Value
    positions: Value
    rows: Value
    logits: Value
    weights: Mapping[str, Weight] = field(default_factory=dict)
    proven: bool = True

    @property
    def states(self) -> tuple[State, ...]:
        """Every state of a sequence, in the order of the layers."""
        return tuple(node.state for node in self.nodes if node.state is not None)

    @property
    def roles(self) -> tuple[Role, ...]:
        """The roles to show: those of every dense model, and what else occurs."""
        here = {node.role for node in self.nodes}
        return tuple(role for role in Role if role in here or role not in _SPECIAL)

    @property
    def counted_only(self) -> tuple[str, ...]:
        """Names of its ops that no backend computes yet."""
        return tuple(dict.fromkeys(node.op.name for node in self.nodes if node.op.counted_only))

    @property
    def experts(self) -> Mapping[str, Fraction]:
        """Weights with a row for each expert -> the share of it that one token reads."""
        found: dict[str, Fraction] = {}
        for node in self.nodes:
            if node.op.experts:
                chosen = node.sizes["k"]
                assert isinstance(chosen, int)
                found |= {w.name: Fraction(chosen, w.shape[0]) for w in node.weights}
        return found

    @property
    def parameters(self) -> tuple[Weight, ...]:
        """The weights that were learned: all but the constants that a file happens to store."""
        constant = {w.name for node in self.nodes if node.op.constant for w in node.weights}
        return tuple(w for w in self.weights.values() if w.name not in constant)

    @property
    def tables(self) -> frozenset[str]:
        """Names of the weights that are multiplied with rows, or that rows are looked up in."""
        return frozenset(node.weights[0].name for node in self.nodes if node.op.table)

    @property
    def embedding_only(self) -> tuple[Weight, ...]:
        """Tables that are looked up and never multiplied."""
        multiplied = {w.name for node in self.nodes if not node.op.lookup for w in node.weights}
        return tuple(w for w in self.weights.values() if w.name not in multiplied)
