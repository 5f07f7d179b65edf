"""What one rendering of a template may cost, and the count of what it has cost.

Deterministic limits on steps (loop turns, calls, comparisons), on characters made and on the size
of one value stop a hostile template; a clock stops what they overlook. The limits grow with the
conversation, so an honest template never meets them.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from jinja2.runtime import Undefined

from forwardpass.errors import TemplateError

_CLOCK_EVERY = 64
_MAX_BITS = 4096  # of a whole number
_VIEWS = frozenset(map(type, ({}.keys(), {}.values(), {}.items())))


@dataclass(frozen=True)
class Limits:
    """Limits of one rendering of an empty conversation."""

    source: int = 1 << 16  # characters of the template
    depth: int = 200  # nesting of its syntax
    steps: int = 200_000
    text: int = 1 << 22  # characters of one value
    made: int = 1 << 25  # characters made in all, those thrown away too
    items: int = 1 << 17  # of one list
    seconds: float = 5.0


@dataclass(frozen=True)
class Size:
    """A value written out: characters, values inside each other counted each time they occur."""

    characters: int
    values: int
    depth: int


class Budget:
    """Counts one rendering's cost and raises TemplateError at a limit.

    `given` is the number of characters and values in the conversation.
    """

    def __init__(self, limits: Limits, given: int = 0) -> None:
        self._steps = limits.steps + 16 * given
        self._made = limits.made + 32 * given
        self.max_text = limits.text + 4 * given
        self.max_items = limits.items + given
        self._seconds = limits.seconds
        self._deadline = time.monotonic() + limits.seconds
        self._until_clock = _CLOCK_EVERY

    def step(self, count: int = 1) -> None:
        """Counts `count` steps."""
        self._steps -= count
        if self._steps < 0:
            raise TemplateError("stopped: more steps than a chat template needs")
        self._until_clock -= 1
        if self._until_clock <= 0:
            self._until_clock = _CLOCK_EVERY
            if time.monotonic() > self._deadline:
                raise TemplateError(f"stopped after {self._seconds:g} s")

    def text(self, characters: int) -> None:
        """Counts a text about to be made."""
        self._made -= characters
        if characters > self.max_text or self._made < 0:
            raise TemplateError("stopped: more text than a chat template needs")
        self.step(1 + characters // 4096)

    def items(self, count: int) -> None:
        """Counts a list about to be made."""
        if count > self.max_items:
            raise TemplateError("stopped: a longer list than a chat template needs")
        self.text(8 * count)

    def number(self, bits: int) -> None:
        """Checks a whole number about to be made."""
        self.step()
        if bits > _MAX_BITS:
            raise TemplateError("stopped: a larger number than a chat template needs")

    def size(self, value: object, *, printing: bool = True) -> Size:
        """The size of a value written out.

        With `printing`, a value that has no fixed text (a namespace, a generator, a macro) is
        refused.
        """
        if isinstance(value, str):
            return Size(len(value), 1, 0)
        characters = values = 0
        depth = -1
        level: list[object] = [value]
        while level:
            depth += 1
            values += len(level)
            self.step(1 + len(level) // 4)
            inner: list[object] = []
            for one in level:
                if isinstance(one, str):
                    characters += len(one)
                elif isinstance(one, Mapping):
                    inner += one.keys()
                    inner += one.values()
                elif isinstance(one, (list, tuple)) or type(one) in _VIEWS:
                    inner += cast(Iterable[object], one)
                else:
                    characters += _written_size(one, printing)
                if values + len(inner) > self.max_items or characters > 4 * self.max_text:
                    raise TemplateError("stopped: a larger value than a chat template needs")
            level = inner
        return Size(characters + 4 * values, values, depth)


def _written_size(value: object, printing: bool) -> int:
    if isinstance(value, int):
        return 1 + value.bit_length() // 3
    if printing and not (value is None or isinstance(value, (float, Undefined, range))):
        raise TemplateError(f"a {type(value).__name__} has no text")
    return 32


def given_size(values: Sequence[object]) -> int:
    """Characters and values in what is given to a template; counts without a limit."""
    total = 0
    waiting = list(values)
    while waiting:
        value = waiting.pop()
        total += 4
        if isinstance(value, str):
            total += len(value)
        elif isinstance(value, Mapping):
            waiting.extend(value.keys())
            waiting.extend(value.values())
        elif isinstance(value, (list, tuple)):
            waiting.extend(value)
    return total
