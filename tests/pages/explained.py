"""What the page of `explain` says, read as a browser would and worked out again from the trace."""

from __future__ import annotations

import base64
import json
import math
import re
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from html.parser import HTMLParser
from typing import Any

from pages.reading import VOID, resolve

Attributes = dict[str, str | None]


@dataclass(frozen=True)
class Figure:
    """A figure, and the width in per cent of the bar that follows it in its cell."""

    pointer: str
    value: Any
    rule: str | None
    kind: str
    text: str
    bar: float | None


@dataclass
class Page(HTMLParser):
    """`figures` in order; `loose` is text of the main part outside of figures; `drawn` are parts
    of pictures with their source; `names` and `starts` are all elements."""

    figures: list[Figure] = field(default_factory=list)
    loose: list[str] = field(default_factory=list)
    drawn: list[tuple[str, Attributes, str]] = field(default_factory=list)
    starts: list[tuple[str, Attributes]] = field(default_factory=list)
    counts: list[tuple[str, str]] = field(default_factory=list)
    open: list[tuple[str, Attributes, list[str]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()

    @classmethod
    def of(cls, text: str) -> Page:
        page = cls()
        page.feed(text)
        page.close()
        assert page.open == []
        return page

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = dict(attrs)
        assert len(attributes) == len(attrs), tag
        self.starts.append((tag, attributes))
        if tag not in VOID:
            self.open.append((tag, attributes, []))
        if tag == "rect" and self._kind_of("svg") == "meter" and "legend" not in self._kinds():
            last = self.figures[-1]
            assert last.bar is None
            width = float(str(attributes["width"]).removesuffix("%"))
            self.figures[-1] = replace(last, bar=width)

    def handle_endtag(self, tag: str) -> None:
        name, attributes, parts = self.open.pop()
        assert name == tag
        text = "".join(parts)
        if tag == "data":
            pointer, value = str(attributes["data-path"]), json.loads(str(attributes["value"]))
            rule, kind = attributes.get("data-as"), attributes.get("class") or ""
            self.figures.append(Figure(pointer, value, rule, kind, text, None))
        elif "data-of" in attributes:
            self.drawn.append((tag, attributes, text))
        elif "data-count" in attributes:
            self.counts.append((str(attributes["data-count"]), text))

    def handle_data(self, data: str) -> None:
        for _, _, parts in self.open:
            parts.append(data)
        names = {name for name, _, _ in self.open}
        known = "data" in names or any("data-count" in a for _, a, _ in self.open)
        known = known or any("data-of" in a for _, a, _ in self.open)
        if "main" in names and not known and not self._kinds() & {"scale", "legend"}:
            self.loose.append(data)

    def _kinds(self) -> set[str]:
        return {kind for _, a, _ in self.open for kind in (a.get("class") or "").split()}

    def _kind_of(self, name: str) -> str | None:
        return next((a.get("class") for tag, a, _ in reversed(self.open) if tag == name), None)

    def named(self, name: str) -> list[Attributes]:
        return [attributes for tag, attributes in self.starts if tag == name]

    def ids(self) -> list[str]:
        return [str(a["id"]) for _, a in self.starts if "id" in a]


def unpacked(trace: Any) -> Any:
    """The trace with every row of scores as a list, as docs/trace.md says they are packed."""
    whole = json.loads(json.dumps(trace))
    for step in whole["steps"]:
        best = step["best"]
        if "ids_base64" in best:
            for key, code in (("ids", "i"), ("scores", "f")):
                data = base64.b64decode(best.pop(f"{key}_base64"))
                best[key] = list(struct.unpack(f"<{len(data) // 4}{code}", data))
    return whole


def packed(trace: Any) -> Any:
    """The trace with every row of scores in base64."""
    whole = json.loads(json.dumps(trace))
    for step in whole["steps"]:
        best = step["best"]
        for key, code in (("ids", "i"), ("scores", "f")):
            row = best.pop(key)
            data = struct.pack(f"<{len(row)}{code}", *row)
            best[f"{key}_base64"] = base64.b64encode(data).decode()
    return whole


def own_probability(values: Any, pointer: str) -> float:
    """The model's own probability of a score, from all of its row where the trace has all."""
    step = resolve(values, "/".join(pointer.split("/")[:3]))
    score, best = resolve(values, pointer), step["best"]
    if best["rest"] == 0:
        top = max(best["scores"])
        return math.exp(score - top) / math.fsum(math.exp(each - top) for each in best["scores"])
    return math.exp(score - best["scores"][0] - best["log_sum"])


def means(figure: Figure, values: Any) -> float | None:
    """The number that a figure's text has to be; None where it is no number."""
    value = figure.value
    if figure.rule == "exp":
        return math.exp(value)
    if figure.rule == "softmax":
        return own_probability(values, figure.pointer)
    if figure.kind == "token" or isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value)


def says(text: str, number: float) -> bool:
    """Whether a text is the number, to half a unit of its last digit, or says which side of what
    can be shown it lies on."""
    if text.startswith("<"):
        return 0 < number < float(text[1:]) / 2 * (1 + 1e-9)
    if text.startswith(">"):
        return 1 - (1 - float(text[1:])) / 2 * (1 + 1e-9) < number < 1
    found = re.fullmatch(r"[−-]?[\d,]+(\.\d+)?(e[+-]\d+)?", text)
    if found is None:
        return False
    shown = float(text.replace(",", "").replace("−", "-"))
    if found[1] is None:
        return shown == number
    last = 10.0 ** -len(found[1].removeprefix("."))
    return abs(shown - number) <= last / 2 * (1 + 1e-9) + 1e-12 * abs(number)


def plain(text: str) -> str:
    """A token as it should be shown, blanks as they are."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def check_figures(page: Page, values: Mapping[str, Any]) -> None:
    """Every figure, bar and mark of the page is what the trace says, and no digit stands there
    besides."""
    for figure in page.figures:
        assert resolve(values, figure.pointer) == figure.value, figure
        number = means(figure, values)
        if number is not None:
            assert says(figure.text, number), figure
        elif figure.kind == "token":
            shown = figure.text.replace("␣", " ").removeprefix("◌")
            wanted = plain(figure.value) if isinstance(figure.value, str) else None
            assert shown == (wanted or ("nothing" if wanted == "" else f"[token {figure.value}]"))
        elif figure.value is None:
            assert figure.text == "–"
    bars = [figure for figure in page.figures if figure.bar is not None]
    greatest = max(values.get("pass", {}).get("attention", {}).get("weights", [1.0]))
    for figure in bars:
        number = means(figure, values) or 0.0
        if figure.pointer.startswith("/pass/attention/"):
            number /= greatest
        assert figure.bar is not None
        assert abs(figure.bar - 100 * number) <= 0.006, figure
    for pointer, text in page.counts:
        assert text == f"{len(resolve(values, pointer)):,}"
    assert [text for text in page.loose if re.search(r"\d", text)] == []


def percent(text: str | None) -> float:
    return float(str(text).removesuffix("%")) / 100


def rulers(page: Page) -> Iterator[tuple[str, float, float]]:
    """Source, start and end of each part of the rulers; a needle starts where it ends."""
    for tag, attributes, _ in page.drawn:
        source = str(attributes["data-of"])
        if tag == "rect":
            start = percent(attributes["x"])
            yield source, start, start + percent(attributes["width"])
        elif tag == "line":
            yield source, percent(attributes["x1"]), percent(attributes["x2"])


def heights(page: Page) -> list[tuple[str, float]]:
    """Source and height of each mark of the picture of norms."""
    found = [(str(a["data-of"]), a) for tag, a, _ in page.drawn if tag == "svg"]
    return [(source, float(str(a["y"]))) for source, a in found]


def is_line(points: Sequence[tuple[float, float]]) -> bool:
    """Whether all points lie on one falling line, to a tenth of a pixel."""
    (x1, y1), (x2, y2) = min(points), max(points)
    slope = (y2 - y1) / (x2 - x1)
    return slope < 0 and all(abs(y1 + slope * (x - x1) - y) <= 0.11 for x, y in points)
