"""`Trace`: an answer as it came about, in a form that can be written down and replayed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from forwardpass._version import __version__
from forwardpass.sampling.settings import SamplingSettings
from forwardpass.trace.masks import MaskNotes
from forwardpass.trace.replay import Replay, replay
from forwardpass.trace.step import FinishReason, Step
from forwardpass.trace.tokens import TokenNote

PROGRAM = f"forwardpass {__version__}"


@dataclass(frozen=True)
class ModelNote:
    """What computed the scores: the model as it was named, its family, its rows of scores, and
    the backend in words."""

    label: str
    architecture: str
    vocabulary: int
    backend: str


@dataclass(frozen=True)
class Trace:
    """One answer: what was asked, under which settings, and every step.

    `tokens` explains the ids that occur in it. `ends` are the ids that end an answer, `breakers`
    those at which a repeat ends (DRY; empty where that is off), `choice` numbers the answers to
    one prompt. `program` is what made it. `masks` says what a grammar allowed, where one was asked
    for and that was worked out.
    """

    model: ModelNote
    prompt: tuple[int, ...]
    tokens: Mapping[int, TokenNote]
    ends: frozenset[int]
    breakers: frozenset[int]
    max_tokens: int
    choice: int
    sampling: SamplingSettings
    steps: tuple[Step, ...]
    program: str = PROGRAM
    masks: MaskNotes | None = None

    def __repr__(self) -> str:
        return f"<Trace of {self.text!r}, {len(self.steps)} tokens by {self.model.label}>"

    @property
    def text(self) -> str:
        """What the model wrote."""
        return "".join(step.text for step in self.steps)

    @property
    def finish_reason(self) -> FinishReason | None:
        """`stop` where the model ended by itself, `length` at a limit, None where stopped."""
        return self.steps[-1].finish_reason if self.steps else None

    def resample(self, **settings: object) -> Replay:
        """What other sampler settings would have taken from the recorded scores: no pass is run.

        Settings that are not named, the seed among them, stay as they were. The tokens reach up to
        the first that differs from the recorded one, or to where the kept scores do not suffice.
        Raises RequestError for an unknown setting or a value out of range.
        """
        return replay(self, self.sampling.changed(settings))


@dataclass(frozen=True)
class Origin:
    """What a trace tells of an answer beside its steps; `note` describes a token."""

    model: ModelNote
    ends: frozenset[int]
    breakers: frozenset[int]
    max_tokens: int
    note: Callable[[int], TokenNote] = field(repr=False)
    choice: int = 0

    def trace(
        self, prompt: tuple[int, ...], sampling: SamplingSettings, steps: tuple[Step, ...]
    ) -> Trace:
        """The trace of an answer that comes from here."""
        ids = sorted({*prompt, *self.ends, *mentioned(steps)})
        return Trace(
            self.model,
            prompt,
            {token: self.note(token) for token in ids},
            self.ends,
            self.breakers,
            self.max_tokens,
            self.choice,
            sampling,
            steps,
        )


def mentioned(steps: tuple[Step, ...]) -> Iterator[int]:
    """Every token id that occurs in `steps`, some of them several times."""
    for step in steps:
        outcome = step.outcome
        yield from (step.id, outcome.token)
        yield from outcome.best.ids.tolist()
        yield from (left.best for left in outcome.left)
        yield from (ranked.id for ranked in outcome.after)
        yield from (found[0] for found in outcome.wanted)
