"""Masks without tables: every token, byte by byte. The reference for the C++ part, and what serves
where that is not built."""

from __future__ import annotations

import numpy as np

from forwardpass.constraint.closing import Closer
from forwardpass.constraint.plain_trie import Branch, PlainTrie
from forwardpass.constraint.states import State
from forwardpass.constraint.tokens import Tokens, Words


class PlainMasks:
    """Masks of one grammar over one vocabulary."""

    def __init__(self, closer: Closer, tokens: Tokens) -> None:
        self.closer, self.tokens = closer, tokens
        self._trie = PlainTrie(tokens.texts)

    def mask(self, state: State, limit: int) -> tuple[Words, int, int]:
        """Bit words, how many tokens, and the most that it takes after any of them.

        limit: as in `masks.Masker.mask`, -1 for none.
        """
        words = np.zeros(self.tokens.words, dtype=np.uint32)
        count, worst, waiting = 0, 0, [(self._trie.root, state)]
        costs: dict[State, int] = {}
        while waiting:
            branch, at = waiting.pop()
            if branch.ids:
                cost = costs.get(at)
                if cost is None:
                    cost = costs[at] = self._cost(at)
                worst = max(worst, cost)
                if limit < 0 or cost <= limit:
                    count += len(branch.ids)
                    for token in branch.ids:
                        words[token >> 5] |= np.uint32(1 << (token & 31))
            waiting += self._below(branch, at)
        return words, count, worst

    def _below(self, branch: Branch, state: State) -> list[tuple[Branch, State]]:
        stepped = ((below, state.advance(byte)) for byte, below in branch.next.items())
        return [(below, after) for below, after in stepped if after is not None]

    def _cost(self, state: State) -> int:
        return 0 if state.complete else min(map(self.closer.total, state.positions))
