"""A chosen token, and what every stage left on the way to it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from forwardpass.sampling import stages
from forwardpass.sampling.distribution import Distribution
from forwardpass.sampling.settings import SamplingSettings, Source
from forwardpass.sampling.stages import Ids, Probabilities, Scores


@dataclass(frozen=True, slots=True, eq=False)
class Adjusted:
    """The scores after a stage before the temperature; the array before it where it is neutral."""

    name: str
    scores: Scores


@dataclass(frozen=True, slots=True, eq=False)
class Kept:
    """The token ids left after a stage (rising; None: all) and their probabilities, which are
    those after the temperature until they are rescaled."""

    name: str
    ids: Ids | None
    probabilities: Probabilities


@dataclass(frozen=True, slots=True)
class StageResult:
    """What one stage left.

    `survivors` counts the tokens that can still come. `mass` is the share of probability that
    they hold in the distribution that the stage was given (mask) or in the one after the
    temperature (truncations); 1 where a stage drops nothing or rescales. `best` is the likeliest
    survivor, `best_probability` its probability after the stage. `value` is the setting; for
    rescale the factor, for draw the random number.
    """

    name: str
    value: object
    source: Source
    survivors: int
    mass: float
    best: int
    best_probability: float


@dataclass(frozen=True, eq=False)
class Choice:
    """A token, the two distributions that it can be judged by, and how it was taken.

    `model` is the model's own distribution: the softmax of the scores as they came, at
    temperature 1. `sampled` is the one after the stages, from which the token was drawn; a greedy
    choice has probability 1 in it. `random` is the number in [0, 1) that was drawn, None where
    the choice is greedy. A Choice holds the arrays of its stages (several MB at 150,000 scores):
    keep what you need of it, not a list of them.
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

    @cached_property
    def stages(self) -> tuple[StageResult, ...]:
        """What every stage left, in order, neutral ones included; computed on first use."""
        taken = self._greedy() if self.settings.greedy else self._drawn()
        return (*self._adjusted(), *taken)

    def _adjusted(self) -> Iterator[StageResult]:
        before = self.model.scores
        size = before.size
        for step in self.adjusted:
            after = Distribution(step.scores, size)
            allowed = step.scores > -np.inf
            mass = 1.0
            value: object = None
            source: Source = "engine default"
            if step.name != "mask":
                setting = getattr(self.settings, step.name)
                value, source = setting.value, setting.source
            elif step.scores is not before:
                mass = float(stages.softmax(before)[allowed].sum())
                value, source = "set", "request"
            best = int(step.scores.argmax())
            yield StageResult(
                step.name,
                value,
                source,
                int(np.count_nonzero(allowed)),
                mass,
                best,
                after.probability(best),
            )
            before = step.scores

    def _greedy(self) -> Iterator[StageResult]:
        chosen = self.settings.temperature
        yield StageResult("temperature", chosen.value, chosen.source, 1, 1.0, self.token, 1.0)

    def _drawn(self) -> Iterator[StageResult]:
        for step in self.kept:
            setting = getattr(self.settings, step.name)
            yield _left(step, setting.value, setting.source)
        last = self.kept[-1]
        mass = float(last.probabilities.sum())
        final = Kept("rescale", last.ids, stages.rescale(last.probabilities))
        yield _left(final, 1 / mass, "engine default")
        probability = self.sampled.probability(self.token)
        seed = self.settings.seed
        yield StageResult("draw", self.random, seed.source, 1, probability, self.token, 1.0)


def _left(step: Kept, value: object, source: Source) -> StageResult:
    place = int(step.probabilities.argmax())
    return StageResult(
        step.name,
        value,
        source,
        step.probabilities.size,
        float(step.probabilities.sum()),
        place if step.ids is None else int(step.ids[place]),
        float(step.probabilities[place]),
    )
