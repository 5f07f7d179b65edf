"""Each truncation keeps what its definition says of candidates that come best first."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forwardpass.sampling import stages, truncations

Row = npt.NDArray[np.float64]
LAST = math.nextafter(1.0, 0.0)  # the largest number that is drawn


def row(*values: float) -> Row:
    return np.array(values, dtype=np.float64)


@st.composite
def distributions(draw: st.DrawFn) -> Row:
    """Probabilities above 0, best first, with many equals."""
    weights = st.sampled_from([0.5, 1.0, 1.0, 2.0, 3.0, 1e-9])
    values = sorted(draw(st.lists(weights, min_size=1, max_size=40)), reverse=True)
    return row(*(value / math.fsum(values) for value in values))


@st.composite
def scores(draw: st.DrawFn) -> Row:
    """Scores, best first."""
    some = st.one_of(st.sampled_from([0.0, 1.0, 2.0]), st.floats(-60, 60, width=32))
    return row(*sorted(draw(st.lists(some, min_size=1, max_size=40)), reverse=True))


@given(scores(), st.integers(1, 50))
def test_top_k_keeps_exactly_k_the_first_of_equals(x: Row, k: int) -> None:
    assert truncations.top_k(x, k).tolist() == list(range(min(k, x.size)))


@given(scores(), st.integers(1, 50))
def test_top_k_that_is_not_exact_keeps_all_that_equal_the_kth(x: Row, k: int) -> None:
    kept = truncations.top_k(x, k, exact=False).tolist()
    assert kept == [i for i, score in enumerate(x) if score >= x[min(k, x.size) - 1]]


def test_top_p_keeps_one_token_at_the_exact_boundary() -> None:
    assert truncations.top_p(row(0.5, 0.25, 0.25), 0.5).tolist() == [0]
    assert truncations.top_p(row(0.5, 0.25, 0.25), 0.75).tolist() == [0, 1]
    assert truncations.top_p(row(0.5, 0.25, 0.25), 0.75 + 1e-9).tolist() == [0, 1, 2]


@pytest.mark.parametrize("count", range(1, 10))
def test_the_rounding_of_a_sum_adds_no_token_to_top_p(count: int) -> None:
    assert truncations.top_p(np.full(10, 0.1), count / 10).tolist() == list(range(count))


@given(distributions(), st.floats(1e-12, 1, exclude_max=True))
def test_top_p_keeps_the_smallest_set_of_best_tokens_that_reaches_p(p: Row, mass: float) -> None:
    kept = truncations.top_p(p, mass).tolist()
    assert kept == list(range(len(kept)))
    assert math.fsum(p[kept]) >= mass - 2 * truncations.TOLERANCE or len(kept) == p.size
    assert len(kept) == 1 or math.fsum(p[kept[:-1]]) < mass


def test_top_p_of_zero_keeps_the_best_alone() -> None:
    assert truncations.top_p(row(0.5, 0.5), 0.0).tolist() == [0]


def test_top_p_looks_at_shares_of_all_tokens_not_of_those_that_top_k_left() -> None:
    assert truncations.top_p(row(0.5, 0.25), 0.6).tolist() == [0, 1]
    assert truncations.top_p(row(0.5, 0.25), 0.9).tolist() == [0, 1]
    assert truncations.top_p(stages.rescale(row(0.5, 0.25)), 0.6).tolist() == [0]


@given(distributions(), st.floats(1e-6, 0.999))
def test_min_p_keeps_the_best_and_all_that_have_a_large_enough_share_of_it(
    p: Row, m: float
) -> None:
    kept = set(truncations.min_p(p, m).tolist())
    assert 0 in kept
    for place, probability in enumerate(p):
        if abs(probability - m * p[0]) > 1e-9:
            assert (place in kept) == (probability > m * p[0])


def test_min_p_keeps_a_token_at_the_exact_boundary() -> None:
    assert truncations.min_p(row(0.8, 0.12, 0.08), 0.1).tolist() == [0, 1, 2]


@given(scores(), st.floats(0.01, 5))
def test_top_n_sigma_keeps_what_is_within_n_deviations_of_the_best(x: Row, n: float) -> None:
    kept = set(truncations.top_n_sigma(x, n).tolist())
    mean = math.fsum(x) / x.size
    reach = n * math.sqrt(math.fsum((score - mean) ** 2 for score in x) / x.size)
    assert 0 in kept
    for place, score in enumerate(x):
        if abs(x[0] - score - reach) > 1e-9:
            assert (place in kept) == (x[0] - score < reach)


@given(scores(), st.floats(0.01, 5), st.sampled_from([1e-3, 0.5, 4.0, 1e3]))
def test_top_n_sigma_keeps_the_same_at_every_temperature(x: Row, n: float, t: float) -> None:
    gap = truncations.top_n_sigma(x, n).size
    close = {truncations.top_n_sigma(x, n * (1 + e)).size for e in (-1e-6, 1e-6)}
    assert truncations.top_n_sigma(x / t, n).size == gap or len(close) > 1


def test_top_n_sigma_keeps_all_equals_and_overflows_nowhere() -> None:
    assert truncations.top_n_sigma(row(2, 2, 2), 0.1).tolist() == [0, 1, 2]
    assert truncations.top_n_sigma(row(1e300, 0, 0, -1e300), 1.0).tolist() == [0]
    assert truncations.top_n_sigma(row(1e300, 0, 0, -1e300), 1.5).tolist() == [0, 1, 2]


@given(distributions(), st.floats(0.001, 1, exclude_max=True))
def test_typical_keeps_the_fewest_of_the_tokens_nearest_to_the_entropy(p: Row, mass: float) -> None:
    kept = truncations.typical_p(p, mass).tolist()
    entropy = math.fsum(-q * math.log(q) for q in p)
    off = [abs(-math.log(q) - entropy) for q in p]
    left_out = [off[place] for place in range(p.size) if place not in kept]
    farthest = max(off[place] for place in kept)
    assert kept == sorted(kept)
    assert not left_out or min(left_out) >= farthest - 1e-9
    assert math.fsum(p[kept]) >= mass - 2 * truncations.TOLERANCE or len(kept) == p.size
    without = [place for place in kept if off[place] < farthest - 1e-9]
    assert math.fsum(p[without]) < mass


def test_typical_may_leave_the_best_token_out() -> None:
    p = row(0.4, *[0.06] * 10)  # entropy 2.05, surprises 0.92 and 2.81
    assert truncations.typical_p(p, 0.3).tolist() == [1, 2, 3, 4, 5]
    assert truncations.typical_p(p, 0.6).tolist() == list(range(1, 11))
    assert truncations.typical_p(p, 0.61).tolist() == list(range(11))


def test_of_equally_typical_tokens_the_better_come_first_or_all_come() -> None:
    p = row(0.5, 0.25, 0.25)  # each half a bit from the entropy of 1.5 bits
    assert truncations.typical_p(p, 0.4).tolist() == [0]
    assert truncations.typical_p(p, 0.6).tolist() == [0, 1]
    assert truncations.typical_p(p, 0.4, exact=False).tolist() == [0, 1, 2]


def test_xtc_drops_all_able_tokens_but_the_least_likely() -> None:
    p = row(0.4, 0.3, 0.2, 0.1)
    assert truncations.xtc(p, 0.15).tolist() == [2, 3]
    assert truncations.xtc(p, 0.2).tolist() == [2, 3]
    assert truncations.xtc(p, 0.3).tolist() == [1, 2, 3]
    assert truncations.xtc(p, 0.35).tolist() == [0, 1, 2, 3]
    assert truncations.xtc(p, 0.5).tolist() == [0, 1, 2, 3]
    assert truncations.xtc(row(0.5, 0.5), 0.5).tolist() == [1]


@given(distributions(), st.floats(0.001, 0.5))
def test_xtc_always_leaves_a_token_of_the_threshold_where_there_was_one(p: Row, t: float) -> None:
    kept = truncations.xtc(p, t)
    assert kept.size > 0
    assert p[kept[0]] >= t - truncations.TOLERANCE or p[0] < t
    assert kept.tolist() == list(range(int(kept[0]), p.size))


@given(distributions(), st.floats(0, 1, exclude_max=True))
def test_a_draw_falls_on_the_token_whose_interval_holds_the_number(p: Row, u: float) -> None:
    place = truncations.draw(p, u)
    better = math.fsum(p[:place])
    assert better - 1e-12 <= u < better + p[place] + 1e-12


def test_a_draw_at_either_end_takes_the_likeliest_and_the_least_likely_token() -> None:
    p = row(0.6, 0.3, 0.1)
    assert truncations.draw(p, 0.0) == 0
    assert truncations.draw(p, LAST) == 2
    short = p * (1 - 1e-9)  # a sum that falls short of the number drawn
    assert truncations.draw(short, LAST) == 2


def test_each_interval_holds_its_lower_end_and_not_its_upper_one() -> None:
    p = row(0.5, 0.25, 0.25)
    assert [truncations.draw(p, u) for u in (0.0, 0.5, 0.75)] == [0, 1, 2]
    assert [truncations.draw(p, math.nextafter(u, 0.0)) for u in (0.5, 0.75)] == [0, 1]
