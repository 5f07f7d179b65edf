"""What the machine needs at each value: the form of it, taken apart into what may come when.

A `Node` is a value; an `ArrayPlan` or `ObjectPlan` one conjunction of it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from forwardpass.constraint.expressions import Expr
from forwardpass.constraint.forms import Arrays, Form, Objects
from forwardpass.constraint.lang import Lang

MANY = 1 << 40  # a count that stands for no limit
Counts = tuple[int, ...]


@dataclass(slots=True, eq=False)
class Node:
    """A value. `alive` says whether any value is valid."""

    expr: Expr
    form: Form
    arrays: list[ArrayPlan] = field(default_factory=list)
    objects: list[ObjectPlan] = field(default_factory=list)
    alive: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Option:
    """One way to fill an item or a member: the value, and which obligations it counts for."""

    node: Node
    counts: Counts


@dataclass(slots=True, eq=False)
class ArrayPlan:
    """The arrays of one conjunction; `options[i]` for item i, the last for all later ones."""

    arrays: Arrays
    options: list[list[Option]]
    high: int = MANY
    least: Counts = ()
    most: Counts = ()

    @property
    def unique(self) -> bool:
        return self.arrays.unique

    @property
    def settled(self) -> int:
        """The index from which on nothing hangs on how large it is."""
        low = self.arrays.low
        return max(len(self.options) - 1, low) if self.high == MANY else MANY

    def at(self, index: int) -> list[Option]:
        options = self.options[min(index, len(self.options) - 1)]
        return [option for option in options if option.node.alive]


@dataclass(slots=True, eq=False)
class Others:
    """The names that are not written in the schema and what their values may be."""

    names: Lang
    options: list[Option]
    capacity: int


@dataclass(slots=True, eq=False)
class ObjectPlan:
    """The objects of one conjunction: named members in order, then all others by their kind."""

    objects: Objects
    names: list[str]
    options: list[list[Option]]
    required: int  # a bit for each name
    others: list[Others]
    least: Counts = ()
    most: Counts = ()
    keys: dict[object, tuple[tuple[int, Lang], ...]] = field(default_factory=dict)
    index: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.index = {name: i for i, name in enumerate(self.names)}

    @property
    def simple(self) -> bool:
        """Whether nothing is counted, so that it can be completed as long as names are kept."""
        return not self.least and self.objects.high is None and self.objects.low == 0
