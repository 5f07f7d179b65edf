"""What a language holds: whether it is empty, how many words it has, which is the shortest."""

from __future__ import annotations

import heapq
from functools import lru_cache

from forwardpass.constraint.lang import Kind, Lang, Moves, TooLarge
from forwardpass.constraint.regular import Languages

MOST_SEEN = 20_000
MOST_SEEN_IN_USE = 2_000
MOST_LENGTH = 4_096


class Search:
    """Emptiness and finite sets, found by walking derivatives; what was found is kept.

    While a schema is compiled the answers are exact or TooLarge is raised. While its grammar is in
    use, a language of which a short walk finds no word counts as empty, which only refuses: what
    was found to hold a word keeps the way to it.
    """

    def __init__(self, languages: Languages) -> None:
        self.languages = languages
        self._live: dict[Lang, bool] = {languages.empty: False, languages.all: True}
        self._live_moves: dict[Lang, Moves] = {}
        self._shortest: dict[Lang, str] = {}
        self._escaped: dict[Lang, Lang] = {}

    def live(self, lang: Lang) -> bool:
        """Whether any word is in the language."""
        if lang.plain:
            return lang.kind is not Kind.EMPTY
        found = self._live.get(lang)
        if found is None:
            quick = True if lang.nullable else self._by_lengths(lang)
            found = self._walk(lang) if quick is None else quick
            self._live[lang] = found
        return found

    def _by_lengths(self, lang: Lang) -> bool | None:
        """The answer for one plain language within a length range, where lengths alone give it."""
        if lang.kind is not Kind.BOTH or len(lang.parts) != 2:
            return None
        dot = self.languages.any_char
        bounds, other = lang.parts
        if not (bounds.kind is Kind.REPEAT and bounds.parts[0] is dot):
            bounds, other = other, bounds
        if not (bounds.kind is Kind.REPEAT and bounds.parts[0] is dot and other.plain):
            return None
        if other.least >= bounds.low:
            return bounds.high is None or other.least <= bounds.high
        if other.most is None:
            return True if bounds.high is None else None
        if other.most < bounds.low:
            return False
        return True if bounds.high is None or other.most <= bounds.high else None

    def _walk(self, start: Lang) -> bool:
        """Search for a word, short ones first; all that a failed search saw is empty too."""
        parents: dict[Lang, Lang | None] = {start: None}
        heap = [(start.least, start.rank, start)]
        while heap:
            _, _, at = heapq.heappop(heap)
            for _, _, to in self.languages.moves(at):
                if to in parents:
                    continue
                parents[to] = at
                known = to.nullable or (to.plain and to.kind is not Kind.EMPTY)
                quick = True if known else self._live.get(to)
                if quick is None:
                    quick = self._by_lengths(to)
                if quick:
                    self._mark(to, parents)
                    return True
                if quick is None:
                    heapq.heappush(heap, (to.least, to.rank, to))
            if len(parents) > MOST_SEEN_IN_USE and not self.languages.steps.counting:
                return False
            if len(parents) > MOST_SEEN:
                raise TooLarge(f"whether any text fits was not found in {MOST_SEEN:,} steps")
        for seen in parents:
            self._live[seen] = False
        return False

    def _mark(self, at: Lang | None, parents: dict[Lang, Lang | None]) -> None:
        while at is not None:
            self._live[at] = True
            at = parents[at]

    def live_moves(self, lang: Lang) -> Moves:
        """The moves after which a word can still be completed."""
        found = self._live_moves.get(lang)
        if found is None:
            moves = self.languages.moves(lang)
            found = tuple(move for move in moves if self.live(move[2]))
            self._live_moves[lang] = found
        return found

    def escaped(self, lang: Lang) -> Lang:
        """The part of a language whose first character may be written with an escape: of a few
        words those alone that cannot begin as they are, or with a character beyond ASCII."""
        if lang.kind is not Kind.WORDS:
            return lang
        known = self._escaped.get(lang)
        if known is None:
            words = (word for word in lang.words if word and _needs_escape(word[0]))
            known = self._escaped[lang] = self.languages.words(words)
        return known

    def count(self, lang: Lang, limit: int) -> int:
        """The number of words, or `limit` where there are at least that many.

        A lower bound where the words are longer than the search goes.
        """
        if lang.kind is Kind.WORDS:
            return min(len(lang.words), limit)
        if not self.live(lang):
            return 0
        level, found = {lang: 1}, 0
        for _ in range(MOST_LENGTH):
            found += sum(ways for at, ways in level.items() if at.nullable)
            if found >= limit:
                return limit
            following: dict[Lang, int] = {}
            for at, ways in level.items():
                for first, last, to in self.live_moves(at):
                    following[to] = following.get(to, 0) + ways * (last - first + 1)
            if sum(following.values()) >= limit:
                return limit  # each of these beginnings has at least one word of its own
            if not following:
                return found
            level = following
        return found

    def finite(self, lang: Lang, limit: int) -> list[str] | None:
        """All words, or None where there are more than `limit` of them (or it cannot be told)."""
        if lang.kind is Kind.WORDS:
            return list(lang.words) if len(lang.words) <= limit else None
        if lang.plain and lang.most is None:
            return None
        level = [("", lang)] if self.live(lang) else []
        out: list[str] = []
        for _ in range(MOST_LENGTH):
            if not level:
                return out if len(out) <= limit else None
            out += [word for word, at in level if at.nullable]
            following: list[tuple[str, Lang]] = []
            for word, at in level:
                for first, last, to in self.live_moves(at):
                    if last - first + 1 + len(following) + len(out) > limit:
                        return None
                    following += [(word + chr(code), to) for code in range(first, last + 1)]
            level = following
        return None

    def shortest(self, lang: Lang) -> str | None:
        """A word of least length in code points, plain letters before others; None where empty."""
        if not self.live(lang):
            return None
        if lang.plain:
            return self._plain(lang)
        known = self._shortest.get(lang)
        if known is None:
            known = self._shortest[lang] = self._searched(lang)
        return known

    def _searched(self, lang: Lang) -> str:
        """Of equally long words the first in a fixed order, so that a language without some other
        word has the same."""
        came: dict[Lang, Lang | None] = {}  # from where each was reached first
        # First those whose words may come out shortest: of which each lang knows a lower bound.
        heap: list[tuple[int, tuple[int, ...], int, Lang, Lang | None]] = []
        heap.append((lang.least, (), lang.rank, lang, None))
        while heap:
            most, word, rank, at, before = heapq.heappop(heap)
            if rank == _ENDED:
                return self._remembered("".join(chr(key & _CODE) for key in word), at, before, came)
            if at in came:
                continue
            came[at] = before
            length = most - at.least
            rest = "" if at.nullable else self._shortest.get(at)
            if rest is not None:
                more, keys = _length_and_order(rest)
                heapq.heappush(heap, (length + more, word + keys, _ENDED, at, before))
                continue
            best: dict[Lang, int] = {}
            for first, last, to in self.live_moves(at):
                if to not in came:
                    key = _key(_readable(first, last))
                    best[to] = min(key, best.get(to, key))
            for to, key in best.items():
                least = length + (key >> 25) + to.least
                heapq.heappush(heap, (least, (*word, key), to.rank, to, at))
        raise AssertionError("a live language has a word")

    def _remembered(
        self, word: str, end: Lang, before: Lang | None, came: dict[Lang, Lang | None]
    ) -> str:
        """The word; its ends are the words of the languages on the way, which are kept."""
        at: Lang | None = before
        place = len(word) - (0 if end.nullable else len(self._shortest[end]))
        while at is not None:
            place -= 1
            self._shortest[at] = word[place:]
            at = came[at]
        return word

    def _plain(self, lang: Lang) -> str:
        """The same of a language without intersections: put together from its parts'."""
        known = self._shortest.get(lang)
        if known is None:
            if lang.kind is Kind.CHARS:
                codes = (_readable(first, last) for first, last in lang.chars)
                known = chr(min(map(_key, codes)) & _CODE)
            elif lang.kind is Kind.CAT:
                known = "".join(map(self._plain, lang.parts))
            elif lang.kind is Kind.REPEAT:
                known = self._plain(lang.parts[0]) * lang.low
            else:
                words = lang.words or tuple(map(self._plain, lang.parts))
                known = min(words, key=_length_and_order)
            self._shortest[lang] = known
        return known


def _needs_escape(char: str) -> bool:
    return char in '"\\' or not 0x20 <= ord(char) < 0x7F


# Lower-case letters before all else, what has to be escaped after it; at last by their codes.
_BANDS = (
    (0x61, 0x7A), (0x30, 0x39), (0x41, 0x5A), (0x5D, 0x7E), (0x23, 0x5B), (0x20, 0x21),
    (0x7F, 0x7F), (0x08, 0x0A), (0x0C, 0x0D), (0x22, 0x22), (0x5C, 0x5C),
)  # fmt: skip
_CODE = 0x1F_FFFF
_ENDED = -1  # in place of a rank: behind a whole word


def _readable(first: int, last: int) -> int:
    """A code point of the range: the first in the order of `_key`, or nearly."""
    for low, high in _BANDS:
        if first <= high and last >= low:
            return max(first, low)
    return first


@lru_cache(4096)
def _key(code: int) -> int:
    """Orders code points: shorter ones first, then by their band; the lowest bits are the code."""
    band = next((i for i, (low, high) in enumerate(_BANDS) if low <= code <= high), len(_BANDS))
    return _cost(code) << 25 | band << 21 | code


def _length_and_order(word: str) -> tuple[int, tuple[int, ...]]:
    codes = [*map(ord, word)]
    return sum(map(_cost, codes)), tuple(map(_key, codes))


def _cost(code: int) -> int:
    """Bytes of the shortest way to write a code point in a JSON string."""
    if code in (0x22, 0x5C, 0x08, 0x0C, 0x0A, 0x0D, 0x09):
        return 2
    if code < 0x20:
        return 6
    return 1 if code < 0x80 else 2 if code < 0x800 else 3 if code < 0x10000 else 4
