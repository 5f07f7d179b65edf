"""The way out of every state: a short text that completes it, always valid.

The base of closing in time. A value's shortest text is found for all values at once, by letting
each improve on what its parts have until nothing changes. The result is the least, in the measure
that is given (bytes, or tokens of a vocabulary), where an object or array counts nothing but its
members (no contains, uniqueItems or negated patterns); elsewhere it is short, and valid all the
same.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from decimal import Decimal
from typing import TypeVar

from forwardpass.constraint.frames import (
    HOLE,
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
from forwardpass.constraint.machine import Machine, array_done, comparable, object_done
from forwardpass.constraint.plans import Counts, Node
from forwardpass.constraint.room import reached, zeros
from forwardpass.constraint.scripts import Control, Edge, Literal, Point, Value, points
from forwardpass.constraint.strings import CLOSED, DEAD, Plain, Strings

# Bytes in the order in which they are tried to get out of a half-written character.
_OUT_OF_CHARACTER = b'\\u"/bfnrt0123456789abcdefABCDEF' + bytes(range(0x80, 0xC0))
_MOST_SIZES = 50_000
Piece = bytes | int  # a text, or a control token by its id
Measure = Callable[[bytes], int]
Seen = frozenset[tuple[str, object]]
_Way = tuple[int, tuple[Piece, Point] | None]


class Closer:
    """Short completions for all values of a grammar, and for what stands around them."""

    def __init__(
        self, machine: Machine, nodes: list[Node], start: Point, measure: Measure = len
    ) -> None:
        self.machine, self.measure = machine, measure
        self._texts: dict[Node, bytes] = {}
        self._sizes: dict[bytes, int] = {}
        self._planned = set(nodes)
        alive = [node for node in nodes if node.alive]
        for node in alive:
            self._improve(node, self._scalar(node))
        waiting = [node for node in reversed(alive) if node.arrays or node.objects]
        improved = True
        while improved:
            improved = False
            for node in waiting:
                improved |= self._improve(node, self._container(node))
        self._ways = self._shortest_ways(points(start))

    def size(self, text: bytes) -> int:
        """The size of a text in the measure of this closer."""
        found = self._sizes.get(text)
        if found is None:
            if len(self._sizes) > _MOST_SIZES:
                self._sizes.clear()
            found = self._sizes[text] = self.measure(text)
        return found

    def _improve(self, node: Node, text: bytes | None) -> bool:
        known = self._texts.get(node)
        if text is None or (known is not None and self.size(known) <= self.size(text)):
            return False
        self._texts[node] = text
        return True

    def value(self, node: Node) -> bytes | None:
        """A short text of a value, or None where none is known (yet)."""
        known = self._texts.get(node)
        if known is None and node not in self._planned:
            # A value made on the way: one that must differ from others.
            known = self._scalar(node) or self._container(node)
        return known

    def _scalar(self, node: Node) -> bytes | None:
        form, machine = node.form, self.machine
        found = [b"null"] if form.null else []
        found += [b"true" if value else b"false" for value in form.booleans]
        word = machine.search.shortest(form.texts)
        if word is not None:
            found.append(_quoted(word))
        for numbers in form.numbers:
            found.append(machine.numerals.finish(machine.numerals.start(numbers)))
        return min(found, key=self.size, default=None)

    def _container(self, node: Node, extra: int = 0) -> bytes | None:
        found = []
        for plan in node.arrays:
            frame = InArray(plan, Phase.OPENED, 0, zeros(plan.least), 0, HOLE)
            found.append(self._array(frame, extra))
        for obj in node.objects:
            none: frozenset[str] = frozenset()
            start = InObject(obj, Phase.OPENED, 0, none, zeros(obj.least), 0, HOLE)
            found.append(self._object(start, extra))
        opened = [
            (b"[" if i < len(node.arrays) else b"{") + rest
            for i, rest in enumerate(found)
            if rest is not None
        ]
        return min(opened, key=self.size, default=None)

    # ---- the rest of an array or object ------------------------------------------------

    def _array(self, frame: InArray, extra: int = 0) -> bytes | None:
        """From where an array stands, between two items, to its closing bracket.

        `extra`: how many items more than it needs.
        """
        plan, phase, parts = frame.plan, frame.phase, list[bytes]()
        while (phase == Phase.COMMA and not parts) or not array_done(frame) or extra:
            extra -= bool(extra and array_done(frame))
            tried = []
            for node, counts in self.machine.items(frame):
                text = self._unlike(node, frame.seen) if plan.unique else self.value(node)
                if text is not None:
                    idle = not _nearer(frame.counts, counts, plan.least)
                    tried.append((idle, self.size(text), text, counts))
            if not tried:
                return None
            _, _, text, counts = min(tried)
            seen = frame.seen
            if plan.unique:
                seen |= {_comparable(text)}
            frame = replace(frame, index=frame.index + 1, counts=counts, seen=seen)
            parts.append(text)
        return _closed(phase, parts, b"]")

    def _unlike(self, node: Node, seen: Seen) -> bytes | None:
        """A text of a value that is none of those seen; lists and objects are made longer."""
        text = self.value(node)
        for extra in range(1, len(seen) + 2):
            if text is None or _comparable(text) not in seen:
                break
            text = self._container(node, extra)
        return text

    def _object(self, frame: InObject, extra: int = 0) -> bytes | None:
        """From where an object stands, between two members, to its closing brace."""
        plan, phase, parts = frame.plan, frame.phase, list[bytes]()
        while (forced := phase == Phase.COMMA and not parts) or not object_done(frame) or extra:
            spare = bool(extra and object_done(frame))
            extra -= spare
            tried: list[tuple[bool, int, bytes, int, InObject]] = []
            for name in self._names(frame, forced=forced or spare):
                for taken in self.machine.names.taken(frame, name):
                    text = None if taken.value is None else self.value(taken.value)
                    if text is not None:
                        member = _quoted(name) + b":" + text
                        idle = not _nearer(frame.counts, taken.counts, plan.least)
                        idle &= taken.mask & plan.required == frame.mask & plan.required
                        tried.append((idle, self.size(member), member, len(tried), taken))
            if not tried:
                return None
            _, _, member, _, taken = min(tried)
            frame = replace(taken, value=None)
            parts.append(member)
        return _closed(phase, parts, b"}")

    def _names(self, frame: InObject, *, forced: bool) -> Iterator[str]:
        """Names worth trying next: the listed ones, and one of each kind of others."""
        plan, search = frame.plan, self.machine.search
        languages = self.machine.names.languages_of(frame)
        listed = next((lang.words for kind, lang in languages if kind == LISTED), ())
        missing = plan.required & ~frame.mask
        members = frame.mask.bit_count() + len(frame.others)
        more = not reached(frame.counts, plan.least) or (not missing and members < plan.objects.low)
        more |= forced and not missing
        # In the order of the schema, an optional name may have to come before a required one.
        more |= not any(plan.names[i] in listed for i in _bits(missing))
        for name in listed:
            if more or missing >> plan.index[name] & 1:
                yield name
        for kind, lang in languages if more else ():
            if kind != LISTED and (word := search.shortest(lang)) is not None:
                yield word

    # ---- the rest of a position --------------------------------------------------------

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
            if isinstance(around, InArray) and around.plan.unique and text is not None:
                around = replace(
                    around, seen=around.seen | {_comparable(text[around.start :] + out)}
                )
            last = around
            around, out = self._ended(last, text, out)
        return [out, *self.way(around)] if isinstance(around, Point) else [out]

    def cost(self, frame: Frame) -> int:
        """The size of what completes a position, in the measure of this closer."""
        return sum(1 if isinstance(p, int) else self.size(p) for p in self.rest((frame, None)))

    def _leaf(self, frame: Frame, text: bytes | None) -> tuple[bytes, Around]:
        """What brings the innermost open thing to its end, and what is around it."""
        if isinstance(frame, InString):
            return self._string(self.machine.strings, frame.state), frame.around
        if isinstance(frame, InNumber):
            return self.machine.numerals.finish(frame.state), frame.around
        if isinstance(frame, InWord):
            return frame.left, frame.around
        if isinstance(frame, Awaited):
            around = frame.around
            if isinstance(around, InArray) and around.plan.unique:
                return _some(self._unlike(frame.node, around.seen)), around
            return _some(self.value(frame.node)), around
        if isinstance(frame, InName):
            name = self._string(self.machine.strings, frame.state)
            named = self.machine.names.taken(frame.around, json.loads(frame.raw + name))
            sizes = (
                (self.size(_some(self.value(_node(one)))), i, one) for i, one in enumerate(named)
            )
            _, _, taken = min(sizes)
            around, rest = self._ended(taken, text, name)
            return rest, around
        assert isinstance(frame, InArray | InObject)
        around, rest = self._ended(frame, text, b"")
        return rest, around

    def _ended(
        self, frame: InArray | InObject, text: bytes | None, out: bytes
    ) -> tuple[Around, bytes]:
        """What is around an array or object, and `out` with what closes it.

        Where it is an item that must differ from others, it is made longer until it does.
        """
        around, before = frame.around, out
        if isinstance(frame, InObject) and frame.phase == Phase.NAMED:
            before += b":" + _some(self.value(_node(frame)))
        if frame.phase in (Phase.INSIDE, Phase.NAMED):
            frame = replace(frame, phase=Phase.AFTER)
        whole = before + self._closing(frame)
        if isinstance(around, InArray) and around.plan.unique and text is not None:
            extra, begun = 0, text[around.start :]
            while _comparable(begun + whole) in around.seen:
                extra += 1
                whole = before + self._closing(frame, extra)
        return around, whole

    def _closing(self, frame: InArray | InObject, extra: int = 0) -> bytes:
        if isinstance(frame, InArray):
            return _some(self._array(frame, extra))
        return _some(self._object(frame, extra))

    def margin(self, around: InArray) -> int:
        """What it may cost more to make the open item differ from those before it."""
        nodes = [option.node for option in around.plan.at(around.index - 1)]
        longer = (self._container(node, len(around.seen) + 2) for node in nodes)
        return max((self.size(text) for text in longer if text is not None), default=0)

    def _string(self, strings: Strings, state: int) -> bytes:
        """The rest of a text; of one in a JSON string, with its closing quote."""
        out = b""
        while (lang := strings.lang(state)) is None and state != CLOSED:
            for byte in _OUT_OF_CHARACTER:
                after = strings.step(state, byte)
                if after != DEAD:
                    state, out = after, out + bytes([byte])
                    break
        if lang is None:
            return out
        word = _some(self.machine.search.shortest(lang))
        return out + (word.encode() if isinstance(strings, Plain) else _quoted(word)[1:])

    # ---- the script --------------------------------------------------------------------

    def way(self, point: Point) -> list[Piece]:
        """The shortest way from a point of the script to an end."""
        out: list[Piece] = []
        while (step := self._ways[point][1]) is not None:
            piece, point = step
            out.append(piece)
        return out

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
        return self._string(self.machine.plain, frame.state), frame.to


T = TypeVar("T")


def _some(found: T | None) -> T:
    assert found is not None, "a state without a way out"
    return found


def _node(named: InObject) -> Node:
    return _some(named.value)


def _comparable(text: bytes) -> tuple[str, object]:
    return comparable(json.loads(text, parse_float=Decimal))


def _bits(mask: int) -> Iterator[int]:
    """The places of the bits that are set."""
    while mask:
        yield (mask & -mask).bit_length() - 1
        mask &= mask - 1


def _closed(phase: Phase, parts: list[bytes], end: bytes) -> bytes:
    comma = b"," if phase == Phase.AFTER and parts else b""
    return comma + b",".join(parts) + end


def _nearer(counts: Counts, more: Counts, least: Counts) -> bool:
    """Whether an obligation that is not met was brought nearer."""
    return any(a < b and a < c for a, b, c in zip(counts, more, least, strict=True))


def _quoted(word: str) -> bytes:
    return json.dumps(word, ensure_ascii=False).encode()
