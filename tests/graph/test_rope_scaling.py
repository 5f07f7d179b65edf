"""Rescaled angles against their definitions, and what is multiplied besides being turned."""

from __future__ import annotations

import math

import numpy as np
import pytest

from forwardpass.graph import references
from forwardpass.rope import Rope, inverse_frequencies
from graph.test_references import check, random, turned

PLAIN = [100.0 ** (-2 * i / 12) for i in range(6)]


def turns(angle: float, positions: float) -> float:
    return positions * angle / (2 * math.pi)


def test_yarn_keeps_fast_pairs_divides_slow_ones_and_blends_between() -> None:
    # 64 positions: pairs turn 10.2, 4.7, 2.2, 1.0, 0.5 and 0.2 times.
    rope = Rope(
        *(100.0, "yarn", 8.0),
        original_max_position_embeddings=64,
        beta_fast=5.0,
        beta_slow=0.5,
        truncate=False,
    )
    found = inverse_frequencies(rope, 12)
    low, high = (pair_that_turns(beta, 64) for beta in (5.0, 0.5))
    for i, (angle, new) in enumerate(zip(PLAIN, found, strict=True)):
        share = min(1.0, max(0.0, (i - low) / (high - low)))
        assert new == pytest.approx((1 - share) * angle + share * angle / 8, rel=1e-12)
        assert (new == angle) == (turns(angle, 64) >= 5)
        assert math.isclose(new, angle / 8) == (turns(angle, 64) <= 0.5)


def pair_that_turns(times: float, positions: float) -> float:
    """Solves positions × 100^(−2i/12) = 2π × times for i."""
    return 12 / 2 * math.log(positions / (2 * math.pi * times), 100)


def test_yarn_s_blend_begins_and_ends_at_pairs_unless_it_is_not_rounded() -> None:
    rope = Rope(100.0, "yarn", 8.0, original_max_position_embeddings=64, beta_fast=4, beta_slow=0.6)
    assert [pair_that_turns(beta, 64) for beta in (4, 0.6)] == pytest.approx([1.218, 3.690], 1e-3)
    shares = [0, 0, 1 / 3, 2 / 3, 1, 1]
    expected = [a * (1 - s) + a * s / 8 for a, s in zip(PLAIN, shares, strict=True)]
    assert inverse_frequencies(rope, 12) == pytest.approx(expected, rel=1e-12)


def test_yarn_s_blend_stays_within_the_head() -> None:
    # All pairs turn often, or hardly at all: nothing is divided, or all but the first.
    often = Rope(100.0, "yarn", 8.0, original_max_position_embeddings=2e4)
    assert inverse_frequencies(often, 12) == PLAIN
    rarely = Rope(100.0, "yarn", 8.0, original_max_position_embeddings=8)
    assert inverse_frequencies(rarely, 12)[1:] == pytest.approx([a / 8 for a in PLAIN[1:]])


def test_longrope_divides_each_pair_by_its_own_factor() -> None:
    factors = (1.0, 2.0, 3.0, 4.0, 5.0, 6.0)
    rope = Rope(100.0, "longrope", short_factor=factors)
    expected = [angle / factor for angle, factor in zip(PLAIN, factors, strict=True)]
    assert inverse_frequencies(rope, 12) == expected


def test_dynamic_is_plain_within_the_trained_length() -> None:
    assert inverse_frequencies(Rope(100.0, "dynamic", 4.0, limit=512), 12) == PLAIN


def test_what_is_turned_may_be_made_longer_and_the_rest_is_not() -> None:
    x, positions = random(3, 2, 8), np.arange(5, 8)
    rope = Rope(50.0, attention_factor=1.5)
    angles = [50.0 ** (-2 * i / 6) for i in range(3)]
    expected = np.array(x, np.float64)
    expected[..., :6] = 1.5 * turned(np.ascontiguousarray(x[..., :6]), list(positions), angles)
    check("rope", references.rope(x, positions, rope=rope, dims=6, interleaved=False), expected)


@pytest.mark.parametrize("interleaved", [False, True])
def test_neighbors_are_turned_like_halves_that_were_neighbors(interleaved: bool) -> None:
    x, positions, rope = random(4, 3, 8), np.arange(2, 6), Rope(50.0)
    order = [0, 2, 4, 6, 1, 3, 5, 7] if interleaved else list(range(8))
    found = references.rope(x, positions, rope=rope, dims=8, interleaved=interleaved)
    halves = references.rope(x[..., order], positions, rope=rope, dims=8, interleaved=False)
    np.testing.assert_array_equal(found[..., order], halves)
