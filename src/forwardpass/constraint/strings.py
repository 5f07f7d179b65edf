"""Languages of texts as automata over the bytes of JSON strings.

Between the quotes each code point may be written raw (UTF-8) or as an escape: a short one,
`\\uXXXX` in either case, or a pair of them outside the basic plane. A surrogate alone never passes.
States are numbers, made when they are reached; every state that is handed out can still reach the
closing quote. Of a few words (names that are listed, texts of an enum) each has one way to be
written, but for characters beyond ASCII: no letter that can stand as it is becomes an escape.

Source: RFC 8259 section 7; Unicode 15, table 3-7 (well-formed UTF-8).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable

from forwardpass.constraint.lang import Kind, Lang, by_first
from forwardpass.constraint.searching import Search

DEAD = -1
CLOSED = 0  # the state after the closing quote

_SHORT = {0x22: 0x22, 0x5C: 0x5C, 0x2F: 0x2F, 0x62: 8, 0x66: 12, 0x6E: 10, 0x72: 13, 0x74: 9}
_ALL = frozenset(range(256))
_HEX = {byte: int(chr(byte), 16) for byte in b"0123456789abcdefABCDEF"}

# What a state is: a tag and what is known so far.
_CHAR, _ESCAPE, _HEXES, _BACKSLASH, _LETTER_U, _LOW, _TAIL, _REST = range(8)


class Strings:
    """The automaton of all string languages of a grammar; states are shared between them."""

    def __init__(self, search: Search) -> None:
        self.search = search
        self._numbers: dict[tuple[object, ...], int] = {("closed",): CLOSED}
        self._states: list[tuple[object, ...]] = [("closed",)]
        self._langs: list[Lang | None] = [None]
        self._steps: dict[int, int] = {}

    def inside(self, lang: Lang) -> int:
        """The state after the opening quote, or DEAD where the language is empty."""
        return self._number((_CHAR,), lang) if self.search.live(lang) else DEAD

    def step(self, state: int, byte: int) -> int:
        """The state after one more byte, or DEAD."""
        key = state << 8 | byte
        found = self._steps.get(key)
        if found is None:
            found = self._steps[key] = self._compute(state, byte)
        return found

    def lang(self, state: int) -> Lang | None:
        """The language of what may still follow, where the state is between two characters."""
        return self._langs[state] if self._states[state] == (_CHAR,) else None

    def turned(self, state: int, turn: Callable[[Lang], Lang]) -> int:
        """The same place in a character, in another language."""
        lang = self._langs[state]
        return state if lang is None else self._number(self._states[state], turn(lang))

    def written(self, state: int) -> tuple[Lang, bytes]:
        """The language of the last place between two characters, and bytes that lead from there
        to this state. Not of the closed one."""
        lang = self._langs[state]
        assert lang is not None, "no state of a string"
        tag, *facts = self._states[state]
        numbers = [fact for fact in facts if isinstance(fact, int)]
        if tag == _CHAR:
            return lang, b""
        if tag == _TAIL:
            return lang, _raw_start(*numbers)
        out = b"\\"
        if tag == _HEXES:
            out += b"u" + _digits(*numbers)
        elif tag != _ESCAPE:
            out += b"u%04x" % numbers[0]
            out += b"\\" if tag != _BACKSLASH else b""
            out += b"u" + _digits(*numbers[1:]) if tag == _LOW else b""
        return lang, out

    def first_bytes(self, state: int) -> frozenset[int]:
        """The bytes of which some may come next; all others are refused."""
        lang = self.lang(state)
        if lang is None or lang.kind is not Kind.WORDS:
            return _ALL
        first = {word.encode()[:1] for word in lang.words} - {b""}
        quote = b'"' if lang.nullable else b""
        back = b"\\" if self.search.live_moves(self.search.escaped(lang)) else b""
        return frozenset(b"".join((*first, quote, back)))

    def _number(self, facts: tuple[object, ...], lang: Lang) -> int:
        key = (lang.rank, *facts)
        found = self._numbers.get(key)
        if found is None:
            found = self._numbers[key] = len(self._states)
            self._states.append(facts)
            self._langs.append(lang)
        return found

    # ---- one byte ----------------------------------------------------------------------

    def _compute(self, state: int, byte: int) -> int:
        lang = self._langs[state]
        if lang is None:
            return DEAD
        tag, *facts = self._states[state]
        if tag == _CHAR:
            return self._at_character(lang, byte)
        if tag == _ESCAPE:
            if byte == 0x75:
                return self._hexes(lang, 0, 0)
            return self._character(lang, _SHORT[byte]) if byte in _SHORT else DEAD
        if tag == _BACKSLASH:
            return self._number((_LETTER_U, *facts), lang) if byte == 0x5C else DEAD
        if tag == _LETTER_U:
            return self._number((_LOW, *facts, 0, 0), lang) if byte == 0x75 else DEAD
        numbers = [fact for fact in facts if isinstance(fact, int)]
        if tag == _TAIL:
            return self._tail(lang, numbers, byte)
        if byte not in _HEX:
            return DEAD
        if tag == _HEXES:
            return self._hexes(lang, numbers[0] + 1, numbers[1] * 16 + _HEX[byte])
        return self._low(lang, numbers[0], numbers[1] + 1, numbers[2] * 16 + _HEX[byte])

    def _at_character(self, lang: Lang, byte: int) -> int:
        if byte == 0x22:
            return CLOSED if lang.nullable else DEAD
        if byte == 0x5C:
            escaped = self.search.escaped(lang)
            return self._number((_ESCAPE,), escaped) if self.search.live_moves(escaped) else DEAD
        if byte < 0x20:
            return DEAD
        if byte < 0x80:
            return self._character(lang, byte)
        if 0xC2 <= byte <= 0xDF:
            return self._raw(lang, (byte & 0x1F) << 6, 1)
        if 0xE0 <= byte <= 0xEF:
            return self._raw(lang, (byte & 0x0F) << 12, 2)
        return self._raw(lang, (byte & 0x07) << 18, 3) if 0xF0 <= byte <= 0xF4 else DEAD

    def _character(self, lang: Lang, code: int) -> int:
        """The state after the whole of a character."""
        moves = self.search.live_moves(lang)
        at = bisect_right(moves, code, key=by_first) - 1
        if at < 0 or code > moves[at][1]:
            return DEAD
        return self._number((_CHAR,), moves[at][2])

    def _raw(self, lang: Lang, start: int, more: int) -> int:
        """The state within a raw character that lies in `start … start + 64^more - 1`."""
        least = (0x80, 0x800, 0x10000)[more - 1] if start < (0x80, 0x800, 0x10000)[more - 1] else 0
        first, last = max(start, least), min(start + (1 << 6 * more) - 1, 0x10FFFF)
        if not self._reaches(lang, first, last):
            return DEAD
        return self._number((_TAIL, start, more), lang)

    def _tail(self, lang: Lang, facts: list[int], byte: int) -> int:
        start, more = facts
        if not 0x80 <= byte <= 0xBF:
            return DEAD
        start |= (byte & 0x3F) << 6 * (more - 1)
        if more == 1:
            return self._character(lang, start)
        # Overlong forms and surrogates end here: no code point of the set lies in their range.
        if start + (1 << 6 * (more - 1)) <= (0x800, 0x10000)[more - 2]:
            return DEAD
        return self._raw(lang, start, more - 1) if start <= 0x10FFFF else DEAD

    def _hexes(self, lang: Lang, digits: int, value: int) -> int:
        """The state after some of the four digits of `\\uXXXX`."""
        if digits == 4:
            if 0xD800 <= value <= 0xDBFF:
                first = 0x10000 + ((value - 0xD800) << 10)
                if self._reaches(lang, first, first + 0x3FF):
                    return self._number((_BACKSLASH, value), lang)
                return DEAD
            return self._character(lang, value)
        shift = 4 * (4 - digits)
        first, last = value << shift, ((value + 1) << shift) - 1
        high_first, high_last = max(first, 0xD800), min(last, 0xDBFF)
        if self._reaches(lang, first, last) or (
            high_first <= high_last
            and self._reaches(
                lang,
                0x10000 + ((high_first - 0xD800) << 10),
                0x10000 + ((high_last - 0xD800) << 10) + 0x3FF,
            )
        ):
            return self._number((_HEXES, digits, value), lang)
        return DEAD

    def _low(self, lang: Lang, high: int, digits: int, value: int) -> int:
        """The state after some digits of the second escape of a pair."""
        shift = 4 * (4 - digits)
        first = max(value << shift, 0xDC00)
        last = min(((value + 1) << shift) - 1, 0xDFFF)
        base = 0x10000 + ((high - 0xD800) << 10) - 0xDC00
        if first > last or not self._reaches(lang, base + first, base + last):
            return DEAD
        if digits == 4:
            return self._character(lang, base + first)
        return self._number((_LOW, high, digits, value), lang)

    def _reaches(self, lang: Lang, first: int, last: int) -> bool:
        """Whether any code point of the range may come next."""
        moves = self.search.live_moves(lang)
        at = bisect_right(moves, last, key=by_first) - 1
        return at >= 0 and moves[at][1] >= first


def _digits(count: int, value: int) -> bytes:
    """The first digits of an escape."""
    return f"{value:04x}"[4 - count :].encode()


def _raw_start(start: int, more: int) -> bytes:
    """The bytes of a raw character but for the last `more`; `start`: the least that it can be."""
    last = start + (1 << 6 * more) - 1
    length = 2 if last < 0x800 else 3 if last < 0x10000 else 4
    heads = (0, 0, 0xC0, 0xE0, 0xF0)
    parts = [start >> 6 * i & 0x3F | 0x80 for i in reversed(range(more, length - 1))]
    return bytes([heads[length] | start >> 6 * (length - 1), *parts])


Described = tuple[bool, list[tuple[int, int, int]], int]


class Numbered:
    """Languages under the numbers by which the C++ part asks for them."""

    def __init__(self, search: Search) -> None:
        self._search = search
        self._langs: dict[int, Lang] = {}

    def number(self, lang: Lang) -> int:
        """The number of a language; it may be asked for from now on."""
        self._langs[lang.rank] = lang
        return lang.rank

    def lang(self, number: int) -> Lang:
        """The language of a number that was given."""
        return self._langs[number]

    def described(self, number: int) -> Described:
        """Whether a text may end here; ranges of the code points that may come next, rising, with
        the languages that they lead to; and the language of what may be written with an escape."""
        lang = self._langs[number]
        moves = [(f, s, self.number(to)) for f, s, to in self._search.live_moves(lang)]
        return lang.nullable, moves, self.number(self._search.escaped(lang))


class Plain(Strings):
    """The same for texts that are written as they are: UTF-8, no quotes, nothing escaped."""

    def _compute(self, state: int, byte: int) -> int:
        lang = self._langs[state]
        tag, *facts = self._states[state]
        if tag != _REST or lang is None:
            return super()._compute(state, byte)
        (more,) = facts
        assert isinstance(more, int)
        if not 0x80 <= byte <= 0xBF:
            return DEAD
        return self._number((_REST, more - 1), lang) if more > 1 else self._number((_CHAR,), lang)

    def _at_character(self, lang: Lang, byte: int) -> int:
        return self._character(lang, byte) if byte < 0x80 else super()._at_character(lang, byte)

    def _raw(self, lang: Lang, start: int, more: int) -> int:
        # Where all characters that may follow lead to one language, these need no states of their
        # own: most of Unicode's do.
        last = start + (1 << 6 * more) - 1
        moves = self.search.live_moves(lang)
        at = bisect_right(moves, start, key=by_first) - 1
        overlong = start < (0x80, 0x800, 0x10000)[more - 1]
        if not overlong and at >= 0 and last <= moves[at][1]:
            return self._number((_REST, more), moves[at][2])
        return super()._raw(lang, start, more)

    def done(self, state: int) -> bool:
        """Whether the text may end here."""
        lang = self.lang(state)
        return lang is not None and lang.nullable
