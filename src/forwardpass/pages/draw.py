"""The draw as a picture: [0, 1) shared out to the tokens that were kept, and the random number."""

from __future__ import annotations

from collections.abc import Iterator

from forwardpass.pages.figures import Path, pointer
from forwardpass.pages.page import Html, element
from forwardpass.pages.traced import Traced, probability

_NAMED = 0.07  # a part of the ruler that has room for a name
_HAIR = 0.004  # the narrowest part that is drawn on its own
_TICKS = (0, 0.5, 1)


def draw(traced: Traced, step: int) -> Html:
    """The ruler and what it says; nothing for a greedy choice."""
    one, base = traced.steps[step], ("steps", step)
    if one["random"] is None or one["interval"] is None:
        return Html("")
    start, end = one["interval"]
    digits = _digits(start, end)
    number = traced.number((*base, "random"), f".{digits}f")
    ends = [traced.number((*base, "interval", i), f".{digits}f") for i in (0, 1)]
    token = traced.token((*base, "drawn"))
    words = ("The random number ", number, " fell into ", token, ": ", ends[0], " to ", ends[1])
    return element(
        "figure",
        element("figcaption", *words, "."),
        element(
            "svg",
            *_shares(traced, step),
            _block(start, end, "own", pointer((*base, "interval"))),
            _name(traced, (*base, "drawn"), start, end),
            *_scale(),
            *_needle(one["random"], pointer((*base, "random"))),
            class_="ruler",
            role="img",
            aria_label="The draw as a ruler from 0 to 1; the words above say the same.",
        ),
        class_="draw",
    )


def _digits(start: float, end: float) -> int:
    """As many decimals as tell the ends apart, three at least."""
    apart = (n for n in range(3, 16) if f"{start:.{n}f}" != f"{end:.{n}f}")
    return next(apart, 16)


def _shares(traced: Traced, step: int) -> Iterator[Html]:
    """The parts of the likeliest tokens, and the name in those that have room for it."""
    at = 0.0
    yield element("rect", width="100%", class_="track")
    for i, ranked in enumerate(traced.steps[step]["after"]):
        width = probability(ranked["logprob"])
        if width < _HAIR:
            break  # likeliest first: the others are narrower still
        path = ("steps", step, "after", i)
        yield _block(at, at + width, f"share{i % 2}", pointer((*path, "logprob")))
        if ranked["id"] != traced.steps[step]["drawn"]:
            yield _name(traced, (*path, "id"), at, at + width)
        at += width


def _block(start: float, end: float, kind: str, source: str) -> Html:
    place = {"x": _percent(start), "width": _percent(end - start)}
    return element("rect", **place, class_=kind, data_of=source)


def _name(traced: Traced, path: Path, start: float, end: float) -> Html:
    """A token's text within its part of the ruler, cut off where that ends."""
    if end - start < _NAMED:
        return Html("")
    text = element("text", traced.token_text(path), x="6", y="44", data_of=pointer(path))
    return element("svg", text, x=_percent(start), width=_percent(end - start))


def _needle(number: float, source: str) -> Iterator[Html]:
    at = _percent(number)
    yield element("line", x1=at, x2=at, y1="14", y2="58", class_="needle", data_of=source)
    tip = element("path", d="M-6 0H6L0 9Z", class_="tip")
    yield element("svg", tip, x=at, y="8", overflow="visible")


def _scale() -> Iterator[Html]:
    for tick in _TICKS:
        side = "start" if tick == 0 else "end" if tick == 1 else "middle"
        at = _percent(tick)
        yield element("line", x1=at, x2=at, y1="52", y2="58", class_="tick")
        yield element("text", f"{tick:g}", x=at, y="72", text_anchor=side, class_="scale")


def _percent(share: float) -> str:
    return f"{100 * share:.3f}%"
