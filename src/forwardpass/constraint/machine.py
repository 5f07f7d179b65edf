"""The machine: positions in a JSON text, each with its stack, moved on byte by byte.

A position that exists can always be completed: nothing is entered that has no way out.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace

from forwardpass.constraint.comparing import comparable
from forwardpass.constraint.frames import (
    LISTED,
    Around,
    At,
    Awaited,
    Doubt,
    Frame,
    Frames,
    Hole,
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
from forwardpass.constraint.names import Names, is_blind
from forwardpass.constraint.others import Others
from forwardpass.constraint.plans import Counts, Node
from forwardpass.constraint.room import added, array_open, reached, zeros
from forwardpass.constraint.scripts import Control, Literal, Point, Value, Words
from forwardpass.constraint.searching import Search
from forwardpass.constraint.shared_numerals import shared_numerals
from forwardpass.constraint.strings import CLOSED, DEAD, Plain, Strings

# How deep an item may nest in an array whose items must differ: it is read again to compare it.
DEEPEST_ITEM = 100
# Stands among the items of an array for one that is not known.
UNKNOWN = ("unknown", None)
_WORDS = {0x74: b"rue", 0x66: b"alse", 0x6E: b"ull"}


@dataclass(frozen=True, slots=True)
class Blanks:
    """How much white space may stand in each gap, and which bytes count as such."""

    after_colon: int = 1
    after_comma: int = 1
    elsewhere: int = 0
    allowed: bytes = b" "


COMPACT, ONE, FREE = Blanks(0, 0), Blanks(), Blanks(8, 8, 8, b" \t\n\r")


class Machine:
    """Moves positions. Holds what all states of one grammar share."""

    def __init__(
        self, search: Search, blanks: Blanks, *, any_order: bool, repeated: bool = False
    ) -> None:
        self.search, self.languages = search, search.languages
        self.strings, self.numerals, self.plain = Strings(search), shared_numerals(), Plain(search)
        self.names = Names(search, any_order=any_order, repeated=repeated)
        self.others = Others(search)
        self.blanks = blanks
        self.frames = Frames()
        self._steps: dict[tuple[Frame, int], tuple[Position, ...]] = {}

    def start(self, point: Point) -> Position:
        """The position before the first byte of a script."""
        return self.frames.same(At(point, 0)), None

    def step(self, position: Position, byte: int) -> tuple[Position, ...]:
        """All positions after one more byte."""
        frame, text = position
        if text is not None:
            return self._kept(self._step(frame, text, byte))
        known = self._steps.get((frame, byte))
        if known is None:
            known = self._kept(self._step(frame, None, byte))
            if len(self._steps) > self.frames.most:
                self._steps.clear()
            self._steps[frame, byte] = known
        return known

    def _kept(self, found: Iterator[Position]) -> tuple[Position, ...]:
        return tuple((self.frames.same(frame), text) for frame, text in found)

    def _step(self, frame: Frame, text: bytes | None, byte: int) -> Iterator[Position]:
        if isinstance(frame, InNumber):
            return self._number(frame, text, byte)
        return self._move(frame, None if text is None else text + bytes([byte]), byte)

    def step_control(self, position: Position, token: int) -> tuple[Position, ...]:
        """All positions after one control token."""
        return tuple(
            (self.frames.same(At(edge.to, 0)), None)
            for point in self.standing(position)
            for edge in point.edges
            if isinstance(edge, Control) and edge.token == token
        )

    def done(self, position: Position) -> bool:
        """Whether the text may end here."""
        return any(point.final for point in self.standing(position))

    def standing(self, position: Position) -> list[Point]:
        """The points of the script at which a position stands without another byte."""
        frame = position[0]
        if isinstance(frame, At):
            found = [frame.point]
        elif isinstance(frame, InWords) and self.plain.done(frame.state):
            found = [frame.to]
        elif (
            isinstance(frame, InNumber)
            and isinstance(frame.around, Point)
            and self.numerals.done(frame.state)
        ):
            found = [frame.around]
        else:
            return []
        for point in found:  # grows as texts that may be empty are passed over
            for edge in point.edges:
                if isinstance(edge, Words) and edge.lang.nullable and edge.to not in found:
                    found.append(edge.to)
        return found

    def _move(self, frame: Frame, text: bytes | None, byte: int) -> Iterator[Position]:
        if isinstance(frame, InString):
            after = self.strings.step(frame.state, byte)
            if after == CLOSED:
                yield from self.finished(frame.around, text)
            elif after != DEAD:
                yield InString(after, frame.around), text
        elif isinstance(frame, InName):
            yield from self._name(frame, text, byte)
        elif isinstance(frame, Awaited):
            yield from self._value(frame, text, byte)
        elif isinstance(frame, InObject):
            yield from self._object(frame, text, byte)
        elif isinstance(frame, InArray):
            yield from self._array(frame, text, byte)
        elif isinstance(frame, InWord):
            if frame.left == bytes([byte]):
                yield from self.finished(frame.around, text)
            elif frame.left[0] == byte:
                yield InWord(frame.left[1:], frame.around), text
        elif isinstance(frame, At | InWords | InLiteral):
            yield from self._script(frame, byte)

    # ---- what stands around values -----------------------------------------------------

    def _script(self, frame: At | InWords | InLiteral, byte: int) -> Iterator[Position]:
        if isinstance(frame, InLiteral):
            if frame.left[0] == byte:
                yield _written(frame.left[1:], frame.to), None
            return
        if isinstance(frame, InWords):
            after = self.plain.step(frame.state, byte)
            if after != DEAD:
                yield InWords(after, frame.to), None
        elif frame.blanks and byte in self.blanks.allowed:
            yield At(frame.point, frame.blanks - 1), None
        for point in self.standing((frame, None)):
            for edge in point.edges:
                if isinstance(edge, Literal):
                    if edge.text[0] == byte:
                        yield _written(edge.text[1:], edge.to), None
                elif isinstance(edge, Value):
                    awaited = Awaited(edge.node, self.blanks.elsewhere, edge.to)
                    yield from self._move(awaited, None, byte)
                elif isinstance(edge, Words):
                    state = self.plain.inside(edge.lang)
                    after = DEAD if state == DEAD else self.plain.step(state, byte)
                    if after != DEAD:
                        yield InWords(after, edge.to), None

    # ---- values ------------------------------------------------------------------------

    def _value(self, frame: Awaited, text: bytes | None, byte: int) -> Iterator[Position]:
        node, around = frame.node, frame.around
        form = node.form
        if byte == 0x22:
            state = self.strings.inside(form.texts)
            if state != DEAD:
                yield InString(state, around), text
        elif byte in b"[{" and text is not None and _depth(text) > DEEPEST_ITEM:
            return
        elif byte == 0x5B:
            for plan in node.arrays:
                opened = (plan, Phase.OPENED, 0, zeros(plan.least), self.blanks.elsewhere, around)
                yield InArray(*opened), text
        elif byte == 0x7B:
            for obj in node.objects:
                none: frozenset[str] = frozenset()
                blanks = self.blanks.elsewhere
                start = (obj, Phase.OPENED, 0, none, zeros(obj.least), blanks, around)
                yield InObject(*start), text
        elif byte == 0x2D or 0x30 <= byte <= 0x39:
            for numbers in form.numbers:
                after = self.numerals.step(self.numerals.start(numbers), byte)
                if after != DEAD:
                    yield InNumber(after, around), text
        elif byte in _WORDS:
            if form.null if byte == 0x6E else (byte == 0x74) in form.booleans:
                yield InWord(_WORDS[byte], around), text
        elif frame.blanks and byte in self.blanks.allowed:
            yield Awaited(node, frame.blanks - 1, around), text

    def _number(self, frame: InNumber, text: bytes | None, byte: int) -> Iterator[Position]:
        after = self.numerals.step(frame.state, byte)
        if after != DEAD:
            longer = None if text is None else text + bytes([byte])
            yield InNumber(after, frame.around), longer
        elif self.numerals.done(frame.state):
            for position in self.finished(frame.around, text):
                yield from self._step(*position, byte)

    def finished(self, around: Around, text: bytes | None) -> Iterator[Position]:
        """What is around a value, once the value is complete."""
        blanks, same = self.blanks.elsewhere, self.frames.same
        if isinstance(around, Point):
            yield same(At(around, blanks)), None
        elif isinstance(around, Hole):
            yield Popped(), None
        elif isinstance(around, InObject) or not around.plan.unique:
            yield same(replace(around, phase=Phase.AFTER, blanks=blanks)), text
        elif text is None:
            yield Doubt(), None
        else:
            try:
                value = comparable(text[around.start :])
            except RecursionError:
                return  # brackets in texts hid how deep it nests
            if value not in around.seen:
                seen = around.seen | {value}
                kept = text if _needed(around.around) else None
                yield replace(around, phase=Phase.AFTER, blanks=blanks, seen=seen, start=0), kept

    # ---- arrays ------------------------------------------------------------------------

    def _array(self, frame: InArray, text: bytes | None, byte: int) -> Iterator[Position]:
        plan, phase = frame.plan, frame.phase
        if byte == 0x5D and phase != Phase.COMMA:
            if array_done(frame):
                yield from self.finished(frame.around, text)
        elif byte == 0x2C and phase == Phase.AFTER:
            nodes = [node for node, _ in self.items(frame)]
            if UNKNOWN in frame.seen and sum(map(self.others.choices, nodes)) == 1:
                yield Doubt(), None  # the one value that is left may be the one not known
            elif nodes:
                yield replace(frame, phase=Phase.COMMA, blanks=self.blanks.after_comma), text
        elif byte in self.blanks.allowed:
            if frame.blanks:
                yield replace(frame, blanks=frame.blanks - 1), text
        elif phase != Phase.AFTER and UNKNOWN in frame.seen:
            yield Doubt(), None
        elif phase != Phase.AFTER:
            start = 0
            if plan.unique:
                start, text = (0, bytes([byte])) if text is None else (len(text) - 1, text)
            for node, counts in self.items(frame):
                inside = replace(
                    frame,
                    phase=Phase.INSIDE,
                    index=min(frame.index + 1, plan.settled),
                    counts=counts,
                    blanks=0,
                    start=start,
                )
                yield from self._move(Awaited(node, 0, self.frames.same(inside)), text, byte)

    def items(self, frame: InArray) -> Iterator[tuple[Node, Counts]]:
        """What the next item of an array may be, with the counts after it."""
        plan = frame.plan
        if frame.index >= plan.high:
            return
        for option in plan.at(frame.index):
            counts = added(frame.counts, option.counts)
            if array_open(plan, frame.index + 1, counts):
                node: Node | None = option.node
                if plan.unique:
                    node = self.others.different(option.node, frame.seen)
                if node is not None:
                    yield node, counts

    # ---- objects -----------------------------------------------------------------------

    def _object(self, frame: InObject, text: bytes | None, byte: int) -> Iterator[Position]:
        phase = frame.phase
        if byte in self.blanks.allowed:
            if frame.blanks:
                yield replace(frame, blanks=frame.blanks - 1), text
        elif phase == Phase.NAMED:
            if byte == 0x3A and frame.value is not None:
                inside = replace(frame, phase=Phase.INSIDE, blanks=0, value=None)
                kept = self.frames.same(inside)
                yield Awaited(frame.value, self.blanks.after_colon, kept), text
        elif byte == 0x7D and phase != Phase.COMMA:
            if object_done(frame):
                yield from self.finished(frame.around, text)
        elif byte == 0x2C and phase == Phase.AFTER:
            if self.names.languages_of(frame):
                yield replace(frame, phase=Phase.COMMA, blanks=self.blanks.after_comma), text
        elif byte == 0x22 and phase in (Phase.OPENED, Phase.COMMA):
            for kind, lang in self.names.languages_of(frame):
                yield InName(self.strings.inside(lang), b'"', frame, kind), text

    def _name(self, frame: InName, text: bytes | None, byte: int) -> Iterator[Position]:
        after = self.strings.step(frame.state, byte)
        raw = frame.raw + bytes([byte])
        if after == CLOSED and frame.kind != LISTED and is_blind(frame.around):
            yield Doubt(), None
        elif after == CLOSED:
            yield from self.named(frame.around, raw, text)
        elif after != DEAD:
            yield InName(after, raw, frame.around, frame.kind), text

    def named(self, frame: InObject, raw: bytes, text: bytes | None) -> Iterator[Position]:
        """An object after a whole name, quotes included."""
        yield from self.taken(frame, json.loads(raw), text)

    def taken(self, frame: InObject, name: str, text: bytes | None) -> Iterator[Position]:
        """An object after a name."""
        blanks = self.blanks.elsewhere
        for taken in self.names.taken(frame, name):
            yield self.frames.same(replace(taken, blanks=blanks)), text


def array_done(frame: InArray) -> bool:
    """Whether an array may end after the items that it has."""
    return frame.index >= frame.plan.arrays.low and reached(frame.counts, frame.plan.least)


def object_done(frame: InObject) -> bool:
    """Whether an object may end after the members that it has."""
    plan, members = frame.plan, frame.mask.bit_count() + len(frame.others)
    enough = plan.required & ~frame.mask == 0 and members >= plan.objects.low
    return enough and reached(frame.counts, plan.least)


def _written(left: bytes, to: Point) -> Frame:
    return InLiteral(left, to) if left else At(to, 0)


def _needed(around: Around) -> bool:
    """Whether an array whose items must differ is still open further out."""
    while isinstance(around, InArray | InObject):
        if isinstance(around, InArray) and around.plan.unique:
            return True
        around = around.around
    return False


def _depth(text: bytes) -> int:
    """How many brackets are open, brackets in texts counted too."""
    if len(text) <= DEEPEST_ITEM:
        return 0
    opened = text.count(b"[") + text.count(b"{")
    return opened - text.count(b"]") - text.count(b"}")
