"""The stack of a position in a JSON text: one frame for each value that is open.

Frames are immutable, share what is around them, and are kept in one table (`Frames`), so that equal
ones are one object and a deep stack costs no more than a shallow one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from enum import IntEnum
from operator import attrgetter
from typing import TypeVar

from forwardpass.constraint.plans import ArrayPlan, Counts, Node, ObjectPlan
from forwardpass.constraint.scripts import Point

LISTED = -1  # the kind of a name that the schema lists


class Phase(IntEnum):
    """Where an open array or object stands."""

    OPENED = 0
    INSIDE = 1  # a value in it is open
    AFTER = 2  # after a value
    COMMA = 3
    NAMED = 4  # after a name


@dataclass(frozen=True, slots=True, eq=False)
class Awaited:
    """A value that has not begun; so many blanks may still come before it."""

    node: Node
    blanks: int
    around: Around


@dataclass(frozen=True, slots=True, eq=False)
class InString:
    state: int
    around: Around


@dataclass(frozen=True, slots=True, eq=False)
class InNumber:
    state: int
    around: Around


@dataclass(frozen=True, slots=True, eq=False)
class InWord:
    """The rest of `true`, `false` or `null`."""

    left: bytes
    around: Around


@dataclass(frozen=True, slots=True, eq=False)
class InArray:
    """`index` items have begun; `seen` are those so far where all must differ.

    `start` is where the open item begins in the text that is kept for that. From where nothing
    hangs on the index any more it stays what it is.
    """

    plan: ArrayPlan
    phase: Phase
    index: int
    counts: Counts
    blanks: int
    around: Around
    seen: frozenset[tuple[str, object]] = frozenset()
    start: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class InObject:
    """`mask` has a bit for each name written, `others` are the names that are not listed.

    `value` is what the value of the last name may be, between its name and the colon.
    """

    plan: ObjectPlan
    phase: Phase
    mask: int
    others: frozenset[str]
    counts: Counts
    blanks: int
    around: Around
    value: Node | None = None


@dataclass(frozen=True, slots=True, eq=False)
class InName:
    """A name, as far as it is written, with its opening quote: a listed one, or of which kind of
    others."""

    state: int
    raw: bytes
    around: InObject
    kind: int


@dataclass(frozen=True, slots=True, eq=False)
class At:
    """At a point of the script; so many blanks may still come where a value has just ended."""

    point: Point
    blanks: int


@dataclass(frozen=True, slots=True, eq=False)
class InLiteral:
    """The rest of a literal of the script."""

    left: bytes
    to: Point


@dataclass(frozen=True, slots=True, eq=False)
class InWords:
    """In a text of the script that is written as it is."""

    state: int
    to: Point


@dataclass(frozen=True, slots=True, eq=False)
class Hole:
    """Stands for whatever is around, where a part of the stack is looked at by itself."""


@dataclass(frozen=True, slots=True, eq=False)
class Popped:
    """After the part that stood in the hole."""


@dataclass(frozen=True, slots=True, eq=False)
class Doubt:
    """After an item that must differ from others which are not known here."""


HOLE = Hole()
Around = InArray | InObject | Point | Hole
Frame = (
    Awaited | InString | InNumber | InWord | InArray | InObject | InName
    | At | InLiteral | InWords | Popped | Doubt
)  # fmt: skip
# `text`: what was written since the outermost array began whose items must differ.
Position = tuple[Frame, bytes | None]

F = TypeVar("F", bound=Frame)
_KINDS = (
    Awaited, InString, InNumber, InWord, InArray, InObject, InName, At, InLiteral, InWords
)  # fmt: skip
_FACTS: dict[type, Callable[[object], object]] = {
    kind: attrgetter(*(field.name for field in fields(kind))) for kind in _KINDS
} | {kind: lambda _: None for kind in (Popped, Doubt)}


class Frames:
    """The table of frames. Where it is emptied, equal frames may be two: only slower."""

    def __init__(self, most: int = 200_000) -> None:
        self.most = most
        self._table: dict[object, Frame] = {}

    def same(self, frame: F) -> F:
        """The frame itself, or the equal one that is known."""
        kind = type(frame)
        known = self._table.setdefault((kind, _FACTS[kind](frame)), frame)
        if len(self._table) > self.most:
            self._table.clear()
        assert isinstance(known, kind)
        return known
