"""The stages that act on a row of scores, each a pure function of NumPy arrays.

    bias → repetition, frequency, presence → DRY (dry.py) → mask → temperature → softmax
         → top-n-sigma → top-k → typical → top-p → min-p → XTC → rescale → draw

Those before the truncations (truncations.py) are here. Up to the mask a stage takes scores and
gives scores, of the same type, axis v. Temperature and softmax compute in float64. No stage
writes to what it is given. An entry of -inf is a token that cannot come.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from forwardpass.errors import ComputeError, RequestError

Scores = npt.NDArray[np.floating[Any]]
Probabilities = npt.NDArray[np.float64]
Ids = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_] | npt.NDArray[np.uint32]
IdSequence = Sequence[int] | npt.NDArray[np.integer[Any]]

# A probability further below the best one's than e^-700 (10^-304) is taken for 0: near the end of
# float64's range they lose their digits, and who is left would hang on the last of them.
FAINTEST = -700.0


def bias(scores: Scores, biases: Sequence[tuple[int, float]]) -> Scores:
    """Scores with b added to each token id of `biases`, pairs (id, b) of distinct ids.

    Raises RequestError for an id outside the vocabulary. Source: `logit_bias` of the OpenAI
    API description, chat completions.
    """
    changed = scores.copy()
    for token, value in biases:
        if not 0 <= token < scores.size:
            raise RequestError(
                f"logit_bias: token id {token} is outside the vocabulary of {scores.size:,}"
            )
        changed[token] += value
    return changed


def repetition_penalty(scores: Scores, seen: IdSequence, penalty: float) -> Scores:
    """Scores of every token in `seen` pushed down (penalty > 1): a positive score is divided by
    the penalty, a negative one multiplied, once however often the token occurred.

    `seen` is prompt and output. Source: arXiv:1909.05858 section 4.1; the rule for negative
    scores as in transformers 5.0, generation/logits_process.py, class
    RepetitionPenaltyLogitsProcessor.
    """
    tokens, _ = counted(seen, scores.size)
    changed = scores.copy()
    old = scores[tokens]
    try:
        with np.errstate(over="raise"):
            changed[tokens] = np.where(old > 0, old / penalty, old * penalty)
    except FloatingPointError:
        raise RequestError(f"repetition_penalty = {penalty!r} makes a score infinite") from None
    return changed


def frequency_penalty(scores: Scores, output: IdSequence, penalty: float) -> Scores:
    """Scores less penalty × how often the token occurs in `output` (the answer so far, without
    the prompt).

    Source: `frequency_penalty` of the OpenAI API description, chat completions.
    """
    tokens, counts = counted(output, scores.size)
    changed = scores.copy()
    changed[tokens] -= (penalty * counts).astype(scores.dtype)
    return changed


def presence_penalty(scores: Scores, output: IdSequence, penalty: float) -> Scores:
    """Scores less `penalty` for every token that occurs in `output` at all.

    Source: `presence_penalty` of the OpenAI API description, chat completions.
    """
    tokens, _ = counted(output, scores.size)
    changed = scores.copy()
    changed[tokens] -= penalty
    return changed


def grammar_mask(scores: Scores, allowed: Mask) -> Scores:
    """Scores with -inf for every token that is not allowed.

    `allowed` is one bool a token, or uint32 words with token i at bit i % 32 of word i // 32
    (bits beyond the vocabulary are not read). Raises ComputeError for another length or type.
    """
    return np.where(_unpacked(allowed, scores.size), scores, scores.dtype.type(-np.inf))


def greedy(scores: Scores) -> int:
    """The id of the best score, the lowest of equals: what temperature 0 means."""
    return int(scores.argmax())


def temperature(scores: Scores, value: float) -> Probabilities:
    """(score - best) / temperature in float64, for a temperature above 0.

    Taking the best off first changes no probability and keeps a small temperature from
    overflowing: what falls below float64 becomes -inf, probability 0.

    Source: arXiv:1503.02531 section 2.
    """
    shifted: Probabilities = np.subtract(scores, scores.max(), dtype=np.float64)
    with np.errstate(over="ignore"):
        shifted /= value
    return shifted


def softmax(scores: Scores) -> Probabilities:
    """exp(score - best) over their sum, in float64; the sum is NumPy's pairwise one.

    At least one score must be above -inf.
    """
    weights: Probabilities = np.subtract(scores, scores.max(), dtype=np.float64)
    np.exp(weights, out=weights)
    weights /= weights.sum()
    return weights


def rescale(probabilities: Probabilities) -> Probabilities:
    """The same probabilities over their sum, so that they add up to 1."""
    return np.divide(probabilities, float(probabilities.sum()))


def best_first(scores: Scores) -> Ids:
    """Positions in falling order of score, equals by position: a full stable sort."""
    return np.argsort(-scores, kind="stable")


def counted(tokens: IdSequence, vocabulary: int) -> tuple[Ids, Ids]:
    """Distinct token ids and how often each occurs; ComputeError outside the vocabulary."""
    distinct, counts = np.unique(np.asarray(tokens, dtype=np.int64), return_counts=True)
    if distinct.size and (distinct[0] < 0 or distinct[-1] >= vocabulary):
        outside = distinct[0] if distinct[0] < 0 else distinct[-1]
        raise ComputeError(f"token id {outside} is outside the vocabulary of {vocabulary:,}")
    return distinct, counts


def _unpacked(allowed: Mask, vocabulary: int) -> npt.NDArray[np.bool_]:
    if allowed.dtype == np.bool_ and allowed.shape == (vocabulary,):
        return allowed.astype(np.bool_, copy=False)
    words = -(-vocabulary // 32)
    if allowed.dtype == np.uint32 and allowed.shape == (words,):
        octets = allowed.astype("<u4", copy=False).view(np.uint8)
        return np.unpackbits(octets, count=vocabulary, bitorder="little").view(np.bool_)
    raise ComputeError(
        f"mask: {allowed.dtype} of shape {allowed.shape}: wanted {vocabulary} bool "
        f"or {words} uint32 for {vocabulary:,} scores"
    )
