"""`Answer`: a finished answer with everything that is known about how it came about."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

from forwardpass.engine.account import Account
from forwardpass.sampling.settings import SamplingSettings
from forwardpass.trace.replay import Replay
from forwardpass.trace.step import FinishReason, Step
from forwardpass.trace.trace import Origin, Trace


@dataclass(frozen=True)
class Usage:
    """Tokens of the prompt and of the answer, the one that ended it included."""

    prompt_tokens: int
    completion_tokens: int


@dataclass(frozen=True)
class Answer:
    """An answer: its steps, the settings that it was drawn with, and the work that it took.

    `prompt` holds the ids that were read. `work` counts the passes of this answer and of its
    prompt. `origin` is what else a trace tells of it.
    """

    prompt: tuple[int, ...]
    steps: tuple[Step, ...]
    sampling: SamplingSettings
    work: Account
    origin: Origin = field(repr=False, compare=False)

    def __repr__(self) -> str:
        return f"<Answer {self.text!r}, {self.finish_reason or 'stopped'}, {self.usage}>"

    @cached_property
    def text(self) -> str:
        """What the model wrote."""
        return "".join(step.text for step in self.steps)

    @property
    def finish_reason(self) -> FinishReason | None:
        """`stop` where the model ended by itself, `length` at a limit, None where stopped."""
        return self.steps[-1].finish_reason if self.steps else None

    @property
    def usage(self) -> Usage:
        """Tokens in and out."""
        return Usage(len(self.prompt), len(self.steps))

    def trace(self) -> Trace:
        """The answer in a form that can be written down and replayed.

        The scores are those that its steps keep: the 256 best, all with `keep_scores`.
        """
        return self._trace

    @cached_property
    def _trace(self) -> Trace:
        return self.origin.trace(self.prompt, self.sampling, self.steps)

    def resample(self, **settings: object) -> Replay:
        """What other sampler settings would have taken, as far as the kept scores tell: no pass
        is run.

        Settings that are not named, the seed among them, stay as they were, so that
        `answer.resample().text == answer.text`. Raises RequestError for an unknown setting or a
        value out of range.
        """
        return self.trace().resample(**settings)
