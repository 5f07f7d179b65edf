"""From the best scores alone: the token of the whole row, or none."""

from __future__ import annotations

import math
import random
from collections import Counter

import pytest

from forwardpass.sampling.adjusting import History
from forwardpass.sampling.sampler import Sampler
from forwardpass.trace.certain import certain
from forwardpass.trace.unkept import NotKept
from traces.rows import KINDS, row_of, settings_of

SIZE = 50


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_certain_from_few_scores_is_what_the_whole_row_gives(kind: str) -> None:
    rng = random.Random(f"{kind} 2")
    found: Counter[str] = Counter()
    for number in range(1_500):
        row = row_of(kind, SIZE, rng)
        settings = settings_of(SIZE, rng, number)
        history = History(
            [rng.randrange(SIZE) for _ in range(rng.randrange(6))],
            [rng.randrange(SIZE) for _ in range(rng.randrange(6))],
            frozenset(rng.sample(range(SIZE), 3)),
        )
        kept = rng.choice((1, 4, 4, 12, 30))
        sampler = Sampler(settings, choice=number, breakers=history.breakers, kept=kept)
        whole = sampler.pick(
            row, prompt=history.prompt, output=history.output, position=number
        )  # fmt: skip
        if not whole.best.rest:
            continue
        try:
            token = certain(whole.best, settings, history, number, number)
        except NotKept:
            found["undecided"] += 1
            continue
        found["decided"] += 1
        assert token.id == whole.token
        assert token.random == whole.random
        low, high = token.probability
        assert low * (1 - 1e-5) <= math.exp(whole.sampled_logprob) <= high * (1 + 1e-5) + 1e-300
    assert min(found["decided"], found["undecided"]) > 50
