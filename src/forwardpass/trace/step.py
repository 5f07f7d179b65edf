"""`Step`: one generated token, and everything that is kept of how it was chosen."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from forwardpass.errors import RequestError
from forwardpass.sampling.outcome import Outcome, Ranked, StageResult
from forwardpass.sampling.ranges import whole

FinishReason = Literal["stop", "length"]


@dataclass(frozen=True, slots=True)
class Candidate:
    """A token that could have come: its score, and the model's own log probability of it."""

    id: int
    score: float
    logprob: float


@dataclass(frozen=True, slots=True)
class WantedLogprob:
    """Both log probabilities of a token that was asked for: the model's own, and after the stages
    (-inf where these left it out)."""

    id: int
    logprob: float
    sampled_logprob: float


@dataclass(frozen=True, slots=True)
class StepMask:
    """What the shape of the answer allowed at a place.

    `allowed` tokens could come; `removed` is the share of probability that the others had.
    `steered`: what was left of max_tokens took away the best token that the shape itself allows.
    """

    allowed: int
    removed: float
    steered: bool = False


@dataclass(frozen=True, slots=True)
class Step:
    """One generated token.

    `text` is what it completes (a character that needs more tokens comes with the last of them);
    `bytes` are the token's own, empty for a control token. `logprob` is the model's own,
    `sampled_logprob` the one after the stages; `random` is the number drawn, None where the choice
    was greedy. `finish_reason` is set on the last step: `stop` where the token ends the answer,
    `length` at a limit, or where that limit steered the answer to its end. `taken`: the caller took
    another token than the one drawn, which `outcome` has. `mask`: what the shape that was asked
    for allowed, None without one. `forced`: the token belongs to a run of text that the shape
    forced; it was not drawn, and took no pass of its own.
    """

    index: int
    id: int
    text: str
    bytes: bytes
    logprob: float
    sampled_logprob: float
    random: float | None
    finish_reason: FinishReason | None
    taken: bool
    outcome: Outcome = field(repr=False)
    mask: StepMask | None = None
    forced: bool = False

    def top(self, count: int = 6) -> tuple[Candidate, ...]:
        """The `count` best tokens by the model's own scores, best first.

        There are as many as the request keeps, 256 unless it says.

        Raises RequestError for a count that is no whole number from 0 up.
        """
        number = _count("top", count)
        best = self.outcome.best
        rows = zip(best.ids[:number], best.scores[:number], best.logprobs()[:number], strict=True)
        return tuple(
            Candidate(int(token), float(score), float(logprob)) for token, score, logprob in rows
        )

    def after_stages(self, count: int = 6) -> tuple[Ranked, ...]:
        """The `count` likeliest tokens after the stages, likeliest first; at most 32 are kept.

        Raises RequestError for a count that is no whole number from 0 up.
        """
        return self.outcome.after[: _count("after_stages", count)]

    @property
    def stages(self) -> tuple[StageResult, ...]:
        """What every stage left, in order, those that are off included."""
        return self.outcome.stages

    @property
    def wanted(self) -> tuple[WantedLogprob, ...]:
        """The log probabilities of the tokens that the request asked for."""
        return tuple(WantedLogprob(*found) for found in self.outcome.wanted)


def _count(name: str, count: object) -> int:
    number = whole(count)
    if number is None or number < 0:
        raise RequestError(f"{name}({count!r:.60}): wanted a whole number from 0 up")
    return number
