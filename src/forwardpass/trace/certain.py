"""The token that settings take from a row of which only the best scores were kept, or why none is
certain.

Follows sampling/chain.py stage by stage. Where that knows who is left, this knows who surely is,
best first, and between which bounds the weight of all lies that may be left behind these.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from forwardpass.sampling import stages, truncations
from forwardpass.sampling.adjusting import History
from forwardpass.sampling.chain import seeded
from forwardpass.sampling.outcome import BestScores
from forwardpass.sampling.random import XTC, uniform
from forwardpass.sampling.rules import ADJUSTING
from forwardpass.sampling.settings import SamplingSettings
from forwardpass.sampling.stages import Ids, Probabilities, Scores
from forwardpass.trace.unkept import NEAR, NotKept, Unkept, split


class Certain(NamedTuple):
    """A token that is certain, bounds of its probability after the stages, and the number drawn."""

    id: int
    probability: tuple[float, float]
    random: float | None


def certain(
    best: BestScores, settings: SamplingSettings, history: History, choice: int, position: int
) -> Certain:
    """What `chain.choose` takes from the whole row, whatever the unkept scores are.

    Raises NotKept, with the reason, where it depends on them.
    """
    ids, scores, sure, unkept = split(best, settings, history)
    if not sure:
        raise NotKept("bias or penalties may make a token the best whose score was not kept")
    if settings.greedy:
        return Certain(int(ids[0]), (1.0, 1.0), None)
    seed = seeded(settings)
    rest = _Rest(scores[sure:], unkept, ids.size - sure + unkept.count)
    narrowing = _Narrowing(settings, uniform(seed, choice, position, XTC))
    left = narrowing.of(ids[:sure], scores[:sure], rest)
    return _draw(left, uniform(seed, choice, position), best.rest)


@dataclass(frozen=True)
class _Rest:
    """Who may be left behind those who surely are, all of them no likelier.

    `known` are the scores of kept tokens among them, `unkept` the others (None: there are none);
    they are `number` at most. Their weight together is from `least` to `most`. `whole`: nobody
    was taken from them yet.
    """

    known: Scores
    unkept: Unkept | None
    number: int
    least: float = 0.0
    most: float = 0.0
    whole: bool = True

    @property
    def highest(self) -> float:
        """No score of theirs is above this."""
        known = self.known.tolist() if self.known.size else [-math.inf]
        return max(*known, -math.inf if self.unkept is None else self.unkept.highest)

    def at(self, top: float, temperature: float) -> _Rest:
        """The same at a temperature; `top` is the best score of all who are left."""
        weights = np.exp(stages.temperature(np.append(self.known, top), temperature)[:-1])
        least = most = float(weights.sum())
        if self.unkept is not None:
            low, high = self.unkept.weight(top, temperature)
            least, most = least + low, most + high
        if not self.whole:
            each = math.exp(_over(self.highest - top, temperature))
            least, most = 0.0, min(most, self.number * each)
        return replace(self, least=least, most=most)


@dataclass(frozen=True)
class _Left:
    """Who is left after a stage.

    `ids` and their `scores` surely are, best first; `tempered` and `weights` of these are relative
    to the best score at the last temperature, `top`. The weight of all who were there then is
    within `all`.
    """

    ids: Ids
    scores: Scores
    tempered: Probabilities
    weights: Probabilities
    rest: _Rest
    top: float
    temperature: float
    all: tuple[float, float]

    @property
    def sum(self) -> tuple[float, float]:
        """Bounds of the weight of all who are left."""
        known = float(self.weights.sum())
        return known + self.rest.least, known + self.rest.most

    @property
    def next(self) -> float:
        """No weight of the rest is above this."""
        if not self.rest.number:
            return 0.0
        return math.exp(self._over_top(self.rest.highest))

    @property
    def reachable(self) -> _Left:
        """Without those that are too faint to come at the last temperature."""
        count = int(np.count_nonzero(self.tempered >= stages.FAINTEST))
        if count == self.ids.size and self._over_top(self.rest.highest) >= stages.FAINTEST:
            return self
        return self.only(np.arange(count))

    def _over_top(self, score: float) -> float:
        return _over(score - self.top, self.temperature)

    def only(self, places: Ids) -> _Left:
        """Those at `places`, and no others."""
        return replace(self.those(places), rest=_NOBODY)

    def first(self, sure: int, possible: int, rest: _Rest) -> _Left:
        """The first `sure`; those up to `possible`, and `rest`, may be left."""
        known = np.concatenate([self.scores[sure:possible], rest.known])
        loosened = float(self.weights[sure:possible].sum())
        changed = replace(
            rest,
            known=known,
            number=rest.number + possible - sure,
            most=rest.most + loosened,
            whole=rest.whole and sure == possible,
        )
        return replace(self.those(np.arange(sure)), rest=changed)

    def those(self, places: Ids) -> _Left:
        return replace(
            self,
            ids=self.ids[places],
            scores=self.scores[places],
            tempered=self.tempered[places],
            weights=self.weights[places],
        )


_NOBODY = _Rest(np.zeros(0), None, 0)


@dataclass(frozen=True)
class _Narrowing:
    """The stages from the temperature on. `xtc` is the number that says whether XTC acts."""

    settings: SamplingSettings
    xtc: float

    def of(self, ids: Ids, scores: Scores, rest: _Rest) -> _Left:
        """Who is left after the last stage."""
        names = [name for name in self.settings.rules.order if name not in ADJUSTING]
        temperature = self.settings.temperature.value
        first = temperature if names[0] == "temperature" else 1.0
        left = _tempered(ids, scores, rest, first)
        for name in names:
            value = self.settings.switch(name).value
            if name == "temperature" and name != names[0]:
                left = _tempered(left.ids, left.scores, left.rest, temperature)
            elif name != "temperature" and self.settings.acts(name):
                left = self._after(name, value, left)
        return left

    def _after(self, name: str, value: float, left: _Left) -> _Left:
        rules = self.settings.rules
        if name == "top_k":
            return _top_k(left, int(value), rules.exact_k)
        if name == "top_n_sigma":
            return _top_n_sigma(left, value)
        left = left.reachable
        if name == "top_p":
            return _top_p(left, value, left.sum if rules.of_what_is_left else left.all)
        if name == "min_p":
            return _min_p(left, value)
        if name == "xtc":
            acts = self.xtc < value
            return _xtc(left, self.settings.xtc_threshold.value) if acts else left
        return _typical(left, value, rules.exact_k)


def _tempered(ids: Ids, scores: Scores, rest: _Rest, temperature: float) -> _Left:
    tempered = stages.temperature(scores, temperature)
    top = float(scores[0])
    rest = rest.at(top, temperature)
    weights = np.exp(tempered)
    known = float(weights.sum())
    everyone = known + rest.least, known + rest.most
    return _Left(ids, scores, tempered, weights, rest, top, temperature, everyone)


def _top_k(left: _Left, k: int, exact: bool) -> _Left:
    size, rest = left.ids.size, left.rest
    if k <= size:
        last = left.scores[k - 1]
        count = k if exact else int(np.count_nonzero(left.scores >= last))
        if exact or not rest.number or count < size or last > rest.highest:
            return left.only(np.arange(count))
        return left.first(size, size, replace(rest, least=0.0, whole=False))
    if k >= size + rest.number:
        return left
    # The best of the rest stay, so at least their share of its weight does.
    least = rest.least * (k - size) / rest.number
    fewer = replace(rest, least=least, whole=False)
    if exact:
        fewer = replace(fewer, most=min(rest.most, (k - size) * left.next), number=k - size)
    return left.first(size, size, fewer)


def _top_p(left: _Left, p: float, of: tuple[float, float]) -> _Left:
    """`of`: bounds of the weight of which the share is."""
    size, rest = left.ids.size, left.rest
    low, high = (p - truncations.TOLERANCE) * of[0] * (1 - NEAR), p * of[1] * (1 + NEAR)
    mass = np.cumsum(left.weights)
    sure = 1 + int(np.searchsorted(mass, low))
    possible = 1 + int(np.searchsorted(mass, high))
    if possible <= size or not rest.number:
        return left.first(min(sure, size), min(possible, size), _NOBODY)
    # Without its last token, the smallest set that has the share has less than that.
    if sure <= size:
        known, last = float(mass[sure - 1]), float(left.weights[sure - 1])
        cut = left.first(sure, size, replace(rest, least=0.0, whole=False))
    else:
        known, last = float(mass[-1]), left.next
        least = min(rest.least, max(0.0, low - known))
        cut = left.first(size, size, replace(rest, least=least, whole=False))
    most = min(cut.rest.most, max(0.0, high + last - known))
    return replace(cut, rest=replace(cut.rest, most=most))


def _min_p(left: _Left, m: float) -> _Left:
    bound = m * float(left.weights[0])
    sure = max(1, int(np.count_nonzero(left.weights >= bound * (1 + NEAR))))
    possible = max(1, int(np.count_nonzero(left.weights >= bound * (1 - NEAR))))
    if possible < left.ids.size or left.next < bound * (1 - NEAR):
        return left.first(sure, possible, _NOBODY)
    return left.first(sure, possible, replace(left.rest, least=0.0, whole=False))


def _xtc(left: _Left, threshold: float) -> _Left:
    low, high = left.sum
    able = int(np.count_nonzero(left.weights >= (threshold + NEAR) * high))
    maybe = int(np.count_nonzero(left.weights >= (threshold - NEAR) * low))
    if able != maybe or left.next >= (threshold - NEAR) * low:
        raise NotKept("how many tokens reach the threshold of xtc hangs on scores not kept")
    return left.those(np.arange(max(able - 1, 0), left.ids.size))


def _typical(left: _Left, mass: float, exact: bool) -> _Left:
    _check_all_known(left, "typical_p")
    probabilities = stages.rescale(left.weights)
    surprise = -np.log(probabilities)
    distance = np.abs(surprise - float((probabilities * surprise).sum()))
    order = np.argsort(distance, kind="stable")
    sums, size = np.cumsum(probabilities[order]), left.ids.size
    low, high = (1 + int(np.searchsorted(sums, mass + off)) for off in (-NEAR, NEAR))
    last = distance[order[min(low, size) - 1]]
    alike = left.scores[np.abs(distance - last) <= NEAR]
    if min(low, size) != min(high, size) or (low < size and np.unique(alike).size > 1):
        raise NotKept("who is typical hangs on the last digits of probabilities")
    return left.only(truncations.typical_p(probabilities, mass, exact))


def _top_n_sigma(left: _Left, n: float) -> _Left:
    _check_all_known(left, "top_n_sigma")
    narrow, wide = (truncations.top_n_sigma(left.scores, n * by) for by in (1 - NEAR, 1 + NEAR))
    if narrow.size != wide.size:
        raise NotKept("who is within top_n_sigma hangs on the last digits of scores")
    return left.only(narrow)


def _check_all_known(left: _Left, stage: str) -> None:
    if left.rest.number:
        raise NotKept(f"{stage} looks at every score that is left, and some were not kept")


def _draw(left: _Left, random: float, unkept: int) -> Certain:
    """The token that the number falls on, however much weight the rest has."""
    left = left.reachable
    low, high = left.sum
    ends = np.cumsum(left.weights)
    starts = np.append(0.0, ends[:-1])
    after = (random >= starts / low + NEAR) | (starts == 0)
    before = random < ends / high - NEAR
    if not left.rest.number:
        before[-1] = True
    found = np.flatnonzero(after & before)
    if found.size:
        place = int(found[0])
        weight = float(left.weights[place])
        return Certain(int(left.ids[place]), (weight / high, min(1.0, weight / low)), random)
    drawn = f"the draw {random:.3f}"
    tokens = f"the {unkept:,} tokens whose scores were not kept"
    if left.rest.unkept is None:
        raise NotKept(f"{drawn} falls too near to where two tokens meet")
    if random >= ends[-1] / low:
        raise NotKept(f"{drawn} falls among {tokens}")
    if random >= ends[-1] / high - NEAR:
        raise NotKept(f"{drawn} may fall among {tokens}")
    raise NotKept(f"{drawn} hangs on the mass of {unkept:,} scores that were not kept")


def _over(difference: float, temperature: float) -> float:
    """difference / temperature, -inf beyond float64."""
    with np.errstate(over="ignore"):
        return float(np.float64(difference) / temperature)
