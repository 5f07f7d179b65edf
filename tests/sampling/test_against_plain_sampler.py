"""The chain equals the same sampler in plain Python, id for id and probability to 1e-6."""

from __future__ import annotations

import math
import random
from dataclasses import fields

import numpy as np
import pytest

from forwardpass.sampling.adjusting import History
from forwardpass.sampling.chain import choose
from forwardpass.sampling.random import uniform
from forwardpass.sampling.settings import resolve
from sampling import plain_sampler
from sampling.plain_sampler import ADJUST, ORDERS, Request

ROWS = 5_600
KINDS = ("normal", "ties", "minus_infinity", "one_huge", "all_equal", "denormal", "boundary")
NOT_SETTINGS = {"order", "breakers", "prompt", "output", "allowed"}


def scores_of(kind: str, rng: random.Random) -> list[float]:
    size = rng.choice((1, 2, 3, 7, 31, 64))
    if kind == "ties":
        return [rng.randrange(4) / 2 for _ in range(size)]
    if kind == "minus_infinity":
        some = [rng.gauss(0, 4) if rng.random() < 0.5 else -math.inf for _ in range(size)]
        return [*some, 0.0]
    if kind == "one_huge":
        return [rng.gauss(0, 1) for _ in range(size)] + [rng.choice((1e4, 3e38))]
    if kind == "all_equal":
        return [rng.choice((-5.0, 0.0, 1e30))] * size
    if kind == "denormal":
        return [rng.choice((1e-45, -1e-45, 1e-40, 0.0)) for _ in range(size)]
    if kind == "boundary":  # probabilities that are exact binary fractions, or tenths
        return [rng.choice((0.0, -math.log(2), -math.log(4), -math.log(10))) for _ in range(size)]
    return [rng.gauss(0, 4) for _ in range(size)]


def order_of(rng: random.Random) -> list[str]:
    """Stages in an order of chance, none left out, scores adjusted first."""
    later = list(ORDERS["default"])
    return [*rng.sample(ADJUST, len(ADJUST)), *rng.sample(later, len(later))]


def request_of(size: int, rng: random.Random) -> Request:
    def sometimes(value: float, off: float, chance: float = 0.4) -> float:
        return value if rng.random() < chance else off

    ids = range(size)
    few = rng.sample(ids, min(size, 3))  # so that there are repeats
    sampler = rng.choice(list(ORDERS))
    shares = (0.05, 0.1, 0.25, 0.5, 0.75, 0.8, 0.9, 0.95, 0.999)
    none = () if sampler == "default" else (0.0,)
    return Request(
        sampler=sampler,
        order=order_of(rng) if rng.random() < 0.3 else None,
        temperature=rng.choice((0.02, 0.6, 1.0, 1.0, 1.5, 7.0, 900.0)),
        top_n_sigma=sometimes(rng.choice((0.3, 1.0, 2.0, 5.0)), 0.0, 0.25),
        top_k=int(sometimes(rng.randrange(1, 80), 0)),
        typical_p=sometimes(rng.choice(shares), 1.0, 0.25),
        top_p=sometimes(rng.choice((*shares, *none)), 1.0),
        min_p=sometimes(rng.choice((0.01, 0.1, 0.25, 0.5, 0.99)), 0.0),
        xtc_probability=sometimes(rng.choice((0.5, 1.0)), 0.0),
        xtc_threshold=rng.choice((0.01, 0.1, 0.25, 0.5)),
        repetition_penalty=sometimes(rng.choice((0.5, 1.1, 2.0)), 1.0),
        frequency_penalty=sometimes(rng.choice((-1.0, 0.3, 2.0)), 0.0),
        presence_penalty=sometimes(rng.choice((-1.0, 0.3, 2.0)), 0.0),
        penalty_last_n=rng.choice((-1, 1, 3, 8)),
        dry_multiplier=sometimes(rng.choice((0.5, 2.0)), 0.0),
        dry_base=rng.choice((1.0, 1.2, 1.75, 3.0)),
        dry_allowed_length=rng.choice((1, 2, 3)),
        dry_penalty_last_n=rng.choice((-1, -1, 4, 12)),
        breakers=frozenset(i for i in few if rng.random() < 0.2),
        logit_bias={i: rng.choice((-100.0, -1.0, 0.7)) for i in ids if rng.random() < 0.1},
        prompt=[rng.choice(few) for _ in range(rng.randrange(10))],
        output=[rng.choice(few) for _ in range(rng.randrange(10))],
        allowed=[rng.random() < 0.7 for _ in ids] if rng.random() < 0.3 else None,
    )


def settings_of(request: Request, seed: int) -> dict[str, object]:
    names = {field.name for field in fields(Request)} - NOT_SETTINGS
    stated = {name: getattr(request, name) for name in names}
    return {**stated, "stages": request.order, "seed": seed}


@pytest.mark.parametrize("kind", KINDS)
def test_ids_and_probabilities_equal_the_plain_sampler(kind: str) -> None:
    rng = random.Random(f"{kind} 1")
    compared = narrowed = 0
    for number in range(ROWS // len(KINDS)):
        row = np.array(scores_of(kind, rng), dtype=np.float32)
        request = request_of(row.size, rng)
        if max(plain_sampler.adjusted(row.tolist(), request)) == -math.inf:
            continue  # nothing left to choose from: refused, and held by a test of its own
        acts = uniform(number, 3, number, 1)
        expected = plain_sampler.distribution(row.tolist(), request, acts)
        choice = choose(
            row,
            resolve(settings_of(request, number)),
            history=History(request.prompt, request.output, request.breakers),
            choice=3,
            position=number,
            mask=None if request.allowed is None else np.array(request.allowed),
        )
        traced = plain_sampler.trace(row.tolist(), request, acts)
        assert [(s.name, s.ids.tolist()) for s in choice.kept] == [(s.stage, s.ids) for s in traced]
        masses = [float(step.probabilities.sum()) for step in choice.kept]
        assert masses == pytest.approx([step.mass for step in traced], abs=1e-6)
        ids = choice.sampled.ids
        assert ids is not None
        assert sorted(expected) == ids.tolist()
        for token, probability in expected.items():
            assert choice.sampled.probability(token) == pytest.approx(probability, abs=1e-6)
        assert choice.token == plain_sampler.pick(expected, uniform(number, 3, number))
        own = plain_sampler.tempered(row.tolist(), 1.0)
        for token, probability in enumerate(own):
            assert choice.model.probability(token) == pytest.approx(probability, abs=1e-6)
        compared += 1
        narrowed += len(expected) < row.size
    assert compared > 650
    assert narrowed > 300
