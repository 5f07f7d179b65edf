"""The table of an answer that a grammar held: what was legal at each token, what was refused."""

from __future__ import annotations

import math

from forwardpass.cli.console import WIDTH, cells, columns, padded, visible
from forwardpass.cli.explain_words import OTHER_CELLS, TOKEN_CELLS, share, token_text
from forwardpass.trace.masks import MaskNote, MaskNotes
from forwardpass.trace.trace import Trace
from forwardpass.units import exact

_PLACE_CELLS = 26
_LEAST_WHY = 34  # cells of a reason, if a line is wider than a terminal for it


def mask_table(trace: Trace, notes: MaskNotes, rows: int, hint: str | None = None) -> list[str]:
    """A line a token, the first `rows` of them: where it stands, how many were legal, what share
    of probability the others had, the best of these and why it may not come.

    `hint` says how the others are shown; by --rows where it is None.
    """
    steps = list(zip(trace.steps, notes.steps, strict=False))[:rows]
    head = ("#", "written", "schema", "legal", "removed", "best refused", "")
    lines = [
        (
            str(step.index),
            token_text(trace, step.id, TOKEN_CELLS),
            _place(note.place),
            exact(note.allowed),
            removed_words(note.removed),
            *_refused(trace, note),
        )
        for step, note in steps
    ]
    lead = columns([head, *lines], "><<>><>")
    width = max(map(cells, lead))
    why = ["why", *(_why(note, max(WIDTH - width - 2, _LEAST_WHY)) for _, note in steps)]
    out = [
        f"{padded(line, '<', width)}  {word}".rstrip() for line, word in zip(lead, why, strict=True)
    ]
    if left := len(trace.steps) - len(steps):
        hint = hint or f"which --rows {len(trace.steps)} shows"
        outside = len(notes.steps) < len(trace.steps) and len(steps) == len(notes.steps)
        hint = "outside the grammar" if outside else hint
        out.append(f"… and {exact(left)} more, {hint}")
    return out


def removed_words(removed: float) -> str:
    """A share of probability per cent, with 0.0 only where nothing was taken away."""
    return "<0.1 %" if 0 < removed < 0.0005 else f"{removed:.1%}".replace("%", " %")


def _place(place: str) -> str:
    """The end of a long place, which is what tells it from others."""
    shown = visible(place, 4 * len(place) + 4)
    while cells(shown) > _PLACE_CELLS:
        shown = "…" + shown.removeprefix("…")[1:]
    return shown


def _refused(trace: Trace, note: MaskNote) -> tuple[str, str]:
    if note.refused is None:
        return "none", ""
    chance = math.exp(note.refused.logprob)
    return token_text(trace, note.refused.id, OTHER_CELLS), share(chance)


def _why(note: MaskNote, most: int) -> str:
    """The reason in so many cells."""
    if note.refused is None:
        return ""
    text = visible(note.refused.why, 4 * len(note.refused.why) + 4)
    if cells(text) <= most:
        return text
    while cells(text) > most:
        text = text.removesuffix("…")[:-1] + "…"
    return text


def verdict_lines(trace: Trace, notes: MaskNotes) -> list[str]:
    """Whether the text is whole, and how much of it the grammar wrote."""
    count = len(trace.steps)
    tokens = f"{exact(count)} token{'' if count == 1 else 's'}"
    if not notes.complete:
        return [f"not whole · {tokens}"]
    forced = f", {exact(notes.forced)} of them forced by the grammar" if notes.forced else ""
    return [
        f"valid · {tokens}{forced}",
        "The shape is certain. The values are the model's: any that fits is legal.",
    ]
