"""What a vocabulary can do inside JSON strings that are free, found once for all grammars.

Most strings of schemas are free but for their length, or but for a few words (names that are
already taken, or listed). What their tokens do is known from the string that is free of everything:
where a token ends inside, or closes it, and how many characters it adds.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from forwardpass.constraint.lang import Kind, Lang
from forwardpass.constraint.regular import Languages
from forwardpass.constraint.searching import Search
from forwardpass.constraint.strings import Described, Numbered

if TYPE_CHECKING:
    from forwardpass.constraint.tokens import Tokens

MOST_WORDS = 2_000
# So many more tokens it takes at most to get past words that are left out: a letter of 90 that
# leads to none of them, twice.
_PAST_WORDS = 2


@dataclass(frozen=True, slots=True)
class Free:
    """All texts of `low` to `high` characters (no upper limit where None) but for some words."""

    low: int
    high: int | None
    words: tuple[str, ...]


def free(languages: Languages, lang: Lang) -> Free | None:
    """A language in this form; None where it has another."""
    if lang is languages.all:
        return Free(0, None, ())
    if lang is languages.any_char:
        return Free(1, 1, ())
    if lang.kind is Kind.REPEAT and lang.parts[0] is languages.any_char:
        return Free(lang.low, lang.high, ())
    if lang.kind is Kind.NOT and lang.parts[0].kind is Kind.WORDS:
        words = lang.parts[0].words
        return Free(0, None, words) if len(words) <= MOST_WORDS else None
    if lang.kind is Kind.BOTH and len(lang.parts) == 2:
        one, other = (free(languages, part) for part in lang.parts)
        if one is not None and other is not None and not (one.words and other.words):
            if one.words:
                one, other = other, one
            # Where texts have to be short, the words that are left out may be all there are.
            if one.high is None or one.high > _PAST_WORDS:
                return Free(one.low, one.high, other.words)
    return None


class FreeText:
    """The tokens of a vocabulary inside a free string, right after a whole character."""

    def __init__(self, tokens: Tokens) -> None:
        from forwardpass import _native

        languages = Languages()
        self.tokens = tokens
        self._langs = Numbered(Search(languages))
        assert isinstance(tokens.trie, _native.Trie)
        self.native = _native.Masks(tokens.trie, self)
        start = self.native.text_state(self._langs.number(languages.all), b"")
        self.entry = self.native.entry_text(start)
        self._exits = [
            (json.loads(b'"' + text), np.array(ids, dtype=np.int64))
            for text, ids in self.native.exit_texts(self.entry)
        ]
        self._by_text: dict[str, list[int]] = {}
        for text, ids in self._exits:
            self._by_text.setdefault(text, []).extend(ids.tolist())
        self._lists: dict[tuple[int, int | None], int] = {}

    # ---- asked by the C++ part ---------------------------------------------------------

    def language(self, number: int) -> Described:
        """As `tables.Tables.language`."""
        return self._langs.described(number)

    def language_cost(self, number: int) -> int:
        """As `tables.Tables.language_cost`: there is one language, and its texts may end."""
        return self.tokens.count(b'"')

    def move(self, state: int, byte: int) -> int:
        """Never asked: a string has no structure."""
        raise AssertionError("a string has no states of its own")

    def name(self, state: int, raw: bytes) -> int:
        """Never asked either."""
        raise AssertionError("a string has no names")

    # ---- what is left out --------------------------------------------------------------

    @cached_property
    def characters(self) -> npt.NDArray[np.int64]:
        """How many characters each token adds, one that it only begins included; up to the quote
        where it closes the string. 0 for what is no text of a string."""
        ids, blob, offsets = self.tokens.flat
        out = np.zeros(self.tokens.size, dtype=np.int64)
        if len(ids):
            array = np.frombuffer(blob, dtype=np.uint8)
            begun = (array & 0xC0) != 0x80
            out[ids] = np.add.reduceat(begun.astype(np.int64), offsets[:-1])
            escaped = np.logical_or.reduceat(array == 0x5C, offsets[:-1])
            for token in ids[escaped].tolist():
                out[token] = _escaped_characters(self.tokens.texts[token] or b"")
        for text, closing in self._exits:
            out[closing] = len(text)
        return out

    @cached_property
    def longest(self) -> int:
        """The most characters that a token adds."""
        return int(self.characters.max())

    def left_out(self, wanted: Free) -> list[int]:
        """The tokens that a free string allows and this one does not."""
        out = [token for word in wanted.words for token in self._by_text.get(word, ())]
        if wanted.low:
            for text, ids in self._exits:
                if len(text) < wanted.low:
                    out += ids.tolist()
        if wanted.high is not None and wanted.high < self.longest:
            out += np.flatnonzero(self.characters > wanted.high).tolist()
        return out

    def shared(self, low: int, high: int | None) -> int:
        """The list of what lengths leave out, in this object's C++ part; -1 for nothing."""
        longest = self.longest
        key = min(low, longest + 1), None if high is None or high >= longest else high
        if key == (0, None):
            return -1
        known = self._lists.get(key)
        if known is None:
            known = self._lists[key] = self.native.add_tokens(self.left_out(Free(*key, ())))
        return known

    def extra(self, wanted: Free) -> int:
        """How many tokens more it may take to close than for a free string."""
        return wanted.low + (_PAST_WORDS if wanted.words else 0)


def _escaped_characters(text: bytes) -> int:
    """The characters of a JSON string that a token adds, one that it only begins included."""
    count, at = 0, 0
    while at < len(text):
        step = (6 if text[at + 1 : at + 2] == b"u" else 2) if text[at] == 0x5C else 1
        count += not 0x80 <= text[at] < 0xC0
        at += step
    return count
