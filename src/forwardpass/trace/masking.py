"""From an answer and its grammar to what the grammar allowed at each token.

Worked out afterwards: the answer's tokens are followed through the same grammar once more, so that
an answer that nobody asks about costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from forwardpass.constraint.guide import Guide
from forwardpass.constraint.reasons import Reasons, Refusal, Spot
from forwardpass.constraint.states import State
from forwardpass.constraint.tokens import Words, is_set
from forwardpass.trace.masks import MaskNote, MaskNotes, Refused
from forwardpass.trace.step import Step


def mask_notes(
    guide: Guide, steps: Sequence[Step], limit: int, name: Callable[[int], str]
) -> MaskNotes:
    """The notes of an answer of at most `limit` tokens that was kept within a grammar.

    `guide` is at the start, as the answer's was; `name` names a control token. They end before a
    token that the grammar refuses (one that a caller took).
    """
    reasons = Reasons(guide.masker.grammar, name)
    spot, out, forced = reasons.start(), [], 0
    for index, step in enumerate(steps):
        allowed = guide.allowed(limit - index).words
        out.append(_note(guide, reasons, spot, step, allowed))
        ending = step.id in guide.ends and spot.state.complete
        after = spot if ending else _moved(guide, spot, step.id)
        if after is None:
            break
        text = guide.masker.tokens.text(step.id)
        forced += bool(text) and _forced(spot, text)
        if not ending:
            guide.advance(step.id)
        spot = after
    return MaskNotes(tuple(out), spot.state.complete and len(out) == len(steps), forced)


def _moved(guide: Guide, spot: Spot, token: int) -> Spot | None:
    text = guide.masker.tokens.text(token)
    return spot.feed(text) if text else spot.control(token)


def _forced(spot: Spot, text: bytes) -> bool:
    """Whether no byte of a token could have been another one."""
    state: State | None = spot.state
    for byte in text:
        if state is None or state.complete or state.controls():
            return False
        if len(state.allowed_bytes()) != 1:
            return False
        state = state.advance(byte)
    return state is not None


def _note(guide: Guide, reasons: Reasons, spot: Spot, step: Step, allowed: Words) -> MaskNote:
    left = step.outcome.left[1]
    best = step.outcome.best
    refused = None
    for token, logprob in zip(best.ids.tolist(), best.logprobs().tolist(), strict=True):
        if not is_set(allowed, token):
            why = _why(guide, reasons, spot, token)
            refused = Refused(
                token, logprob, why.byte, why.shown, why.rule, why.keyword, why.pointer
            )
            break
    return MaskNote(
        reasons.place(spot),
        reasons.schema_place(spot),
        reasons.legal(spot),
        left.survivors,
        max(0.0, 1.0 - left.mass),
        refused,
    )


def _why(guide: Guide, reasons: Reasons, spot: Spot, token: int) -> Refusal:
    text = guide.masker.tokens.text(token)
    if not text and token in guide.ends and not spot.state.complete:
        return reasons.end_refusal()
    if not text and spot.control(token) is not None:
        return reasons.refusal(spot, b"")
    return reasons.refusal(spot, text or None)
