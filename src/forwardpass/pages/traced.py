"""What a page reads in a trace: a token as it is shown, a probability, the best scores of a row.

The trace is its JSON form. Rows of scores that it holds packed (`ids_base64`) are addressed as if
they were lists: `/steps/0/best/scores/3`.
"""

from __future__ import annotations

import base64
import heapq
import math
import sys
import unicodedata
from array import array
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from forwardpass.pages.figures import UNKNOWN, Figures, Path
from forwardpass.pages.page import Html, element, escaped

ROWS = 10  # of a distribution that are shown, at most
FEWEST = 4
_CUT = 48  # characters of a token that are shown; `value` has all of them
_SMALL = 0.0005  # what three decimals would call 0


def probability(logprob: float | None) -> float:
    """exp(logprob); what cannot come has none in JSON."""
    return 0.0 if logprob is None else math.exp(logprob)


def share(value: float) -> str:
    """A probability with three decimals; never all of 0 or of 1 where it is not."""
    if 0 < value < _SMALL:
        return f"<{2 * _SMALL:.3f}"
    if 1 - _SMALL < value < 1 - 1e-9:
        return f">{1 - 2 * _SMALL:.3f}"
    return f"{value:.3f}"


def token_html(text: str) -> Html:
    """A token's text in one line: outer blanks as ␣, what does not print written out."""
    inner = text.strip(" ")
    left = len(text) - len(text.lstrip(" "))
    marked = "␣" * left + inner + "␣" * (len(text) - left - len(inner))
    shown = marked if len(marked) <= _CUT else marked[: _CUT - 1] + "…"
    found: list[Html] = []
    for char in shown:
        if char == "␣" or not char.isprintable():
            found.append(element("i", char))
        elif not found and unicodedata.combining(char):
            found.append(escaped(f"◌{char}"))  # a mark needs something to stand on
        else:
            found.append(escaped(char))
    return Html("".join(found)) or element("i", "nothing")


def unexplained(token: int | None) -> str:
    """A token of which the trace has the id alone."""
    return f"[token {token}]"


@dataclass(frozen=True)
class Row:
    """A token in a table of distributions; a path is None where the trace does not have it."""

    token: Path
    score: Path | None
    own: Path | None
    after: Path | None
    chosen: bool = False


class Traced:
    """The figures of a trace, those of a look inside a pass below `pass`."""

    def __init__(self, trace: Mapping[str, Any], inside: Mapping[str, Any] | None = None) -> None:
        steps = [{**step, "best": _best(step["best"], _named(step))} for step in trace["steps"]]
        values = {**trace, "steps": steps}
        if inside is not None:
            values["pass"] = inside
        self.figures = Figures(values)
        self.steps: list[dict[str, Any]] = steps
        self.tokens: Mapping[str, Any] = trace["tokens"]

    def value(self, path: Path) -> Any:
        """What stands at a path."""
        return self.figures.value(path)

    def token(self, path: Path) -> Html:
        """The token whose id stands at a path; the id where the trace does not explain it."""
        token = self.value(path)
        text = ("tokens", str(token), "text")
        if token is not None and self.figures.has(text):
            return self.figures.figure(text, token_html, kind="token")
        return self.figures.figure(path, unexplained, kind="token")

    def token_text(self, path: Path) -> str:
        """Its text without marks, for what holds no elements."""
        token = self.value(path)
        note = self.tokens.get(str(token))
        text = unexplained(token) if note is None else str(note["text"]).replace(" ", "␣")
        return text if len(text) <= _CUT else text[: _CUT - 1] + "…"

    def whole(self, path: Path) -> Html:
        """A count."""
        return self.figures.figure(path, lambda count: f"{count:,}")

    def number(self, path: Path | None, form: str = ".2f") -> Html:
        """A number, its minus a real one."""
        if path is None:
            return escaped(UNKNOWN)
        return self.figures.figure(path, lambda value: f"{value:{form}}".replace("-", "−"))

    def part(self, path: Path) -> Html:
        """A probability or a mass that stands in the trace."""
        return self.figures.figure(path, share)

    def chance(self, path: Path, kind: str | None = None) -> Html:
        """The probability of a log probability."""
        logprob = self.value(path)
        if logprob is None:
            return self.figures.figure(path, kind=kind)
        return self.figures.figure(path, lambda value: share(math.exp(value)), "exp", kind)

    def own(self, step: int, path: Path) -> Html:
        """The model's own probability, of a log probability or of a kept score."""
        if path[-1] == "logprob":
            return self.chance(path)
        return self.figures.figure(path, lambda _: share(self.own_value(step, path)), "softmax")

    def own_value(self, step: int, path: Path) -> float:
        """The same as a number."""
        value = self.value(path)
        if path[-1] == "logprob" or value is None:
            return probability(value)
        best = self.steps[step]["best"]
        return math.exp(value - best["top"] - best["log_sum"])

    def kept(self, step: int) -> Path:
        """Where the last stage stands that could leave a token out."""
        names = [stage["name"] for stage in self.steps[step]["stages"]]
        last = max(i for i, name in enumerate(names) if name not in ("rescale", "draw"))
        return ("steps", step, "stages", last)

    def rows(self, step: int) -> list[Row]:
        """The best tokens by the model's own scores, those that are not there and could be drawn,
        and the one that came."""
        one, base = self.steps[step], ("steps", step)
        best, after = one["best"], one["after"]
        places = {ranked["id"]: (*base, "after", i) for i, ranked in enumerate(after)}
        rows: dict[int, Row] = {}
        for i, token in best["ids"].items():
            score: Path = (*base, "best", "scores", i)
            likely = self.own_value(step, score) >= _SMALL
            if len(rows) < FEWEST or (len(rows) < ROWS and likely):
                left = (*places[token], "logprob") if token in places else None
                rows[token] = Row((*base, "best", "ids", i), score, score, left)
        for i, ranked in enumerate(after[:ROWS]):
            if ranked["id"] not in rows and (i < FEWEST or probability(ranked["logprob"]) > _SMALL):
                place = (*base, "after", i)
                own = self._score(step, ranked["id"])
                rows[ranked["id"]] = Row((*place, "id"), own, own, (*place, "logprob"))
        came = one["id"]
        rows[came] = Row(
            (*base, "id"),
            self._score(step, came),
            (*base, "logprob"),
            (*base, "sampled_logprob"),
            chosen=True,
        )
        return sorted(rows.values(), key=lambda row: -self._order(step, row))

    def _score(self, step: int, token: int) -> Path | None:
        """Where the score of a token that came or was left after the stages stands, if kept."""
        place = self.steps[step]["best"]["place"].get(token)
        return None if place is None else ("steps", step, "best", "scores", place)

    def _order(self, step: int, row: Row) -> float:
        return -1.0 if row.own is None else self.own_value(step, row.own)


def _named(step: Mapping[str, Any]) -> set[int]:
    """The token that came and those that a page shows as left after the stages."""
    return {step["id"], *(ranked["id"] for ranked in step["after"][:ROWS])}


def _best(best: Mapping[str, Any], shown: Collection[int]) -> dict[str, Any]:
    """The best scores by their place in the row, only those that a page shows, and those of the
    tokens `shown` besides; `top` is the best score of all."""
    ids, scores = (_unpacked(best, key, code) for key, code in (("ids", "i"), ("scores", "f")))
    known = [i for i, score in enumerate(scores) if score is not None]
    places = heapq.nsmallest(ROWS, known, key=lambda i: (-scores[i], ids[i]))
    also = [i for i in known if ids[i] in shown]
    plain = {key: value for key, value in best.items() if not key.endswith("_base64")}
    return {
        **plain,
        "ids": {i: ids[i] for i in places},
        "scores": {i: scores[i] for i in (*places, *also)},
        "place": {ids[i]: i for i in also},
        "top": scores[places[0]] if places else 0.0,
        "count": len(ids),
    }


def _unpacked(best: Mapping[str, Any], key: str, code: str) -> Any:
    if key in best:
        return best[key]
    row = array(code, base64.b64decode(best[f"{key}_base64"]))
    if sys.byteorder == "big":
        row.byteswap()
    return row


def meter(value: float, fill: str = "first") -> Html:
    """A share from 0 to 1 as a bar beside the figure that says the same."""
    width = f"{100 * min(max(value, 0.0), 1.0):.2f}%"
    block = element("rect", width=width, class_=fill)
    return element("svg", block, class_="meter", aria_hidden="true")
