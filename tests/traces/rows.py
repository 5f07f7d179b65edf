"""Rows of scores, settings and histories to try a replay with: some likely, some nasty."""

from __future__ import annotations

import random

import numpy as np

from forwardpass.graph.references import F32
from forwardpass.sampling.rules import ADJUSTING, PRESETS, TRUNCATING
from forwardpass.sampling.settings import SamplingSettings, resolve

KINDS = (
    *("normal", "steep", "flat", "shelf", "ties", "minus_infinity", "one_huge", "all_equal"),
    "boundary",
)


def row_of(kind: str, size: int, rng: random.Random) -> F32:
    """A row of `size` scores, at least one of them above -inf."""
    if kind == "steep":
        scores = [rng.gauss(0, 8) for _ in range(size)]
    elif kind == "flat":
        scores = [rng.gauss(0, 0.3) for _ in range(size)]
    elif kind == "shelf":  # the rest has its mass in few scores, or in all alike
        shelf = rng.choice((0.0, -1.0, -4.0))
        below = rng.choice((shelf, -6.0, -40.0, -1e3))
        scores = [rng.choice((rng.gauss(2, 1), shelf, below, below, below)) for _ in range(size)]
    elif kind == "ties":
        scores = [rng.randrange(5) / 2 for _ in range(size)]
    elif kind == "minus_infinity":
        scores = [rng.gauss(0, 3) if rng.random() < 0.6 else -np.inf for _ in range(size)]
        scores[rng.randrange(size)] = 1.0
    elif kind == "one_huge":
        scores = [rng.gauss(0, 1) for _ in range(size)]
        scores[rng.randrange(size)] = rng.choice((12.0, 300.0, 1e4, 3e38))
    elif kind == "all_equal":
        scores = [rng.choice((-5.0, 0.0, 1e30))] * size
    elif kind == "boundary":
        scores = [float(np.log(rng.choice((1, 0.5, 0.25, 0.1)))) for _ in range(size)]
    else:
        scores = [rng.gauss(0, 2.5) for _ in range(size)]
    return np.array(scores, dtype=np.float32)


def asked_of(size: int, rng: random.Random, seed: int) -> dict[str, object]:
    """What a request may ask for: one or two stages, now and then all of them."""
    share = rng.choice((0.12, 0.12, 0.3, 0.7))

    def maybe(value: object, off: object) -> object:
        return value if rng.random() < share else off

    asked: dict[str, object] = {
        "seed": seed,
        "temperature": rng.choice((0, 0.05, 0.5, 0.8, 1.0, 1.0, 1.3, 2.0, 9.0)),
        "top_k": maybe(rng.randrange(1, 12), 0),
        "top_p": maybe(rng.choice((0.1, 0.25, 0.5, 0.75, 0.9, 0.999)), 1.0),
        "min_p": maybe(rng.choice((0.01, 0.1, 0.25, 0.5, 0.99)), 0.0),
        "typical_p": maybe(rng.choice((0.2, 0.7, 0.95)), 1.0),
        "top_n_sigma": maybe(rng.choice((0.5, 1.0, 3.0)), 0.0),
        "xtc_probability": maybe(rng.choice((0.5, 1.0)), 0.0),
        "xtc_threshold": rng.choice((0.05, 0.1, 0.3)),
        "repetition_penalty": maybe(rng.choice((0.5, 1.1, 2.0)), 1.0),
        "frequency_penalty": maybe(rng.choice((-1.0, 0.3, 2.0)), 0.0),
        "presence_penalty": maybe(rng.choice((-1.0, 0.3, 2.0)), 0.0),
        "dry_multiplier": maybe(0.8, 0.0),
        "logit_bias": maybe(
            {rng.randrange(size): rng.choice((-100.0, -2.0, 0.5, 4.0)) for _ in range(3)}, {}
        ),
        "sampler": rng.choice(tuple(PRESETS)),
    }
    if rng.random() < 0.2:
        later = ["temperature", *TRUNCATING]
        rng.shuffle(later)
        asked["stages"] = [name for name in ADJUSTING if name != "mask"] + later
    return asked


def settings_of(size: int, rng: random.Random, seed: int) -> SamplingSettings:
    return resolve(asked_of(size, rng, seed))
