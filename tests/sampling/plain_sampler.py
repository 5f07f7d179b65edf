"""The sampler once more, in plain Python and in the words of its definition: the judge.

Shares no code with forwardpass.sampling: lists, math.exp and math.fsum, sorting everything.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

NEAR = 1e-12  # a mass counts as reaching its bound from this far below


@dataclass(frozen=True)
class Request:
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    prompt: Sequence[int] = ()
    output: Sequence[int] = ()
    allowed: Sequence[bool] | None = None


def adjusted(scores: Sequence[float], request: Request) -> list[float]:
    row = [float(score) for score in scores]
    for token, bias in request.logit_bias.items():
        row[token] += bias
    for token in {*request.prompt, *request.output}:
        penalty = request.repetition_penalty
        row[token] = row[token] / penalty if row[token] > 0 else row[token] * penalty
    for token, count in Counter(request.output).items():
        row[token] -= count * request.frequency_penalty
        row[token] -= request.presence_penalty
    if request.allowed is not None:
        row = [x if ok else -math.inf for x, ok in zip(row, request.allowed, strict=True)]
    return row


def tempered(row: Sequence[float], temperature: float) -> list[float]:
    best = max(row)
    weights = [math.exp((x - best) / temperature) for x in row]
    total = math.fsum(weights)
    return [weight / total for weight in weights]


def survivors(probabilities: Sequence[float], request: Request) -> list[int]:
    """Ids left after the truncations, likeliest first."""
    ids = [i for i, p in enumerate(probabilities) if p > 0]
    ids.sort(key=lambda i: (-probabilities[i], i))
    if request.top_k:
        ids = ids[: request.top_k]
    if request.top_p < 1:
        count = 1
        while (
            count < len(ids)
            and math.fsum(probabilities[i] for i in ids[:count]) < request.top_p - NEAR
        ):
            count += 1
        ids = ids[:count]
    if request.min_p:
        bound = request.min_p * probabilities[ids[0]] * (1 - NEAR)
        ids = [i for i in ids if probabilities[i] >= bound]
    return ids


def distribution(scores: Sequence[float], request: Request) -> dict[int, float]:
    """Probability of each token that can be drawn, likeliest first."""
    probabilities = tempered(adjusted(scores, request), request.temperature)
    ids = survivors(probabilities, request)
    total = math.fsum(probabilities[i] for i in ids)
    return {i: probabilities[i] / total for i in ids}


def pick(left: Mapping[int, float], u: float) -> int:
    """The token whose interval holds u, intervals laid likeliest first from 0."""
    mass: list[float] = []
    for token, probability in left.items():
        mass.append(probability)
        if math.fsum(mass) > u:
            return token
    return token
