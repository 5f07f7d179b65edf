"""`Trace`: an answer as it came about, in a form that can be written down and replayed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from forwardpass.sampling.settings import SamplingSettings
from forwardpass.trace.step import Step


@dataclass(frozen=True)
class TokenNote:
    """A token as shown to people, and its bytes (none for a control token)."""

    text: str
    bytes: bytes


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
    those at which a repeat ends (DRY), `choice` numbers the answers to one prompt.
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

    @property
    def text(self) -> str:
        """What the model wrote."""
        return "".join(step.text for step in self.steps)
