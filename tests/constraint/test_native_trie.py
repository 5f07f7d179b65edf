"""The tree of a vocabulary's bytes: what it finds, the fewest tokens of a text, and its arrays."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from constraint.pushdown import Vocabulary, make_trie, random_vocabulary
from forwardpass._native import Masks, Trie


def fewest(texts: Vocabulary, text: bytes) -> list[bytes] | None:
    """The fewest texts that give a text, the longest first: by trying them all from the end."""
    best: list[list[bytes] | None] = [[]]
    for start in range(len(text) - 1, -1, -1):
        ways = []
        for token in set(texts.values()):
            if text.startswith(token, start):
                rest = best[len(text) - start - len(token)]
                if rest is not None:
                    ways.append([token, *rest])
        best.append(min(ways, key=lambda way: (len(way), [-len(t) for t in way]), default=None))
    return best[-1]


def test_a_text_becomes_as_few_tokens_as_can_be() -> None:
    rng = Random(2)
    impossible = 0
    for _ in range(60):
        texts, size = random_vocabulary(rng, rng.choice((3, 8, 40)))
        trie = make_trie(texts, size)
        for _ in range(4):
            text = b"".join(rng.choices([*texts.values(), b"a", b","], k=rng.randint(1, 8)))
            wanted = fewest(texts, text)
            if wanted is None:
                impossible += 1
                with pytest.raises(ValueError, match=r"no token goes on at byte \d+"):
                    trie.segment(text)
                continue
            got = trie.segment(text)
            assert [texts[i] for i in got] == wanted
            assert trie.segment_count(text) == len(wanted)
            assert all(i == min(j for j in texts if texts[j] == texts[i]) for i in got)
    assert impossible > 10
    assert trie.segment(b"") == []


def test_a_byte_without_a_token_is_named() -> None:
    trie = make_trie({0: b"a", 1: b"ab"}, 2)
    with pytest.raises(ValueError, match=r"byte 3 \(0x21\) of a text of 5 bytes"):
        trie.segment(b"aab!a")


def test_all_ids_of_a_text_are_found() -> None:
    texts, size = random_vocabulary(Random(1))
    trie = make_trie(texts, size)
    for text in {*texts.values(), b"", b"aaaaaaaa", b"z"}:
        assert trie.find(text) == sorted(i for i in texts if texts[i] == text)


def test_texts_and_ids_that_are_none_are_refused() -> None:
    ids, offsets = np.array([0, 1], np.int32), np.array([0, 1, 2], np.int64)
    cases: list[tuple[list[int], bytes, list[int], int, str]] = [
        ([0, 1], b"ab", [0, 1, 1], 2, "length of the blob"),
        ([0, 1], b"ab", [0, 0, 2], 2, "no text"),
        ([0, 1], b"ab", [0, 5, 2], 2, "no text"),
        ([0, 1], b"ab", [0, -5, 2], 2, "no text"),
        ([0, 1], b"ab", [0, 2], 2, "one more"),
        ([0, 0], b"ab", [0, 1, 2], 2, "twice"),
        ([0, 2], b"ab", [0, 1, 2], 2, "rows"),
        ([0, -1], b"ab", [0, 1, 2], 2, "rows"),
        ([0], b"a" * 4097, [0, 4097], 2, "4097 bytes"),
        ([0, 1], b"ab", [0, 1, 2], 0, "size"),
        ([0, 1], b"ab", [0, 1, 2], 1 << 40, "size"),
    ]
    for given, blob, at, size, why in cases:
        with pytest.raises(ValueError, match=why):
            Trie(np.array(given, np.int32), blob, np.array(at, np.int64), size)
    assert Trie(ids, b"ab", offsets, 2).nodes == 3
    assert Trie(ids[:0], b"", offsets[:1], 2).nodes == 1


def walked(trie: Trie) -> list[int]:
    """All tokens that a walk through the whole tree meets."""

    class Any256:
        def move(self, state: int, byte: int) -> int:
            return again

        def language(self, language: int) -> tuple[bool, list[tuple[int, int, int]]]:
            raise AssertionError("there are no strings")

        def language_cost(self, language: int) -> int:
            raise AssertionError("there are no strings")

        def name(self, state: int, raw: bytes) -> int:
            raise AssertionError("there are no names")

    masks = Masks(trie, Any256())
    again = masks.add_move([(Masks.STATE, masks.add_state(False, 1, bytes(range(256))), 0)])
    every = [*range(trie.size)]
    costs = masks.costs([(masks.entry_state(0), -1, -1)], every)
    return [i for i in every if costs[i] >= 0]


def test_a_stored_trie_is_the_same_and_a_damaged_one_is_refused() -> None:
    """Whatever one number is changed to, the arrays are refused or are another tree, whole."""
    rng = Random(4)
    texts, size = random_vocabulary(rng, 30)
    arrays = make_trie(texts, size).arrays()
    same = Trie.from_arrays(*arrays, size)
    assert [a.tolist() for a in same.arrays()] == [a.tolist() for a in arrays]
    refused = 0
    for _ in range(3000):
        changed: list[NDArray[Any]] = [array.copy() for array in arrays]
        one = rng.choice(changed)
        high = np.iinfo(one.dtype).max
        one[rng.randrange(one.size)] = rng.choice((0, 1, high, high // 2, rng.randrange(60)))
        if rng.random() < 0.2:
            which = rng.randrange(4)
            changed[which] = changed[which][: rng.randrange(changed[which].size)].copy()
        try:
            trie = Trie.from_arrays(changed[0], changed[1], changed[2], changed[3], size)
        except ValueError:
            refused += 1
            continue
        assert [a.tolist() for a in trie.arrays()] == [a.tolist() for a in changed]
        assert all(0 <= found < size for text in texts.values() for found in trie.find(text))
        assert walked(trie) == sorted(changed[3].tolist())
    assert refused > 1000


def test_a_stored_tree_keeps_its_order() -> None:
    """a, ab, b: siblings rise, a depth is one more than the one above at most, ids rise."""
    good = ([0, 97, 98, 98], [0, 1, 2, 1], [0, 0, 1, 2, 4], [0, 1, 2, 3])

    def stored(*arrays: list[int]) -> Trie:
        kinds = np.uint8, np.uint16, np.int32, np.int32
        made = [np.array(a, kind) for a, kind in zip(arrays, kinds, strict=True)]
        return Trie.from_arrays(made[0], made[1], made[2], made[3], 4)

    assert stored(*good).find(b"b") == [2, 3]
    for which, numbers, why in (
        (0, [0, 97, 98, 97], "node 3 does not rise"),
        (0, [0, 98, 98, 97], "node 3 does not rise"),
        (0, [1, 97, 98, 98], "root"),
        (1, [0, 1, 3, 1], "node 2 has no place"),
        (1, [0, 1, 2, 0], "node 3 has no place"),
        (1, [1, 1, 2, 1], "root"),
        (2, [0, 1, 1, 2, 4], "root"),
        (2, [0, 0, 3, 2, 4], "node 2 has no place"),
        (2, [0, 0, 1, 2, 3], "root"),
        (2, [0, 0, 1, 2], "lengths"),
        (3, [0, 1, 3, 2], "ids of node 3 do not rise"),
        (3, [0, 1, 2, 2], "twice"),
        (3, [0, 1, 2, 4], "rows"),
        (3, [0, 1, 2], "root"),
    ):
        changed = [*good[:which], numbers, *good[which + 1 :]]
        with pytest.raises(ValueError, match=why):
            stored(*changed)
