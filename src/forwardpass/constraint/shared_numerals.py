"""The one automaton of numbers for all grammars, so that what is known of numbers serves again."""

from __future__ import annotations

from forwardpass.constraint.numerals import Numerals


class _Shared:
    """The automaton that all grammars use, until it has grown large: then those to come get a new
    one."""

    def __init__(self, most: int) -> None:
        self._most, self._now = most, Numerals()

    def __call__(self) -> Numerals:
        if self._now.size > self._most:
            self._now = Numerals()
        return self._now


shared_numerals = _Shared(100_000)
