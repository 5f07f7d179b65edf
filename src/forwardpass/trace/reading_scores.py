"""The kept scores of a step from what JSON says, checked against one another."""

from __future__ import annotations

import base64
import binascii
import math
from typing import Any

import numpy as np
import numpy.typing as npt

from forwardpass.errors import FormatError
from forwardpass.sampling.outcome import BestScores
from forwardpass.trace.entry import Entry

_NEAR = 1e-5  # sums that were made in another order, or in float32, agree to this
_REST = ("rest", "log_sum", "rest_mass")


def best_scores(entry: Entry, vocabulary: int) -> BestScores:
    """The scores, best first, and what is known of the rest.

    Raises FormatError where they are not in order, or where the sums contradict them.
    """
    if "ids_base64" in entry.members():
        found = entry.having("ids_base64", "scores_base64", *_REST)
        ids = _packed(found["ids_base64"], "<i4", vocabulary).astype(np.int64)
        scores = _packed(found["scores_base64"], "<f4", vocabulary).astype(np.float32)
        if ids.size and not 0 <= int(ids.min()) <= int(ids.max()) < vocabulary:
            raise FormatError(f"{entry.where}: wanted token ids from 0 to {vocabulary - 1:,}")
        if not np.isfinite(scores).all():
            raise FormatError(f"{entry.where}: a score that is not finite")
    else:
        found = entry.having("ids", "scores", *_REST)
        ids, scores = found["ids"].ids(vocabulary), found["scores"].floats()
    if not 0 < ids.size == scores.size <= vocabulary:
        raise FormatError(f"{entry.where}: {ids.size:,} token ids, {scores.size:,} scores")
    best = BestScores(
        ids,
        scores,
        vocabulary,
        found["rest"].whole(0, vocabulary - ids.size),
        found["log_sum"].real(0, math.log(vocabulary) + _NEAR),
        found["rest_mass"].real(0, 1),
    )
    _check_order(best, entry)
    _check_sums(best, entry)
    return best


def _packed(entry: Entry, kind: str, vocabulary: int) -> npt.NDArray[Any]:
    """Four bytes a value, at most one for each token."""
    text = entry.text()
    if len(text) > 4 * -(-4 * vocabulary // 3):
        raise FormatError(f"{entry.where}: {len(text):,} characters, too many for {vocabulary:,}")
    try:
        data = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise FormatError(f"{entry.where}: this is not base64") from None
    if len(data) % 4:
        raise FormatError(f"{entry.where}: {len(data):,} bytes: wanted 4 for each value")
    return np.frombuffer(data, dtype=kind)


def _check_order(best: BestScores, entry: Entry) -> None:
    if np.unique(best.ids).size != best.ids.size:
        raise FormatError(f"{entry.where}: a token id is given twice")
    falling = np.diff(best.scores.astype(np.float64))
    if (falling > 0).any() or ((falling == 0) & (np.diff(best.ids) < 0)).any():
        raise FormatError(f"{entry.where}: wanted the best scores first, equals by id")


def _check_sums(best: BestScores, entry: Entry) -> None:
    """That the kept scores and the rest make up log_sum, and the rest can have its mass."""
    scores = best.scores.astype(np.float64) - float(best.scores[0])
    total = math.exp(best.log_sum)
    kept, rest = float(np.exp(scores).sum()), best.rest_mass * total
    if abs(kept + rest - total) > _NEAR * total:
        raise FormatError(f"{entry.where}: the scores and rest_mass do not add up to log_sum")
    if rest > best.rest * math.exp(scores[-1]) + _NEAR * total:
        raise FormatError(f"{entry.where}: rest_mass is more than {best.rest:,} scores can have")
