"""A random pushdown machine over bytes, and what it says of a token, byte by byte.

The judge for the native masks: it knows nothing of tries, entries or layers, and follows every way
there is, one at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random
from typing import NamedTuple

import numpy as np

from forwardpass import _native

ALPHABET = b'ab"[],'
QUOTE = 0x22
STATE, TEXT, NAME, POPPED, DOUBT = range(5)
Item = tuple[int, int, int]
Vocabulary = dict[int, bytes]


def make_trie(texts: Vocabulary, size: int) -> _native.Trie:
    offsets = np.cumsum([0, *map(len, texts.values())]).astype(np.int64)
    return _native.Trie(np.array([*texts], np.int32), b"".join(texts.values()), offsets, size)


def random_vocabulary(rng: Random, count: int = 90) -> tuple[Vocabulary, int]:
    """Texts of 1 to 6 bytes, some of them twice, under ids with gaps."""
    size = count * 2 + rng.randint(0, 40)
    ids = rng.sample(range(size), count)
    return {i: bytes(rng.choices(ALPHABET, k=rng.randint(1, 6))) for i in ids}, size


class Place(NamedTuple):
    """An item, with what stands around its level and, of a name, the bytes so far."""

    item: Item
    outer: int
    raw: bytes = b""


class Outer(NamedTuple):
    move: int
    cost: int
    parent: int


@dataclass
class Machine:
    """Tables by number. Rows lack what is dead; text state 0 is closed."""

    pops: list[bool] = field(default_factory=list)
    costs: list[int] = field(default_factory=list)
    rows: list[dict[int, int]] = field(default_factory=list)
    text_costs: list[int] = field(default_factory=lambda: [0])
    text_rows: list[dict[int, int]] = field(default_factory=lambda: [{}])
    moves: list[list[Item]] = field(default_factory=list)
    outers: list[Outer] = field(default_factory=list)

    def name(self, state: int, raw: bytes) -> int:
        """The move behind a name: any rule will do that takes all of its bytes."""
        return (
            sum((i + 1) * byte for i, byte in enumerate(raw)) * (state + 3) % (len(self.moves) + 1)
            - 1
        )

    def item_cost(self, item: Item) -> int:
        kind, a, b = item
        if kind == STATE:
            return self.costs[a]
        if kind == TEXT:
            return self.text_costs[a] + self.move_cost(b)
        if kind == NAME:
            return self.text_costs[a] + self.costs[b]
        return a  # of a doubt; 0 where the level has ended

    def move_cost(self, move: int) -> int:
        known = [item for item in self.moves[move] if item[0] != DOUBT]
        return min(map(self.item_cost, known or self.moves[move]))

    # ---- what stands at one point: costs, doubts (as None) and places -----------------------

    def stand(self, place: Place, cost: int | None = None) -> Iterator[int | Place | None]:
        """What it is to have come to a place; `cost` where what is around says what it costs."""
        (kind, a, _), outer, _ = place
        if kind == DOUBT:
            yield None
            return
        if kind != POPPED:
            around = 0 if outer < 0 else self.outers[outer].cost
            yield self.item_cost(place.item) + around if cost is None else cost
            yield place
        elif cost is not None:
            yield cost
        if kind == POPPED or (kind == STATE and self.pops[a]):
            yield from self.leave(outer)

    def leave(self, outer: int) -> Iterator[int | Place | None]:
        if outer < 0:
            yield 0
            return
        move, cost, parent = self.outers[outer]
        for item in self.moves[move]:
            yield from self.stand(Place(item, parent), cost)

    def step(self, place: Place, byte: int) -> Iterator[int | Place | None]:
        (kind, a, b), outer, raw = place
        if kind == STATE:
            move = self.rows[a].get(byte, -1)
        else:
            after = self.text_rows[a].get(byte, -1)
            raw += bytes([byte])
            if after > 0:
                yield from self.stand(Place((kind, after, b), outer, raw))
            if after != 0:
                return
            move = b if kind == TEXT else self.name(b, raw)
        for item in self.moves[move] if move >= 0 else ():
            begun = bytes([byte]) if item[0] == NAME else b""
            yield from self.stand(Place(item, outer, begun))

    def judge(self, start: Place, token: bytes) -> tuple[int | None, bool]:
        """The least cost after a token, None where it is not legal; and whether it is in doubt."""
        found = list(self.stand(start))
        doubt = None in found
        for byte in token:
            places = dict.fromkeys(one for one in found if isinstance(one, Place))
            found = [one for place in places for one in self.step(place, byte)]
            doubt |= None in found
        return min((one for one in found if isinstance(one, int)), default=None), doubt


def random_machine(rng: Random) -> Machine:
    """With sets, names, texts in texts, pops over several levels, and some doubt."""
    made = Machine()
    states, texts, moves = rng.randint(1, 5), rng.randint(1, 4), rng.randint(2, 9)
    for _ in range(states):
        made.pops.append(rng.random() < 0.3)
        made.costs.append(0 if made.pops[-1] else rng.randint(0, 5))
        dense = rng.choice((0.4, 0.9))
        used = [byte for byte in ALPHABET if rng.random() < dense]
        made.rows.append({byte: rng.randrange(moves) for byte in used})
    for _ in range(texts):
        made.text_costs.append(rng.randint(1, 4))
        row = {byte: rng.randint(1, texts) for byte in ALPHABET if rng.random() < 0.8}
        made.text_rows.append(row | {QUOTE: 0})
    doubt = rng.choice((0.0, 0.0, 0.1))
    for number in range(moves):
        made.moves.append(
            [
                _random_item(rng, states, texts, number, doubt)
                for _ in range(rng.choice((1, 1, 1, 2, 3)))
            ]
        )
    for number in range(rng.randint(0, 6)):
        free = [i for i in range(moves) if all(item[0] != NAME for item in made.moves[i])]
        if free:
            parent = rng.choice((-1, number - 1, number - 1, rng.randint(-1, number - 1)))
            outer = Outer(rng.choice(free), rng.randint(0, 9), min(parent, len(made.outers) - 1))
            made.outers.append(outer)
    return made


def _random_item(rng: Random, states: int, texts: int, moves: int, doubt: float) -> Item:
    """A text leads to an earlier move."""
    kind = rng.choice((STATE, STATE, STATE, POPPED, NAME, TEXT if moves else STATE))
    if rng.random() < doubt:
        return DOUBT, rng.randint(0, 9), 0
    if kind == STATE:
        return STATE, rng.randrange(states), 0
    if kind == TEXT:
        return TEXT, rng.randint(1, texts), rng.randrange(moves)
    return (NAME, rng.randint(1, texts), rng.randrange(states)) if kind == NAME else (POPPED, 0, 0)


class AsAsked(Exception):
    """What an adapter raises where a test asks for it."""


class Adapter:
    """A machine as the native masks ask for it: what they have not met yet is added when asked.

    `fail_at`: the number of the call that raises. Text states are languages, with numbers of their
    own: bytes are characters here.
    """

    def __init__(self, machine: Machine, trie: _native.Trie, fail_at: int = 0) -> None:
        self.machine, self.fail_at, self.calls = machine, fail_at, 0
        self.masks = _native.Masks(trie, self)
        self._states: dict[int, int] = {}
        self._moves: dict[int, int] = {}
        self._outers: dict[int, int] = {-1: -1}

    def _called(self) -> None:
        self.calls += 1
        if self.calls == self.fail_at:
            raise AsAsked

    def state(self, number: int) -> int:
        if number not in self._states:
            machine = self.machine
            first = bytes(machine.rows[number])
            self._states[number] = self.masks.add_state(
                machine.pops[number], machine.costs[number], first
            )
        return self._states[number]

    def add(self, number: int) -> int:
        if number not in self._moves:
            items = [self.item(item) for item in self.machine.moves[number]]
            # A callback on the way may have added the same.
            self._moves[number] = self.masks.add_move(items)
        return self._moves[number]

    def item(self, item: Item) -> Item:
        kind, a, b = item
        if kind == STATE:
            return kind, self.state(a), 0
        if kind == TEXT:
            return kind, self.text(a), self.add(b)
        return (kind, self.text(a), self.state(b)) if kind == NAME else item

    def text(self, number: int) -> int:
        return self.masks.text_state(number + 1000, b"")

    def outer(self, number: int) -> int:
        if number not in self._outers:
            move, cost, parent = self.machine.outers[number]
            self._outers[number] = self.masks.add_outer(self.add(move), cost, self.outer(parent))
        return self._outers[number]

    def _state_of(self, native: int) -> int:
        return next(mine for mine, known in self._states.items() if known == native)

    def move(self, state: int, byte: int) -> int:
        self._called()
        number = self.machine.rows[self._state_of(state)].get(byte, -1)
        return -1 if number < 0 else self.add(number)

    def language(self, language: int) -> tuple[bool, list[tuple[int, int, int]]]:
        self._called()
        row = self.machine.text_rows[language - 1000]
        goes_on = [(byte, byte, after + 1000) for byte, after in sorted(row.items()) if after]
        return QUOTE in row, goes_on

    def language_cost(self, language: int) -> int:
        self._called()
        return self.machine.text_costs[language - 1000]

    def name(self, state: int, raw: bytes) -> int:
        self._called()
        number = self.machine.name(self._state_of(state), raw)
        return -1 if number < 0 else self.add(number)

    def entry(self, start: Place) -> int:
        """For a state, a name, or a text that the level ends with."""
        kind, a, b = start.item
        if kind == STATE:
            return self.masks.entry_state(self.state(a))
        if kind == TEXT:
            return self.masks.entry_text(self.text(a))
        return self.masks.entry_name(self.text(a), self.state(b), start.raw)
