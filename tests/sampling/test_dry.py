"""DRY finds the longest repeat that each token would carry on, and pushes it down."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forwardpass.sampling.adjusting import History
from forwardpass.sampling.chain import choose
from forwardpass.sampling.dry import dry, repeats
from forwardpass.sampling.settings import resolve
from sampling import plain_sampler

A, B, C, D = 0, 1, 2, 3
tokens = st.lists(st.integers(0, 3), max_size=40)
breaker_sets = st.frozensets(st.integers(0, 3), max_size=2)


def test_a_token_that_followed_a_copy_of_the_end_is_found_with_the_longest_copy() -> None:
    assert repeats([A, B, C, D, B, C, A, B, C], set()) == {D: 3, A: 2}
    assert repeats([A, B, C], set()) == {}
    assert repeats([A, A, A, A], set()) == {A: 3}  # copies may overlap
    assert repeats([], set()) == repeats([A], set()) == {}


def test_no_copy_reaches_over_a_breaker_and_no_breaker_is_found() -> None:
    row = [A, D, B, C, A, D, B]
    assert repeats(row, set()) == {C: 3}
    assert repeats(row, {D}) == {C: 1}
    assert repeats(row, {C}) == {}
    assert repeats(row, {B}) == {}


@given(tokens, breaker_sets)
def test_repeats_are_those_of_comparing_every_place_with_the_end(
    row: list[int], breakers: frozenset[int]
) -> None:
    assert repeats(row, breakers) == plain_sampler.repeated(row, breakers)


def test_the_penalty_grows_with_the_length_beyond_the_allowed_one() -> None:
    row = [A, B, C, D, B, C, A, B, C]
    scores = np.zeros(5)

    def after(allowed: int) -> list[float]:
        changed = dry(scores, row, (), multiplier=0.5, base=3.0, allowed_length=allowed)
        return [float(score) for score in changed]

    assert after(2) == [-0.5, 0, 0, -1.5, 0]
    assert after(1) == [-1.5, 0, 0, -4.5, 0]
    assert after(3) == [0, 0, 0, -0.5, 0]
    assert after(4) == [0, 0, 0, 0, 0]
    assert not scores.any()


def test_a_very_long_repeat_makes_a_very_large_penalty_and_no_infinity() -> None:
    changed = dry(np.zeros(2), [0] * 5_000, (), multiplier=1.0, base=1.75, allowed_length=2)
    assert changed[1] == 0
    assert changed[0] == pytest.approx(-np.exp(80))


def test_dry_looks_back_at_prompt_and_answer_as_far_as_its_window() -> None:
    scores = np.array([0.0, 0.0, 1.0, 0.9], dtype=np.float32)
    history = History(prompt=[A, B, C, D], output=[A, B])

    def token(**request: object) -> int:
        asked = {"dry_multiplier": 1.0, **request}
        return choose(scores, resolve(asked), history=history, position=2).token

    assert token() == D
    assert token(dry_multiplier=0) == C
    assert token(dry_penalty_last_n=6) == D
    assert token(dry_penalty_last_n=5) == C  # a copy of length 1 is allowed
    assert token(dry_penalty_last_n=5, dry_allowed_length=1) == D


def test_a_breaker_ends_a_repeat_of_a_request() -> None:
    scores = np.array([0.0, 0.0, 1.0, 0.9], dtype=np.float32)
    settings = resolve({"dry_multiplier": 1.0})
    for breakers, token in ((frozenset(), D), (frozenset({A}), C), (frozenset({C}), C)):
        history = History([A, B, C, D], [A, B], breakers)
        assert choose(scores, settings, history=history, position=2).token == token
