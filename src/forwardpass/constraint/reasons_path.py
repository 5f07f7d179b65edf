"""`Trail`: where in a JSON value a text stands, read off the text alone."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace

from forwardpass.constraint.frames import At, Frame, InLiteral, InWords
from forwardpass.constraint.states import State

_BLANKS = b" \t\n\r"
_SIMPLE = b"+-.0123456789abcdefghijklmnopqrstuvwxyzE"  # numbers, true, false, null


@dataclass(frozen=True, slots=True)
class Level:
    """An open array or object; `index` of the item, `name` of the member that is written."""

    opened: str
    index: int = 0
    name: str | None = None
    after_comma: bool = False
    inside: bool = False  # a value in it was begun, or its name is there

    @property
    def part(self) -> str:
        """The step of a pointer that leads to the item or member."""
        text = str(self.index) if self.opened == "[" or self.name is None else self.name
        return "/" + text.replace("~", "~0").replace("/", "~1")


@dataclass(frozen=True, slots=True)
class Trail:
    """The open levels from the outside in, and the text, number or word that is being written.

    Outside values, `raw` is the plain text of the script so far. Texts have to be valid: a trail
    is moved on together with the state of their grammar.
    """

    levels: tuple[Level, ...] = ()
    raw: bytes = b""
    naming: bool = False
    escaped: bool = False
    script: bool = True

    def advance(self, byte: int, after: State) -> Trail:
        """The trail after one more byte that led to a state."""
        if all(is_script(frame) for frame, _ in after.positions):
            plain = any(isinstance(frame, InWords) for frame, _ in after.positions)
            before = self.raw if self.script else b""
            return Trail(raw=before + bytes([byte]) if plain else b"")
        begun = Trail(script=False) if self.script else self
        return begun._json(byte)

    @property
    def written(self) -> str:
        """What is written of the text (a name, or a value) so far, escapes read; what cannot be
        read yet, an unfinished character, is left out."""
        raw = self.raw[1:] if self.raw[:1] == b'"' else self.raw
        if not self.raw.startswith(b'"'):
            return raw.decode("utf-8", "ignore")
        for cut in range(min(len(raw), 12) + 1):
            try:
                return str(json.loads(b'"' + raw[: len(raw) - cut] + b'"'))
            except ValueError:
                continue
        return ""

    @property
    def pointer(self) -> str:
        """The JSON pointer of what is written or comes next; of the container where that may end
        or go on."""
        *outer, last = self.levels or (Level(""),)
        parts = [level.part for level in outer]
        if last.opened and (last.inside or (last.opened == "[" and last.after_comma)):
            parts.append(last.part)
        return "".join(parts)

    def ended(self) -> Trail:
        """The trail where the number that is being written has just ended."""
        return replace(self._ended(), raw=b"")

    def _json(self, byte: int) -> Trail:
        if self.raw[:1] == b'"':
            return self._in_text(byte)
        if byte in _SIMPLE:
            begun = self if self.raw else self._begun()
            return replace(begun, raw=self.raw + bytes([byte]))
        ended = self.ended() if self.raw else self
        return ended if byte in _BLANKS else ended._mark(byte)

    def _mark(self, byte: int) -> Trail:
        """After a quote, a bracket, a comma or a colon."""
        mark = chr(byte)
        last = self.levels[-1] if self.levels else None
        if mark == '"':
            naming = last is not None and last.opened == "{" and not last.inside
            begun = self if naming else self._begun()
            return replace(begun, raw=b'"', naming=naming)
        if mark in "[{":
            begun = self._begun()
            return replace(begun, levels=(*begun.levels, Level(mark)))
        if last is None:
            return self
        if mark in "]}":
            return replace(self, levels=self.levels[:-1])._ended()
        if mark == ",":
            after = replace(last, index=last.index + 1, name=None, after_comma=True)
            return replace(self, levels=(*self.levels[:-1], after))
        return self  # the colon: what is around it was begun by the name

    def _in_text(self, byte: int) -> Trail:
        longer = replace(self, raw=self.raw + bytes([byte]), escaped=False)
        if self.escaped or byte not in b'"\\':
            return longer
        if byte == 0x5C:
            return replace(longer, escaped=True)
        if not self.naming:
            return replace(self._ended(), raw=b"")
        named = replace(
            self.levels[-1], name=json.loads(longer.raw), inside=True, after_comma=False
        )
        return replace(self, levels=(*self.levels[:-1], named), raw=b"", naming=False)

    def _begun(self) -> Trail:
        return self._last(inside=True)

    def _ended(self) -> Trail:
        return self._last(inside=False)

    def _last(self, *, inside: bool) -> Trail:
        if not self.levels:
            return self
        last = replace(self.levels[-1], inside=inside, after_comma=False)
        return replace(self, levels=(*self.levels[:-1], last))


START = Trail()


def is_script(frame: Frame) -> bool:
    """Whether a frame stands around values or between them."""
    return isinstance(frame, At | InLiteral | InWords)
