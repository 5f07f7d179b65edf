"""The draw depends on (seed, choice, position) and on nothing else."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forwardpass.errors import RequestError
from forwardpass.sampling.random import fresh_seed, philox4x64, uniform

ONES = 2**64 - 1

# Random123's kat_vectors, "philox4x64 10": counter, key, output.
KNOWN = [
    (
        (0, 0, 0, 0),
        (0, 0),
        (0x16554D9ECA36314C, 0xDB20FE9D672D0FDC, 0xD7E772CEE186176B, 0x7E68B68AEC7BA23B),
    ),
    (
        (ONES, ONES, ONES, ONES),
        (ONES, ONES),
        (0x87B092C3013FE90B, 0x438C3C67BE8D0224, 0x9CC7D7C69CD777B6, 0xA09CAEBF594F0BA0),
    ),
    (
        (0x243F6A8885A308D3, 0x13198A2E03707344, 0xA4093822299F31D0, 0x082EFA98EC4E6C89),
        (0x452821E638D01377, 0xBE5466CF34E90C6C),
        (0xA528F45403E61D95, 0x38C72DBD566E9788, 0xA5A1610E72FD18B5, 0x57BD43B5E52B7FE6),
    ),
]

words = st.integers(0, ONES)
seeds = st.integers(-(2**63), 2**63 - 1)


@pytest.mark.parametrize(("counter", "key", "output"), KNOWN)
def test_philox_gives_the_published_known_answers(
    counter: tuple[int, int, int, int], key: tuple[int, int], output: tuple[int, int, int, int]
) -> None:
    assert philox4x64(counter, key) == output


@given(st.tuples(words, words, words, words), st.tuples(words, words))
def test_philox_equals_numpys(counter: tuple[int, int, int, int], key: tuple[int, int]) -> None:
    as_one = sum(word << (64 * i) for i, word in enumerate(counter))
    before = (as_one - 1) % 2**256  # NumPy steps its counter before it computes
    theirs = np.random.Philox(counter=before, key=key[0] + (key[1] << 64)).random_raw(4)
    assert philox4x64(counter, key) == tuple(int(word) for word in theirs)


@given(seeds, words, words)
def test_the_number_is_a_multiple_of_two_to_the_minus_53_in_the_unit_interval(
    seed: int, choice: int, position: int
) -> None:
    number = uniform(seed, choice, position)
    assert 0 <= number < 1
    assert (number * 2**53).is_integer()


def test_the_same_seed_choice_and_position_give_the_same_number_in_any_order() -> None:
    keys = [(s, c, p) for s in (-3, 0, 7) for c in range(4) for p in range(25)]
    forwards = {key: uniform(*key) for key in keys}
    shuffled = random.Random(5).sample(keys, len(keys))
    assert {key: uniform(*key) for key in shuffled} == forwards
    assert len(set(forwards.values())) == len(keys)


def test_no_two_seeds_share_a_stream() -> None:
    edges = [-(2**63), -(2**63) + 1, -(2**32), -1, 0, 1, 2**32, 2**53 + 1, 2**63 - 1]
    assert len({uniform(seed, 0, 0) for seed in edges}) == len(edges)


@pytest.mark.parametrize("seed", [2**63, -(2**63) - 1])
def test_a_seed_of_more_than_64_bits_is_refused_with_the_range(seed: int) -> None:
    with pytest.raises(RequestError, match="from -2⁶³ to 2⁶³ - 1"):
        uniform(seed, 0, 0)


@pytest.mark.parametrize(("choice", "position"), [(-1, 0), (0, -1), (2**64, 0), (0, 2**64)])
def test_a_choice_or_position_outside_its_word_is_refused(choice: int, position: int) -> None:
    with pytest.raises(RequestError, match="wanted numbers from 0 to"):
        uniform(0, choice, position)


def test_a_fresh_seed_is_a_valid_one_and_differs_from_the_last() -> None:
    drawn = {fresh_seed() for _ in range(8)}
    assert all(0 <= seed < 2**32 for seed in drawn)
    assert len(drawn) > 1  # all eight equal: one chance in 2²²⁴
