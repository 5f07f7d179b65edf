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


weights = st.lists(st.sampled_from([0.0, 0.5, 1.0, 1.0, 2.0, 3.0, 1e-9]), min_size=1, max_size=40)


@st.composite
def distributions(draw: st.DrawFn) -> Row:
    """Probabilities with many equals and some zeros."""
    values = draw(weights.filter(any))
    return row(*(value / math.fsum(values) for value in values))


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


@given(distributions(), st.integers(1, 50))
def test_top_k_keeps_exactly_k_and_the_lower_ids_of_equals(p: Row, k: int) -> None:
    ranked = sorted(range(p.size), key=lambda i: (-p[i], i))
    assert stages.top_k(p, k).tolist() == sorted(ranked[:k])


def test_top_p_keeps_one_token_at_the_exact_boundary() -> None:
    assert stages.top_p(row(0.5, 0.25, 0.25), 0.5).tolist() == [0]
    assert stages.top_p(row(0.25, 0.25, 0.5), 0.75).tolist() == [0, 2]


@pytest.mark.parametrize("count", range(1, 10))
def test_the_rounding_of_a_sum_adds_no_token_to_top_p(count: int) -> None:
    assert stages.top_p(np.full(10, 0.1), count / 10).tolist() == list(range(count))


@given(distributions(), st.floats(1e-12, 1, exclude_max=True))
def test_top_p_keeps_the_smallest_set_of_best_tokens_that_reaches_p(p: Row, mass: float) -> None:
    kept = stages.top_p(p, mass).tolist()
    ranked = sorted(range(p.size), key=lambda i: (-p[i], i))
    assert kept == sorted(ranked[: len(kept)])
    best = [p[i] for i in ranked[: len(kept)]]
    assert math.fsum(best) >= mass - 2 * stages.TOLERANCE or all(p[kept] > 0)
    assert len(kept) == 1 or math.fsum(best[:-1]) < mass


def test_top_p_looks_at_shares_of_all_tokens_not_of_those_that_top_k_left() -> None:
    assert stages.top_p(row(0.5, 0.25), 0.6).tolist() == [0, 1]
    assert stages.top_p(row(0.5, 0.25), 0.9).tolist() == [0, 1]


@given(distributions(), st.floats(1e-6, 0.999))
def test_min_p_keeps_the_best_and_all_that_have_a_large_enough_share_of_it(
    p: Row, m: float
) -> None:
    kept = set(stages.min_p(p, m).tolist())
    assert int(p.argmax()) in kept
    for token, probability in enumerate(p):
        if abs(probability - m * p.max()) > 1e-9:
            assert (token in kept) == (probability > m * p.max())


def test_min_p_keeps_a_token_at_the_exact_boundary() -> None:
    assert stages.min_p(row(0.8, 0.08, 0.12), 0.1).tolist() == [0, 1, 2]


@given(distributions(), st.floats(0, 1, exclude_max=True))
def test_a_draw_falls_on_the_token_whose_interval_holds_the_number(p: Row, u: float) -> None:
    token = stages.draw(p, u)
    better = math.fsum(q for i, q in enumerate(p) if q > p[token] or (q == p[token] and i < token))
    assert p[token] > 0
    assert better - 1e-12 <= u < better + p[token] + 1e-12


def test_a_draw_at_either_end_takes_the_likeliest_and_the_least_likely_token() -> None:
    p = row(0.1, 0.0, 0.6, 0.3)
    assert stages.draw(p, 0.0) == 2
    assert stages.draw(p, math.nextafter(1.0, 0.0)) == 0
    short = p * (1 - 1e-9)  # a sum that falls short of the number drawn
    assert stages.draw(short, math.nextafter(1.0, 0.0)) == 0


def test_each_interval_holds_its_lower_end_and_not_its_upper_one() -> None:
    p = row(0.25, 0.5, 0.25)
    assert [stages.draw(p, u) for u in (0.0, 0.5, 0.75)] == [1, 0, 2]
    assert [stages.draw(p, math.nextafter(u, 0.0)) for u in (0.5, 0.75)] == [1, 0]


@given(distributions())
def test_rescaled_probabilities_add_up_to_one(p: Row) -> None:
    part = p[p > 0][:3]
    assert math.fsum(stages.rescale(part)) == pytest.approx(1, abs=1e-12)


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
