"""The scores that bias, penalties and DRY change, without the rest of the row.

The stages' own functions run on a short row of the ids that they can touch, each id numbered by
where it first occurred. What is known of a history is kept, so that a token more is one more entry.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from forwardpass.sampling.adjusting import STAGES, History
from forwardpass.sampling.ranges import EVERYTHING
from forwardpass.sampling.rules import ADJUSTING, SWITCHES
from forwardpass.sampling.settings import SamplingSettings, Setting
from forwardpass.sampling.stages import Ids, IdSequence, Probabilities, Scores

_SHORT = 256  # a window up to this is read anew for each token


class ChangedScores:
    """Scores after the adjusting stages of one request. For one thread at a time."""

    def __init__(self, settings: SamplingSettings, breakers: frozenset[int]) -> None:
        names = [n for n in settings.rules.order if n in ADJUSTING and n in SWITCHES]
        self._acting = [n for n in names if settings.acts(n)]
        self._window = _window(settings, self._acting)
        self._output_only = not settings.rules.over_prompt and not (
            {"repetition_penalty", "dry"} & set(self._acting)
        )
        bias = settings.logit_bias.value if "logit_bias" in self._acting else ()
        numbered = tuple((i, value) for i, (_, value) in enumerate(bias))
        self._settings = replace(settings, logit_bias=Setting(numbered, "request"))
        self._history = _Numbered([token for token, _ in bias], breakers)

    @property
    def acts(self) -> bool:
        """Whether any of these stages does something."""
        return bool(self._acting)

    def of(
        self, scores: Scores, prompt: IdSequence, output: IdSequence
    ) -> tuple[Ids, Probabilities] | None:
        """Rising ids and their scores, float64; None where an id is outside the vocabulary.

        Raises what the stages raise.
        """
        history = self._history
        history.read(*self._looked_at(prompt, output))
        ids = history.ids
        if history.lowest < 0 or history.highest >= scores.size:
            return None
        row: Scores = scores[ids].astype(np.float64)
        numbers = history.numbers()
        for name in self._acting:
            row = STAGES[name](row, self._settings, numbers)
        order = history.order
        return ids[order], row[order].astype(np.float64, copy=False)

    def _looked_at(self, prompt: IdSequence, output: IdSequence) -> tuple[IdSequence, IdSequence]:
        if self._window == 0:
            return (), ()
        last = slice(-self._window if 0 < self._window <= _SHORT else None, None)
        return () if self._output_only else prompt[last], output[last]


class _Numbered:
    """A history whose token ids are numbered; what is known of it holds for longer ones too."""

    def __init__(self, first: Sequence[int], breakers: frozenset[int]) -> None:
        self._first, self._breakers = first, breakers
        self._prompt: IdSequence = ()
        self._split = 0  # where the output begins
        self._restart()

    def _restart(self) -> None:
        self._known: list[int] = []  # prompt and output
        self._slots: dict[int, int] = {}
        self._broken: set[int] = set()
        self._store: Ids = np.empty(256, dtype=np.int64)
        self.lowest, self.highest = 0, -1
        self._number(self._first)
        self._stale = True

    def read(self, prompt: IdSequence, output: IdSequence) -> None:
        """Takes in a history, of which only what is new is gone through."""
        if prompt is not self._prompt or not isinstance(prompt, tuple):
            front = _listed(prompt)
            if front != self._known[: self._split]:
                self._restart()
                self._append(front)
                self._split = len(front)
            self._prompt = prompt
        back = _listed(output)
        known = self._known[self._split :]
        if back[: len(known)] != known:
            front = self._known[: self._split]
            self._restart()
            self._append(front)
            known = []
        self._append(back[len(known) :])

    def _append(self, tokens: Sequence[int]) -> None:
        start, end = len(self._known), len(self._known) + len(tokens)
        if end > self._store.size:
            self._store = np.concatenate([self._store, np.empty(end, dtype=np.int64)])
        self._store[start:end] = self._number(tokens)
        self._known.extend(tokens)

    def _number(self, tokens: Sequence[int]) -> list[int]:
        slots, before = self._slots, len(self._slots)
        numbers = [slots.setdefault(token, len(slots)) for token in tokens]
        if len(slots) > before:
            fresh = list(slots)[before:]
            self.lowest = min(self.lowest, *fresh)
            self.highest = max(self.highest, *fresh)
            self._broken.update(slots[token] for token in fresh if token in self._breakers)
            self._stale = True
        return numbers

    def _refresh(self) -> None:
        if self._stale:
            self._ids = np.fromiter(self._slots, np.int64, len(self._slots))
            self._order = np.argsort(self._ids)
            self._stale = False

    @property
    def ids(self) -> Ids:
        """The token id of each number."""
        self._refresh()
        return self._ids

    @property
    def order(self) -> Ids:
        """Numbers by rising id."""
        self._refresh()
        return self._order

    def numbers(self) -> History:
        """The history in numbers."""
        end = len(self._known)
        prompt, output = self._store[: self._split], self._store[self._split : end]
        return History(prompt, output, frozenset(self._broken))


def _listed(tokens: IdSequence) -> list[int]:
    return tokens.tolist() if isinstance(tokens, np.ndarray) else list(tokens)


def _window(settings: SamplingSettings, acting: Sequence[str]) -> int:
    """How many tokens the stages look back at most; 0 where they look at none."""
    looking = [name for name in acting if name != "logit_bias"]
    windows = [
        (settings.dry_penalty_last_n if name == "dry" else settings.penalty_last_n).value
        for name in looking
    ]
    return EVERYTHING if EVERYTHING in windows else max(windows, default=0)
