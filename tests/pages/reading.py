"""Reads a page as a browser would: its figures, shares, visible text and every attribute."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from html.parser import HTMLParser
from typing import Any

VOID = {"meta", "br"}


@dataclass
class Element:
    name: str
    attributes: dict[str, str | None]
    text: str = ""


@dataclass
class Read(HTMLParser):
    """`elements` in the order in which they end; `loose` is text of cells outside of figures."""

    elements: list[Element] = field(default_factory=list)
    open: list[Element] = field(default_factory=list)
    loose: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()

    @classmethod
    def of(cls, page: str) -> Read:
        read = cls()
        read.feed(page)
        read.close()
        assert read.open == []
        return read

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = [name for name, _ in attrs]
        assert len(names) == len(set(names))
        element = Element(tag, dict(attrs))
        (self.elements if tag in VOID else self.open).append(element)

    def handle_endtag(self, tag: str) -> None:
        element = self.open.pop()
        assert element.name == tag
        self.elements.append(element)

    def handle_data(self, data: str) -> None:
        for element in self.open:
            element.text += data
        inside = {element.name for element in self.open}
        known = "data" in inside or any("data-share" in e.attributes for e in self.open)
        if inside & {"td", "dd"} and "small" not in inside and not known:
            self.loose.append(data)

    def named(self, name: str) -> list[Element]:
        return [element for element in self.elements if element.name == name]

    def figures(self) -> list[tuple[str, Any, str]]:
        """Pointer, value and text of each figure."""
        return [
            (str(e.attributes["data-path"]), json.loads(str(e.attributes["value"])), e.text)
            for e in self.named("data")
        ]

    def shares(self) -> list[tuple[str, str, str]]:
        """Pointers of part and whole, and the text."""
        found = [e for e in self.named("span") if "data-share" in e.attributes]
        return [
            (str(e.attributes["data-share"]), str(e.attributes["data-of"]), e.text) for e in found
        ]


def resolve(values: Any, pointer: str) -> Any:
    """What a JSON pointer names (RFC 6901)."""
    for key in pointer.split("/")[1:]:
        name = key.replace("~1", "/").replace("~0", "~")
        values = values[int(name)] if isinstance(values, list) else values[name]
    return values


def leaves(value: Any, pointer: str = "") -> dict[str, Any]:
    """Every value of a JSON object that holds no others, by its pointer."""
    if not value or not isinstance(value, dict | list):
        return {pointer: value}
    pairs = value.items() if isinstance(value, dict) else enumerate(value)
    found: dict[str, Any] = {}
    for key, inner in pairs:
        name = str(key).replace("~", "~0").replace("/", "~1")
        found.update(leaves(inner, f"{pointer}/{name}"))
    return found


SCALES = {"k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "m": 1e-3}
UNITS = "FLOP/s|FLOP|B/s|B|s|tokens/s|tokens|requests"
NUMBER = re.compile(rf"\$?(?P<number>[\d,]+(?:\.\d+)?) ?(?P<prefix>[kMGTPm]?)(?:{UNITS})?")


def says(text: str, value: float) -> bool:
    """Whether a text is the number, to half a unit of its last digit."""
    found = NUMBER.fullmatch(text.strip())
    if found is None:
        return False
    number = found["number"].replace(",", "")
    scale = SCALES.get(found["prefix"], 1.0)
    last = 10.0 ** -len(number.partition(".")[2]) * scale
    return abs(float(number) * scale - value) <= last / 2 * (1 + 1e-9) + 1e-12 * abs(value)
