"""What a grammar did to an answer, as a section of the page of `explain`."""

from __future__ import annotations

from forwardpass.pages.explain_step import anchor
from forwardpass.pages.figures import UNKNOWN, Path
from forwardpass.pages.page import Group, Html, element, table
from forwardpass.pages.traced import Traced, meter

_HEAD = ["#", "token", "where", "what was legal", "allowed", "removed", "best refused", "p", "why"]
_WORDS = {1, 2, 3, 6, 8}


def masks_section(traced: Traced) -> Html:
    """A token a row: where it stands, what was legal, the best that was not, and why not."""
    notes: Path = ("masks", "steps")
    rows = [_row(traced, i) for i in range(len(traced.value(notes)))]
    whole = table("What the grammar allowed", _HEAD, [Group(rows)], words=_WORDS, heard=True)
    return element(
        "section",
        element("h2", "What the grammar allowed"),
        _verdict(traced),
        whole,
        id="grammar",
    )


def _verdict(traced: Traced) -> Html:
    complete = traced.figures.figure(("masks", "complete"), _whole)
    forced = traced.whole(("masks", "forced"))
    return element(
        "p",
        complete,
        " Forced by the grammar, byte by byte: ",
        forced,
        " tokens. Removed is the share of probability that the tokens which were not allowed had.",
    )


def _whole(complete: bool) -> str:
    return "The text is whole." if complete else "The text is not whole."


def _row(traced: Traced, step: int) -> list[str]:
    base: Path = ("masks", "steps", step)
    removed = traced.part((*base, "removed"))
    link = element("a", traced.token(("steps", step, "id")), href=f"#{anchor(step)}")
    return [
        traced.whole(("steps", step, "index")),
        link,
        traced.figures.figure((*base, "place"), kind="word"),
        traced.figures.figure((*base, "next"), kind="word"),
        traced.whole((*base, "allowed")),
        Html(removed + meter(float(traced.value((*base, "removed"))))),
        *_refused(traced, (*base, "refused")),
    ]


def _refused(traced: Traced, base: Path) -> list[str]:
    if traced.value(base) is None:
        return [Html(UNKNOWN), Html(UNKNOWN), Html("none of the scores that were kept")]
    rule = traced.figures.figure((*base, "rule"), kind="word")
    if traced.value((*base, "byte")):
        rule = Html("byte " + traced.whole((*base, "byte")) + ": " + rule)
    if traced.value((*base, "pointer")):
        pointer = traced.figures.figure((*base, "pointer"), kind="word")
        rule = Html(rule + " (" + pointer + ")")
    return [traced.token((*base, "id")), traced.chance((*base, "logprob")), rule]
