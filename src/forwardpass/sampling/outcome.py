"""What is kept of a chosen token: small enough for every token of every answer.

Both ways to choose a token give it, the plain chain (chain.py) and the native one (sampler.py),
and tests hold the two equal.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from forwardpass.sampling.rules import ADJUSTING, SWITCHES
from forwardpass.sampling.settings import SamplingSettings, Source

KEPT = 256  # best scores that are kept of a row
SHOWN = 32  # best tokens after the stages that are kept


class Ranked(NamedTuple):
    """A token id and its natural-log probability."""

    id: int
    logprob: float

    @property
    def probability(self) -> float:
        """exp(logprob)."""
        return math.exp(self.logprob)


class Left(NamedTuple):
    """What a stage left: how many tokens, their mass, the likeliest and its probability."""

    survivors: int
    mass: float
    best: int
    best_probability: float


@dataclass(frozen=True, slots=True)
class StageResult:
    """What one stage left.

    `name` is the stage's as in rules.py, but that bias, penalties and DRY together are `adjust`;
    `rescale` and `draw` come last. `survivors` counts the tokens that can still come. `mass` is
    the share of probability that they hold: for the mask of the distribution that it was given,
    for truncations of the one after the last temperature. `best` is the likeliest survivor,
    `best_probability` its probability in that same distribution, after `rescale` in the one that
    is drawn from. `value` is the setting (adjust and mask: None), for rescale the factor, for draw
    the random number. `acts` is false where the setting is at the value that does nothing.
    """

    name: str
    value: object
    source: Source
    acts: bool
    survivors: int
    mass: float
    best: int
    best_probability: float


@dataclass(frozen=True, slots=True, eq=False)
class BestScores:
    """The best scores of a row as the model gave them, best first, equals by id.

    `vocabulary` is how many the row had, `rest` how many more above -inf. `log_sum` is
    ln Σ exp(score - best) over all of the row; `rest_mass` the share of probability, at
    temperature 1, of those that are not kept.
    """

    ids: npt.NDArray[np.int64]
    scores: npt.NDArray[np.floating[Any]]
    vocabulary: int
    rest: int
    log_sum: float
    rest_mass: float

    def __eq__(self, other: object) -> bool:
        """Whether all of it is equal, array by array."""
        if not isinstance(other, BestScores):
            return NotImplemented
        return self._plain() == other._plain()

    def __hash__(self) -> int:
        return hash(self._plain())

    def _plain(self) -> tuple[object, ...]:
        ids, scores = tuple(self.ids.tolist()), tuple(self.scores.tolist())
        return ids, scores, self.vocabulary, self.rest, self.log_sum, self.rest_mass

    def logprobs(self) -> npt.NDArray[np.float64]:
        """The model's own log probability of each kept token."""
        if not self.ids.size:
            return np.zeros(0)
        return self.scores.astype(np.float64) - float(self.scores[0]) - self.log_sum

    def logprob(self, token: int) -> float | None:
        """The model's own log probability of a kept token; None for one that is not kept."""
        place = np.flatnonzero(self.ids == token)
        return float(self.logprobs()[place[0]]) if place.size else None


@dataclass(frozen=True)
class Outcome:
    """A token, and how it was taken.

    `logprob` is the model's own log probability of it (softmax of the scores as they came, at
    temperature 1), `sampled_logprob` the one after the stages, with which it was drawn.
    `random` is the number in [0, 1) that was drawn and `interval` the part of [0, 1) that belongs
    to the token; both None where the choice is greedy. `rank` is its place after the stages, 1 for
    the likeliest. `left` is what the adjusting stages together, the mask, and each later stage
    left; `masked` whether there was a mask. `after` holds the likeliest tokens after the stages.
    `wanted` holds, for each token that was asked for, its id and both log probabilities.
    """

    token: int
    random: float | None
    interval: tuple[float, float] | None
    rank: int
    logprob: float
    sampled_logprob: float
    best: BestScores
    left: tuple[Left, ...]
    masked: bool
    after: tuple[Ranked, ...]
    wanted: tuple[tuple[int, float, float], ...]
    settings: SamplingSettings

    @cached_property
    def stages(self) -> tuple[StageResult, ...]:
        """What every stage left, in order, those that are off included."""
        return tuple(self._stages())

    def _stages(self) -> Iterator[StageResult]:
        settings = self.settings
        order = settings.rules.order
        changing = [name for name in order if name in SWITCHES and name in ADJUSTING]
        acting = [name for name in changing if settings.acts(name)]
        sources = [settings.switch(name).source for name in acting]
        source: Source = "request" if "request" in sources else (*sources, "engine default")[0]
        yield StageResult("adjust", None, source, bool(acting), *self.left[0])
        source = "request" if self.masked else "engine default"
        yield StageResult("mask", None, source, self.masked, *self.left[1])
        later = [name for name in order if name not in ADJUSTING]
        if settings.greedy:
            later = ["temperature"]
        for name, left in zip(later, self.left[2:], strict=True):
            setting = settings.switch(name)
            yield StageResult(name, setting.value, setting.source, settings.acts(name), *left)
        if self.random is None:
            return
        last = self.left[-1]
        likeliest = self.after[0].probability
        yield StageResult(
            "rescale",
            1 / last.mass,
            "engine default",
            True,
            last.survivors,
            1.0,
            last.best,
            likeliest,
        )
        probability = math.exp(self.sampled_logprob)
        seed = settings.seed.source
        yield StageResult("draw", self.random, seed, True, 1, probability, self.token, 1.0)
