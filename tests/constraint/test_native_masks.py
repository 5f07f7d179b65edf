"""The native masks say of every token what following it byte by byte says."""

from __future__ import annotations

import gc
import weakref
from random import Random

import numpy as np
import pytest
from numpy.typing import NDArray

from constraint.pushdown import (
    DOUBT,
    NAME,
    POPPED,
    STATE,
    TEXT,
    Adapter,
    AsAsked,
    Machine,
    Place,
    Vocabulary,
    make_trie,
    random_machine,
    random_vocabulary,
)
from forwardpass._native import Masks, Trie


def bits(words: NDArray[np.uint32], size: int) -> list[int]:
    return [i for i in range(size) if int(words[i // 32]) >> i % 32 & 1]


def random_start(rng: Random, adapter: Adapter) -> Place:
    """In a state, a text with which its level ends, or a name of which some is written."""
    machine = adapter.machine
    text, state = rng.randint(1, len(machine.text_rows) - 1), rng.randrange(len(machine.rows))
    outer = rng.randint(-1, len(machine.outers) - 1)
    item = rng.choice(((STATE, state, 0), (TEXT, text, 0), (NAME, text, state)))
    raw = b'"' + bytes(rng.choices(b"ab[", k=rng.randint(0, 3)))
    return Place(item, outer, raw if item[0] == NAME else b"")


def judged(
    machine: Machine, ending: int, start: Place, texts: Vocabulary
) -> dict[int, tuple[int | None, bool]]:
    item = start.item if start.item[0] != TEXT else (TEXT, start.item[1], ending)
    place = start._replace(item=item)
    return {i: machine.judge(place, text) for i, text in texts.items()}


def ended_move(machine: Machine) -> int:
    """The move with which a level ends, added behind the others (it is asked for by no name)."""
    names = machine.name
    moves = len(machine.moves)
    machine.moves.append([(POPPED, 0, 0)])
    machine.name = lambda state, raw: min(names(state, raw), moves - 1)  # type: ignore[method-assign]
    return moves


def check_masks(rng: Random, adapter: Adapter, texts: Vocabulary, size: int, ending: int) -> None:
    """A mask from one to three starts, some of them but for a list of tokens, under all limits."""
    out = np.full((size + 31) // 32, rng.getrandbits(32), np.uint32)
    least: dict[int, int] = {}
    doubted: set[int] = set()
    starts = []
    for _ in range(rng.choice((1, 1, 2, 3))):
        place = random_start(rng, adapter)
        but = rng.sample([*texts], 20) if rng.random() < 0.3 else []
        number = adapter.masks.add_tokens(but) if but else -1
        starts.append((adapter.entry(place), adapter.outer(place.outer), number))
        for i, (cost, doubt) in judged(adapter.machine, ending, place, texts).items():
            if i in but:
                continue
            if doubt:
                doubted.add(i)
            if cost is not None:
                least[i] = min(cost, least.get(i, cost))
    for limit in (-1, rng.randint(0, 12), rng.randint(0, 12)):
        legal = {i for i, cost in least.items() if limit < 0 or cost <= limit}
        count, worst, doubtful = adapter.masks.mask(starts, limit, out)
        assert bits(out, size) == sorted(legal)
        assert int(out[-1]) >> (size - 1) % 32 >> 1 == 0
        assert count == len(legal)
        assert doubtful == sorted(doubted - legal)
        assert worst >= max(least.values(), default=-1)
    every = [*range(size)]
    assert adapter.masks.costs(starts, every) == [least.get(i, -1) for i in every]


@pytest.mark.parametrize("seed", range(25))
def test_a_mask_is_what_following_each_token_byte_by_byte_gives(seed: int) -> None:
    rng = Random(seed)
    texts, size = random_vocabulary(rng)
    trie = make_trie(texts, size)
    for _ in range(8):
        machine = random_machine(rng)
        ending = ended_move(machine)
        adapter = Adapter(machine, trie)
        for _ in range(3):
            check_masks(rng, adapter, texts, size, ending)


def test_the_random_machines_meet_everything_there_is() -> None:
    """Levels left three deep within a token, doubt beside certainty, several items at once."""
    met: set[str] = set()
    for seed in range(100):
        rng = Random(seed)
        texts, _ = random_vocabulary(rng, 20)
        machine = random_machine(rng)
        met |= {"set" for move in machine.moves if len(set(move)) > 1}
        met |= {
            "doubt beside" for move in machine.moves if DOUBT in {kind for kind, _, _ in move[:-1]}
        }
        left: list[int] = []
        leave = machine.leave
        machine.leave = lambda outer, leave=leave, left=left: (  # type: ignore[method-assign, misc]
            left.append(outer) or leave(outer)
        )
        for outer in range(len(machine.outers)):
            for text in texts.values():
                left.clear()
                machine.judge(Place((STATE, 0, 0), outer), text)
                met |= {"three levels"} if len(set(left)) >= 3 else set()
    assert met == {"set", "doubt beside", "three levels"}


def test_where_much_may_follow_a_level_the_vocabulary_itself_is_walked() -> None:
    """More nodes than are merged: the state's level may end before the first byte."""
    rng = Random(5)
    alphabet = b'ab"[],'
    every = [b""]
    for _ in range(6):
        every += [text + bytes([b]) for text in every[-(6 ** len(every[-1])) :] for b in alphabet]
    texts = dict(enumerate(every[1:]))
    trie = make_trie(texts, len(texts))
    assert trie.nodes == len(every) > 50_000
    machine = random_machine(rng)
    while len(machine.outers) < 3 or not machine.pops[0]:
        machine = random_machine(rng)
    adapter, sample = Adapter(machine, trie), rng.sample([*texts], 2000)
    out = np.zeros((len(texts) + 31) // 32, np.uint32)
    for outer in range(-1, 3):
        start = Place((STATE, 0, 0), outer)
        starts = [(adapter.entry(start), adapter.outer(outer), -1)]
        doubtful = adapter.masks.mask(starts, 7, out)[2]
        legal, unsure = set(bits(out, len(texts))), set(doubtful)
        for i in sample:
            cost, doubt = machine.judge(start, texts[i])
            assert (i in legal) == (cost is not None and cost <= 7)
            assert (i in unsure) == (doubt and i not in legal)


def test_a_callback_that_raises_at_any_point_leaves_everything_as_it_was() -> None:
    rng = Random(11)
    texts, size = random_vocabulary(rng)
    trie = make_trie(texts, size)
    machine = random_machine(rng)
    while len(machine.outers) < 2:
        machine = random_machine(rng)
    ending = ended_move(machine)
    fail_at, failed = 0, True
    while failed:
        fail_at += 1
        adapter, failed = Adapter(machine, trie, fail_at), False
        try:
            check_masks(Random(3), adapter, texts, size, ending)
        except AsAsked:
            failed = True
            check_masks(Random(3), adapter, texts, size, ending)
    assert fail_at > 20


# ---- misuse and limits ---------------------------------------------------------------------


class Plain:
    """One state that goes round, one text that any character goes on."""

    masks: Masks

    def move(self, state: int, byte: int) -> int:
        return 1

    def language(self, language: int) -> tuple[bool, list[tuple[int, int, int]]]:
        return True, [(0, 0xD7FF, language + 1), (0xE000, 0x10FFFF, language + 1)]

    def language_cost(self, language: int) -> int:
        return 1

    def name(self, state: int, raw: bytes) -> int:
        return -1


def plain(trie: Trie, most_bytes: int = 1 << 30, grammar: Plain | None = None) -> Plain:
    grammar = grammar or Plain()
    grammar.masks = Masks(trie, grammar, most_bytes)
    assert grammar.masks.add_state(False, 1, b"ab") == 0
    assert grammar.masks.add_move([(Masks.STATE, 0, 0)]) == 1
    assert grammar.masks.text_state(7, b"") == 1
    return grammar


ABC = {0: b"a", 1: b"ab", 2: b"abc"}


def test_a_second_call_within_a_callback_is_refused() -> None:
    class Again(Plain):
        def move(self, state: int, byte: int) -> int:
            self.masks.mask([], -1, np.zeros(1, np.uint32))
            return 1

    grammar = plain(make_trie(ABC, 3), grammar=Again())
    with pytest.raises(RuntimeError, match="one at a time"):
        grammar.masks.entry_state(0)
    assert grammar.masks.mask([], -1, np.zeros(1, np.uint32)) == (0, -1, [])


def test_tables_that_would_take_too_much_memory_are_refused_and_stay_usable() -> None:
    trie = make_trie({0: b"a", 1: b"a" * 4096}, 2)
    grammar = plain(trie, 200_000)
    known = grammar.masks.entry_state(0)
    with pytest.raises(RuntimeError, match="may take 200000 bytes"):
        grammar.masks.entry_text(1)  # every byte of the long token is a state more
    assert grammar.masks.nbytes <= 200_000
    out = np.zeros(1, np.uint32)
    assert grammar.masks.mask([(known, -1, -1)], -1, out)[0] == 2


def test_what_a_grammar_says_is_checked() -> None:
    class Wrong(Plain):
        said: object = 7

        def move(self, state: int, byte: int) -> int:
            return self.said  # type: ignore[return-value]

    grammar = Wrong()
    plain(make_trie(ABC, 3), grammar=grammar)
    for far in (2, -2, 1 << 40):
        grammar.said = far
        with pytest.raises(ValueError, match=f"leads to move {far}, which is none of the 2"):
            grammar.masks.entry_state(0)
    for said in (None, 1.0, "1"):
        grammar.said = said
        with pytest.raises(ValueError, match="a whole number is wanted"):
            grammar.masks.entry_state(0)
    grammar.said = 1
    assert grammar.masks.entry_state(0) == 0


def test_numbers_out_of_range_are_refused() -> None:
    masks = plain(make_trie(ABC, 3)).masks
    entry, out = masks.entry_state(0), np.zeros(1, np.uint32)
    for kind, a, b in (
        (0, 1, 0),
        (0, -1, 0),
        (1, 0, 1),
        (1, 1, 2),
        (2, 1, 1),
        (5, 1, 0),
        (5, 0, 2),
        (6, 0, 0),
        (4, -1, 0),
        (-1, 0, 0),
    ):
        with pytest.raises(ValueError, match=r"item|state|move|cost"):
            masks.add_move([(kind, a, b)])
    with pytest.raises(ValueError, match="without items"):
        masks.add_move([])
    named = masks.add_move([(Masks.NAME, 1, 0)])
    for move, cost, parent in ((9, 0, -1), (1, -1, -1), (1, 0, 0), (1, 0, -2), (named, 0, -1)):
        with pytest.raises(ValueError, match=r"outer|cost"):
            masks.add_outer(move, cost, parent)
    for start in ((1, -1, -1), (-1, -1, -1), (entry, 0, -1), (entry, -2, -1), (entry, -1, 0)):
        with pytest.raises(ValueError, match="is none of the"):
            masks.mask([start], -1, out)
    with pytest.raises(ValueError, match="limit"):
        masks.mask([], -2, out)
    for wrong in (np.zeros(2, np.uint32), np.zeros(1, np.int32), np.zeros((1, 1), np.uint32)):
        with pytest.raises(ValueError, match="out: a writable uint32 array of 1 words"):
            masks.mask([], -1, wrong)  # type: ignore[arg-type]
    out.setflags(write=False)
    with pytest.raises(ValueError, match="writable"):
        masks.mask([], -1, out)
    with pytest.raises(ValueError, match="token 3"):
        masks.add_tokens([3])
    with pytest.raises(ValueError, match="rows"):
        masks.costs([], [-1])
    with pytest.raises(ValueError, match="state 1"):
        masks.entry_state(1)
    with pytest.raises(ValueError, match="text state 0"):
        masks.entry_text(0)


def test_a_grammar_and_the_masks_that_ask_it_go_together() -> None:
    """They hold each other; nothing else holds them."""
    grammar = plain(make_trie(ABC, 3))
    gone = weakref.ref(grammar)
    masks = grammar.masks
    del grammar
    gc.collect()
    assert gone() is not None
    assert masks.entry_state(0) == 0
    del masks
    gc.collect()
    assert gone() is None


def test_the_texts_with_which_a_level_ends_are_told() -> None:
    texts = {0: b'"', 1: b'a"', 2: b'a",', 3: b'ab"', 4: b'a"b"', 5: b"ab"}
    masks = plain(make_trie(texts, 6)).masks
    told = masks.exit_texts(masks.entry_text(1))
    assert dict(told) == {b'"': [0], b'a"': [1, 2, 4], b'ab"': [3]}


def test_an_ambiguous_grammar_takes_no_longer_than_its_sets() -> None:
    """Two states that each lead to both: 2^4096 ways through the longest token, two places."""
    trie = make_trie({0: b"a" * 4096}, 1)
    grammar = plain(trie)
    grammar.masks = masks = Masks(trie, grammar)
    for state in range(2):
        assert masks.add_state(False, 1, b"a") == state
    assert masks.add_move([(Masks.STATE, 0, 0), (Masks.STATE, 1, 0)]) == 1
    out = np.zeros(1, np.uint32)
    assert masks.mask([(masks.entry_state(0), -1, -1)], -1, out) == (1, 1, [])
