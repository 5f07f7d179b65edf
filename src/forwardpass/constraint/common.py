"""What a vocabulary can do where any number, or any value of some simple types, may stand.

Most values of schemas are such; what their tokens do is found once for all grammars.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from forwardpass.constraint.frames import HOLE, Awaited, Frame, InNumber
from forwardpass.constraint.grammar import Builder
from forwardpass.constraint.numbers import ALL_NUMBERS, INTEGERS
from forwardpass.constraint.scripts import Point, Value, ending
from forwardpass.constraint.simple import NUMBERS, Types
from forwardpass.constraint.tables import Tables

if TYPE_CHECKING:
    from forwardpass.constraint.tokens import Tokens


class Common:
    """Entries that grammars share, over one vocabulary."""

    def __init__(self, tokens: Tokens) -> None:
        self._builder = Builder()
        self._lock = threading.Lock()
        types = [
            (*number, *boolean, *null, *string)
            for number in NUMBERS.values()
            for boolean in ((), ("boolean",))
            for null in ((), ("null",))
            for string in ((), ("string",))
        ]
        self._nodes = {one: self._builder.value({"type": list(one)}) for one in types if one}
        end = ending()
        start = Point([Value(node, end) for node in self._nodes.values()])
        grammar = self._builder.grammar(start)
        self.machine = grammar.machine
        self.tables = Tables(grammar.machine, grammar.closer(tokens.count), tokens)
        self._entries: dict[object, int] = {}

    def number(self, state: int) -> int | None:
        """The entry of a number as far as it is written; None for one that is not common."""
        if self.machine.numerals.numbers(state) not in (ALL_NUMBERS, INTEGERS):
            return None
        return self._entry(("number", state), InNumber(state, HOLE))

    def value(self, types: Types, blanks: int) -> int | None:
        """The entry of a value that has not begun."""
        node = self._nodes.get(types)
        return None if node is None else self._entry((types, blanks), Awaited(node, blanks, HOLE))

    def _entry(self, key: object, frame: Frame) -> int:
        with self._lock:
            known = self._entries.get(key)
            if known is None:
                known = self._entries[key] = self.tables.entry(frame)
            return known
