"""One token from a row of scores: the stages in order, and what each of them left.

Order: bias → penalties → mask → temperature → softmax → top-k → top-p → min-p → rescale →
draw. A stage whose setting is neutral is not computed. At temperature 0 the best score after
bias, penalties and mask wins, with no division and no draw.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from forwardpass.errors import ComputeError, RequestError
from forwardpass.sampling import stages
from forwardpass.sampling.choice import Adjusted, Choice, Kept
from forwardpass.sampling.distribution import Distribution
from forwardpass.sampling.random import uniform
from forwardpass.sampling.settings import SamplingSettings
from forwardpass.sampling.stages import Ids, IdSequence, Mask, Probabilities, Scores


@dataclass(frozen=True, slots=True)
class History:
    """The tokens before this one: the prompt's, and the answer's so far."""

    prompt: IdSequence = ()
    output: IdSequence = ()

    @property
    def seen(self) -> Ids:
        """Prompt and output in one."""
        parts = (self.prompt, self.output)
        return np.concatenate([np.asarray(part, dtype=np.int64) for part in parts])


# Each stage is named as its setting, and left out at the value that changes nothing.
ADJUSTMENTS: tuple[tuple[str, object, Callable[[Scores, History, Any], Scores]], ...] = (
    ("logit_bias", (), lambda row, _, biases: stages.bias(row, biases)),
    ("repetition_penalty", 1, lambda row, h, x: stages.repetition_penalty(row, h.seen, x)),
    ("frequency_penalty", 0, lambda row, h, x: stages.frequency_penalty(row, h.output, x)),
    ("presence_penalty", 0, lambda row, h, x: stages.presence_penalty(row, h.output, x)),
)
TRUNCATIONS: tuple[tuple[str, object, Callable[[Probabilities, Any], Ids]], ...] = (
    ("top_k", 0, stages.top_k),
    ("top_p", 1, stages.top_p),
    ("min_p", 0, stages.min_p),
)


def choose(
    scores: Scores,
    settings: SamplingSettings,
    *,
    history: History | None = None,
    choice: int = 0,
    position: int,
    mask: Mask | None = None,
) -> Choice:
    """The token that `settings` take from `scores`, with both distributions and every stage.

    `scores` are one row of a model's float32 or float64 logits, axis v. -inf is a token that
    cannot come. The row is kept, not copied: nobody may write to it while the Choice is in use.
    `history` is what the penalties look at; `choice` and `position` (of the token in the answer,
    from 0) key the draw together with the seed; `mask` says which tokens a grammar allows.

    Raises ComputeError, naming the first id, where a score is NaN or +inf (no probability
    exists for it), and, naming the stage, where no token is left; RequestError for a bias
    outside the vocabulary or a draw without a seed.
    """
    checked_scores(scores)
    adjusted = tuple(_adjustments(scores, settings, history or History(), mask))
    final = adjusted[-1].scores
    if mask is not None and np.isneginf(final.max()):
        raise ComputeError(f"mask: none of {scores.size:,} tokens is left")
    model = Distribution(scores, scores.size)
    if settings.greedy:
        token = stages.greedy(final)
        only = Distribution(np.zeros(1), scores.size, np.array([token]))
        return Choice(token, None, model, only, settings, adjusted, ())
    if settings.seed.value is None:
        raise RequestError(
            f"temperature {settings.temperature.value:g} draws at random, and no seed is set"
        )
    tempered = stages.temperature(final, settings.temperature.value)
    kept = tuple(_truncations(tempered, settings))
    left = kept[-1]
    random = uniform(settings.seed.value, choice, position)
    place = stages.draw(stages.rescale(left.probabilities), random)
    token = place if left.ids is None else int(left.ids[place])
    narrowed = tempered if left.ids is None else tempered[left.ids]
    sampled = Distribution(narrowed, scores.size, left.ids)
    return Choice(token, random, model, sampled, settings, adjusted, kept)


def checked_scores(scores: Scores) -> None:
    """Refuses what is no row of scores, and rows without a distribution."""
    if scores.ndim != 1 or scores.size == 0 or scores.dtype not in (np.float32, np.float64):
        raise ComputeError(
            f"scores: {scores.dtype} of shape {scores.shape}: wanted one row of float32 or float64"
        )
    # NumPy's argmax stops at the first NaN, so one look finds NaN, +inf and nothing-but--inf.
    first = int(scores.argmax())
    best = float(scores[first])
    if np.isneginf(best):
        raise ComputeError(f"scores: all {scores.size:,} are -inf, so no token can come")
    if not np.isfinite(best):
        name = "NaN" if np.isnan(best) else "+inf"
        raise ComputeError(f"scores: token id {first} of {scores.size:,} is {name}")


def _adjustments(
    scores: Scores, settings: SamplingSettings, history: History, mask: Mask | None
) -> Iterator[Adjusted]:
    """The scores after each stage before the temperature; the same array where it is neutral.

    In float64, so that a penalty is not rounded to the last bit of a large float32 score.
    """
    row = scores
    for name, neutral, stage in ADJUSTMENTS:
        value = getattr(settings, name).value
        if value != neutral:
            row = stage(row.astype(np.float64, copy=False), history, value)
        yield Adjusted(name, row)
    yield Adjusted("mask", row if mask is None else stages.grammar_mask(row, mask))


def _truncations(tempered: Probabilities, settings: SamplingSettings) -> Iterator[Kept]:
    """The tokens left after temperature and after each truncation, by rising id.

    What the softmax gives probability 0 (masked, or too far below for float64) is not left.
    """
    probabilities = stages.softmax(tempered)
    ids: Ids | None = None
    if np.count_nonzero(probabilities) < probabilities.size:
        ids = np.flatnonzero(probabilities)
        probabilities = probabilities[ids]
    yield Kept("temperature", ids, probabilities)
    for name, neutral, stage in TRUNCATIONS:
        value = getattr(settings, name).value
        if value != neutral:
            places = stage(probabilities, value)
            probabilities = probabilities[places]
            ids = places if ids is None else ids[places]
        yield Kept(name, ids, probabilities)
