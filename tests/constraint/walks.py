"""Answers written token by token under a guide, by samplers that mean no good."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from constraint.vocabularies import ENDS
from forwardpass.constraint.guide import Guide
from forwardpass.constraint.masks import Masker
from forwardpass.constraint.tokens import ids_of, is_set

Sampler = Callable[[Guide, list[int], Random], int]
CANDIDATES = 20
_OPENERS = (b"{", b"[", b'"', b",", b" ", b"[[[", b'{"', b'","', b"\\", b"1", b"-")


def uniform(_: Guide, ids: list[int], rng: Random) -> int:
    """Any token that is allowed."""
    return rng.choice(ids)


def longest(guide: Guide, ids: list[int], rng: Random) -> int:
    """Of some tokens, among them what opens something, one after which it takes most to close."""
    masker, state = guide.masker, guide.state
    wanted = {masker.tokens.trie.find(text)[0] for text in _OPENERS}
    some = [token for token in ids if token in wanted]
    some += rng.sample(ids, min(CANDIDATES, len(ids)))
    costs = []
    for token in some:
        after = None if token in ENDS else masker.after(state, token)
        costs.append(-1 if after is None else masker.cost(after))
    return some[max(range(len(some)), key=costs.__getitem__)]


def blank(guide: Guide, ids: list[int], rng: Random) -> int:
    """White space wherever there may be some, as much of it as a token has."""
    texts = guide.masker.tokens.texts
    blanks = [token for token in ids if not (texts[token] or b"x").strip(b" \t\r\n")]
    return max(blanks, key=lambda token: len(texts[token] or b""), default=rng.choice(ids))


def written(masker: Masker, most: int, sampler: Sampler, rng: Random) -> bytes:
    """The text of one answer of at most so many tokens.

    AssertionError where no id ends it in time, or what is allowed is not what is said of it.
    """
    guide, text = Guide(masker, ENDS), b""
    guide.check(most)
    for left in range(most, 0, -1):
        allowed = guide.allowed(left)
        ids = ids_of(allowed.words).tolist()
        assert ids, (text, left)
        assert len(ids) == allowed.count, (text, left)
        assert allowed.freely is None or not (allowed.words & ~allowed.freely).any(), (text, left)
        token = sampler(guide, ids, rng)
        assert is_set(allowed.words, token)
        guide.advance(token)
        if token in ENDS:
            return text
        text += masker.tokens.texts[token] or b""
    raise AssertionError(f"no end after {most} tokens: {text!r}")
