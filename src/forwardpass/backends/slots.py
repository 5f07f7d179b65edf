"""Where the values of a pass live: views of other values, and slots that several values share.

A value is a table of a row a token (or a row a wanted token). `columns`, `heads` and `flat` move
nothing, so their values are views of the value that they look at. A value needs its slot from the
step that makes it to the last one that reads it; values of one width then take turns.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import prod

from forwardpass.errors import GraphError
from forwardpass.graph.graph import Graph, Value

VIEWS = frozenset({"columns", "heads", "flat"})


@dataclass(frozen=True)
class View:
    """Columns of a value that has a slot, from `column` on."""

    value: Value
    column: int = 0


@dataclass(frozen=True)
class Use:
    """What happens at once: values that are read, and values that are made meanwhile."""

    reads: tuple[Value, ...]
    makes: tuple[Value, ...]


@dataclass(frozen=True)
class Slots:
    """The slot of each value, and of each slot its width and whether it has wanted rows only."""

    of: Mapping[Value, int]
    slots: tuple[tuple[int, bool], ...]


def row_width(value: Value) -> int:
    """Elements of a row."""
    sizes = [size for size in value.shape[1:] if isinstance(size, int)]
    if len(sizes) != len(value.shape) - 1:
        raise GraphError(f"a value of shape {value.shape} has no rows of a fixed width")
    return prod(sizes)


def is_wanted(value: Value) -> bool:
    """Whether it has a row for each wanted row instead of each token."""
    return value.shape[0] == "r"


def views(graph: Graph) -> dict[Value, View]:
    """Each value as columns of a value that has a slot."""
    found: dict[Value, View] = {
        value: View(value) for value in (graph.tokens, graph.positions, graph.rows)
    }
    for node in graph.nodes:
        made = View(node.output)
        if node.op.name in VIEWS:
            seen = found[node.inputs[0]]
            start = node.attributes.get("start", 0)
            assert isinstance(start, int)
            made = View(seen.value, seen.column + start)
        found[node.output] = made
    return found


def assign(uses: Sequence[Use], kept: Iterable[Value]) -> Slots:
    """A slot for each value, none of them shared by two that are needed at once.

    What is made never takes the slot of what is read meanwhile. `kept` are read after the last.
    """
    last: dict[Value, int] = {}
    for number, use in enumerate(uses):
        for value in (*use.makes, *use.reads):
            last[value] = number
    last.update(dict.fromkeys(kept, len(uses)))
    slots: list[tuple[int, bool]] = []
    free: dict[tuple[int, bool], list[int]] = {}
    of: dict[Value, int] = {}
    for number, use in enumerate(uses):
        for value in use.makes:
            if value in of:
                raise GraphError(f"value {value.index} is made twice")
            kind = (row_width(value), is_wanted(value))
            if free.get(kind):
                of[value] = free[kind].pop()
            else:
                of[value] = len(slots)
                slots.append(kind)
        for value in dict.fromkeys((*use.makes, *use.reads)):
            if last[value] == number:
                free.setdefault((row_width(value), is_wanted(value)), []).append(of[value])
    return Slots(of, tuple(slots))
