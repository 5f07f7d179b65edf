"""`Guide`: keeps one answer within a grammar, and has it complete when its tokens run out."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from forwardpass.constraint.masks import NO_LIMIT, Masker
from forwardpass.constraint.states import State
from forwardpass.constraint.tokens import Words, is_set
from forwardpass.errors import ForwardpassError, RequestError


@dataclass(frozen=True, slots=True, eq=False)
class Allowed:
    """What may come next: bit words (bit i % 32 of word i // 32), and how many tokens.

    `freely`: the same without the limit, where the limit takes something away.
    """

    words: Words
    count: int
    freely: Words | None = None


class Guide:
    """One answer under a grammar.

    `ends` are the ids that end an answer; they are allowed where the text is complete. What is
    allowed can always be completed within `left` tokens, the one that ends the answer included,
    if `least` were there at the start.
    """

    closes = True

    def __init__(self, masker: Masker, ends: Iterable[int]) -> None:
        self.masker, self.ends = masker, tuple(sorted(ends))
        self.state: State = masker.grammar.start()
        self._plan: list[int] | None = None

    @property
    def least(self) -> int:
        """How many tokens there have to be at least from here, the one that ends the answer
        included."""
        return len(self._planned()) + 1

    def check(self, most: int) -> None:
        """Refuses a limit within which nothing complete can be written."""
        if self.least > most:
            raise RequestError(
                f"max_tokens = {most}: the shortest complete answer takes {self.least} tokens",
                advice=f"Allow at least {self.least}.",
            )

    def allowed(self, left: int) -> Allowed:
        """What may come next where `left` tokens may still come, this one included."""
        found = self.masker.mask(self.state, NO_LIMIT)
        free = self._ended(found.words, found.count)
        if left < 2:
            return Allowed(self._only_ends(), len(self.ends), free.words)
        limit = left - 2
        if found.worst <= limit:
            return free
        within = self.masker.mask(self.state, limit)
        words, count = within.words, within.count
        plan = self._planned()
        if plan and not is_set(words, plan[0]) and len(plan) <= left - 1:
            words, count = words.copy(), count + 1
            words[plan[0] >> 5] |= np.uint32(1 << (plan[0] & 31))
        return self._ended(words, count, free.words)

    def advance(self, token: int) -> None:
        """Goes on by a token that was allowed; ValueError for one that the grammar refuses.

        An id that ends the answer changes nothing.
        """
        if token in self.ends and self.state.complete:
            return
        after = self.masker.after(self.state, token)
        if after is None:
            raise ValueError(f"token {token} is refused by the grammar")
        plan, self.state = self._plan, after
        # What is left of a plan still is one; another might come out longer.
        self._plan = plan[1:] if plan and plan[0] == token else None

    @property
    def done(self) -> bool:
        """Whether only the ids that end the answer are allowed."""
        return self.state.complete and not self.masker.mask(self.state).count

    def _planned(self) -> list[int]:
        """Few tokens that complete the text."""
        if self._plan is None:
            self._plan = self.masker.plan(self.state)
        return self._plan

    def _ended(self, words: Words, count: int, freely: Words | None = None) -> Allowed:
        """With the ids that end the answer, where the text is complete."""
        if not self.state.complete:
            if not count:
                raise ForwardpassError(
                    "a state of the grammar has no way on (this is a fault of forwardpass)"
                )
            return Allowed(words, count, freely)
        fresh = [token for token in self.ends if not is_set(words, token)]
        words = words.copy()
        for token in fresh:
            words[token >> 5] |= np.uint32(1 << (token & 31))
        return Allowed(words, count + len(fresh), freely)

    def _only_ends(self) -> Words:
        words = np.zeros(self.masker.tokens.words, dtype=np.uint32)
        for token in self.ends:
            words[token >> 5] |= np.uint32(1 << (token & 31))
        return words
