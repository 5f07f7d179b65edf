"""What a grammar did to an answer: where each token stands in it, and the best that it refused.

`masking.py` works it out.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass

from forwardpass.trace.entry import Entry
from forwardpass.trace.step import Step

_NEAR = 1e-9
_WORDS = ("rule", "shown", "keyword", "pointer")


@dataclass(frozen=True, slots=True)
class Refused:
    """The token of the best score that may not come, its own log probability, and why: `byte`
    from 1 (0: as a whole), the character there, the rule, the keyword and its pointer."""

    id: int
    logprob: float
    byte: int
    shown: str
    rule: str
    keyword: str
    pointer: str

    @property
    def why(self) -> str:
        """The reason in one line."""
        return f"byte {self.byte}: {self.rule}" if self.byte else self.rule


@dataclass(frozen=True, slots=True)
class MaskNote:
    """What the grammar said before one token.

    `place` is where the text stood (`Reasons.place`), `schema` the pointer to what the schema says
    of it, `next` what was legal in words. `allowed` is how many tokens were, `removed` the share of
    probability that all others had. `refused` is None where no kept score is of a refused token.
    """

    place: str
    schema: str | None
    next: str
    allowed: int
    removed: float
    refused: Refused | None


@dataclass(frozen=True, slots=True)
class MaskNotes:
    """One note a step. `complete`: the text is whole. `forced`: so many tokens were the only ones
    that their text could begin with, byte by byte."""

    steps: tuple[MaskNote, ...]
    complete: bool
    forced: int


def notes_dict(notes: MaskNotes) -> dict[str, object]:
    """The notes, ready for JSON; `notes_from` gives equal ones back."""
    return {
        "complete": notes.complete,
        "forced": notes.forced,
        "steps": [asdict(note) for note in notes.steps],
    }


def notes_from(entry: Entry, steps: Sequence[Step], tokens: Collection[int]) -> MaskNotes:
    """The notes that JSON says, held against the steps. Raises FormatError."""
    found = entry.having("complete", "forced", "steps")
    notes = tuple(
        _read(one, step, tokens) for one, step in zip(found["steps"].items(), steps, strict=False)
    )
    if len(notes) != len(found["steps"].values()):
        found["steps"].refuse(f"at most {len(steps):,} of them, one a step")
    forced = found["forced"].whole(0, len(notes))
    return MaskNotes(notes, found["complete"].flag(), forced)


def _read(entry: Entry, step: Step, tokens: Collection[int]) -> MaskNote:
    found = entry.having("place", "schema", "next", "allowed", "removed", "refused")
    left = step.outcome.left[1]
    if found["allowed"].value != left.survivors or not step.outcome.masked:
        found["allowed"].refuse(f"{left.survivors:,}, as the stage of the mask left")
    removed = found["removed"].real(0, 1)
    if not math.isclose(removed, max(0.0, 1.0 - left.mass), abs_tol=_NEAR):
        found["removed"].refuse(f"{max(0.0, 1.0 - left.mass)}, which the mask took away")
    schema = found["schema"]
    return MaskNote(
        found["place"].text(),
        None if schema.value is None else schema.text(),
        found["next"].text(),
        left.survivors,
        removed,
        None if found["refused"].value is None else _refused(found["refused"], step, tokens),
    )


def _refused(entry: Entry, step: Step, tokens: Collection[int]) -> Refused:
    found = entry.having("id", "logprob", "byte", *_WORDS)
    token = found["id"].value
    logprob = step.outcome.best.logprob(token) if isinstance(token, int) else None
    if not isinstance(token, int) or token not in tokens or logprob is None:
        found["id"].refuse("a token whose score was kept")
    if not math.isclose(found["logprob"].real(-1e300, 1e-6), logprob, abs_tol=_NEAR):
        found["logprob"].refuse(f"{logprob}, by its score")
    words: Mapping[str, str] = {name: found[name].text() for name in _WORDS}
    return Refused(token, logprob, found["byte"].whole(0, 2**16), **words)
