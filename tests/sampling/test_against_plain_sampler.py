"""The chain equals the same sampler in plain Python, id for id and probability to 1e-6."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest

from forwardpass.sampling.chain import History, choose
from forwardpass.sampling.random import uniform
from forwardpass.sampling.settings import resolve
from sampling import plain_sampler
from sampling.plain_sampler import Request

ROWS = 2_000
KINDS = ("normal", "ties", "minus_infinity", "one_huge", "all_equal", "denormal", "boundary")


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


def request_of(size: int, rng: random.Random) -> Request:
    def sometimes(value: float, off: float) -> float:
        return value if rng.random() < 0.4 else off

    ids = range(size)
    return Request(
        temperature=rng.choice((0.05, 0.6, 1.0, 1.0, 1.5, 7.0)),
        top_k=int(sometimes(rng.randrange(1, 80), 0)),
        top_p=sometimes(rng.choice((0.05, 0.1, 0.25, 0.5, 0.75, 0.8, 0.9, 0.95, 0.999)), 1.0),
        min_p=sometimes(rng.choice((0.01, 0.1, 0.25, 0.5, 0.99)), 0.0),
        repetition_penalty=sometimes(rng.choice((0.5, 1.1, 2.0)), 1.0),
        frequency_penalty=sometimes(rng.choice((-1.0, 0.3, 2.0)), 0.0),
        presence_penalty=sometimes(rng.choice((-1.0, 0.3, 2.0)), 0.0),
        logit_bias={i: rng.choice((-100.0, -1.0, 0.7)) for i in ids if rng.random() < 0.1},
        prompt=[rng.choice(ids) for _ in range(rng.randrange(5))],
        output=[rng.choice(ids) for _ in range(rng.randrange(5))],
        allowed=[rng.random() < 0.7 for _ in ids] if rng.random() < 0.3 else None,
    )


@pytest.mark.parametrize("kind", KINDS)
def test_ids_and_probabilities_equal_the_plain_sampler(kind: str) -> None:
    rng = random.Random(f"{kind} 1")
    compared = 0
    for number in range(-(-ROWS // len(KINDS))):
        row = np.array(scores_of(kind, rng), dtype=np.float32)
        request = request_of(row.size, rng)
        if max(plain_sampler.adjusted(row.tolist(), request)) == -math.inf:
            continue  # nothing left to choose from: refused, and held by a test of its own
        expected = plain_sampler.distribution(row.tolist(), request)
        settings = resolve(
            {
                "temperature": request.temperature,
                "top_k": request.top_k,
                "top_p": request.top_p,
                "min_p": request.min_p,
                "repetition_penalty": request.repetition_penalty,
                "frequency_penalty": request.frequency_penalty,
                "presence_penalty": request.presence_penalty,
                "logit_bias": request.logit_bias,
                "seed": number,
            }
        )
        choice = choose(
            row,
            settings,
            history=History(request.prompt, request.output),
            choice=3,
            position=number,
            mask=None if request.allowed is None else np.array(request.allowed),
        )
        ids = choice.sampled.ids
        left = range(row.size) if ids is None else ids.tolist()
        assert sorted(expected) == list(left)
        for token, probability in expected.items():
            assert choice.sampled.probability(token) == pytest.approx(probability, abs=1e-6)
        assert choice.token == plain_sampler.pick(expected, uniform(number, 3, number))
        own = plain_sampler.tempered(row.tolist(), 1.0)
        for token, probability in enumerate(own):
            assert choice.model.probability(token) == pytest.approx(probability, abs=1e-6)
        compared += 1
    assert compared > 250
