"""The rows of a native pass, its chunks, and the logits of each part of it."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from forwardpass import _native
from forwardpass.graph.references import F32, Ids

WANTED_ROWS = 64  # of a chunk: a row of logits is long


@dataclass(frozen=True)
class PassRows:
    """The rows of a pass, in the order of their sequences; `wanted` are ascending, each once.

    `prompt`: they are a prompt's, or else generated.
    """

    tokens: Ids
    positions: Ids
    sequences: npt.NDArray[np.int32]
    caches: list[_native.Cache]
    wanted: Ids
    prompt: bool

    def chunks(self, most: int) -> list[slice]:
        """The pass in chunks of no more than `most` rows, of which not too many are wanted."""
        found, start = [], 0
        while start < len(self.tokens):
            stop = min(start + most, len(self.tokens))
            behind = bisect_left(self.wanted, start) + WANTED_ROWS
            if behind < len(self.wanted):
                stop = min(stop, int(self.wanted[behind]))
            found.append(slice(start, stop))
            start = stop
        return found

    def by_part(
        self, lengths: Sequence[int], asked: Sequence[Sequence[int]], logits: F32
    ) -> list[F32]:
        """The logits of each part's wanted rows, in the order in which they were asked for.

        `lengths`: rows of each part; `asked`: which of them are wanted; `logits`: r v.
        """
        if len(lengths) == 1 and asked[0] == self.wanted.tolist():
            return [logits]
        found, start = [], 0
        for length, wanted in zip(lengths, asked, strict=True):
            numbers = start + np.array(wanted, np.int64)
            found.append(logits[np.searchsorted(self.wanted, numbers)])
            start += length
        return found
