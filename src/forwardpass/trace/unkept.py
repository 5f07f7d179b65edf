"""What is known of the scores that a step did not keep: how many, how high at most, how much mass.

Their mass at temperature 1 is recorded. At another it lies between two extremes: few scores, all
as high as they can be, and all of them equally high. Every bound errs on the safe side by more
than float32 could.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from forwardpass.errors import RequestError
from forwardpass.sampling.adjusting import History, adjusted
from forwardpass.sampling.outcome import BestScores
from forwardpass.sampling.rules import ADJUSTING, SWITCHES
from forwardpass.sampling.settings import SamplingSettings
from forwardpass.sampling.stages import Ids, Scores

# How far recorded masses and sums that are made again may be off: of themselves, and of 1.
NEAR, SLACK = 1e-6, 1e-7


class NotKept(Exception):
    """The kept scores do not suffice; the reason, in words."""


@dataclass(frozen=True)
class Unkept:
    """The scores of a step that were not kept.

    `count` is how many. None is above `low`, but for those that bias and penalties change: of
    these `changed` holds the most that each can have come to. `best` is the model's best score;
    the log of Σ exp(score - best) over those that nothing changes is from `least` to `most`.
    """

    count: int
    low: float
    changed: npt.NDArray[np.float64]
    best: float
    least: float
    most: float

    @property
    def highest(self) -> float:
        """No unkept score is above this one."""
        return max(self.low, float(self.changed.max(initial=-math.inf)))

    def weight(self, top: float, temperature: float) -> tuple[float, float]:
        """Bounds of Σ exp((score - top) / temperature); `top` is at least the highest of them.

        Source: for fixed Σ e^x over count x ≤ low, Σ e^(x/T) is convex in the e^x where T < 1 and
        concave where T > 1, so one extreme lies where all are equal (Jensen) and the other where
        as many as can are at `low` and no others have any mass.
        """
        bounds = [
            sorted((self._gathered(log, top, temperature), self._even(log, top, temperature)))
            for log in (self.least, self.most)
        ]
        with np.errstate(over="ignore"):
            raised = float(np.exp((self.changed - top) / temperature).sum())
        return bounds[0][0], bounds[1][1] + raised

    def _gathered(self, log_mass: float, top: float, temperature: float) -> float:
        """As many scores at `low` as have the mass."""
        return math.exp(log_mass - (self.low - self.best) + (self.low - top) / temperature)

    def _even(self, log_mass: float, top: float, temperature: float) -> float:
        """All scores the same."""
        log_count = math.log(self.count)
        score = self.best + (log_mass - log_count)
        return math.exp(log_count + (score - top) / temperature)


def split(
    best: BestScores, settings: SamplingSettings, history: History
) -> tuple[Ids, Scores, int, Unkept]:
    """Kept ids and their adjusted scores in order, how many of these surely precede every unkept
    one, and what is known of the unkept.

    Raises NotKept where bias and penalties make a score infinite that may not be there.
    """
    row = np.full(best.vocabulary, -np.inf, dtype=best.scores.dtype)
    row[best.ids] = best.scores
    *_, (_, row) = adjusted(row, settings, history, None)
    scores: Scores = row[best.ids]
    order = np.lexsort((best.ids, -scores))
    unkept = _unkept(best, _changed(best, settings, history))
    highest, low = unkept.highest, unkept.low
    sure = scores > highest
    if highest == low and not (unkept.changed == low).any():
        # The lower ids of equal scores are kept, so those precede the others.
        sure |= (scores == low) & (best.scores == low)
    count = int(np.argmin(np.append(sure[order], False)))
    return best.ids[order], scores[order], count, unkept


def _unkept(best: BestScores, changed: npt.NDArray[np.float64]) -> Unkept:
    top, low = float(best.scores[0]), float(best.scores[-1])
    total = math.exp(best.log_sum)
    # All of them at `low`, those that are changed taken out.
    most = math.log(best.rest) + (low - top)
    mass = best.rest_mass * total
    least = mass * (1 - NEAR) - SLACK * total - changed.size * math.exp(low - top)
    return Unkept(
        best.rest,
        low,
        changed,
        top,
        math.log(least) if least > 0 else -math.inf,
        min(most, math.log(mass * (1 + NEAR) + SLACK * total)),
    )


def _changed(
    best: BestScores, settings: SamplingSettings, history: History
) -> npt.NDArray[np.float64]:
    """The most that each unkept score can be which bias or penalties change.

    What these do to a score never falls as the score rises, and leaves at most two values as they
    are if it is not nothing: three tell whom it touches.
    """
    acting = (
        settings.acts(name)
        for name in settings.rules.order
        if name in ADJUSTING and name in SWITCHES
    )
    if not any(acting):
        return np.zeros(0)
    low = float(best.scores[-1])
    probes = [np.full(best.vocabulary, low - below, dtype=np.float64) for below in (0, 1, 2)]
    try:
        after = [[*adjusted(probe, settings, history, None)][-1][1] for probe in probes]
    except RequestError as error:
        raise NotKept(f"{error.fact}, if it is low enough: it was not kept") from None
    pairs = zip(after, probes, strict=True)
    touched = np.logical_or.reduce([row != probe for row, probe in pairs])
    touched[best.ids] = False
    found: npt.NDArray[np.float64] = after[0][touched].astype(np.float64)
    return found
