"""The stages that change single scores: bias, penalties and mask, and what these look back at."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from forwardpass.sampling import stages
from forwardpass.sampling.dry import dry
from forwardpass.sampling.ranges import EVERYTHING
from forwardpass.sampling.rules import ADJUSTING
from forwardpass.sampling.settings import SamplingSettings
from forwardpass.sampling.stages import Ids, IdSequence, Mask, Scores


@dataclass(frozen=True, slots=True)
class History:
    """The tokens before this one, the prompt's and the answer's so far, and the tokens at which a
    repeat ends (DRY's sequence breakers)."""

    prompt: IdSequence = ()
    output: IdSequence = ()
    breakers: frozenset[int] = frozenset()

    @property
    def seen(self) -> Ids:
        """Prompt and output in one."""
        parts = (self.prompt, self.output)
        return np.concatenate([np.asarray(part, dtype=np.int64) for part in parts])


def adjusted(
    scores: Scores, settings: SamplingSettings, history: History, mask: Mask | None
) -> Iterator[tuple[str, Scores]]:
    """The scores after each stage before the temperature; the same array where it is off.

    In float64, so that a penalty is not rounded to the last bit of a large float32 score.
    """
    row = scores
    for name in settings.rules.order:
        if name == "mask":
            yield name, row if mask is None else stages.grammar_mask(row, mask)
        elif name in ADJUSTING:
            if settings.acts(name):
                row = STAGES[name](row.astype(np.float64, copy=False), settings, history)
            yield name, row


def _last(tokens: IdSequence, count: int) -> Ids:
    row = np.asarray(tokens, dtype=np.int64)
    return row if count == EVERYTHING else row[max(row.size - count, 0) :]


def _repetition(row: Scores, settings: SamplingSettings, history: History) -> Scores:
    seen = _last(history.seen, settings.penalty_last_n.value)
    return stages.repetition_penalty(row, seen, settings.repetition_penalty.value)


def _counted(settings: SamplingSettings, history: History) -> Ids:
    """What frequency and presence look at: the answer, under llama.cpp's rules the prompt too."""
    tokens = history.seen if settings.rules.over_prompt else history.output
    return _last(tokens, settings.penalty_last_n.value)


def _dry(row: Scores, settings: SamplingSettings, history: History) -> Scores:
    return dry(
        row,
        _last(history.seen, settings.dry_penalty_last_n.value),
        history.breakers,
        multiplier=settings.dry_multiplier.value,
        base=settings.dry_base.value,
        allowed_length=settings.dry_allowed_length.value,
    )


STAGES: Mapping[str, Callable[[Scores, SamplingSettings, History], Scores]] = {
    "logit_bias": lambda row, settings, _: stages.bias(row, settings.logit_bias.value),
    "repetition_penalty": _repetition,
    "frequency_penalty": lambda row, settings, history: stages.frequency_penalty(
        row, _counted(settings, history), settings.frequency_penalty.value
    ),
    "presence_penalty": lambda row, settings, history: stages.presence_penalty(
        row, _counted(settings, history), settings.presence_penalty.value
    ),
    "dry": _dry,
}
