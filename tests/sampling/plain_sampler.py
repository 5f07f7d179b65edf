"""The sampler once more, in plain Python and in the words of its definition: the judge.

Shares no code with forwardpass.sampling: lists, math.exp and math.fsum, sorting everything.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

NEAR = 1e-12  # a mass counts as reaching its bound from this far below
FAINT = -700.0  # whoever is further below the best, over the temperature, cannot come

ADJUST = ("logit_bias", "repetition_penalty", "frequency_penalty", "presence_penalty", "dry")
ORDERS = {
    "default": ("temperature", "top_n_sigma", "top_k", "typical_p", "top_p", "min_p", "xtc"),
    "transformers": ("temperature", "top_n_sigma", "top_k", "top_p", "min_p", "typical_p", "xtc"),
    "llama.cpp": ("top_n_sigma", "top_k", "typical_p", "top_p", "min_p", "xtc", "temperature"),
}


@dataclass(frozen=True)
class Request:
    sampler: str = "default"
    order: Sequence[str] | None = None  # the sampler's where there is none
    temperature: float = 1.0
    top_n_sigma: float = 0.0
    top_k: int = 0
    typical_p: float = 1.0
    top_p: float = 1.0
    min_p: float = 0.0
    xtc_probability: float = 0.0
    xtc_threshold: float = 0.1
    repetition_penalty: float = 1.0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    penalty_last_n: int = -1
    dry_multiplier: float = 0.0
    dry_base: float = 1.75
    dry_allowed_length: int = 2
    dry_penalty_last_n: int = -1
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    breakers: frozenset[int] = frozenset()
    prompt: Sequence[int] = ()
    output: Sequence[int] = ()
    allowed: Sequence[bool] | None = None


@dataclass(frozen=True)
class Left:
    """Who is left after a stage, best first, and their share in the last distribution made."""

    stage: str
    ids: list[int]
    mass: float


def last(tokens: Sequence[int], n: int) -> list[int]:
    return list(tokens) if n == -1 else list(tokens)[-n:]


def repeated(tokens: Sequence[int], breakers: frozenset[int]) -> dict[int, int]:
    """How long a repeat each token would extend: compare every earlier place with the end."""
    longest: dict[int, int] = {}
    end = len(tokens) - 1
    for place in range(end):
        length = 0
        while (
            length <= place
            and tokens[place - length] == tokens[end - length]
            and tokens[end - length] not in breakers
        ):
            length += 1
        follower = tokens[place + 1]
        if length and follower not in breakers:
            longest[follower] = max(length, longest.get(follower, 0))
    return longest


def adjusted(scores: Sequence[float], request: Request) -> list[float]:
    row = [float(score) for score in scores]
    everything = [*request.prompt, *request.output]
    counted = everything if request.sampler == "llama.cpp" else request.output
    counts = Counter(last(counted, request.penalty_last_n))
    for stage in request.order or ADJUST:
        if stage == "logit_bias":
            for token, bias in request.logit_bias.items():
                row[token] += bias
        elif stage == "repetition_penalty":
            penalty = request.repetition_penalty
            for token in set(last(everything, request.penalty_last_n)):
                row[token] = row[token] / penalty if row[token] > 0 else row[token] * penalty
        elif stage == "frequency_penalty":
            for token, count in counts.items():
                row[token] -= count * request.frequency_penalty
        elif stage == "presence_penalty":
            for token in counts:
                row[token] -= request.presence_penalty
        elif stage == "dry" and request.dry_multiplier:
            tokens = last(everything, request.dry_penalty_last_n)
            for token, length in repeated(tokens, request.breakers).items():
                if length >= request.dry_allowed_length:
                    power = request.dry_base ** (length - request.dry_allowed_length)
                    row[token] -= request.dry_multiplier * power
    if request.allowed is not None:
        row = [x if ok else -math.inf for x, ok in zip(row, request.allowed, strict=True)]
    return row


def tempered(row: Sequence[float], temperature: float) -> list[float]:
    best = max(row)
    weights = [math.exp((x - best) / temperature) for x in row]
    total = math.fsum(weights)
    return [weight / total for weight in weights]


def rescaled(probabilities: Sequence[float]) -> list[float]:
    total = math.fsum(probabilities)
    return [p / total for p in probabilities]


def truncated(stage: str, p: list[float], request: Request, number: float) -> list[int]:
    """Places that a stage keeps of probabilities, best first. `number` decides about XTC."""
    if stage == "typical_p" and request.typical_p < 1:
        shares = rescaled(p)
        entropy = math.fsum(-q * math.log(q) for q in shares)
        off = [round(abs(-math.log(q) - entropy), 12) for q in shares]
        nearest = sorted(range(len(p)), key=lambda place: (off[place], place))
        count = 1
        while (
            count < len(p)
            and math.fsum(shares[i] for i in nearest[:count]) < request.typical_p - NEAR
        ):
            count += 1
        if request.sampler == "transformers":
            return [place for place in range(len(p)) if off[place] <= off[nearest[count - 1]]]
        return sorted(nearest[:count])
    if stage == "top_p" and request.top_p < 1:
        shares = p if request.sampler == "default" else rescaled(p)
        count = 1
        while count < len(p) and math.fsum(shares[:count]) < request.top_p - NEAR:
            count += 1
        return list(range(count))
    if stage == "min_p" and request.min_p:
        return [i for i, q in enumerate(p) if q >= request.min_p * p[0] * (1 - NEAR)]
    if stage == "xtc" and number < request.xtc_probability:
        able = [i for i, q in enumerate(rescaled(p)) if q >= request.xtc_threshold - NEAR]
        return [i for i in range(len(p)) if i not in able[:-1]]
    return list(range(len(p)))


def trace(scores: Sequence[float], request: Request, number: float = 0.0) -> list[Left]:
    """Who is left after the temperature and after each truncation."""
    row = adjusted(scores, request)
    stages = request.order or ORDERS[request.sampler]
    stages = [stage for stage in stages if stage not in ADJUST]
    ids = [i for i, x in enumerate(row) if x > -math.inf]
    ids.sort(key=lambda i: (-row[i], i))
    temperature = request.temperature if stages[0] == "temperature" else 1.0
    found: list[Left] = []
    whole = ids
    for stage in stages:
        if stage == "temperature":
            temperature, whole = request.temperature, ids
        elif stage == "top_n_sigma" and request.top_n_sigma:
            mean = math.fsum(row[i] for i in ids) / len(ids)
            sigma = math.sqrt(math.fsum((row[i] - mean) ** 2 for i in ids) / len(ids))
            bound = request.top_n_sigma * sigma * (1 + NEAR)
            ids = [i for i in ids if row[ids[0]] - row[i] <= bound]
        elif stage == "top_k" and request.top_k:
            kept = ids[: request.top_k]
            equals = [i for i in ids if row[i] == row[kept[-1]] and i not in kept]
            ids = [*kept, *equals] if request.sampler == "transformers" else kept
        p = dict(zip(whole, tempered([row[i] for i in whole], temperature), strict=True))
        best = row[whole[0]]
        can_come = [i for i in ids if (row[i] - best) / temperature >= FAINT]
        if stage not in ("temperature", "top_n_sigma", "top_k"):
            places = truncated(stage, [p[i] for i in can_come], request, number)
            if len(places) < len(can_come) or switched_on(stage, request):
                ids = can_come = [can_come[place] for place in places]
        found.append(Left(stage, can_come, math.fsum(p[i] for i in can_come)))
    return found


def switched_on(stage: str, request: Request) -> bool:
    if stage == "xtc":
        return request.xtc_probability > 0
    return bool(getattr(request, stage) != {"min_p": 0}.get(stage, 1))


def distribution(
    scores: Sequence[float], request: Request, number: float = 0.0
) -> dict[int, float]:
    """Probability of each token that can be drawn, best first."""
    row = adjusted(scores, request)
    ids = trace(scores, request, number)[-1].ids
    return dict(zip(ids, tempered([row[i] for i in ids], request.temperature), strict=True))


def pick(left: Mapping[int, float], u: float) -> int:
    """The token whose interval holds u, intervals laid best first from 0."""
    mass: list[float] = []
    for token, probability in left.items():
        mass.append(probability)
        if math.fsum(mass) > u:
            return token
    return token
