"""DRY ("don't repeat yourself"): tokens that would carry on a repeat are pushed down.

Source: its author's description, oobabooga/textgen#5677, and llama.cpp, src/llama-sampler.cpp,
llama_sampler_dry_apply. There a breaker may also be several tokens in a row; ours is a set of
single tokens, found by text/breakers.py.
"""

from __future__ import annotations

import math
from collections.abc import Collection

import numpy as np

from forwardpass.sampling.stages import Ids, IdSequence, Scores, counted

_STEEPEST = 80.0  # ln of the largest penalty over the multiplier


def repeats(tokens: IdSequence, breakers: Collection[int]) -> dict[int, int]:
    """For each token that followed an earlier copy of the end of `tokens`: the longest such copy.

    Copies never reach over a token of `breakers`, and no breaker is among the tokens found.
    """
    row = np.asarray(tokens, dtype=np.int64)
    distinct, names = np.unique(row, return_inverse=True)
    longest = np.zeros(distinct.size, dtype=np.int64)
    ends: Ids = np.arange(max(row.size - 1, 0))  # an earlier copy ends here; a token followed it
    for length in range(1, row.size):
        first = row.size - length
        if int(row[first]) in breakers:
            break
        ends = ends[ends >= length - 1]
        ends = ends[names[ends - (length - 1)] == names[first]]
        if ends.size == 0:
            break
        longest[names[ends + 1]] = length
    return {
        int(token): int(length)
        for token, length in zip(distinct, longest, strict=True)
        if length and int(token) not in breakers
    }


def dry(
    scores: Scores,
    tokens: IdSequence,
    breakers: Collection[int],
    *,
    multiplier: float,
    base: float,
    allowed_length: int,
) -> Scores:
    """Scores less multiplier × base^(L - allowed_length) for each token that would extend a repeat
    of L ≥ allowed_length tokens.

    `tokens` is what to look for repeats in, prompt and output. The power stops at e^80, far beyond
    any score. Raises ComputeError for a token outside the vocabulary.
    """
    counted(tokens, scores.size)  # refuses ids that have no score
    changed = scores.copy()
    steepest = _STEEPEST / math.log(base) if base > 1 else math.inf
    for token, length in repeats(tokens, breakers).items():
        if length >= allowed_length:
            changed[token] -= multiplier * base ** min(length - allowed_length, steepest)
    return changed
