"""Which rule of a schema a byte breaks inside a value, or as its first one."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from fractions import Fraction

from forwardpass.constraint.decimals import Interval
from forwardpass.constraint.frames import Around, InArray, InNumber, InString
from forwardpass.constraint.lang import Lang
from forwardpass.constraint.numbers import Numbers
from forwardpass.constraint.numerals import Numerals
from forwardpass.constraint.plans import Node
from forwardpass.constraint.reasons_path import Trail
from forwardpass.constraint.reasons_schema import Found
from forwardpass.constraint.reasons_spot import Broken, Values, joined, quoted, words_of
from forwardpass.constraint.regular import Languages
from forwardpass.constraint.searching import Search
from forwardpass.constraint.states import Grammar
from forwardpass.constraint.strings import DEAD, Strings

_KINDS = {0x22: "string", 0x5B: "array", 0x7B: "object", 0x74: "boolean", 0x66: "boolean",
          0x6E: "null", 0x2D: "number"} | dict.fromkeys(b"0123456789", "number")  # fmt: skip
_NUMBER = re.compile(r"-?((0|[1-9][0-9]*)(\.[0-9]*|(\.[0-9]+)?[eE]([+-]?[0-9]*))?)?")
_LIMITS = ("type", "minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum", "multipleOf")
_LISTED = ("enum", "const")
_WHOLE = Numbers(step=Fraction(1))


class ValueRules(Values):
    """Says of a refused byte what it breaks, where it would be part of a value."""

    def __init__(self, grammar: Grammar, control: Callable[[int], str]) -> None:
        super().__init__(grammar, control)
        self._any = Strings(Search(Languages()))
        self._numerals = Numerals()

    def by(self, found: Found | None, rank: int, rule: str) -> Broken:
        """A rule with the keyword that makes it, where that was found."""
        return Broken(rank, rule, found.keyword, found.pointer) if found else Broken(rank, rule)

    def beginning(self, nodes: Sequence[Node], byte: int) -> Broken:
        """Why no value of some begins with a byte."""
        kinds = self.kinds(nodes)
        offered, kind = joined(kinds or ["nothing"]), _KINDS.get(byte)
        if kind is None:
            return Broken(2, f"no {offered} begins so")
        if kind == "number" and "integer" in kinds:
            kind = "integer"
        if kind not in kinds:
            return self.by(
                self.keywords.find(nodes, "type", *_LISTED, "$ref"), 1, f"{offered}, not {kind}"
            )
        if kind in ("number", "integer"):
            return self._no_number(nodes, chr(byte), ends=False)
        if kind == "boolean":
            only = "false" if byte == 0x74 else "true"
            return self.by(self.keywords.find(nodes, *_LISTED), 1, f"only {only} is allowed")
        return Broken(2, f"no {kind} may begin here")

    # ---- texts -------------------------------------------------------------------------

    def text_after(self, trail: Trail, byte: int) -> tuple[str | None, bool]:
        """The text as far as it is written with a byte that is refused, and whether that would
        close it; None where it is no text of JSON."""
        state = self._any.inside(self._any.search.languages.all)
        for one in trail.raw[1:]:
            state = self._any.step(state, one)
        if self._any.step(state, byte) == DEAD:
            return None, False
        if byte == 0x22 and self._any.lang(state) is not None:
            return trail.written, True
        return Trail(raw=trail.raw + bytes([byte])).written, False

    def in_text(self, frame: InString, trail: Trail, byte: int) -> Broken:
        """Why a text that is a value does not go on with a byte."""
        if byte < 0x20:
            return Broken(1, "a control character has to be escaped")
        text, closing = self.text_after(trail, byte)
        if text is None:
            return Broken(1, "no character is written so")
        nodes = self.around(frame.around, trail.levels)
        if self._seen(frame.around, nodes, text, closing):
            return self.there_already(frame.around, trail)
        words = words_of(node.form for node in nodes if self.machine.search.live(node.form.texts))
        if words:
            return self._none_of(nodes, words)
        return self._length(nodes, text, closing) or self._pattern(nodes, closing)

    def _none_of(self, nodes: Sequence[Node], words: list[str]) -> Broken:
        found = self.keywords.find(nodes, *_LISTED)
        if len(words) == 1:
            return self.by(found, 1, f"only {quoted(words[0])} is allowed")
        return self.by(found, 1, f"none of the {len(words)} values")

    def _length(self, nodes: Sequence[Node], text: str, closing: bool) -> Broken | None:
        found = self.keywords.find(nodes, "minLength" if closing else "maxLength")
        if found is None or not isinstance(found.value, int | float):
            return None
        if closing and len(text) < found.value:
            return self.by(found, 1, f"shorter than minLength {found.value}")
        # One that is only begun counts as well.
        if not closing and len(text) >= found.value:
            return self.by(found, 1, f"longer than maxLength {found.value}")
        return None

    def _pattern(self, nodes: Sequence[Node], closing: bool) -> Broken:
        found = self.keywords.find(nodes, "pattern", "format", "not", *_LISTED)
        if found is None:
            ends = "ends here" if closing else "goes on so"
            return Broken(2, f"no text that is allowed {ends}")
        if found.keyword == "format":
            return self.by(found, 1, f"does not fit the format {found.value}")
        word = "pattern" if found.keyword == "pattern" else f"keyword {found.keyword}"
        return self.by(found, 1, f"does not fit the {word}")

    def _seen(self, around: Around, nodes: Sequence[Node], text: str, closing: bool) -> bool:
        """Whether a text is refused only because it is an item that is there already."""
        if not (isinstance(around, InArray) and around.plan.unique):
            return False
        seen = [str(value) for sort, value in around.seen if sort == "text"]
        alike = [word for word in seen if (word == text if closing else word.startswith(text))]
        return bool(alike) and any(self._matches(node.form.texts, alike[0]) for node in nodes)

    def _matches(self, lang: Lang, text: str) -> bool:
        return self.machine.languages.matches(lang, text)

    def there_already(self, around: Around, trail: Trail) -> Broken:
        """That an item is equal to one before it."""
        array, outer = around, trail.levels
        own: list[Node] = []
        if isinstance(array, InArray):
            own = self.around(array.around, outer[: -1 if outer else None])
        rule = "an item like it is there already (uniqueItems)"
        return self.by(self.keywords.find(own, "uniqueItems"), 1, rule)

    # ---- numbers -----------------------------------------------------------------------

    def in_number(self, frame: InNumber, trail: Trail, byte: int) -> Broken | None:
        """Why a number neither goes on with a byte nor ends before it; None where it ends."""
        raw, nodes = trail.raw.decode("ascii", "replace"), self.around(frame.around, trail.levels)
        longer = raw + chr(byte)
        if byte < 0x80 and _NUMBER.fullmatch(longer):
            return self._no_number(nodes, longer, ends=False)
        if raw[-1:] in "-+.eE":
            return Broken(1, "a digit must follow")
        if chr(byte).isdigit() and raw in ("0", "-0"):
            return Broken(1, "no digit after a leading 0")
        if not self.machine.numerals.done(frame.state):
            return self._no_number(nodes, raw, ends=True)
        return None

    def _no_number(self, nodes: Sequence[Node], text: str, *, ends: bool) -> Broken:
        """Why no number is written so (`ends`: or ends there)."""
        listed = self.keywords.find(nodes, *_LISTED)
        if listed is not None:
            count = len(listed.value) if isinstance(listed.value, list) else 1
            only = f"only {listed.value} is allowed"[:40] if count == 1 else ""
            return self.by(listed, 1, only or f"none of the {count} values")
        limits = self.keywords.all(nodes, *_LIMITS)
        whole = limits[:1] == [found for found in limits if found.value == "integer"]
        for found in limits:
            if self._breaks(found, text, whole=whole, ends=ends):
                what = "no integer" if found.keyword == "type" else ""
                outside = what or f"not within {found.keyword} {found.value}"
                if found.keyword == "multipleOf":
                    outside = f"no multipleOf {found.value}"
                return self.by(found, 1, outside)
        words = [f"{found.keyword} {found.value}" for found in limits if found.keyword != "type"]
        rule = f"no number within {', '.join(words)}" if words else "no number that is allowed"
        return self.by(limits[-1] if limits else None, 1, f"{rule} {'is' if ends else 'begins'} so")

    def _breaks(self, found: Found, text: str, *, whole: bool, ends: bool) -> bool:
        """Whether one keyword leaves no number (`whole`: no whole one) that is written so."""
        numbers = _asked(found)
        numbers = numbers and numbers.meet(_WHOLE if whole else numbers)
        if numbers is None:
            return False
        state = self._numerals.start(numbers)
        for byte in text.encode():
            state = self._numerals.step(state, byte)
            if state == DEAD:
                return True
        return ends and not self._numerals.done(state)


def _asked(found: Found) -> Numbers | None:
    """The numbers that one keyword allows; None for what is no limit."""
    if found.keyword == "type":
        return _WHOLE if found.value == "integer" else None
    if isinstance(found.value, bool) or not isinstance(found.value, int | float):
        return None
    value, outside = Fraction(str(found.value)), found.keyword.startswith("exclusive")
    if found.keyword == "multipleOf":
        return Numbers(step=value)
    low = found.keyword.lower().endswith("minimum")
    interval = (
        Interval(value, outside, None, False) if low else Interval(None, False, value, outside)
    )
    return Numbers((interval,))
