"""What is legal next, in words and classes of bytes."""

from __future__ import annotations

import re
from collections.abc import Iterator

from forwardpass.constraint.frames import (
    At,
    Awaited,
    InArray,
    InLiteral,
    InName,
    InNumber,
    InObject,
    InString,
    InWord,
    InWords,
    Phase,
    Position,
)
from forwardpass.constraint.lang import Lang
from forwardpass.constraint.machine import array_done, object_done
from forwardpass.constraint.plans import Node
from forwardpass.constraint.reasons_path import Trail
from forwardpass.constraint.reasons_spot import Spot, Values, begins, joined, quoted
from forwardpass.constraint.scripts import Value, Words

_FEW = 4  # of several values that are written out
_WRITTEN = {"string": "a text in quotes", "number": "a number", "integer": "a whole number",
            "boolean": "true or false", "null": "null", "array": "[", "object": "{"}  # fmt: skip


class Legal(Values):
    """Says what may come next."""

    def legal(self, spot: Spot) -> str:
        """What may come next, in words."""
        readings = sorted(list(self._next(one, spot, spot.trail)) for one in spot.state.positions)
        found = dict.fromkeys(phrase for reading in readings for phrase in reading)
        if spot.state.complete:
            found["the end"] = None
        return joined(list(found)) if found else "nothing"

    def _next(self, position: Position, spot: Spot, trail: Trail) -> Iterator[str]:
        frame, text = position
        if isinstance(frame, At):
            yield from self._script(frame)
        elif isinstance(frame, InLiteral):
            yield quoted(frame.left)
        elif isinstance(frame, InWords):
            yield from self._words(self.machine.plain.lang(frame.state), trail.written, "the end")
            yield from self._script(frame)
        elif isinstance(frame, Awaited):
            yield from self._value([frame.node])
        elif isinstance(frame, InString):
            lang = self.machine.strings.lang(frame.state)
            yield from self._words(lang, trail.written, "the end of the text")
        elif isinstance(frame, InWord):
            yield quoted(frame.left)
        elif isinstance(frame, InName):
            yield from self._names(frame, trail)
        elif isinstance(frame, InNumber):
            yield from self._number(spot)
            if self.machine.numerals.done(frame.state):
                for after in self.machine.finished(frame.around, text):
                    yield from self._next(after, spot, trail.ended())
        elif isinstance(frame, InArray):
            yield from self._array(frame)
        elif isinstance(frame, InObject):
            yield from self._object(frame)
        if getattr(frame, "blanks", 0):
            yield "a blank"

    def _script(self, frame: At | InWords) -> Iterator[str]:
        standing = self.machine.standing((frame, None))
        texts, tokens = begins(standing)
        yield from (quoted(text) for text in dict.fromkeys(texts))
        yield from (self.control(token) for token in dict.fromkeys(tokens))
        for edge in (edge for point in standing for edge in point.edges):
            if isinstance(edge, Value):
                yield from self._value([edge.node])
            elif isinstance(edge, Words):
                yield from self._words(edge.lang, "", "")

    def _value(self, nodes: list[Node]) -> Iterator[str]:
        for kind in self.kinds(nodes):
            words = [word for node in nodes for word in node.form.texts.words]
            booleans = {one for node in nodes for one in node.form.booleans}
            if kind == "string" and words:
                yield _one_of([quoted(word) for word in words], "text")
            elif kind == "boolean" and len(booleans) == 1:
                yield "true" if True in booleans else "false"
            else:
                yield _WRITTEN[kind]

    def _words(self, lang: Lang | None, before: str, end: str) -> Iterator[str]:
        """The ways on in a text of which some is written."""
        if lang is None:
            yield "the rest of a character"
            return
        if lang.words:
            yield _one_of([before + word for word in lang.words], "value")
            return
        if lang.nullable and end:
            yield end
        moves = self.machine.search.live_moves(lang)
        if len(moves) == 1 and moves[0][0] == moves[0][1]:
            yield quoted(chr(moves[0][0]))
        elif moves:
            every = sum(last - first + 1 for first, last, _ in moves) >= 0x110000 - 0x800
            yield "any character" if every else f"a character of {_classes(moves)}"

    def _names(self, frame: InName, trail: Trail) -> Iterator[str]:
        lang = self.machine.strings.lang(frame.state)
        if lang is not None and lang.words:
            yield _one_of([trail.written + word for word in lang.words], "name")
        else:
            yield from self._words(lang, trail.written, "the end of the name")

    def _number(self, spot: Spot) -> Iterator[str]:
        """The bytes that go on with a number: where one ends, all other bytes differ."""
        allowed = spot.state.allowed_bytes()
        digits = bytes(byte for byte in allowed if 0x30 <= byte <= 0x39)
        if digits == b"0123456789":
            yield "a digit"
        elif digits:
            yield f"a digit of {digits.decode()}" if len(digits) > 1 else digits.decode()
        for byte in b"-+.":
            if byte in allowed:
                yield chr(byte)
        if 0x65 in allowed:
            yield "an exponent"

    def _array(self, frame: InArray) -> Iterator[str]:
        nodes = [node for node, _ in self.machine.items(frame)]
        if frame.phase == Phase.AFTER:
            yield from [","] if nodes else []
        else:
            yield from self._value(nodes)
        if frame.phase != Phase.COMMA and array_done(frame):
            yield "]"

    def _object(self, frame: InObject) -> Iterator[str]:
        if frame.phase == Phase.NAMED:
            yield ":"
            return
        found = self.machine.names.languages_of(frame)
        if frame.phase == Phase.AFTER:
            yield from [","] if found else []
        else:
            listed = [word for _, lang in found for word in lang.words]
            if listed:
                yield _one_of(listed, "name")
            if any(not lang.words for _, lang in found):
                yield "another name" if listed else "a name"
        if frame.phase != Phase.COMMA and object_done(frame):
            yield "}"


def _one_of(words: list[str], what: str) -> str:
    """Several words, the first of them written out."""
    words = list(dict.fromkeys(words))
    if len(words) == 1:
        return f"the {what} {words[0]}"
    few = ", ".join(word if len(word) <= 24 else word[:23] + "…" for word in words[:_FEW])
    return f"one of {len(words)} {what}s: {few}{', …' if len(words) > _FEW else ''}"


def _classes(moves: tuple[tuple[int, int, Lang], ...]) -> str:
    """Ranges of characters as in a pattern, the first few of them."""
    spans: list[tuple[int, int]] = []
    for first, last, _ in moves:
        if spans and spans[-1][1] + 1 == first:
            spans[-1] = spans[-1][0], last
        else:
            spans.append((first, last))
    shown = [
        _letter(first) if first == last else f"{_letter(first)}-{_letter(last)}"
        for first, last in spans[:_FEW]
    ]
    return f"[{''.join(shown)}{'…' if len(spans) > _FEW else ''}]"


def _letter(code: int) -> str:
    char = chr(code)
    return char if re.match(r"[!-~]", char) else f"\\u{{{code:x}}}"
