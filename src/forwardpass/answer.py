"""`Answer`: a finished answer with everything that is known about how it came about."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from functools import cached_property

from forwardpass.engine.account import Account
from forwardpass.sampling.settings import SamplingSettings
from forwardpass.text.calls.parse import Answer as Parsed
from forwardpass.text.calls.parse import Call
from forwardpass.trace.replay import Replay
from forwardpass.trace.step import FinishReason, Step
from forwardpass.trace.tokens import no_token
from forwardpass.trace.trace import Origin, Trace


@dataclass(frozen=True)
class Usage:
    """Tokens of the prompt and of the answer, the one that ended it included."""

    prompt_tokens: int
    completion_tokens: int


@dataclass(frozen=True)
class Held:
    """How an answer was kept in shape: what is not enforced, whether it is closed in time, how its
    text is read (control tokens by name), whether tools were on offer."""

    warnings: tuple[str, ...]
    closes: bool
    read: Callable[[str], Parsed] | None
    tools: bool


@dataclass(frozen=True)
class ShapeAccount:
    """What a grammar did to an answer.

    `steps`: tokens that it was asked about. `mean_removed` and `most_removed` are shares of
    probability that it took away, at `most_removed_at` the most. `forced` tokens were not drawn:
    their text was the only one that could come. `closed_by_budget`: the limit of tokens kept a
    better one out at some step. `complete`: the text has the shape. `warnings`: what is not
    enforced.
    """

    steps: int
    mean_removed: float
    most_removed: float
    most_removed_at: int
    forced: int
    closed_by_budget: bool
    complete: bool
    warnings: tuple[str, ...]

    def as_dict(self) -> dict[str, object]:
        """Ready for JSON."""
        return {**asdict(self), "warnings": list(self.warnings)}


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
    held: Held | None = field(default=None, repr=False, compare=False)

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

    @cached_property
    def tool_calls(self) -> tuple[Call, ...]:
        """The calls of tools, each with its name, the text of its arguments and `values()`."""
        return self._parsed.calls

    @property
    def content(self) -> str:
        """The text without calls of tools and without reasoning."""
        return self._parsed.content

    @property
    def reasoning(self) -> str | None:
        """What the model wrote before it answered, where its template marks that."""
        return self._parsed.reasoning

    @cached_property
    def _parsed(self) -> Parsed:
        if self.held is None or self.held.read is None:
            return Parsed(self.text)
        ids = [step.id for step in self.steps if step.id not in self.origin.ends]
        text = b"".join(map(self._named, ids))
        return self.held.read(text.decode("utf-8", "replace"))

    def _named(self, token: int) -> bytes:
        """The bytes of a token; of a control token its name."""
        note = self.origin.note(token)
        if note.bytes or note.text == no_token(token):
            return note.bytes
        return note.text.encode()

    @cached_property
    def shape(self) -> ShapeAccount | None:
        """What a grammar did to the answer, None where none was asked for."""
        masks = [step.mask for step in self.steps if step.mask is not None]
        if self.held is None or not masks:
            return None
        removed = [mask.removed for mask in masks]
        ended = self.finish_reason is not None and self.steps[-1].id in self.origin.ends
        whole = self.finish_reason is not None if self.held.closes else ended
        return ShapeAccount(
            len(masks),
            math.fsum(removed) / len(removed),
            max(removed),
            removed.index(max(removed)),
            sum(step.forced for step in self.steps),
            any(mask.steered for mask in masks),
            whole,
            self.held.warnings,
        )

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
