"""A token that the plain chain chose, with every array on the way to it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from forwardpass.sampling import stages
from forwardpass.sampling.distribution import Distribution
from forwardpass.sampling.outcome import (
    KEPT,
    SHOWN,
    BestScores,
    Left,
    Outcome,
    Ranked,
    StageResult,
)
from forwardpass.sampling.settings import SamplingSettings
from forwardpass.sampling.stages import Ids, Probabilities, Scores


@dataclass(frozen=True, slots=True, eq=False)
class Adjusted:
    """The scores after a stage before the temperature; the array before it where it is off."""

    name: str
    scores: Scores


@dataclass(frozen=True, slots=True, eq=False)
class Kept:
    """The token ids left after a stage, best first; their scores below the best one's, over the
    temperature where that came before; and their probabilities in the distribution after the
    last temperature, of which they hold a part until they are rescaled."""

    name: str
    ids: Ids
    scores: Scores
    probabilities: Probabilities


@dataclass(frozen=True, eq=False)
class Choice:
    """A token, the two distributions that it can be judged by, and how it was taken.

    `model` is the model's own distribution: the softmax of the scores as they came, at
    temperature 1. `sampled` is the one after the stages, from which the token was drawn; a greedy
    choice has probability 1 in it. `random` is the number in [0, 1) that was drawn, None where
    the choice is greedy. A Choice holds the arrays of its stages (several MB at 150,000 scores);
    `outcome` is what to keep of it.
    """

    token: int
    random: float | None
    model: Distribution
    sampled: Distribution
    settings: SamplingSettings
    adjusted: tuple[Adjusted, ...]
    kept: tuple[Kept, ...]

    @property
    def logprob(self) -> float:
        """The model's own log probability of the token."""
        return self.model.logprob(self.token)

    @property
    def sampled_logprob(self) -> float:
        """The token's log probability after the stages: what it was drawn with."""
        return self.sampled.logprob(self.token)

    @property
    def stages(self) -> tuple[StageResult, ...]:
        """What every stage left, in order, those that are off included."""
        return self._outcome.stages

    @cached_property
    def _outcome(self) -> Outcome:
        return self.outcome()

    def outcome(self, wanted: Sequence[int] = (), kept: int = KEPT) -> Outcome:
        """What to keep of it: the `kept` best scores, and the log probabilities of `wanted` ids.

        Raises RequestError for a wanted id outside the vocabulary.
        """
        rank, interval = self._place()
        masked = self.adjusted[-1].scores is not self._before_mask
        return Outcome(
            self.token,
            self.random,
            interval,
            rank,
            self.logprob,
            self.sampled_logprob,
            self._best(min(kept, self.model.scores.size)),
            tuple(self._left()),
            masked,
            tuple(self._after()),
            tuple((t, self.model.logprob(t), self.sampled.logprob(t)) for t in wanted),
            self.settings,
        )

    def _after(self) -> Iterator[Ranked]:
        ids = self.kept[-1].ids[:SHOWN].tolist() if self.kept else [self.token]
        for token in ids:
            yield Ranked(token, self.sampled.logprob(token))

    @property
    def _before_mask(self) -> Scores:
        return self.adjusted[-2].scores if len(self.adjusted) > 1 else self.model.scores

    def _best(self, count: int) -> BestScores:
        scores = self.model.scores
        places = np.flatnonzero(scores >= np.partition(scores, -count)[-count])
        places = places[stages.best_first(scores[places])][:count]
        places = places[scores[places] > -np.inf]
        reachable = int(np.count_nonzero(scores > -np.inf))
        weights = np.exp(np.subtract(scores, scores.max(), dtype=np.float64))
        total = float(weights.sum())
        weights[places] = 0
        rest = float(weights.sum()) / total
        return BestScores(
            places, scores[places], scores.size, reachable - places.size, math.log(total), rest
        )

    def _place(self) -> tuple[int, tuple[float, float] | None]:
        """Rank of the token after the stages, and the part of [0, 1) that is its own."""
        if not self.kept:
            return 1, None
        last = self.kept[-1]
        rank = int(np.flatnonzero(last.ids == self.token)[0])
        ends = np.cumsum(stages.rescale(last.probabilities))
        return rank + 1, (float(ends[rank - 1]) if rank else 0.0, float(ends[rank]))

    def _left(self) -> Iterator[Left]:
        before = self._before_mask
        yield self._of_scores(before, 1.0)
        last = self.adjusted[-1].scores
        mass = 1.0
        if last is not before:
            mass = float(stages.softmax(before)[last > -np.inf].sum())
        yield self._of_scores(last, mass)
        if not self.kept:
            yield Left(1, 1.0, self.token, 1.0)
        for step in self.kept:
            held = step.probabilities
            yield Left(held.size, float(held.sum()), int(step.ids[0]), float(held[0]))

    def _of_scores(self, scores: Scores, mass: float) -> Left:
        best = int(scores.argmax())
        probability = Distribution(scores, scores.size).probability(best)
        return Left(int(np.count_nonzero(scores > -np.inf)), mass, best, probability)
