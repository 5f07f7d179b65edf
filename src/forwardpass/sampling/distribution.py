"""A probability for each token id that can come, computed when it is asked for."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from forwardpass.errors import RequestError
from forwardpass.sampling import stages
from forwardpass.sampling.outcome import Ranked
from forwardpass.sampling.stages import Ids, Probabilities, Scores


@dataclass(frozen=True, eq=False)
class Distribution:
    """The softmax of `scores` over the token ids in `ids` (rising; None: 0, 1, 2, …).

    `vocabulary` is how many ids there are; those not in `ids` have probability 0. Holds the
    array that it was given and expects nobody to write to it.
    """

    scores: Scores
    vocabulary: int
    ids: Ids | None = None

    @cached_property
    def _base(self) -> tuple[float, float]:
        """The best score, and the log of the sum of exp(score - best); apart, because a score of
        1e30 would swallow the log of a sum."""
        best = float(self.scores.max())
        weights = np.subtract(self.scores, best, dtype=np.float64)
        return best, math.log(float(np.exp(weights, out=weights).sum()))

    def logprob(self, token: int) -> float:
        """The natural log of the probability of `token`, -inf where it cannot come.

        Raises RequestError for an id outside the vocabulary.
        """
        if not 0 <= token < self.vocabulary:
            raise RequestError(f"token id {token} is outside the vocabulary of {self.vocabulary:,}")
        place = token
        if self.ids is not None:
            place = int(np.searchsorted(self.ids, token))
            if place == self.ids.size or self.ids[place] != token:
                return -math.inf
        return self._logprob_at(place)

    def probability(self, token: int) -> float:
        """The probability of `token`."""
        return math.exp(self.logprob(token))

    def probabilities(self) -> Probabilities:
        """One probability for each id of `ids`, adding up to 1; float64."""
        return stages.softmax(self.scores)

    def top(self, n: int) -> tuple[Ranked, ...]:
        """The n likeliest tokens, best first, equals by id; fewer where fewer can come."""
        if n <= 0:
            return ()
        n = min(n, self.scores.size)
        places = np.flatnonzero(self.scores >= np.partition(self.scores, -n)[-n])
        places = places[stages.best_first(self.scores[places])][:n]
        ids = places if self.ids is None else self.ids[places]
        return tuple(
            Ranked(int(token), self._logprob_at(int(place)))
            for token, place in zip(ids, places, strict=True)
            if self.scores[place] > -math.inf
        )

    def _logprob_at(self, place: int) -> float:
        best, log_sum = self._base
        return float(self.scores[place]) - best - log_sum
