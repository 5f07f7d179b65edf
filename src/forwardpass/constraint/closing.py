"""The way out of every state: a short text that completes it, always valid.

The base of closing in time. `values.py` has the texts; here they are put together along the stack
of a position and the script around it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace

from forwardpass.constraint.comparing import Comparable, comparable
from forwardpass.constraint.frames import (
    LISTED,
    Around,
    At,
    Awaited,
    Doubt,
    Frame,
    InArray,
    InLiteral,
    InName,
    InNumber,
    InObject,
    InString,
    InWord,
    InWords,
    Phase,
    Popped,
    Position,
)
from forwardpass.constraint.lang import Lang
from forwardpass.constraint.machine import UNKNOWN, Machine
from forwardpass.constraint.names import some_name
from forwardpass.constraint.plans import Node, ObjectPlan
from forwardpass.constraint.scripts import Control, Edge, Literal, Point, Value, points
from forwardpass.constraint.values import Measure, Parts, Values, quoted, some

_FEW = 16
Piece = bytes | int  # a text, or a control token by its id
_Way = tuple[int, tuple[Piece, Point] | None]


class Closer(Values):
    """Short completions for all states of a grammar."""

    def __init__(
        self, machine: Machine, nodes: list[Node], start: Point, measure: Measure = len
    ) -> None:
        super().__init__(machine, nodes, measure)
        self._largest: dict[ObjectPlan, int] = {}
        self._ways = self._shortest_ways(points(start))

    def rest(self, position: Position) -> list[Piece]:
        """What completes the text: texts, and control tokens where the script has them.

        Of a position with a hole in its stack, what leads to the hole.
        """
        frame, text = position
        if isinstance(frame, At | InLiteral | InWords):
            left, point = self._before(frame)
            return [left, *self.way(point)] if left else self.way(point)
        if isinstance(frame, Popped | Doubt):
            return []
        out, around = self._leaf(frame, text)
        while isinstance(around, InArray | InObject):
            if isinstance(around, InArray) and around.plan.unique:
                item: Comparable = UNKNOWN
                if text is not None:
                    item = comparable(text[around.start :] + b"".join(out))
                around = replace(around, seen=around.seen | {item})
            out, around = self._ended(around, text, out)
        return [*out, *self.way(around)] if isinstance(around, Point) else [*out]

    def total(self, position: Position) -> int:
        """The size of what completes a position, in the measure of this closer: an upper bound, as
        the parts of it are measured each by itself."""
        return sum(1 if isinstance(p, int) else self.size(p) for p in self.rest(position))

    def cost(self, frame: Frame) -> int:
        """The same for a position that keeps no text."""
        return self.total((frame, None))

    def naming(self, frame: InObject) -> int:
        """At most so much completes an object behind one more name."""
        plan = frame.plan
        if plan.simple:
            size = self._largest.get(plan)
            if size is None:
                size = self._largest[plan] = max(map(self._member, _nodes_of(plan)), default=0)
            return size + self._sum(self._closing(replace(frame, phase=Phase.AFTER)))
        names = [w for k, lang in self.machine.names.languages_of(frame) for w in _some_of(k, lang)]
        taken = [one for name in names for one in self.machine.names.taken(frame, name)]
        return max((self._sum(self._ended(one, None, ())[0]) for one in taken), default=0)

    def margin(self, around: InArray) -> int:
        """What it may cost more to make the open item differ from those before it."""
        nodes = [option.node for option in around.plan.at(around.index - 1)]
        longer = (self.container(node, len(around.seen) + 2) for node in nodes)
        return max((self.size(text) for text in longer if text is not None), default=0)

    def _sum(self, parts: Parts) -> int:
        return sum(map(self.size, parts))

    def _member(self, node: Node) -> int:
        """The size of a colon and a value."""
        return self.size(b":" + some(self.value(node)))

    # ---- along the stack ---------------------------------------------------------------

    def _leaf(self, frame: Frame, text: bytes | None) -> tuple[Parts, Around]:
        """What brings the innermost open thing to its end, and what is around it."""
        if isinstance(frame, InString):
            return (self.string(frame.state),), frame.around
        if isinstance(frame, InNumber):
            return (self.machine.numerals.finish(frame.state),), frame.around
        if isinstance(frame, InWord):
            return (frame.left,), frame.around
        if isinstance(frame, Awaited):
            around = frame.around
            if isinstance(around, InArray) and around.plan.unique:
                return (some(self.unlike(frame.node, around.seen)),), around
            return (some(self.value(frame.node)),), around
        if isinstance(frame, InName):
            return self._named(frame, text)
        assert isinstance(frame, InArray | InObject)
        return self._ended(frame, text, ())

    def _named(self, frame: InName, text: bytes | None) -> tuple[Parts, Around]:
        """The rest of a name and of its object, and what is around that."""
        lang = self.machine.strings.lang(frame.state)
        few = lang is not None and 0 < len(lang.words) <= _FEW
        rests = [quoted(word)[1:] for word in lang.words] if lang is not None and few else []
        best: tuple[int, Parts, Around] | None = None
        for name in rests or [self.string(frame.state)]:
            for one in self.machine.names.taken(frame.around, json.loads(frame.raw + name)):
                rest, around = self._ended(one, text, (name,))
                size = self._sum(rest)
                if best is None or size < best[0]:
                    best = size, rest, around
        return some(best)[1:]

    def _ended(
        self, frame: InArray | InObject, text: bytes | None, before: Parts
    ) -> tuple[Parts, Around]:
        """`before` with what closes an array or object, and what is around that.

        Where it is an item that must differ from others, it is made longer until it does.
        """
        around = frame.around
        if isinstance(frame, InObject) and frame.phase == Phase.NAMED:
            before = (*before, b":" + some(self.value(some(frame.value))))
        if frame.phase in (Phase.INSIDE, Phase.NAMED):
            frame = replace(frame, phase=Phase.AFTER)
        whole = before + self._closing(frame)
        if isinstance(around, InArray) and around.plan.unique and text is not None:
            extra, begun = 0, text[around.start :]
            while comparable(begun + b"".join(whole)) in around.seen:
                extra += 1
                whole = before + self._closing(frame, extra)
        return whole, around

    def _closing(self, frame: InArray | InObject, extra: int = 0) -> Parts:
        if isinstance(frame, InArray):
            return some(self.array(frame, extra))
        return some(self.object(frame, extra))

    # ---- the script --------------------------------------------------------------------

    def way(self, point: Point) -> list[Piece]:
        """The shortest way from a point of the script to an end."""
        out: list[Piece] = []
        while (step := self._ways[point][1]) is not None:
            piece, point = step
            out.append(piece)
        return out

    def way_cost(self, point: Point) -> int:
        """The size of the shortest way from a point of the script to an end."""
        return self._ways[point][0]

    def _shortest_ways(self, found: list[Point]) -> dict[Point, _Way]:
        ways: dict[Point, _Way] = {point: (0, None) for point in found if point.final}
        improved = True
        while improved:
            improved = False
            for point in reversed(found):
                for edge in point.edges:
                    piece = self._piece(edge)
                    if piece is None or edge.to not in ways:
                        continue
                    size = 1 if isinstance(piece, int) else self.size(piece)
                    size += ways[edge.to][0]
                    if point not in ways or size < ways[point][0]:
                        ways[point] = size, (piece, edge.to)
                        improved = True
        return ways

    def _piece(self, edge: Edge) -> Piece | None:
        if isinstance(edge, Control):
            return edge.token
        if isinstance(edge, Literal):
            return edge.text
        if isinstance(edge, Value):
            return self.value(edge.node)
        word = self.machine.search.shortest(edge.lang)
        return None if word is None else word.encode()

    def _before(self, frame: At | InLiteral | InWords) -> tuple[bytes, Point]:
        """What is left to write before the next point, and the point."""
        if isinstance(frame, At):
            return b"", frame.point
        if isinstance(frame, InLiteral):
            return frame.left, frame.to
        return self.text(self.machine.plain, frame.state), frame.to


def _some_of(kind: int, names: Lang) -> tuple[str, ...]:
    """All listed names, or one for all of a kind."""
    return names.words if kind == LISTED else (some_name(kind),)


def _nodes_of(plan: ObjectPlan) -> Iterator[Node]:
    """What the values of an object's members may be, where any is valid."""
    options = (*plan.options, *(one.options for one in plan.others))
    return (option.node for one in options for option in one if option.node.alive)
