"""DRY ("don't repeat yourself"): tokens that would carry on a repeat are pushed down.

Source: oobabooga/text-generation-webui#5677, its author's description, and llama.cpp,
src/llama-sampler.cpp. Where llama.cpp matches a breaker that spans several tokens, ours is a set
of tokens: see `text/` for how it is found.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from forwardpass.sampling.stages import Ids, IdSequence, Scores

_STEEPEST = 80.0  # ln of the largest penalty over the multiplier: e^80 is far beyond any score


def repeats(tokens: IdSequence, breakers: Collection[int]) -> dict[int, int]:
    """For each token that followed an earlier copy of the end of `tokens`: the longest such copy.

    Copies never reach over a token of `breakers`, and no breaker is among the tokens found.
    """
    row = np.asarray(tokens, dtype=np.int64)
    found: dict[int, int] = {}
    if row.size < 2:
        return found
    ends: Ids = np.arange(row.size - 1)  # an earlier copy ends here, and the next token followed it
    for length in range(1, row.size):
        last = int(row[row.size - length])
        if last in breakers:
            break
        ends = ends[ends >= length - 1]
        ends = ends[row[ends - (length - 1)] == last]
        if ends.size == 0:
            break
        for token in np.unique(row[ends + 1]):
            if int(token) not in breakers:
                found[int(token)] = length
    return found


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

    `tokens` is what to look for repeats in, prompt and output.
    """
    changed = scores.copy()
    steepest = _STEEPEST / np.log(base) if base > 1 else np.inf
    for token, length in repeats(tokens, breakers).items():
        if length >= allowed_length and token < scores.size:
            changed[token] -= multiplier * base ** min(length - allowed_length, steepest)
    return changed
