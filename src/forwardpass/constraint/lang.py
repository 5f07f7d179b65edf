"""One regular language as an expression, and tables of moves between languages."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from enum import IntEnum

from forwardpass.constraint.charsets import CharSet
from forwardpass.constraint.steps import Steps, Work
from forwardpass.errors import RequestError


class TooLarge(RequestError):
    """A language outgrew its limits; the text says which."""


class Kind(IntEnum):
    EMPTY = 0
    WORDS = 1  # a finite set, written out
    CHARS = 2
    CAT = 3
    ALT = 4
    REPEAT = 5
    BOTH = 6
    NOT = 7


class Lang:
    """One language. `least` and `most` bound the length of its words (exact where `plain`).

    `plain` says that no intersection or complement is inside: then it is empty only where it is
    `Languages.empty` itself.
    """

    __slots__ = ("chars", "high", "kind", "least", "low", "most", "nullable", "parts", "plain",
                 "rank", "words")  # fmt: skip

    def __init__(self, kind: Kind, rank: int) -> None:
        self.kind = kind
        self.rank = rank
        self.nullable = False
        self.plain = True
        self.least = 0
        self.most: int | None = 0
        self.parts: tuple[Lang, ...] = ()
        self.words: tuple[str, ...] = ()
        self.chars: CharSet = ()
        self.low = 0
        self.high: int | None = None


Moves = tuple[tuple[int, int, Lang], ...]
MOST_NODES = 200_000


def total(*values: int | None) -> int | None:
    """The sum, or None (no limit) where one of them is None."""
    out = 0
    for value in values:
        if value is None:
            return None
        out += value
    return out


def by_rank(lang: Lang) -> int:
    return lang.rank


def by_first(move: tuple[int, int, Lang]) -> int:
    return move[0]


def well_formed(word: str) -> bool:
    return word.isascii() or not any(0xD800 <= ord(char) <= 0xDFFF for char in word)


def merged(moves: Iterable[tuple[int, int, Lang]]) -> Moves:
    """Neighbouring ranges with one target joined; sorted input assumed."""
    out: list[tuple[int, int, Lang]] = []
    for first, last, target in moves:
        if target.kind is Kind.EMPTY:
            continue
        if out and out[-1][1] + 1 == first and out[-1][2] is target:
            out[-1] = (out[-1][0], last, target)
        else:
            out.append((first, last, target))
    return tuple(out)


def sweep(tables: list[Moves], steps: Steps) -> Iterable[tuple[int, int, list[Lang]]]:
    """Ranges on which no table changes, each with the targets of all tables that move there."""
    edges = sorted({e for table in tables for f, s, _ in table for e in (f, s + 1)})
    steps.spend(Work.TEXTS, (len(edges) + 1) * (len(tables) + 2) // 4)
    at = [0] * len(tables)
    for first, after in itertools.pairwise(edges):
        targets = []
        for i, table in enumerate(tables):
            while at[i] < len(table) and table[at[i]][1] < first:
                at[i] += 1
            if at[i] < len(table) and table[at[i]][0] <= first:
                targets.append(table[at[i]][2])
        if targets:
            yield first, after - 1, targets
