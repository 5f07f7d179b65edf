"""The next-token table: the best tokens of one row of scores, and draws beside expectation."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from forwardpass.errors import RequestError
from forwardpass.sampling import stages
from forwardpass.sampling.chain import checked_scores
from forwardpass.sampling.distribution import Distribution
from forwardpass.sampling.random import uniform
from forwardpass.sampling.stages import Scores


@dataclass(frozen=True, slots=True)
class Row:
    """One token: its score, its probability at each temperature, and of the draws at
    temperature 1.0 how many are expected to take it (probability × draws) and how many did."""

    id: int
    score: float
    probability: Mapping[float, float]
    expected: float
    drawn: int


@dataclass(frozen=True, slots=True)
class Together:
    """The rows of a table added up."""

    probability: Mapping[float, float]
    expected: float
    drawn: int


@dataclass(frozen=True, slots=True)
class Comparison:
    """`gap` points of score between two rows, and at each temperature how many times as likely
    the first is: e^(gap / T)."""

    gap: float
    ratio: Mapping[float, float]


@dataclass(frozen=True, slots=True)
class NextTable:
    """The best tokens first, equals by id. `counts` holds every token that was drawn, those
    outside the rows too: (id, times), most likely token first. `asked` holds a row for each id
    that was asked for."""

    vocabulary: int
    temperatures: tuple[float, ...]
    draws: int
    seed: int
    rows: tuple[Row, ...]
    counts: tuple[tuple[int, int], ...]
    asked: tuple[Row, ...] = ()

    @property
    def together(self) -> Together:
        """What the rows hold of all probability and all draws."""
        return Together(
            {t: math.fsum(row.probability[t] for row in self.rows) for t in self.temperatures},
            math.fsum(row.expected for row in self.rows),
            sum(row.drawn for row in self.rows),
        )

    def compare(self, first: Row, second: Row) -> Comparison:
        """How far `first` is ahead of `second` in score and in probability.

        Source: both probabilities share the softmax's sum, so p₁/p₂ = e^(s₁/T) / e^(s₂/T).
        """
        gap = first.score - second.score
        return Comparison(gap, {t: _exp(gap / t) for t in self.temperatures})


def next_table(
    scores: Scores,
    *,
    top: int = 6,
    temperatures: Sequence[float] = (0.5, 1.0, 1.5),
    draws: int = 0,
    seed: int = 0,
    ids: Sequence[int] = (),
) -> NextTable:
    """The `top` best tokens of a row of scores, axis v, at each temperature, and `draws` draws;
    and a row for each of `ids`, whatever its score.

    The draws are from all tokens at temperature 1.0, no stage set: draw i is what
    `chain.choose` takes with this seed, choice 0 and position i.

    Raises RequestError for a temperature that is not a finite number above 0 (0 is greedy and
    has no probabilities), a `top` below 1, a negative number of draws or an id outside the
    vocabulary; ComputeError for scores without a distribution.
    """
    checked_scores(scores)
    if top < 1 or draws < 0:
        raise RequestError(f"top = {top}, draws = {draws}: wanted at least 1 and at least 0")
    for value in temperatures:
        if not (value > 0 and math.isfinite(value)):
            raise RequestError(f"temperatures: {value:g}: wanted numbers above 0")
    own = Distribution(scores, scores.size)
    counts = _draw(scores, draws, seed) if draws else {}
    tempered = {t: Distribution(stages.temperature(scores, t), scores.size) for t in temperatures}

    def row(token: int) -> Row:
        chances = {t: tempered[t].probability(token) for t in temperatures}
        expected = own.probability(token) * draws
        return Row(token, float(scores[token]), chances, expected, counts.get(token, 0))

    return NextTable(
        scores.size,
        tuple(temperatures),
        draws,
        seed,
        tuple(row(best.id) for best in own.top(top)),
        tuple(counts.items()),
        tuple(map(row, ids)),
    )


def _draw(scores: Scores, draws: int, seed: int) -> dict[int, int]:
    """How often each token is drawn at temperature 1.0, likeliest first: truncations.draw for many
    numbers at once, with one sort for all of them."""
    tempered = stages.temperature(scores, 1.0)
    order = stages.best_first(scores)
    order = order[tempered[order] >= stages.FAINTEST]
    probabilities = stages.rescale(stages.softmax(tempered)[order])
    numbers = np.array([uniform(seed, 0, position) for position in range(draws)])
    ranks = np.searchsorted(np.cumsum(probabilities), numbers, side="right")
    drawn, times = np.unique(np.minimum(ranks, order.size - 1), return_counts=True)
    return {int(order[rank]): int(n) for rank, n in zip(drawn, times, strict=True)}


def _exp(x: float) -> float:
    try:
        return math.exp(x)
    except OverflowError:
        return math.inf
