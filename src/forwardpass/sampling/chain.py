"""One token from a row of scores: the stages in order, and what each of them left.

The plain path: pure functions of NumPy arrays, every array kept. rules.py has the order. A stage
whose setting is neutral is not computed. At temperature 0 the best score after bias, penalties
and mask wins, with no division and no draw.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from forwardpass.errors import ComputeError, RequestError
from forwardpass.sampling import stages, truncations
from forwardpass.sampling.adjusting import History, adjusted
from forwardpass.sampling.choice import Adjusted, Choice, Kept
from forwardpass.sampling.distribution import Distribution
from forwardpass.sampling.random import XTC, uniform
from forwardpass.sampling.rules import ADJUSTING
from forwardpass.sampling.settings import SamplingSettings
from forwardpass.sampling.stages import Ids, Mask, Probabilities, Scores


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
    steps = tuple(
        Adjusted(name, row) for name, row in adjusted(scores, settings, history or History(), mask)
    )
    final = steps[-1].scores
    if np.isneginf(final.max()):
        emptied = next(step.name for step in steps if np.isneginf(step.scores.max()))
        raise ComputeError(f"{emptied}: none of {scores.size:,} tokens is left")
    model = Distribution(scores, scores.size)
    if settings.greedy:
        token = stages.greedy(final)
        only = Distribution(np.zeros(1), scores.size, np.array([token]))
        return Choice(token, None, model, only, settings, steps, ())
    seed = seeded(settings)
    order = stages.best_first(final)
    order = order[final[order] > -np.inf]
    numbered = uniform(seed, choice, position, XTC)
    kept = tuple(_Narrowing(settings, order, final[order], numbered).steps())
    left = kept[-1]
    random = uniform(seed, choice, position)
    token = int(left.ids[truncations.draw(stages.rescale(left.probabilities), random)])
    rising = np.argsort(left.ids)
    sampled = Distribution(left.scores[rising], scores.size, left.ids[rising])
    return Choice(token, random, model, sampled, settings, steps, kept)


def seeded(settings: SamplingSettings) -> int:
    """The seed; RequestError where there is none, which a draw cannot do without."""
    if settings.seed.value is None:
        raise RequestError(
            f"temperature {settings.temperature.value:g} draws at random, and no seed is set"
        )
    return settings.seed.value


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


@dataclass
class _Narrowing:
    """The tokens left, best first, with their adjusted scores.

    `tempered` are the scores below the best one, over the temperature once that has come;
    `probabilities` those of the distribution that they make, of which truncations leave a part.
    """

    settings: SamplingSettings
    ids: Ids
    scores: Scores
    xtc: float  # the number that says whether XTC acts
    tempered: Probabilities = field(init=False)
    probabilities: Probabilities = field(init=False)

    def steps(self) -> Iterator[Kept]:
        """What the temperature and each truncation left, in the order of the rules."""
        names = [name for name in self.settings.rules.order if name not in ADJUSTING]
        temperature = self.settings.temperature.value
        self._temper(temperature if names[0] == "temperature" else 1.0)
        for name in names:
            value = self.settings.switch(name).value
            if name == "temperature" and name != names[0]:
                self._temper(temperature)
            elif name != "temperature" and self.settings.acts(name):
                self._keep(self._survivors(name, value))
            can_come = slice(self._reachable())
            yield Kept(
                name, self.ids[can_come], self.tempered[can_come], self.probabilities[can_come]
            )

    def _temper(self, value: float) -> None:
        self.tempered = stages.temperature(self.scores, value)
        self.probabilities = stages.softmax(self.tempered)

    def _reachable(self) -> int:
        """How many can come. The others are too faint at this temperature, and count only for
        stages that look at scores, which a temperature must not change."""
        return int(np.count_nonzero(self.tempered >= stages.FAINTEST))

    def _keep(self, places: Ids) -> None:
        self.ids, self.scores = self.ids[places], self.scores[places]
        self.tempered, self.probabilities = self.tempered[places], self.probabilities[places]

    def _survivors(self, name: str, value: float) -> Ids:
        rules = self.settings.rules
        if name == "top_n_sigma":
            return truncations.top_n_sigma(self.scores, value)
        if name == "top_k":
            return truncations.top_k(self.scores, int(value), rules.exact_k)
        held = self.probabilities[: self._reachable()]
        rescaled = stages.rescale(held)
        if name == "typical_p":
            return truncations.typical_p(rescaled, value, rules.exact_k)
        if name == "top_p":
            return truncations.top_p(rescaled if rules.of_what_is_left else held, value)
        if name == "min_p":
            return truncations.min_p(held, value)
        acts = self.xtc < self.settings.xtc_probability.value
        threshold = self.settings.xtc_threshold.value
        return truncations.xtc(rescaled, threshold) if acts else np.arange(held.size)
