"""Why a token may come or not: where a text stands, what is legal there, what a refusal breaks.

reasons = Reasons(grammar)
spot = reasons.start().feed(b'{"a": ')
reasons.place(spot)             # /a
reasons.legal(spot)             # a number or a blank
reasons.refusal(spot, b' "')    # byte 2: number, not string (type, at /properties/a/type)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from forwardpass.constraint.frames import (
    Awaited,
    Frame,
    InArray,
    InName,
    InNumber,
    InObject,
    InString,
    InWord,
    InWords,
    Phase,
)
from forwardpass.constraint.plans import Node
from forwardpass.constraint.reasons_legal import Legal
from forwardpass.constraint.reasons_path import Level, is_script
from forwardpass.constraint.reasons_rules import Rules
from forwardpass.constraint.reasons_spot import Spot
from forwardpass.constraint.scripts import Value, Words
from forwardpass.constraint.states import Grammar

__all__ = ["Reasons", "Refusal", "Spot"]

ROOT, NAME, WRAPPER, TEXT, END = "(root)", "(name)", "(wrapper)", "(text)", "(end)"
BUDGET = "too few tokens left to close"


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a token may not come.

    `byte` is the first byte, from 1, at which no reading of the grammar survives (0 where the
    token is refused as a whole), `shown` that byte as a person reads it. `keyword` and `pointer`
    name what of a schema asks for it, empty where nothing does or it was not found.
    """

    byte: int
    shown: str
    rule: str
    keyword: str = ""
    pointer: str = ""

    def __str__(self) -> str:
        return f"byte {self.byte}: {self.rule}" if self.byte else self.rule


class Reasons:
    """The reasons of one grammar. `control` names a control token by its id."""

    def __init__(
        self, grammar: Grammar, control: Callable[[int], str] = "control token {}".format
    ) -> None:
        self._grammar, self._machine = grammar, grammar.machine
        self._rules, self._legal = Rules(grammar, control), Legal(grammar, control)

    def start(self) -> Spot:
        """The spot before the first byte."""
        return Spot(self._grammar.start())

    def place(self, spot: Spot) -> str:
        """Where a spot stands: a JSON pointer into the value that is written, with `(name)` behind
        it in a name; `(root)`, or outside values `(wrapper)`, `(text)`, `(end)`."""
        frames = [frame for frame, _ in spot.state.positions]
        if all(is_script(frame) for frame in frames):
            return self._script_place(spot)
        pointer = spot.trail.pointer
        level = spot.trail.levels[-1:]
        named = any(isinstance(frame, InName) for frame in frames)
        if named or any(one.opened == "{" and one.after_comma for one in level):
            return f"{pointer} {NAME}".strip()
        return pointer or ROOT

    def legal(self, spot: Spot) -> str:
        """What may come next, in words and classes of bytes."""
        return self._legal.legal(spot)

    def _script_place(self, spot: Spot) -> str:
        standing = [p for one in spot.state.positions for p in self._machine.standing(one)]
        edges = [edge for point in standing for edge in point.edges]
        frames = [frame for frame, _ in spot.state.positions]
        if any(isinstance(edge, Words) for edge in edges) or any(
            isinstance(frame, InWords) for frame in frames
        ):
            return TEXT
        if any(isinstance(edge, Value) for edge in edges):
            return ROOT
        return WRAPPER if edges or not standing else END

    def schema_place(self, spot: Spot) -> str | None:
        """The JSON pointer to the schema of what is written or comes next; None where no schema
        speaks of it. Of several the shortest; a tool's is within its own schema."""
        for frame, _ in sorted(spot.state.positions, key=lambda one: type(one[0]).__name__):
            if isinstance(frame, Awaited):
                nodes = [frame.node]
            elif is_script(frame):
                edges = (e for p in self._machine.standing((frame, None)) for e in p.edges)
                nodes = [edge.node for edge in edges if isinstance(edge, Value)]
            else:
                nodes = self._written(frame, spot.trail.levels)
            places = self._rules.keywords.places(nodes)
            if places:
                return places[0]
        return None

    def _written(self, frame: Frame, levels: tuple[Level, ...]) -> list[Node]:
        """The value that is written; of a container one that is between its parts."""
        if isinstance(frame, InName):
            return self._rules.around(frame.around.around, levels[:-1])
        if isinstance(frame, InArray) and frame.phase == Phase.COMMA:
            return self._rules.around(frame, levels)
        if isinstance(frame, InArray | InObject):
            return self._rules.around(frame.around, levels[:-1])
        if isinstance(frame, InString | InNumber | InWord):
            return self._rules.around(frame.around, levels)
        return []

    def refusal(self, spot: Spot, text: bytes | None) -> Refusal:
        """Why a token may not come, by its bytes; None for one that is no text.

        A token that the grammar lets in is one that cannot be closed in time.
        """
        if text is None:
            return Refusal(0, "", "a control token is no text here")
        here = spot
        for number, byte in enumerate(text, 1):
            after = here.advance(byte)
            if after is None:
                _, rule, keyword, pointer = self._rules.broken(here, byte)
                return Refusal(number, _shown(text, number - 1), rule, keyword, pointer)
            here = after
        return Refusal(0, "", BUDGET)

    def end_refusal(self) -> Refusal:
        """Why an id that ends an answer may not come."""
        return Refusal(0, "", "the text may not end here")


def _shown(text: bytes, at: int) -> str:
    """The character that a byte is part of, or the byte in hexadecimal digits."""
    start = at
    while start and 0x80 <= text[start] < 0xC0 and at - start < 3:
        start -= 1
    for end in range(at + 1, min(start + 4, len(text)) + 1):
        try:
            char = text[start:end].decode()
        except UnicodeDecodeError:
            continue
        return char if char.isprintable() and len(char) == 1 else f"0x{text[at]:02X}"
    return f"0x{text[at]:02X}"
