"""`Answer`: a finished answer with everything that is known about how it came about."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from forwardpass.engine.account import Account
from forwardpass.sampling.settings import SamplingSettings
from forwardpass.trace.step import FinishReason, Step


@dataclass(frozen=True)
class Usage:
    """Tokens of the prompt and of the answer, the one that ended it included."""

    prompt_tokens: int
    completion_tokens: int


@dataclass(frozen=True)
class Answer:
    """An answer: its steps, the settings that it was drawn with, and the work that it took.

    `prompt` holds the ids that were read. `work` counts the passes of this answer and of its
    prompt.
    """

    prompt: tuple[int, ...]
    steps: tuple[Step, ...]
    sampling: SamplingSettings
    work: Account

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
