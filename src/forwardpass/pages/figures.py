"""The figures of a page: values of a JSON object, each with its place in it (RFC 6901).

`<data value="512" data-path="/memory/kv">512 B</data>`: `value` is the JSON of the value itself,
the text is what people read. Where the text is not the value itself but follows from it, `data-as`
names the rule: `exp` for the probability of a log probability. `Figures` remembers what was shown,
so that a page can show the rest.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from forwardpass.pages.labels import unit
from forwardpass.pages.page import Html, bar, element
from forwardpass.units import exact, percent, short
from forwardpass.work.machines import amount
from forwardpass.work.plan_notes import seconds

Path = tuple[str | int, ...]
UNKNOWN = "–"
_LONG = 100_000  # a number that is easier to read in short


def pointer(path: Path) -> str:
    """The path as a JSON pointer: `/flop_per_token/at/0/total`."""
    return "".join(f"/{str(key).replace('~', '~0').replace('/', '~1')}" for key in path)


class Figures:
    """The values of one page; `writers` say by a value's key how it is written."""

    def __init__(
        self, values: Mapping[str, Any], writers: Mapping[str, Callable[[Any], str]] | None = None
    ) -> None:
        self._values = values
        self._writers = writers or {}
        self._shown: set[Path] = set()

    def value(self, path: Path) -> Any:
        """What stands at a path."""
        found: Any = self._values
        for key in path:
            found = found[key]
        return found

    def has(self, path: Path) -> bool:
        """Whether something stands at a path that is known."""
        try:
            return self.value(path) is not None
        except (KeyError, IndexError, TypeError):
            return False

    def figure(
        self,
        path: Path,
        write: Callable[[Any], str] | None = None,
        rule: str | None = None,
        kind: str | None = None,
    ) -> Html:
        """The value at a path as people read it, by `write` or by its unit.

        `rule` names how the text follows from the value; `kind` is a class of the style.
        """
        value = self.value(path)
        write = write or self._writers.get(str(path[-1]))
        self._shown.add(path)
        text = UNKNOWN
        if value is not None:
            text = write(value) if write else written(value, unit(path))
        if kind is None and not isinstance(value, bool | int | float):
            kind = "unknown" if value is None else "text"
        value = json.dumps(value, sort_keys=True)
        place = pointer(path)
        return element("data", text, value=value, data_path=place, data_as=rule, class_=kind)

    def in_short(self, path: Path) -> str:
        """A whole number once more, with a prefix and its unit; nothing for other values."""
        value, of = self.value(path), unit(path)
        if type(value) is not int:
            return ""
        if abs(value) < (1_000 if of else _LONG) or of in ("tokens", "requests"):
            return of
        return self.figure(path, lambda count: short(count, of))

    def share(self, path: Path, of: Path) -> Html:
        """The value at a path in per cent of another one, with a bar."""
        part, whole = self.value(path), self.value(of)
        if part is None or not whole:
            return Html("")
        text = element("span", percent(part, whole), data_share=pointer(path), data_of=pointer(of))
        return Html(text + bar(part / whole))

    def left(self, path: Path = ()) -> Iterator[Path]:
        """Where the values are that were not shown."""
        if path in self._shown:
            return
        value = self.value(path)
        if value and isinstance(value, dict | list | tuple):
            keys = value if isinstance(value, dict) else range(len(value))
            for key in keys:
                yield from self.left((*path, key))
        else:
            yield path


def written(value: object, of: str) -> str:
    """A value as people read it, in the unit `of`."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return exact(value)
    if isinstance(value, float):
        return str(value) if not of else seconds(value) if of == "s" else _rounded(value, of)
    if isinstance(value, str):
        return value or "none"
    if isinstance(value, Mapping | Sequence):
        return json.dumps(value, ensure_ascii=False) if value else "none"
    return str(value)


def _rounded(value: float, of: str) -> str:
    if value and abs(value) < 1:
        return f"{value:.3g} {of}"
    return amount(value, of)
