"""How likely a model finds a text: the log probability of each token, and what follows from them.

A token's log probability is that of the model after all tokens before it, as far as the window
reaches. A text that the context cannot hold is read in windows: each holds as many tokens as the
context, begins `stride` tokens after the one before, and scores what no window has scored yet. So
every scored token but those of the first window has at least (window - stride) tokens before it.

Source: "Perplexity of fixed-length models" in the documentation of transformers.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from forwardpass.engine.runner import Pass, Runner
from forwardpass.errors import ContextError, RequestError
from forwardpass.sampling.distribution import Distribution

ROWS = 128  # of logits held at a time; a multiple of the backend's tile


@dataclass(frozen=True)
class Windows:
    """How a text is read: windows of up to `length` of its own tokens, `stride` apart."""

    count: int
    length: int
    stride: int | None


@dataclass
class Scoring(Iterator[int]):
    """The scoring of a text as it goes on: an iterator over its passes, in tokens scored so far.

    `logprobs` holds one natural log a token of the text, None where it is not scored: nothing
    came before it, or it has not been reached yet.
    """

    runner: Runner
    ids: Sequence[int]
    bos: int | None
    windows: Windows
    logprobs: list[float | None] = field(init=False)
    passes: list[Pass] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.logprobs = [None] * len(self.ids)
        self._coming = self._run()

    def __next__(self) -> int:
        return next(self._coming)

    @property
    def scored(self) -> int:
        """Tokens that have a log probability."""
        return sum(logprob is not None for logprob in self.logprobs)

    @property
    def sum(self) -> float:
        """The log probability of all scored tokens together."""
        return math.fsum(logprob for logprob in self.logprobs if logprob is not None)

    @property
    def perplexity(self) -> float | None:
        """exp(-mean log probability); None where nothing is scored or the number is too large."""
        if not self.scored or -self.sum / self.scored > 700:
            return None
        return math.exp(-self.sum / self.scored)

    def bits_a_byte(self, text_bytes: int) -> float | None:
        """Bits that the scored tokens cost for each of their bytes; None where they have none."""
        return -self.sum / math.log(2) / text_bytes if text_bytes else None

    def _run(self) -> Iterator[int]:
        done = 0
        for number in range(self.windows.count):
            start = number * (self.windows.stride or 0)
            end = min(start + self.windows.length, len(self.ids))
            yield from self._window(start, max(done, start), end)
            done = end

    def _window(self, start: int, first: int, end: int) -> Iterator[int]:
        """Reads tokens start … end and scores first … end."""
        bos = [] if self.bos is None else [self.bos]
        tokens = [*bos, *self.ids[start:end]]
        cache = self.runner.backend.new_cache()
        for at in range(0, len(tokens), ROWS):
            part = tokens[at : at + ROWS]
            # The row of a token scores the one behind it.
            targets = [start - len(bos) + at + row + 1 for row in range(len(part))]
            wanted = [row for row, target in enumerate(targets) if first <= target < end]
            logits, ran = self.runner.read(cache, part, wanted or [len(part) - 1])
            self.passes.append(ran)
            for scores, row in zip(logits, wanted, strict=False):
                token = self.ids[targets[row]]
                self.logprobs[targets[row]] = Distribution(scores, scores.size).logprob(token)
            yield self.scored


def scoring(
    runner: Runner, ids: Sequence[int], *, bos: int | None = None, stride: int | None = None
) -> Scoring:
    """The scoring of a text's tokens, before its first pass. `bos` begins each window.

    Raises ContextError for a text that needs `stride` and has none, or has nothing to score;
    RequestError for a context or a stride that would leave tokens with nothing before them.
    """
    length = runner.context - (bos is not None)
    most = runner.context - 1
    if most < 1:
        raise RequestError(
            f"context = {runner.context}: leaves nothing to score: a token is scored after others",
            advice="a context of 2 tokens or more does",
        )
    if stride is not None and not 1 <= stride <= most:
        raise RequestError(
            f"stride = {stride}: wanted 1 to {most:,}, for windows of {length:,} tokens"
        )
    if not ids:
        raise ContextError("the text has no tokens")
    if len(ids) == 1 and bos is None:
        raise ContextError(
            "the text is one token, and nothing is before it: there is nothing to score",
            advice="give it more text",
        )
    if len(ids) <= length:
        return Scoring(runner, ids, bos, Windows(1, length, None))
    if stride is None:
        raise ContextError(
            f"a text of {len(ids):,} tokens, the context holds {length:,}",
            advice=f"--stride {max(1, length // 2)} reads it in windows; the scores depend on it",
        )
    count = 1 + math.ceil((len(ids) - length) / stride)
    return Scoring(runner, ids, bos, Windows(count, length, stride))
