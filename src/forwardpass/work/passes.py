"""`PassShape`: a pass described by its sequences, before any of it runs."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class SequenceShape:
    """One sequence's part in a pass: `new` tokens behind `cached` ones, `wanted` rows of logits.

    A token sees itself and all before it, so the last of them sees cached + new tokens.
    """

    new: int
    cached: int = 0
    wanted: int = 1

    def __post_init__(self) -> None:
        if self.new < 1 or self.cached < 0 or not 0 <= self.wanted <= self.new:
            raise ValueError(f"no pass has {self}")

    def pairs(self, window: int | None) -> int:
        """(query, visible key) pairs: Σ min(cached + i, window) over the new tokens i = 1 … new."""
        first, last = self.cached + 1, self.cached + self.new
        if window is None or last <= window:
            return (first + last) * self.new // 2
        growing = max(0, window - self.cached)  # tokens that still see all before them
        return (first + self.cached + growing) * growing // 2 + (self.new - growing) * window

    def visible(self, window: int | None) -> int:
        """Cached rows that the pass reads: all that any new token sees, the new ones included."""
        last = self.cached + self.new
        return last if window is None else min(last, window + self.new - 1)


@dataclass(frozen=True)
class PassShape:
    """All sequences of one pass."""

    sequences: tuple[SequenceShape, ...]

    @classmethod
    def prompt(cls, tokens: int, cached: int = 0) -> PassShape:
        """A prompt's pass, with the logits of its last row."""
        return cls((SequenceShape(tokens, cached),))

    @classmethod
    def decode(cls, visible: int) -> PassShape:
        """One token's pass that sees `visible` tokens, itself included."""
        return cls((SequenceShape(1, visible - 1),))

    @property
    def tokens(self) -> int:
        """n: tokens that go through the layers."""
        return sum(sequence.new for sequence in self.sequences)

    @property
    def rows(self) -> int:
        """r: rows whose logits are wanted."""
        return sum(sequence.wanted for sequence in self.sequences)

    def pairs(self, window: int | None) -> int:
        """(query, visible key) pairs of all sequences."""
        return sum(sequence.pairs(window) for sequence in self.sequences)

    def visible(self, window: int | None) -> int:
        """Cache rows read, over all sequences."""
        return sum(sequence.visible(window) for sequence in self.sequences)
