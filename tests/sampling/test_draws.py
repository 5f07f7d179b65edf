"""Draws are as frequent as the exact probabilities say, which a second sampler computes."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest

from forwardpass.sampling import stages, truncations
from forwardpass.sampling.chain import choose
from forwardpass.sampling.random import uniform
from forwardpass.sampling.rules import PRESETS
from forwardpass.sampling.sampler import Sampler
from forwardpass.sampling.settings import resolve
from sampling import plain_sampler
from sampling.chi_square import chance_of_worse
from sampling.plain_sampler import Request


def fairness(drawn: Mapping[int, int], exact: Mapping[int, float]) -> float:
    """How likely fair draws are farther from the exact probabilities."""
    assert drawn.keys() <= exact.keys()
    counts, chances = [drawn.get(token, 0) for token in exact], list(exact.values())
    if len(chances) % 2 == 0:  # an odd number of cells is wanted: the last two are one
        counts[-2:], chances[-2:] = [sum(counts[-2:])], [math.fsum(chances[-2:])]
    return chance_of_worse(counts, chances)


ASKED = {"temperature": 1.3, "top_k": 30, "top_p": 0.85, "min_p": 0.2}
DRAWN = Request(temperature=1.3, top_k=30, top_p=0.85, min_p=0.2)


@pytest.mark.parametrize("sampler", PRESETS)
def test_a_hundred_thousand_draws_are_distributed_as_the_probabilities_say(sampler: str) -> None:
    # Fixed seed. Fair draws from another seed would fail once in 10⁹ runs.
    scores = np.random.default_rng(8).normal(0, 1, 40).astype(np.float32)
    exact = plain_sampler.distribution(scores.tolist(), replace(DRAWN, sampler=sampler))
    settings = resolve({**ASKED, "sampler": sampler, "seed": 42})
    last = choose(scores, settings, position=0).kept[-1]
    assert last.ids.tolist() == list(exact)
    p = stages.rescale(last.probabilities)
    numbers = (uniform(42, *key) for key in itertools.product(range(10), range(10_000)))
    drawn = Counter(int(last.ids[truncations.draw(p, number)]) for number in numbers)
    assert drawn.total() == 100_000
    assert len(exact) > 10
    assert fairness(drawn, exact) > 1e-9


def test_a_hundred_thousand_tokens_that_a_sampler_takes_are_distributed_so() -> None:
    # Fixed seed. Fair draws from another seed would fail once in 10⁹ runs.
    scores = np.random.default_rng(8).normal(0, 1, 40).astype(np.float32)
    exact = plain_sampler.distribution(scores.tolist(), DRAWN)
    settings = resolve({**ASKED, "seed": 42})
    samplers = [Sampler(settings, choice=answer, kept=1) for answer in range(10)]
    drawn: Counter[int] = Counter()
    for sampler, position in itertools.product(samplers, range(10_000)):
        outcome = sampler.pick(scores, prompt=(), output=(), position=position)
        drawn[outcome.token] += 1
        if position < 20:
            chain = choose(scores, settings, choice=sampler.choice, position=position)
            assert (outcome.token, outcome.random) == (chain.token, chain.random)
    assert fairness(drawn, exact) > 1e-9


def test_xtc_acts_as_often_as_its_probability_says_and_not_by_the_number_that_is_drawn() -> None:
    # Of 20,000 a deviation by 6 standard ones: fair numbers fail once in 5·10⁸ runs.
    scores = np.log([0.5, 0.3, 0.2])
    settings = resolve({"temperature": 1, "xtc_probability": 0.3, "xtc_threshold": 0.25, "seed": 5})
    acted, low = 0, 0
    for position in range(20_000):
        choice = choose(scores, settings, position=position)
        acts = choice.kept[-1].ids.tolist() == [1, 2]
        assert acts == (uniform(5, 0, position, 1) < 0.3)
        assert choice.random == uniform(5, 0, position, 0)
        acted += acts
        low += acts and choice.random < 0.5
    assert abs(acted - 6_000) < 6 * math.sqrt(20_000 * 0.3 * 0.7)
    assert abs(low - acted / 2) < 6 * math.sqrt(acted / 4)
