"""What the C++ part asks of a grammar: its tables, filled as far as texts have gone.

The machine's positions hold whole stacks. Here each is cut at what is around its innermost part: a
*local* state has a hole there (`frames.HOLE`), so it is the same at every depth and in every item
of a list, and what the vocabulary can do from it is computed once. An *outer* is what stands
around.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from enum import IntEnum
from typing import TYPE_CHECKING, TypeVar

from forwardpass.constraint.closing import Closer
from forwardpass.constraint.first_bytes import first_bytes
from forwardpass.constraint.frames import (
    HOLE,
    LISTED,
    Around,
    At,
    Awaited,
    Doubt,
    Frame,
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
from forwardpass.constraint.free_text import Free, free
from forwardpass.constraint.machine import UNKNOWN, Machine
from forwardpass.constraint.names import is_blind, some_name
from forwardpass.constraint.nearness import near
from forwardpass.constraint.plans import Node
from forwardpass.constraint.scripts import Point
from forwardpass.constraint.simple import simple_types
from forwardpass.constraint.strings import Described, Numbered
from forwardpass.constraint.tokens import Tokens
from forwardpass.constraint.values import quoted, some

if TYPE_CHECKING:
    from forwardpass.constraint.common import Common

NONE = -1
F = TypeVar("F", bound=Awaited | InNumber | InWord | InArray | InObject)


class Kind(IntEnum):
    """What may stand next: csrc/masks_machine.h says what the numbers behind it mean."""

    STATE = 0
    TEXT = 1
    NAME = 2
    POPPED = 3
    DOUBT = 4
    CALL = 5


Item = tuple[int, int, int]
Start = tuple[int, int, int]  # an entry, an outer, tokens that are left out


class Tables:
    """The tables of one grammar over one vocabulary; for one thread at a time."""

    def __init__(
        self, machine: Machine, closer: Closer, tokens: Tokens, common: Common | None = None
    ) -> None:
        from forwardpass import _native

        assert isinstance(tokens.trie, _native.Trie)
        self.machine, self.closer = machine, closer
        self.native = _native.Masks(tokens.trie, self)
        self._states: dict[frozenset[Position], int] = {}
        self._positions: list[frozenset[Position]] = []
        self._moves: dict[tuple[Item, ...], int] = {}
        self._outers: dict[tuple[Around, bool], int] = {}
        self._named: dict[tuple[InObject, int], int] = {}
        self._namings: dict[tuple[InObject, bytes | None], int] = {}
        self._starts: dict[Position, Start] = {}
        self._costs: dict[int, int] = {}
        self._known_outers: dict[int, tuple[int, int]] = {}
        self._lists: dict[Free, int] = {}
        self._scalars: dict[object, Node] = {}
        self._texts: dict[int, int] = {}
        self._nears: dict[int, int] = {}
        self._langs = Numbered(machine.search)
        self._common = common
        self._adopted: dict[int, int] = {}
        self._base = tokens.free_text
        self._free_entry = self.native.adopt_entry(self._base.native, self._base.entry)

    # ---- asked by the C++ part ---------------------------------------------------------

    def move(self, state: int, byte: int) -> int:
        """The move of a local state over a byte, or NONE."""
        step = self.machine.step
        found = {new for one in self._positions[state] for new in step(one, byte)}
        return self._move(found) if found else NONE

    def language(self, number: int) -> Described:
        """What the texts of a language go on with."""
        return self._langs.described(number)

    def language_cost(self, number: int) -> int:
        """How many tokens end a JSON string of a language, from between two characters."""
        word = some(self.machine.search.shortest(self._langs.lang(number)))
        return self.closer.size(quoted(word)[1:])

    def name(self, state: int, raw: bytes) -> int:
        """The move of an object over a whole name of its schema, quotes included, or NONE."""
        ((frame, text),) = self._positions[state]
        assert isinstance(frame, InObject)
        found = set(self.machine.named(frame, raw, text))
        return self._move(found) if found else NONE

    # ---- states and moves --------------------------------------------------------------

    def _state(self, positions: frozenset[Position]) -> int:
        known = self._states.get(positions)
        if known is None:
            pops = any(self._pops(frame) for frame, _ in positions)
            cost = min(map(self.closer.total, positions))
            first = {byte for frame, _ in positions for byte in first_bytes(self.machine, frame)}
            known = self._states[positions] = self.native.add_state(pops, cost, bytes(first))
            assert known == len(self._positions)
            self._positions.append(positions)
        return known

    def _pops(self, frame: Frame) -> bool:
        return (
            isinstance(frame, InNumber)
            and isinstance(frame.around, Hole)
            and self.machine.numerals.done(frame.state)
        )

    def _move(self, positions: set[Position]) -> int:
        """The move that leads to these local positions."""
        items = {self._item(*one) for one in positions if _is_item(*one)}
        rest = frozenset(one for one in positions if not _is_item(*one))
        if rest:
            items.add((Kind.STATE, self._state(rest), 0))
        key = tuple(sorted(items))
        known = self._moves.get(key)
        if known is None:
            known = self._moves[key] = self.native.add_move(list(key))
        return known

    def _item(self, frame: Frame, text: bytes | None) -> Item:
        if isinstance(frame, InString):
            return Kind.TEXT, self.text_state(frame.state), self._behind(frame.around, text)
        if isinstance(frame, InName):
            state = self.text_state(frame.state)
            if frame.kind == LISTED:
                return Kind.NAME, state, self._naming(frame.around, text)
            if is_blind(frame.around) or text is not None:
                # How it goes on, or what its end costs, hangs on a name that is not known here.
                return Kind.DOUBT, 0, 0
            return Kind.TEXT, state, self._some_named(frame.around, frame.kind)
        if isinstance(frame, Popped):
            return Kind.POPPED, 0, 0
        if isinstance(frame, Doubt):
            return Kind.DOUBT, 0, 0
        # A value within the level has a level of its own, which is the same wherever it stands.
        assert isinstance(frame, Awaited | InNumber | InWord | InArray | InObject)
        inner = self._state(frozenset([(self._local(frame), None)]))
        return Kind.CALL, inner, self._behind(frame.around, None)

    def text_state(self, state: int) -> int:
        """The C++ part's own number of a state of a string."""
        known = self._texts.get(state)
        if known is None:
            lang, written = self.machine.strings.written(state)
            known = self.native.text_state(self._langs.number(lang), written)
            self._texts[state] = known
        return known

    def _naming(self, frame: InObject, text: bytes | None) -> int:
        """The state of an object in one of whose names a text stands."""
        known = self._namings.get((frame, text))
        if known is None:
            cost = self.closer.naming(frame)
            known = self._namings[frame, text] = self.native.add_state(False, cost, b"")
            self._positions.append(frozenset([(frame, text)]))
        return known

    def _behind(self, around: Around, text: bytes | None) -> int:
        """The move that stands behind a string, within the local level."""
        if isinstance(around, InArray) and around.plan.unique:
            return self._move({(self._one_more(around), None)})
        if text is not None:
            cost = self.closer.cost(_ended(around)) + sum(map(self.closer.margin, _unique(around)))
            return self._doubt(cost)
        return self._move(set(self.machine.finished(around, None)))

    def _doubt(self, cost: int) -> int:
        key = ((Kind.DOUBT, cost, 0),)
        known = self._moves.get(key)
        if known is None:
            known = self._moves[key] = self.native.add_move(list(key))
        return known

    def _one_more(self, around: InArray) -> InArray:
        """A list whose items must differ, after an item that is not known but differs."""
        seen = around.seen | {UNKNOWN}
        blanks = self.machine.blanks.elsewhere
        after = replace(around, phase=Phase.AFTER, blanks=blanks, seen=seen, start=0)
        return self.machine.frames.same(after)

    def _some_named(self, frame: InObject, kind: int) -> int:
        """The move of an object over any name of a kind that is not listed."""
        key = frame, kind
        known = self._named.get(key)
        if known is None:
            positions = set(self.machine.taken(frame, some_name(kind), None))
            known = self._named[key] = self._move(positions)
        return known

    # ---- where a walk begins -----------------------------------------------------------

    def start(self, position: Position) -> Start:
        """The entry and the outer of a position; kept."""
        known = self._starts.get(position)
        if known is None:
            if len(self._starts) > self.machine.frames.most:
                self._starts.clear()
            known = self._starts[position] = self._started(position[0])
        return known

    def _started(self, frame: Frame) -> Start:
        native = self.native
        if isinstance(frame, At | InLiteral | InWords):
            return native.entry_state(self._state(frozenset([(frame, None)]))), NONE, NONE
        if isinstance(frame, InString):
            return self._in_text(frame.state, self._outer(frame.around, plain=True))
        if isinstance(frame, InName):
            local = self._local(frame.around)
            parent = self._outer(frame.around.around)
            if frame.kind == LISTED:
                naming = self._naming(local, None)
                text = self.text_state(frame.state)
                return native.entry_name(text, naming, frame.raw), parent, NONE
            move = self._some_named(local, frame.kind)
            ((named, _),) = list(self.machine.taken(local, some_name(frame.kind), None))[:1]
            cost = self.closer.cost(named) + self._cost(parent)
            return self._in_text(frame.state, self._add_outer(move, cost, parent))
        assert isinstance(frame, Awaited | InNumber | InWord | InArray | InObject)
        plain = isinstance(frame, InNumber | InWord)
        outer = self._outer(frame.around, plain=plain)
        shared = self._shared(frame)
        return (self.entry(self._local(frame)) if shared is None else shared), outer, NONE

    def entry(self, frame: Frame) -> int:
        """The entry of a local state of one frame."""
        return self.native.entry_state(self._state(frozenset([(frame, None)])))

    def _shared(self, frame: Frame) -> int | None:
        """The entry that all grammars share, for a value that many have."""
        entry = None
        if self._common is not None and isinstance(frame, InNumber):
            entry = self._common.number(frame.state)
        elif self._common is not None and isinstance(frame, Awaited):
            alike = not frame.blanks or self.machine.blanks.allowed == b" "
            types = simple_types(self.machine.languages, frame.node) if alike else None
            entry = None if types is None else self._common.value(types, frame.blanks)
        if entry is None or self._common is None:
            return None
        known = self._adopted.get(entry)
        if known is None:
            native = self._common.tables.native
            known = self._adopted[entry] = self.native.adopt_entry(native, entry)
        return known

    def _in_text(self, state: int, outer: int) -> Start:
        """Inside a string or a name: one that is free takes what the vocabulary knows of those."""
        strings, base = self.machine.strings, self._base
        lang = strings.lang(state)
        wanted = None if lang is None else free(self.machine.languages, lang)
        if wanted is None:
            return self.native.entry_text(self.text_state(self._near(state))), outer, NONE
        but = self._left_out(wanted)
        extra = base.extra(wanted)
        if extra:
            move, parent = self._known_outers[outer]
            outer = self._add_outer(move, self._cost(outer) + extra, parent)
        return self._free_entry, outer, but

    def _near(self, state: int) -> int:
        """A state of a string from which the same tokens go on."""
        known = self._nears.get(state)
        if known is None:
            strings = self.machine.strings
            known = self._nears[state] = strings.turned(
                state, lambda lang: near(self.machine.languages, lang, self._base.longest)
            )
        return known

    def _left_out(self, wanted: Free) -> int:
        """The list of tokens that a string leaves out of those of a free one."""
        known = self._lists.get(wanted)
        if known is None:
            if wanted.words:
                known = self.native.add_tokens(self._base.left_out(wanted))
            else:
                shared = self._base.shared(wanted.low, wanted.high)
                known = NONE if shared < 0 else self.native.adopt_tokens(self._base.native, shared)
            self._lists[wanted] = known
        return known

    def _local(self, frame: F) -> F:
        """The frame with a hole in place of what is around it."""
        if isinstance(frame, Awaited):
            frame = replace(frame, node=self._alike(frame.node))
        return self.machine.frames.same(replace(frame, around=HOLE))

    def _alike(self, node: Node) -> Node:
        """The first value with the same form, where that has neither lists nor objects."""
        if node.arrays or node.objects:
            return node
        form = node.form
        key = form.null, form.booleans, form.numbers, form.texts
        return self._scalars.setdefault(key, node)

    def _outer(self, around: Around, *, plain: bool = False) -> int:
        """What stands around a value once it has ended; `plain`: one without a stack of its own,
        which differs from the items before it by its language."""
        if isinstance(around, Hole):
            return NONE
        key = around, plain
        known = self._outers.get(key)
        if known is None:
            known = self._outers[key] = self._made_outer(around, plain)
        return known

    def _made_outer(self, around: Point | InArray | InObject, plain: bool) -> int:
        if isinstance(around, Point):
            (after,) = self.machine.finished(around, None)
            return self._add_outer(self._move({after}), self.closer.cost(after[0]), NONE)
        parent = self._outer(around.around)
        local = self._local(around)
        if isinstance(local, InArray) and local.plan.unique:
            more = self._one_more(local)
            cost = self.closer.cost(more) + self._cost(parent)
            if plain:
                return self._add_outer(self._move({(more, None)}), cost, parent)
            return self._add_outer(self._doubt(0), cost + self.closer.margin(local), parent)
        (ended,) = self.machine.finished(local, None)
        cost = self.closer.cost(ended[0]) + self._cost(parent)
        return self._add_outer(self._move({ended}), cost, parent)

    def _add_outer(self, move: int, cost: int, parent: int) -> int:
        made = self.native.add_outer(move, cost, parent)
        self._costs[made], self._known_outers[made] = cost, (move, parent)
        return made

    def _cost(self, outer: int) -> int:
        return 0 if outer == NONE else self._costs[outer]


def _is_item(frame: Frame, text: bytes | None) -> bool:
    """Whether it is no state of the level itself. Where a text is kept, all is one level."""
    if isinstance(frame, InString | InName | Popped | Doubt):
        return True
    if text is not None or isinstance(frame, At | InLiteral | InWords):
        return False
    return not isinstance(frame.around, Hole)


def _ended(around: Around) -> Frame:
    """An open list or object once the value in it has ended; of a hole, that it was left."""
    if isinstance(around, InArray | InObject):
        return replace(around, phase=Phase.AFTER)
    return Popped() if isinstance(around, Hole) else At(around, 0)


def _unique(around: Around) -> Iterator[InArray]:
    """The open lists further out whose items must differ."""
    while isinstance(around, InArray | InObject):
        if isinstance(around, InArray) and around.plan.unique:
            yield around
        around = around.around
