"""Regular languages over code points, closed under every Boolean operation, never unrolled.

A language is an expression (`Lang`) that is read by derivatives: `moves` says for each range of
code points which language is left after one of them. Expressions are kept in one table each
(`Languages`), so equal ones are the same object, and states are made only when they are reached:
a million-fold repetition is a counter, an intersection a pair.

Source: Brzozowski, Derivatives of Regular Expressions, JACM 11(4), 1964; Owens, Reppy and Turon,
Regular-expression derivatives re-examined, JFP 19(2), 2009 (character classes).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable

from forwardpass.constraint import charsets
from forwardpass.constraint.charsets import CharSet
from forwardpass.constraint.lang import (
    MOST_NODES,
    Kind,
    Lang,
    Moves,
    TooLarge,
    by_first,
    by_rank,
    merged,
    sweep,
    total,
    well_formed,
)
from forwardpass.constraint.steps import Steps, Work


class Languages:
    """The table of all languages of one grammar, with the operations on them."""

    def __init__(self) -> None:
        self.steps = Steps()
        self._table: dict[object, Lang] = {}
        self._moves: dict[Lang, Moves] = {}
        self.empty = self._make(Kind.EMPTY, ("empty",))
        self.empty.most = 0
        self.epsilon = self._words(("",))
        self.any_char = self.chars(charsets.ANY)
        self.all = self.repeat(self.any_char, 0, None)
        self.some = self.repeat(self.any_char, 1, None)

    @property
    def size(self) -> int:
        """How many languages have been made."""
        return len(self._table)

    def _make(self, kind: Kind, key: tuple[object, ...]) -> Lang:
        if len(self._table) > MOST_NODES:
            raise TooLarge(f"its languages need more than {MOST_NODES:,} states")
        made = Lang(kind, len(self._table))
        self._table[key] = made
        return made

    # ---- construction ------------------------------------------------------------------

    def _words(self, words: tuple[str, ...]) -> Lang:
        if not words:
            return self.empty
        key = (Kind.WORDS, words)
        found = self._table.get(key)
        if found is None:
            found = self._make(Kind.WORDS, key)
            found.words = words
            found.nullable = words[0] == ""
            found.least = min(map(len, words))
            found.most = max(map(len, words))
        return found

    def words(self, words: Iterable[str]) -> Lang:
        """The finite language of exactly these words (those with lone surrogates left out)."""
        return self._words(tuple(sorted({word for word in words if well_formed(word)})))

    def chars(self, chars: CharSet) -> Lang:
        """All words of one character of the set."""
        if not chars:
            return self.empty
        key = (Kind.CHARS, chars)
        found = self._table.get(key)
        if found is None:
            found = self._make(Kind.CHARS, key)
            found.chars = chars
            found.least = found.most = 1
        return found

    def cat(self, *parts: Lang) -> Lang:
        """Words of the first followed by words of the second, and so on."""
        out = self.epsilon
        for part in reversed(parts):
            out = self._cat(part, out)
        return out

    def _cat(self, first: Lang, second: Lang) -> Lang:
        if first is self.empty or second is self.empty:
            return self.empty
        if first is self.epsilon:
            return second
        if second is self.epsilon:
            return first
        if first.kind is Kind.CAT:
            return self._cat(first.parts[0], self._cat(first.parts[1], second))
        head = second.parts[0] if second.kind is Kind.CAT else second
        if joined := self._join(first, head):
            return self._cat(joined, second.parts[1]) if second.kind is Kind.CAT else joined
        key = (Kind.CAT, first, second)
        found = self._table.get(key)
        if found is None:
            found = self._make(Kind.CAT, key)
            found.parts = (first, second)
            found.nullable = first.nullable and second.nullable
            found.plain = first.plain and second.plain
            found.least = first.least + second.least
            found.most = total(first.most, second.most)
        return found

    def _join(self, first: Lang, second: Lang) -> Lang | None:
        """One repetition for two of the same neighbour, where both repeat one thing."""
        if first.kind is Kind.REPEAT and second.kind is Kind.REPEAT:
            if first.parts == second.parts:
                high = total(first.high, second.high)
                return self.repeat(first.parts[0], first.low + second.low, high)
        elif second.kind is Kind.REPEAT and second.parts[0] is first and first.least == first.most:
            return self.repeat(first, second.low + 1, total(second.high, 1))
        return None

    def repeat(self, part: Lang, low: int, high: int | None) -> Lang:
        """`low` to `high` words of `part` one after the other; no upper limit where None."""
        if high is not None and low > high:
            return self.empty
        if high == 0 or part is self.epsilon:
            return self.epsilon
        if part is self.empty:
            return self.epsilon if low == 0 else self.empty
        if low == high == 1:
            return part
        if part.nullable:
            low = 0
        if part.kind is Kind.REPEAT and (folded := self._fold(part, low, high)):
            return folded
        key = (Kind.REPEAT, part, low, high)
        found = self._table.get(key)
        if found is None:
            found = self._make(Kind.REPEAT, key)
            found.parts, found.low, found.high = (part,), low, high
            found.nullable = low == 0
            found.plain = part.plain
            found.least = low * part.least
            found.most = None if high is None or part.most is None else high * part.most
        return found

    def _fold(self, inner: Lang, low: int, high: int | None) -> Lang | None:
        """A repetition of a repetition as one, where no count in between is left out."""
        if inner.low > 1 and low != high:
            return None
        most = None if inner.high is None or high is None else inner.high * high
        return self.repeat(inner.parts[0], inner.low * low, most)

    def alt(self, parts: Iterable[Lang]) -> Lang:
        """Words of any of the languages."""
        flat: set[Lang] = set()
        for part in parts:
            flat.update(part.parts if part.kind is Kind.ALT else (part,))
        self.steps.spend(Work.TEXTS, 2 + len(flat))
        flat.discard(self.empty)
        if self.all in flat:
            return self.all
        if len(flat) > 1:
            flat = self._alt_merged(flat)
        if len(flat) <= 1:
            return flat.pop() if flat else self.empty
        ordered = tuple(sorted(flat, key=by_rank))
        key = (Kind.ALT, ordered)
        found = self._table.get(key)
        if found is None:
            found = self._make(Kind.ALT, key)
            found.parts = ordered
            found.nullable = any(part.nullable for part in ordered)
            found.plain = all(part.plain for part in ordered)
            found.least = min(part.least for part in ordered)
            mosts = [part.most for part in ordered]
            found.most = None if None in mosts else max(m for m in mosts if m is not None)
        return found

    def _alt_merged(self, flat: set[Lang]) -> set[Lang]:
        chars = [part for part in flat if part.kind is Kind.CHARS]
        words = [part for part in flat if part.kind is Kind.WORDS]
        nots = [part for part in flat if part.kind is Kind.NOT]
        if len(chars) > 1:
            flat = flat.difference(chars)
            flat.add(self.chars(charsets.make(p for part in chars for p in part.chars)))
        if len(words) > 1:
            self.steps.spend(Work.TEXTS, sum(len(part.words) for part in words))
            flat = flat.difference(words)
            flat.add(self.words(word for part in words for word in part.words))
        if nots:
            inner = self.both(part.parts[0] for part in nots)
            rest = flat.difference(nots)
            if inner.kind is Kind.WORDS:
                kept = [w for w in inner.words if not any(self.matches(p, w) for p in rest)]
                rest = {part for part in rest if part.kind is not Kind.WORDS}
                inner = self._words(tuple(kept))
            flat = rest | {self.negate(inner)}
        return {self.all} if self.all in flat else flat

    def both(self, parts: Iterable[Lang]) -> Lang:
        """Words that are in every one of the languages."""
        flat: set[Lang] = set()
        for part in parts:
            flat.update(part.parts if part.kind is Kind.BOTH else (part,))
        self.steps.spend(Work.TEXTS, 2 + len(flat))
        flat.discard(self.all)
        if self.empty in flat:
            return self.empty
        if len(flat) > 1:
            flat = self._both_merged(flat)
        if not flat:
            return self.all
        if len(flat) == 1:
            return flat.pop()
        ordered = tuple(sorted(flat, key=by_rank))
        least = max(part.least for part in ordered)
        mosts = [part.most for part in ordered if part.most is not None]
        if mosts and min(mosts) < least:
            return self.empty
        key = (Kind.BOTH, ordered)
        found = self._table.get(key)
        if found is None:
            found = self._make(Kind.BOTH, key)
            found.parts = ordered
            found.nullable = all(part.nullable for part in ordered)
            found.plain = False
            found.least = least
            found.most = min(mosts) if mosts else None
        return found

    def _both_merged(self, flat: set[Lang]) -> set[Lang]:
        if any(part.kind is Kind.NOT and part.parts[0] in flat for part in flat):
            return {self.empty}
        finite = min(
            (p for p in flat if p.kind is Kind.WORDS), key=lambda p: len(p.words), default=None
        )
        if finite is not None:
            others = flat - {finite}
            self.steps.spend(Work.TEXTS, len(finite.words) * len(others))
            kept = (w for w in finite.words if all(self.matches(p, w) for p in others))
            return {self._words(tuple(kept))}
        nots = [part for part in flat if part.kind is Kind.NOT]
        if len(nots) > 1:
            flat = flat.difference(nots)
            flat.add(self.negate(self.alt(part.parts[0] for part in nots)))
        chars = [part for part in flat if part.kind is Kind.CHARS]
        if len(chars) > 1:
            flat = flat.difference(chars)
            common = chars[0].chars
            for part in chars[1:]:
                common = charsets.intersection(common, part.chars)
            flat.add(self.chars(common))
        return self._lengths_merged(flat)

    def _lengths_merged(self, flat: set[Lang]) -> set[Lang]:
        """One length range for several, and none where a neighbour keeps it by itself."""
        ranges = [p for p in flat if p.kind is Kind.REPEAT and p.parts[0] is self.any_char]
        if not ranges:
            return flat
        low = max(part.low for part in ranges)
        highs = [part.high for part in ranges if part.high is not None]
        high = min(highs) if highs else None
        rest = flat.difference(ranges)
        if high is not None and low > high:
            return {self.empty}
        if any(
            p.plain and p.least >= low and (high is None or (p.most is not None and p.most <= high))
            for p in rest
        ):
            return rest
        return rest | {self.repeat(self.any_char, low, high)}

    def negate(self, part: Lang) -> Lang:
        """All words that are not in the language."""
        if part is self.empty:
            return self.all
        if part is self.all:
            return self.empty
        if part.kind is Kind.NOT:
            return part.parts[0]
        if part.kind is Kind.REPEAT and part.parts[0] is self.any_char:
            shorter = self.repeat(self.any_char, 0, part.low - 1) if part.low else self.empty
            longer = self.empty
            if part.high is not None:
                longer = self.repeat(self.any_char, part.high + 1, None)
            return self.alt((shorter, longer))
        key = (Kind.NOT, part)
        found = self._table.get(key)
        if found is None:
            found = self._make(Kind.NOT, key)
            found.parts = (part,)
            found.nullable = not part.nullable
            found.plain = False
            found.least = 0 if found.nullable else 1
            found.most = None
        return found

    def lengths(self, low: int, high: int | None) -> Lang:
        """All words of `low` to `high` code points."""
        return self.repeat(self.any_char, low, high)

    # ---- reading -----------------------------------------------------------------------

    def moves(self, lang: Lang) -> Moves:
        """For each range of code points that can come first, the language of what may follow."""
        found = self._moves.get(lang)
        if found is None:
            found = self._moves[lang] = self._derive(lang)
            self.steps.spend(Work.TEXTS, 5 + len(found))
        return found

    def _derive(self, lang: Lang) -> Moves:
        kind = lang.kind
        if kind is Kind.WORDS:
            return self._derive_words(lang)
        if kind is Kind.CHARS:
            return tuple((first, last, self.epsilon) for first, last in lang.chars)
        if kind is Kind.CAT:
            head, tail = lang.parts
            moved = merged((f, s, self._cat(to, tail)) for f, s, to in self.moves(head))
            if not head.nullable:
                return moved
            return self._overlay([moved, self.moves(tail)])
        if kind is Kind.REPEAT:
            part = lang.parts[0]
            high = None if lang.high is None else lang.high - 1
            rest = self.repeat(part, max(lang.low - 1, 0), high)
            return merged((f, s, self._cat(to, rest)) for f, s, to in self.moves(part))
        if kind is Kind.ALT:
            return self._overlay([self.moves(part) for part in lang.parts])
        if kind is Kind.BOTH:
            return self._meet([self.moves(part) for part in lang.parts])
        if kind is Kind.NOT:
            moves = self.moves(lang.parts[0])
            gaps = charsets.complement(tuple((f, s) for f, s, _ in moves))
            turned = [(f, s, self.negate(to)) for f, s, to in moves]
            turned += [(f, s, self.all) for f, s in gaps]
            return merged(sorted(turned, key=by_first))
        return ()

    def _derive_words(self, lang: Lang) -> Moves:
        self.steps.spend(Work.TEXTS, len(lang.words) // 2)
        tails: dict[str, list[str]] = {}
        for word in lang.words:
            if word:
                tails.setdefault(word[0], []).append(word[1:])
        made = ((ord(c), ord(c), self._words(tuple(rest))) for c, rest in tails.items())
        return merged(sorted(made, key=by_first))

    def _overlay(self, tables: list[Moves]) -> Moves:
        """The union of several tables of moves."""
        filled = [table for table in tables if table]
        if len(filled) < 2:
            return filled[0] if filled else ()
        out = []
        for first, last, targets in sweep(filled, self.steps):
            out.append((first, last, targets[0] if len(targets) == 1 else self.alt(targets)))
        return merged(out)

    def _meet(self, tables: list[Moves]) -> Moves:
        """The intersection of several tables of moves."""
        out = []
        for first, last, targets in sweep(tables, self.steps):
            if len(targets) == len(tables) and (target := self.both(targets)) is not self.empty:
                out.append((first, last, target))
        return merged(out)

    def step(self, lang: Lang, code: int) -> Lang:
        """The language left after one code point."""
        moves = self.moves(lang)
        at = bisect_right(moves, code, key=by_first) - 1
        if at >= 0 and code <= moves[at][1]:
            return moves[at][2]
        return self.empty

    def matches(self, lang: Lang, word: str) -> bool:
        """Whether the word is in the language."""
        if lang.kind is Kind.NOT:
            return not self.matches(lang.parts[0], word)
        if lang.kind is Kind.WORDS:
            at = bisect_left(lang.words, word)
            return at < len(lang.words) and lang.words[at] == word
        for char in word:
            lang = self.step(lang, ord(char))
            if lang is self.empty or lang is self.all:
                return lang is self.all
        return lang.nullable
