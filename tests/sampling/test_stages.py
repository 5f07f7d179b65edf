"""Each stage does what its definition says, and writes to nothing that it is given."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forwardpass.errors import ComputeError, RequestError
from forwardpass.sampling import stages

INF = math.inf
Row = npt.NDArray[np.float64]


def row(*values: float) -> Row:
    return np.array(values, dtype=np.float64)


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_scores_keep_their_type_until_the_temperature(kind: type[np.floating[Any]]) -> None:
    scores = np.array([1.0, -2.0, 0.5], dtype=kind)
    changed = [
        stages.bias(scores, [(1, 3.5)]),
        stages.repetition_penalty(scores, [1, 2], 2.0),
        stages.frequency_penalty(scores, [1, 1], 0.5),
        stages.presence_penalty(scores, [1, 1], 0.5),
        stages.grammar_mask(scores, np.array([True, False, True])),
    ]
    assert [after.dtype for after in changed] == [kind] * 5
    assert [after.tolist() for after in changed] == [
        [1.0, 1.5, 0.5],
        [1.0, -4.0, 0.25],
        [1.0, -3.0, 0.5],
        [1.0, -2.5, 0.5],
        [1.0, -INF, 0.5],
    ]
    assert scores.tolist() == [1.0, -2.0, 0.5]
    assert stages.temperature(scores, 2.0).dtype == np.float64


def test_a_bias_outside_the_vocabulary_is_refused_by_its_id() -> None:
    with pytest.raises(RequestError, match="token id 3 is outside the vocabulary of 3"):
        stages.bias(row(0, 0, 0), [(3, 1.0)])


def test_a_repeated_token_is_penalised_once_by_repetition_and_each_time_by_frequency() -> None:
    scores = row(4.0, -4.0, 4.0)
    assert stages.repetition_penalty(scores, [0, 0, 1, 1], 2.0).tolist() == [2.0, -8.0, 4.0]
    assert stages.frequency_penalty(scores, [0, 0, 1], 1.5).tolist() == [1.0, -5.5, 4.0]
    assert stages.presence_penalty(scores, [0, 0, 1], 1.5).tolist() == [2.5, -5.5, 4.0]


def test_a_banned_token_stays_banned_under_every_penalty() -> None:
    scores = row(-INF, 1.0)
    for after in (
        stages.bias(scores, [(0, 100.0)]),
        stages.repetition_penalty(scores, [0], 2.0),
        stages.frequency_penalty(scores, [0], -2.0),
        stages.presence_penalty(scores, [0], -2.0),
    ):
        assert after[0] == -INF


def test_a_repetition_penalty_that_overflows_is_refused() -> None:
    with pytest.raises(RequestError, match="repetition_penalty = 1e-308 makes a score infinite"):
        stages.repetition_penalty(row(20.0), [0], 1e-308)


@pytest.mark.parametrize("outside", [-1, 3])
def test_a_history_outside_the_vocabulary_is_refused_by_its_id(outside: int) -> None:
    with pytest.raises(ComputeError, match=f"token id {outside} is outside the vocabulary of 3"):
        stages.repetition_penalty(row(0, 0, 0), [0, outside], 2.0)


@given(st.lists(st.booleans(), min_size=1, max_size=100))
def test_a_mask_of_bits_says_the_same_as_a_mask_of_bools(allowed: list[bool]) -> None:
    words = np.zeros(-(-len(allowed) // 32), dtype=np.uint32)
    for token, legal in enumerate(allowed):
        words[token // 32] |= np.uint32(legal << (token % 32))
    scores = np.arange(len(allowed), dtype=np.float32)
    by_bits = stages.grammar_mask(scores, words)
    assert np.array_equal(by_bits, stages.grammar_mask(scores, np.array(allowed)))
    assert np.array_equal(by_bits > -INF, allowed)


@pytest.mark.parametrize("kind", [np.bool_, np.uint32, np.int8])
def test_a_mask_of_another_length_or_type_is_refused(kind: type[Any]) -> None:
    allowed = np.ones(2, dtype=kind)
    with pytest.raises(ComputeError, match=r"mask: .* of shape \(2,\): wanted 5 bool or 1 uint32"):
        stages.grammar_mask(row(0, 0, 0, 0, 0), allowed)


@given(st.lists(st.floats(1e-300, 1), min_size=1, max_size=40))
def test_rescaled_probabilities_add_up_to_one_and_keep_their_ratios(p: list[float]) -> None:
    rescaled = stages.rescale(row(*p))
    assert math.fsum(rescaled) == pytest.approx(1, abs=1e-12)
    assert rescaled * math.fsum(p) == pytest.approx(p)


def test_the_best_come_first_and_equals_by_position() -> None:
    assert stages.best_first(row(1, 3, -INF, 3, -0.0, 0.0)).tolist() == [1, 3, 0, 4, 5, 2]


def test_the_softmax_of_large_scores_and_small_temperatures_is_finite() -> None:
    huge = np.array([3e38, 1.0, -3e38, -INF], dtype=np.float32)
    assert stages.softmax(huge).tolist() == [1.0, 0.0, 0.0, 0.0]
    assert stages.temperature(huge, 5e-324).tolist() == [0.0, -INF, -INF, -INF]
    assert stages.softmax(stages.temperature(row(2, 2, 1), 1e-300)).tolist() == [0.5, 0.5, 0.0]


def test_a_softmax_over_a_large_vocabulary_adds_up_to_one() -> None:
    scores = np.random.default_rng(3).normal(0, 4, 150_000).astype(np.float32)
    p = stages.softmax(scores)
    assert math.fsum(p) == pytest.approx(1, abs=1e-12)
    best = float(scores.max())
    weights = [math.exp(score - best) for score in scores.tolist()]
    total = math.fsum(weights)
    assert np.abs(p - np.array(weights) / total).max() < 1e-15
