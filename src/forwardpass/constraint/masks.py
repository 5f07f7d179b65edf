"""Which tokens may come next: the mask of a state, whole or within what is left of a limit."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

import numpy as np

from forwardpass.constraint.closing import Closer, Piece
from forwardpass.constraint.plain_masks import PlainMasks
from forwardpass.constraint.states import Grammar, State
from forwardpass.constraint.tables import Tables
from forwardpass.constraint.tokens import Tokens, Words, bits, is_set

NO_LIMIT = -1
# Masks that are kept: of a vocabulary of 150,000 some 20 kB each.
KEPT_BYTES = 32_000_000


@dataclass(frozen=True, slots=True, eq=False)
class Masked:
    """A mask: its bit words (read only), how many tokens it has, and the most tokens that it takes
    to complete the text after any of them (an upper bound)."""

    words: Words
    count: int
    worst: int


class Masker:
    """The masks of one grammar over one vocabulary. Grows with what was asked; for one thread at a
    time."""

    def __init__(self, grammar: Grammar, tokens: Tokens, *, plain: bool = False) -> None:
        self.grammar, self.tokens = grammar, tokens
        self.closer: Closer = grammar.closer(tokens.count)
        self._tables = None if plain else _tables(grammar, self.closer, tokens)
        self._plain = PlainMasks(self.closer, tokens) if self._tables is None else None
        self._known: OrderedDict[State, Masked] = OrderedDict()
        self._most = max(KEPT_BYTES // (4 * tokens.words), 16)

    def mask(self, state: State, limit: int = NO_LIMIT) -> Masked:
        """The tokens that may come next, control tokens among them, ids that end the answer not.

        With a limit, only those after which so many more tokens can complete the text; that is
        told from an upper bound, so a few that would do may be missing.
        """
        known = self._known.get(state)
        if known is None:
            known = self._known[state] = self._made(state, NO_LIMIT)
            if len(self._known) > self._most:
                self._known.popitem(last=False)
        else:
            self._known.move_to_end(state)
        if limit == NO_LIMIT or known.worst <= limit:
            return known
        return self._made(state, limit)

    def plan(self, state: State) -> list[int]:
        """Few tokens that complete the text of a state, control tokens included."""
        if state.complete:
            return []
        plans = (self._written(self.closer.rest(one)) for one in state.positions)
        return min(plans, key=len)

    def _written(self, pieces: list[Piece]) -> list[int]:
        out: list[int] = []
        text = b""
        for piece in pieces:
            if isinstance(piece, bytes):
                text += piece
            else:
                out += [*self.tokens.write(text), piece]
                text = b""
        return out + self.tokens.write(text)

    def after(self, state: State, token: int) -> State | None:
        """The state after a token, or None where it is refused. The grammar's own word: byte by
        byte, with the whole stack."""
        text = self.tokens.texts[token] if 0 <= token < len(self.tokens.texts) else None
        return state.advance_control(token) if text is None else state.feed(text)

    def cost(self, state: State) -> int:
        """How many tokens complete the text, as far as known (an upper bound)."""
        return 0 if state.complete else min(map(self.closer.total, state.positions))

    def _made(self, state: State, limit: int) -> Masked:
        if self._plain is not None:
            words, count, worst = self._plain.mask(state, limit)
        else:
            words, count, worst = self._from_tables(state, limit)
        for token, points in state.controls().items():
            cost = min(self.closer.way_cost(point) for point in points)
            worst = max(worst, cost)
            if (limit == NO_LIMIT or cost <= limit) and not is_set(words, token):
                words[token >> 5] |= np.uint32(1 << (token & 31))
                count += 1
        words.flags.writeable = False
        return Masked(words, count, worst)

    def _from_tables(self, state: State, limit: int) -> tuple[Words, int, int]:
        assert self._tables is not None
        words = np.empty(self.tokens.words, dtype=np.uint32)
        starts = [self._tables.start(position) for position in state.positions]
        count, worst, doubtful = self._tables.native.mask(starts, limit, words)
        judged = []
        for token in doubtful:
            after = self.after(state, token)
            if after is None:
                continue
            cost = self.cost(after)
            worst = max(worst, cost)
            if limit == NO_LIMIT or cost <= limit:
                judged.append(token)
        if judged:
            words |= bits(judged, self.tokens.words)
        return words, count + len(judged), worst


def _tables(grammar: Grammar, closer: Closer, tokens: Tokens) -> Tables | None:
    try:
        common = tokens.common
        alike = common.machine.numerals is grammar.machine.numerals
        return Tables(grammar.machine, closer, tokens, common if alike else None)
    except ImportError:
        return None
