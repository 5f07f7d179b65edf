"""Rows of scores, random and awkward, and what is asked of them; the comparison of two outcomes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from forwardpass.sampling.outcome import KEPT, Outcome
from forwardpass.sampling.rules import TRUNCATING
from forwardpass.sampling.settings import SamplingSettings, resolve
from forwardpass.sampling.stages import Mask

F32 = npt.NDArray[np.float32]
Random = np.random.Generator
NEAR = 1e-6


@dataclass(frozen=True)
class Case:
    """A row, and what is asked of it."""

    scores: F32
    request: dict[str, Any]
    prompt: Sequence[int] = ()
    output: Sequence[int] = ()
    position: int = 0
    mask: Mask | None = None
    wanted: tuple[int, ...] = ()
    kept: int = KEPT
    breakers: frozenset[int] = frozenset()

    @cached_property
    def settings(self) -> SamplingSettings:
        return resolve(self.request)


def near(one: float, other: float) -> bool:
    """Within a millionth, absolute or relative; infinities equal."""
    if math.isinf(one) or math.isinf(other):
        return one == other
    return abs(one - other) <= NEAR * max(1.0, abs(other))


def exact_part(outcome: Outcome) -> tuple[object, ...]:
    """What has to be equal to the bit: ids, counts, scores and the random number."""
    best = outcome.best
    return (
        outcome.token,
        outcome.random,
        outcome.rank,
        outcome.masked,
        best.ids.tolist(),
        best.scores.tolist(),
        best.vocabulary,
        best.rest,
        [(left.survivors, left.best) for left in outcome.left],
        [token.id for token in outcome.after],
        [token for token, _, _ in outcome.wanted],
    )


def floats(outcome: Outcome) -> list[float]:
    best = outcome.best
    return [
        outcome.logprob,
        outcome.sampled_logprob,
        *(outcome.interval or ()),
        best.log_sum,
        best.rest_mass,
        *(number for left in outcome.left for number in (left.mass, left.best_probability)),
        *(token.logprob for token in outcome.after),
        *(number for _, own, sampled in outcome.wanted for number in (own, sampled)),
    ]


def assert_same(found: Outcome, truth: Outcome, about: object) -> None:
    assert exact_part(found) == exact_part(truth), about
    assert (found.interval is None) == (truth.interval is None), about
    assert found.best.ids.dtype == truth.best.ids.dtype
    assert found.best.scores.dtype == truth.best.scores.dtype
    assert [stage.name for stage in found.stages] == [stage.name for stage in truth.stages]
    pairs = list(zip(floats(found), floats(truth), strict=True))
    assert all(near(one, other) for one, other in pairs), (about, pairs)


def normal(n: int, rng: Random) -> F32:
    return np.asarray(rng.standard_normal(n) * rng.choice([0.01, 0.5, 2, 8]), np.float32)


def peaked(n: int, rng: Random) -> F32:
    row = normal(n, rng)
    row[rng.integers(0, n, 1 + n // 500)] += rng.choice([5, 15, 40])
    return row


def ties(n: int, rng: Random) -> F32:
    return np.asarray(np.round(rng.standard_normal(n) * 2) / 4, np.float32)


def equals(n: int, rng: Random) -> F32:
    return np.full(n, rng.choice([0.0, -0.0, 3.5, -1e30, 1e-42]), np.float32)


def huge(n: int, rng: Random) -> F32:
    row = normal(n, rng)
    row[rng.integers(n)] = rng.choice([1e4, 1e30, 3.4e38])
    return row


def wide(n: int, rng: Random) -> F32:
    signs = rng.choice([-1, 1], n)
    return (signs * 10.0 ** rng.uniform(-45, 38, n)).astype(np.float32)


def denormals(n: int, rng: Random) -> F32:
    row = (rng.integers(-50, 50, n) * 1.4e-45).astype(np.float32)
    if rng.random() < 0.5:
        row[rng.integers(n)] = 1
    return row


def forbidden(n: int, rng: Random) -> F32:
    row = peaked(n, rng)
    row[rng.random(n) < rng.choice([0.1, 0.9, 0.999])] = -np.inf
    row[rng.integers(n)] = 1
    return row


def close(n: int, rng: Random) -> F32:
    """Scores an ulp apart, with zeros of both signs among them."""
    row = np.float32(1) + rng.integers(0, 4, n).astype(np.float32) * np.float32(2**-23)
    signs = rng.choice([-1, 1], n).astype(np.float32)
    return row if rng.random() < 0.5 else np.asarray((row - np.float32(1)) * signs)


def steps(n: int, rng: Random) -> F32:
    """A plateau, and one far below that together may weigh as much."""
    row = np.full(n, -rng.choice([1.0, 10.0, 12.0]), np.float32)
    row[: rng.integers(1, n + 1)] = 0
    return np.asarray(rng.permutation(row), np.float32)


def halves(n: int, _: Random) -> F32:
    """Probabilities .5, .25, .25; what lies behind them cannot come."""
    row = np.full(max(n, 3), -np.inf, np.float32)
    row[:3] = np.log(np.array([0.5, 0.25, 0.25]))
    return row


def falling(n: int, rng: Random) -> F32:
    return np.sort(normal(n, rng))[:: rng.choice([-1, 1])].copy()


SPREAD = (normal, peaked, huge, wide, falling)
EQUAL = (ties, equals, denormals, forbidden, close, steps, halves)
ROWS = (*SPREAD, *EQUAL)


def one_of(rng: Random, *values: object) -> Any:
    return values[rng.integers(len(values))]


def request(rng: Random) -> dict[str, Any]:
    """Settings of every kind that the C++ part has, each in force in part of the cases."""
    asked: dict[str, Any] = {"seed": int(rng.integers(-(2**63), 2**63 - 1)), "sampler": "default"}
    asked["sampler"] = one_of(rng, "default", "default", "transformers", "llama.cpp")
    asked["temperature"] = one_of(rng, 0.0, 1.0, 1.0, 0.7, 1.3, 0.05, 20.0, 1e-9)
    choices: dict[str, Sequence[float]] = {
        "top_k": (1, 2, 5, 20, 40, 300),
        "top_p": (0.95, 0.5, 0.75, 0.25, 0.9, 1e-6, 0.999999),
        "min_p": (0.05, 0.5, 0.001, 1e-9, 0.25),
        "top_n_sigma": (1.0, 0.3, 2.5),
    }
    for name, values in choices.items():
        if rng.random() < 0.3:
            asked[name] = one_of(rng, *values)
    if rng.random() < 0.15:
        asked["xtc_probability"] = one_of(rng, 0.5, 1.0)
        asked["xtc_threshold"] = one_of(rng, 0.1, 0.5, 0.001)
    if rng.random() < 0.3:
        asked["stages"] = [*rng.permutation([*TRUNCATING, "temperature"]).tolist()]
    return asked


def adjusting(rng: Random, n: int) -> dict[str, Any]:
    asked: dict[str, Any] = {}
    if rng.random() < 0.5:
        asked["repetition_penalty"] = one_of(rng, 1.1, 0.8, 2.0)
    if rng.random() < 0.3:
        asked["frequency_penalty"] = one_of(rng, 0.5, -0.5)
        asked["presence_penalty"] = one_of(rng, 0.25, -2.0)
    if rng.random() < 0.3:
        ids = rng.integers(0, n, 3).tolist()
        asked["logit_bias"] = {token: one_of(rng, -100.0, 100.0, 0.5) for token in ids}
    if rng.random() < 0.2:
        asked["dry_multiplier"] = one_of(rng, 0.8, 1e9)
    if rng.random() < 0.3:
        asked["penalty_last_n"] = one_of(rng, 1, 8, 300, -1)
    return asked


def mask(rng: Random, n: int) -> Mask:
    allowed = rng.random(n) < one_of(rng, 0.01, 0.5, 0.99)
    if rng.random() < 0.5:
        return np.asarray(allowed)
    octets = np.packbits(allowed, bitorder="little")
    return np.resize(octets, -(-n // 32) * 4).view(np.uint32)


def case(rng: Random, n: int) -> Case:
    scores = ROWS[rng.integers(len(ROWS))](n, rng)
    n = scores.size
    asked = request(rng)
    prompt: Any = ()
    output: list[int] = []
    if rng.random() < 0.4:
        asked |= adjusting(rng, n)
        some = rng.integers(0, n, 12)
        prompt = one_of(rng, tuple, list, np.array)(rng.choice(some, rng.integers(0, 40)).tolist())
        output += rng.choice(some, rng.integers(0, 20)).tolist()
    return Case(
        scores,
        asked,
        prompt,
        output,
        int(rng.integers(0, 1000)),
        mask(rng, n) if rng.random() < 0.2 else None,
        tuple(rng.integers(0, n, rng.integers(0, 3)).tolist()),
        int(one_of(rng, KEPT, KEPT, KEPT, 0, 7, 100_000)),
        frozenset(rng.integers(0, n, 1).tolist()),
    )


def realistic(rng: Random, n: int = 151_936) -> F32:
    """A row as models give them: broad, with some dozens of scores far above the others."""
    row = (rng.standard_normal(n) * 2.5).astype(np.float32)
    row[rng.integers(0, n, 40)] += rng.uniform(8, 18, 40).astype(np.float32)
    return row


def cases(sizes: Sequence[tuple[int, int, int]], seed: int) -> Iterator[Case]:
    rng = np.random.default_rng(seed)
    for least, most, count in sizes:
        for _ in range(count):
            yield case(rng, int(rng.integers(least, most)))
