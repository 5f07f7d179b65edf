"""Scripts: what stands around values, and between them: literal text, free text, control tokens.

A script is a graph of points. Each edge writes something and leads to the next point; a text may
end at a point that is `final`. A schema alone is a script of one value; a tool call is its wrapper,
a name and a value; a choice is a point with several edges.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from forwardpass.constraint.lang import Lang
from forwardpass.constraint.plans import Node


@dataclass(slots=True, eq=False)
class Point:
    """A place in a script: what may come next, and whether the text may end here."""

    edges: list[Edge] = field(default_factory=list)
    final: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Literal:
    """Exactly these bytes (one at least)."""

    text: bytes
    to: Point


@dataclass(frozen=True, slots=True, eq=False)
class Control:
    """One control token, by its id. No text can stand for it."""

    token: int
    to: Point


@dataclass(frozen=True, slots=True, eq=False)
class Value:
    """A JSON value. `place` names the schema that it is under (a tool, say) for those who ask."""

    node: Node
    to: Point
    place: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class Words:
    """A text of a language, written as it is (UTF-8, nothing escaped)."""

    lang: Lang
    to: Point
    place: str = ""


Edge = Literal | Control | Value | Words


def ending() -> Point:
    """A point at which the text ends."""
    return Point(final=True)


def single(node: Node) -> Point:
    """The script of one value and nothing else."""
    return Point([Value(node, ending())])


def points(start: Point) -> list[Point]:
    """All points that can be reached, each once, the start first."""
    found, waiting = {start: None}, [start]
    while waiting:
        for edge in waiting.pop().edges:
            if edge.to not in found:
                found[edge.to] = None
                waiting.append(edge.to)
    return list(found)
