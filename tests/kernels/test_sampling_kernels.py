"""The sampler's sums over a row, at every level: within what csrc/kernels/sampling.inc says."""

from __future__ import annotations

import math

import numpy as np
import pytest

from kernels import harness
from kernels.truths import F32

levels = pytest.mark.parametrize("level", harness.LEVELS)


def weights(x: F32, temperature: float) -> list[float]:
    best = float(x.max())
    return [math.exp((float(score) - best) / temperature) for score in x]


def rows() -> list[F32]:
    rng = np.random.default_rng(1)
    made = [rng.standard_normal(n) * 3 for n in (1, 15, 16, 17, 255, 257, 1023, 1025, 20_000)]
    made += [np.full(5000, -2.5), np.linspace(-60, 0, 3000), np.where(rng.random(999) < 0.1, 0, -9)]
    holes = rng.standard_normal(700)
    holes[::3] = -np.inf
    return [np.asarray(row, np.float32) for row in (*made, holes)]


@levels
@pytest.mark.parametrize("temperature", [1.0, 0.3, 7.0])
def test_the_mass_below_a_score_is_as_exact_as_its_file_says(
    level: str, temperature: float
) -> None:
    test_mass = harness.native().test_mass
    harness.at_level(level)
    for x in rows():
        for bound in (np.float32(1e30), np.quantile(x, 0.7, method="nearest"), x.max()):
            if np.isinf(bound):
                continue
            each = weights(x, temperature)
            truth = math.fsum(w for w, score in zip(each, x, strict=True) if score < bound)
            above = math.fsum(w for w, score in zip(each, x, strict=True) if score >= bound)
            narrow, below, reached, count, found, ids = test_mass(level, x, temperature, bound)
            spread = math.log(x.size) - min(0.0, math.log(truth + 1e-40))
            assert abs(narrow - truth) <= truth * (7e-7 + 2**-23 * spread) + 1e-28
            assert abs(below - truth) <= 1e-13 * truth + 1e-280
            assert abs(reached - above) <= 1e-13 * above + 1e-280
            places = np.flatnonzero(x >= bound)
            assert count == places.size
            assert np.array_equal(ids, places)
            assert np.array_equal(found, x[places])


@levels
def test_a_nan_makes_the_mass_nan_wherever_it_stands(level: str) -> None:
    test_mass = harness.native().test_mass
    harness.at_level(level)
    rng = np.random.default_rng(2)
    for n in (1, 16, 100, 3000):
        for bits in (0x7FC00000, 0x7F800001, 0xFFC00123, 0xFFFFFFFF):
            x = rng.standard_normal(n).astype(np.float32)
            x[rng.integers(n)] = np.uint32(bits).view(np.float32)
            narrow, below, *_ = test_mass(level, np.append(x, np.float32(9)), 1.0, 3.0)
            assert math.isnan(narrow)
            assert math.isnan(below)
