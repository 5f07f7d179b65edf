"""How likely counts this far from expectation are, exactly, without a statistics library."""

from __future__ import annotations

import math
from collections.abc import Sequence


def chance_of_worse(counts: Sequence[int], probabilities: Sequence[float]) -> float:
    """The chance that fair draws have a larger chi-square than `counts` have.

    For an odd number of cells: with m = (cells - 1) / 2 the tail is e^(-x/2) · Σ (x/2)^i / i!
    over i < m. Every cell should expect 5 draws or more.
    """
    draws = sum(counts)
    expected = [p * draws for p in probabilities]
    assert len(counts) % 2 == 1
    assert min(expected) >= 5
    half = math.fsum((c - e) ** 2 / e for c, e in zip(counts, expected, strict=True)) / 2
    terms = (half**i / math.factorial(i) for i in range((len(counts) - 1) // 2))
    return math.exp(-half) * math.fsum(terms)
