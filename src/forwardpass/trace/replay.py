"""Replay: the tokens that other settings take from recorded scores, with no pass of the model."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from forwardpass.errors import RequestError
from forwardpass.sampling.adjusting import History
from forwardpass.sampling.outcome import Outcome
from forwardpass.sampling.random import fresh_seed
from forwardpass.sampling.sampler import Sampler
from forwardpass.sampling.settings import SamplingSettings
from forwardpass.trace.certain import certain
from forwardpass.trace.step import FinishReason, Step
from forwardpass.trace.tokens import breakers_among, text_of, token_text
from forwardpass.trace.unkept import NotKept

if TYPE_CHECKING:
    from forwardpass.trace.trace import Trace


@dataclass(frozen=True, slots=True)
class Replayed:
    """A token that the other settings take.

    `text` is the token as shown to people. `logprob` is the model's own. `probability` is the
    least and the most that it can have after the stages: equal where that is known, None for a
    token that the caller took (`taken`).
    `random` is the number drawn, None where the choice was greedy. `outcome` holds every stage
    where the trace keeps the whole row of scores, else None.
    """

    index: int
    id: int
    text: str
    logprob: float
    probability: tuple[float, float] | None
    random: float | None
    finish_reason: FinishReason | None
    taken: bool
    outcome: Outcome | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class Undecided:
    """The place in the answer at which the kept scores do not suffice, and why."""

    index: int
    reason: str

    def __str__(self) -> str:
        return f"token {self.index}: {self.reason}"


@dataclass(frozen=True)
class Replay:
    """A recorded answer under other settings.

    `steps` are the tokens that are certain, up to and with the first that differs from the
    recorded one: the scores behind it belong to another text. `differs_at` is its place, None
    where none differs. `undecided` says where and why the kept scores do not suffice, None where
    they do.
    """

    trace: Trace = field(repr=False)
    settings: SamplingSettings = field(repr=False)
    steps: tuple[Replayed, ...]
    differs_at: int | None
    undecided: Undecided | None

    @cached_property
    def text(self) -> str:
        """The text of the tokens that are certain."""
        whole = self.finish_reason is not None
        ids = [step.id for step in self.steps if step.finish_reason != "stop"]
        return text_of(ids, self.trace.tokens, whole)

    @property
    def finish_reason(self) -> FinishReason | None:
        """`stop` or `length` where the answer is known to its end, else None."""
        return self.steps[-1].finish_reason if self.steps else None


def replay(trace: Trace, settings: SamplingSettings) -> Replay:
    """The tokens that `settings` take from the scores of `trace`.

    Where the trace keeps whole rows of scores they equal those of a run of the model; where it
    keeps only the best scores, a token is given only where no other could have come. A token
    that the caller took is taken again. A draw without a seed takes a fresh one.

    Raises RequestError for a bias outside the vocabulary.
    """
    if settings.seed.value is None and not settings.greedy:
        settings = settings.with_seed(fresh_seed(), "engine default")
    for token, _ in settings.logit_bias.value:
        if token >= (vocabulary := trace.model.vocabulary):
            raise RequestError(
                f"logit_bias: token id {token} is outside the vocabulary of {vocabulary:,}"
            )
    steps: list[Replayed] = []
    replaying = _Replaying(trace, Sampler(settings, trace.choice, _breakers(trace, settings)))
    for step in trace.steps:
        try:
            replayed = replaying.step(step)
        except NotKept as reason:
            undecided = Undecided(step.index, str(reason))
            return Replay(trace, settings, tuple(steps), None, undecided)
        steps.append(replayed)
        if replayed.id != step.id:
            return Replay(trace, settings, tuple(steps), step.index, None)
    return Replay(trace, settings, tuple(steps), None, None)


def _breakers(trace: Trace, settings: SamplingSettings) -> frozenset[int]:
    """Of the tokens that can be looked back at, those at which a repeat ends."""
    if settings.dry_multiplier.value == 0:
        return frozenset()
    texts = settings.dry_sequence_breakers.value
    return breakers_among((*trace.prompt, *(s.id for s in trace.steps)), trace.tokens, texts)


@dataclass(frozen=True)
class _Replaying:
    trace: Trace
    sampler: Sampler

    def step(self, step: Step) -> Replayed:
        """The token that comes in place of one that was recorded. Raises NotKept."""
        outcome = step.outcome
        if step.taken or step.forced:
            return self._replayed(step, step.id, step.logprob, None, None)
        if _values(self.sampler.settings) == _values(outcome.settings):
            return self._of_outcome(step, outcome)
        if outcome.masked:
            raise NotKept("a grammar's mask acted here, and which tokens it allowed is not kept")
        prompt, best = self.trace.prompt, outcome.best
        output = [earlier.id for earlier in self.trace.steps[: step.index]]
        if best.rest:
            return self._certain(step, History(prompt, output, self.sampler.breakers))
        row = np.full(best.vocabulary, -np.inf, dtype=best.scores.dtype)
        row[best.ids] = best.scores
        return self._of_outcome(
            step, self.sampler.pick(row, prompt=prompt, output=output, position=step.index)
        )

    def _certain(self, step: Step, history: History) -> Replayed:
        best, sampler = step.outcome.best, self.sampler
        found = certain(best, sampler.settings, history, sampler.choice, step.index)
        logprob = best.logprob(found.id)
        assert logprob is not None  # only kept tokens are certain
        return self._replayed(step, found.id, logprob, found.probability, found.random)

    def _of_outcome(self, step: Step, outcome: Outcome) -> Replayed:
        probability = math.exp(outcome.sampled_logprob)
        return replace(
            self._replayed(
                step, outcome.token, outcome.logprob, (probability, probability), outcome.random
            ),
            outcome=outcome,
        )

    def _replayed(
        self,
        step: Step,
        token: int,
        logprob: float,
        probability: tuple[float, float] | None,
        random: float | None,
    ) -> Replayed:
        trace = self.trace
        reason: FinishReason | None = None
        if token in trace.ends:
            closed = token == step.id and step.finish_reason == "length"
            reason = "length" if closed else "stop"
        elif step.index + 1 == trace.max_tokens or step.finish_reason == "length":
            reason = "length"
        return Replayed(
            step.index,
            token,
            token_text(token, trace.tokens),
            logprob,
            probability,
            random,
            reason,
            step.taken,
        )


def _values(settings: SamplingSettings) -> tuple[object, ...]:
    """What decides a choice, wherever it came from."""
    names = [field.name for field in fields(settings) if field.name != "stages"]
    return (settings.rules, *(getattr(settings, name).value for name in names))
