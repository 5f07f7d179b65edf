"""From the tree of a pattern to the language of all texts in which it is found.

Assertions look at what follows, so a tree is turned into a language from right to left: `after`
is the language of all that may still come, and a look-ahead is an intersection with it.
"""

from __future__ import annotations

from forwardpass.constraint.lang import Lang
from forwardpass.constraint.patterns import (
    Chars,
    Choice,
    Edge,
    Look,
    PatternError,
    Repeat,
    Sequence,
    Tree,
    parse,
)
from forwardpass.constraint.regular import Languages

MOST_UNROLLED = 32


def language(languages: Languages, pattern: str) -> Lang:
    """All texts in which the pattern is found somewhere (`pattern` is not anchored).

    Raises PatternError with the place, TooLarge beyond the limits.
    """
    tree = parse(pattern)
    builder = _Builder(languages)
    tail = languages.all
    found = builder.before(tree, tail, at_start=True)
    if _always_at_start(tree):
        return found
    later = builder.before(tree, tail, at_start=False)
    if found is later or not _has_edges(tree):
        return languages.cat(languages.all, later)
    return languages.alt((found, languages.cat(languages.some, later)))


def whole(languages: Languages, pattern: str) -> Lang:
    """All texts that the pattern matches from beginning to end.

    Raises PatternError with the place, TooLarge beyond the limits.
    """
    return _Builder(languages).before(parse(pattern), languages.epsilon, at_start=True)


class _Builder:
    def __init__(self, languages: Languages) -> None:
        self.languages = languages

    def plain(self, tree: Tree) -> Lang:
        """The language of a tree without assertions."""
        if isinstance(tree, Chars):
            return self.languages.chars(tree.chars)
        if isinstance(tree, Sequence):
            return self.languages.cat(*(self.plain(part) for part in tree.parts))
        if isinstance(tree, Choice):
            return self.languages.alt(self.plain(part) for part in tree.parts)
        assert isinstance(tree, Repeat)
        return self.languages.repeat(self.plain(tree.part), tree.low, tree.high)

    def before(self, tree: Tree, after: Lang, *, at_start: bool) -> Lang:
        """All of the text from here on: the tree, then `after`."""
        if not _has_assertions(tree):
            return self.languages.cat(self.plain(tree), after)
        if isinstance(tree, Edge):
            if tree.start:
                return after if at_start else self.languages.empty
            return self.languages.both((self.languages.epsilon, after))
        if isinstance(tree, Look):
            seen = self.before(tree.part, self.languages.all, at_start=at_start)
            return self.languages.both(
                (after, seen if tree.wanted else self.languages.negate(seen))
            )
        if isinstance(tree, Choice):
            return self.languages.alt(
                self.before(part, after, at_start=at_start) for part in tree.parts
            )
        if isinstance(tree, Sequence):
            return self._sequence(list(tree.parts), after, at_start=at_start)
        assert isinstance(tree, Repeat)
        return self._repeat(tree, after, at_start=at_start)

    def _sequence(self, parts: list[Tree], after: Lang, *, at_start: bool) -> Lang:
        starts = []
        for i, part in enumerate(parts):
            starts.append(at_start)
            if at_start and not _takes_nothing(part):
                if _may_take_nothing(part) and any(_has_edges(rest) for rest in parts[i + 1 :]):
                    raise PatternError("has a ^ after a part that may be empty")
                at_start = False
        for part, start in zip(reversed(parts), reversed(starts), strict=True):
            after = self.before(part, after, at_start=start)
        return after

    def _repeat(self, tree: Repeat, after: Lang, *, at_start: bool) -> Lang:
        if tree.high is None and (guarded := self._guarded(tree, after)):
            return guarded
        if tree.high is None or tree.high > MOST_UNROLLED:
            raise PatternError(
                f"repeats an assertion (^, $ or a look-ahead) more than {MOST_UNROLLED} times"
            )
        many = [tree.part] * tree.low
        out = self._sequence(many, after, at_start=at_start)
        for _ in range(tree.high - tree.low):
            many = [*many, tree.part]
            out = self.languages.alt((out, self._sequence(many, after, at_start=at_start)))
        return out

    def _guarded(self, tree: Repeat, after: Lang) -> Lang | None:
        """`((?!…)x)*` up to the end of the text: no place at which the look-ahead fails."""
        parts = tree.part.parts if isinstance(tree.part, Sequence) else ()
        looks, last = parts[:-1], parts[-1:]
        if after is not self.languages.epsilon or not last or not isinstance(last[0], Chars):
            return None
        kept = [self.languages.repeat(self.plain(last[0]), tree.low, None)]
        for look in looks:
            if not isinstance(look, Look) or _has_edges(look):
                return None
            seen = self.before(look.part, self.languages.all, at_start=False)
            failing = self.languages.negate(seen) if look.wanted else seen
            place = self.languages.both((self.languages.some, failing))
            kept.append(self.languages.negate(self.languages.cat(self.languages.all, place)))
        return self.languages.both(kept)


def _children(tree: Tree) -> tuple[Tree, ...]:
    if isinstance(tree, Sequence | Choice):
        return tree.parts
    return (tree.part,) if isinstance(tree, Repeat | Look) else ()


def _has_assertions(tree: Tree) -> bool:
    return isinstance(tree, Edge | Look) or any(map(_has_assertions, _children(tree)))


def _has_edges(tree: Tree) -> bool:
    """Whether a `^` is inside."""
    if isinstance(tree, Edge):
        return tree.start
    return any(map(_has_edges, _children(tree)))


def _takes_nothing(tree: Tree) -> bool:
    """Whether it never takes a character."""
    if isinstance(tree, Edge | Look):
        return True
    if isinstance(tree, Chars):
        return False
    return all(map(_takes_nothing, _children(tree)))


def _may_take_nothing(tree: Tree) -> bool:
    if isinstance(tree, Chars):
        return False
    if isinstance(tree, Sequence):
        return all(map(_may_take_nothing, tree.parts))
    if isinstance(tree, Choice):
        return any(map(_may_take_nothing, tree.parts))
    return not isinstance(tree, Repeat) or tree.low == 0 or _may_take_nothing(tree.part)


def _always_at_start(tree: Tree) -> bool:
    """Whether it can be found at the start alone, because a `^` begins it."""
    if isinstance(tree, Edge):
        return tree.start
    if isinstance(tree, Sequence):
        return bool(tree.parts) and _always_at_start(tree.parts[0])
    return isinstance(tree, Choice) and all(map(_always_at_start, tree.parts))
