"""The choice of a token by the C++ part, for float32 rows: the same outcome as the plain chain's.

Where the C++ part cannot tell (csrc/sampler.h says when), the request asks for what it has not
(typical sampling), or anything is out of order, there is no answer, and the plain chain decides or
raises. Bias, penalties and DRY change few scores, so these alone are computed here, by the plain
chain's own functions.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from forwardpass.errors import ForwardpassError
from forwardpass.sampling.changed_scores import ChangedScores
from forwardpass.sampling.outcome import BestScores, Left, Outcome, Ranked
from forwardpass.sampling.rules import ADJUSTING
from forwardpass.sampling.settings import SamplingSettings
from forwardpass.sampling.stages import IdSequence, Mask, Scores

if TYPE_CHECKING:
    from forwardpass import _native

_POSITIONS = 2**64


class NativeSampler:
    """Takes tokens under one request's settings, for one thread at a time."""

    def __init__(
        self,
        extension: type[_native.Sampler],
        settings: SamplingSettings,
        choice: int,
        breakers: frozenset[int],
        kept: int,
    ) -> None:
        rules = settings.rules
        values = ((name, *_value(settings, name)) for name in rules.order if name not in ADJUSTING)
        self._settings = settings
        self._changed = ChangedScores(settings, breakers)
        self._inner = extension(
            list(values),
            settings.temperature.value,
            rules.exact_k,
            rules.of_what_is_left,
            settings.xtc_threshold.value,
            settings.seed.value or 0,
            choice,
            kept,
        )

    @property
    def decided(self) -> tuple[int, int, int]:
        """How many tokens float32 sums decided, float64 sums did, and were left to the chain."""
        return self._inner.decided

    def pick(
        self,
        scores: Scores,
        prompt: IdSequence,
        output: IdSequence,
        position: int,
        mask: Mask | None,
        wanted: Sequence[int],
    ) -> Outcome | None:
        """What `chain.choose(…).outcome(wanted)` gives; None where that has to be asked."""
        if not (0 <= position < _POSITIONS and _all_in(wanted, scores.size)):
            return None
        bits = None if mask is None else _mask(mask, scores.size)
        if bits is None and mask is not None:
            return None
        ids = values = None
        if self._changed.acts:
            try:
                found = self._changed.of(scores, prompt, output)
            except ForwardpassError:
                return None
            if found is None:
                return None
            ids, values = found
        asked = np.array(wanted, dtype=np.int64) if wanted else None
        answer = self._inner.pick(scores, position, ids, values, bits, asked)
        return None if answer is None else self._outcome(answer, scores.size, mask, wanted)

    def _outcome(
        self, answer: _native.Picked, size: int, mask: Mask | None, wanted: Sequence[int]
    ) -> Outcome:
        drawn, ids, scores, rest, left, after, logprobs = answer
        best_ids, best = np.frombuffer(ids, np.int64), np.frombuffer(scores, np.float32)
        return Outcome(
            *drawn,
            BestScores(best_ids, best, size, *rest),
            tuple(map(Left._make, left)),
            mask is not None,
            tuple(map(Ranked._make, after)),
            tuple((t, *both) for t, both in zip(wanted, logprobs, strict=True)) if wanted else (),
            self._settings,
        )


def native_sampler(
    settings: SamplingSettings, choice: int, breakers: frozenset[int], kept: int
) -> NativeSampler | None:
    """The C++ part's sampler; None where it is not built or has not what the settings need."""
    extension = _extension()
    drawn = settings.greedy or settings.seed.value is not None
    typical = settings.typical_p.value != 1 and not settings.greedy
    if extension is None or not drawn or typical or not 0 <= choice < _POSITIONS or kept < 0:
        return None
    return NativeSampler(extension, settings, choice, breakers, kept)


@cache
def _extension() -> type[_native.Sampler] | None:
    try:
        from forwardpass import _native
    except ImportError:
        return None
    return _native.Sampler


def _value(settings: SamplingSettings, stage: str) -> tuple[float, bool]:
    """A stage's value, and whether it acts; when the best score wins none does."""
    return float(settings.switch(stage).value), settings.acts(stage) and not settings.greedy


def _all_in(ids: Sequence[int], size: int) -> bool:
    return not ids or (min(ids) >= 0 and max(ids) < size)


def _mask(mask: Mask, size: int) -> npt.NDArray[np.uint8] | npt.NDArray[np.uint32] | None:
    """The mask as the C++ part reads it; None for what the plain chain refuses or copies."""
    if not (mask.flags.c_contiguous and mask.flags.aligned):
        return None
    if mask.dtype == np.bool_ and mask.shape == (size,):
        return mask.view(np.uint8)
    words = mask.dtype == np.uint32 and mask.shape == (-(-size // 32),)
    return mask.view(np.uint32) if words else None
