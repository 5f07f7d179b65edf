"""What a step from JSON says of its choice, held against what else it says of it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import pairwise

from forwardpass.sampling.outcome import SHOWN, Outcome
from forwardpass.trace.entry import Entry

_NEAR = 1e-6  # probabilities that were summed in another order, or in float32, agree to this


def check_choice(outcome: Outcome, found: Mapping[str, Entry]) -> None:
    """That stages, interval, rank and the likeliest tokens of a step hold together.

    `found` are the step's values. Raises FormatError, naming the place of one that contradicts
    another.
    """
    stages = [stage.members() for stage in found["stages"].items()]
    for number in range(1, len(outcome.left)):
        _check_survivors(outcome, number, stages[number])
        if not outcome.stages[number].acts:
            _check_off(outcome, number, stages[number])
    _check_rank(outcome, found["rank"])
    _check_interval(outcome, found["interval"])
    _check_after(outcome, found["after"])


def _check_survivors(outcome: Outcome, number: int, stage: Mapping[str, Entry]) -> None:
    """No stage brings a token back."""
    before = outcome.left[number - 1].survivors
    result = outcome.stages[number]
    if number > 2 and result.name == "temperature":
        # a late one above 1 lifts tokens again that were too faint to come without it
        before = outcome.left[1].survivors
    if result.survivors > before:
        stage["survivors"].refuse(f"at most {before:,}, which were left before")


def _check_off(outcome: Outcome, number: int, stage: Mapping[str, Entry]) -> None:
    """A stage that does nothing leaves what was there, of a distribution that adds up to 1 where
    it is the first after the mask. A late temperature begins a new distribution even at 1."""
    before, left = outcome.left[number - 1], outcome.left[number]
    if number > 2 and outcome.stages[number].name == "temperature":
        return
    first = number == 2
    mass = 1.0 if first else before.mass
    near = _NEAR if first else 1e-9
    if left.survivors != before.survivors and not first:
        stage["survivors"].refuse(f"{before.survivors:,}, as before a stage that is off")
    if left.best != before.best:
        stage["best"].refuse(f"{before.best}, as before a stage that is off")
    for name, value, wanted in (
        ("mass", left.mass, mass),
        ("best_probability", left.best_probability, before.best_probability),
    ):
        if not math.isclose(value, wanted, rel_tol=near):
            stage[name].refuse(f"{wanted}, as before a stage that is off")


def _check_rank(outcome: Outcome, entry: Entry) -> None:
    last = outcome.left[-1].survivors
    if outcome.rank > last:
        entry.refuse(f"at most {last:,}, which the stages left")
    start = 0.0 if outcome.interval is None else outcome.interval[0]
    if (outcome.rank == 1) != (start == 0):
        entry.refuse("1 where the interval begins at 0, and only there")


def _check_interval(outcome: Outcome, entry: Entry) -> None:
    if outcome.interval is None or outcome.random is None:
        return
    start, end = outcome.interval
    # where the sum falls short of 1 by rounding, the least likely token has the rest as well
    least_likely = outcome.rank == outcome.left[-1].survivors
    upto = 1.0 if least_likely and end > 1 - _NEAR else end
    if not start <= outcome.random < upto:
        entry.refuse(f"one around the number drawn, {outcome.random}")
    probability = math.exp(outcome.sampled_logprob)
    if abs(end - start - probability) > _NEAR:
        entry.refuse(f"one as wide as the token's probability, {probability}")


def _check_after(outcome: Outcome, entry: Entry) -> None:
    after, last = outcome.after, outcome.left[-1]
    count = min(SHOWN, last.survivors)
    if len(after) != count:
        entry.refuse(f"{count} tokens, of {last.survivors:,} that the stages left")
    if len({ranked.id for ranked in after}) != count:
        entry.refuse("each token once")
    places = [member.members() for member in entry.items()]
    for place, (one, following) in enumerate(pairwise(after), 1):
        if following.logprob > one.logprob:
            places[place]["logprob"].refuse(f"at most {one.logprob}, that of the token before")
    if after[0].id != last.best:
        places[0]["id"].refuse(f"{last.best}, the best that the stages left")
    if outcome.rank > count:
        return
    drawn = after[outcome.rank - 1]
    if drawn.id != outcome.token:
        places[outcome.rank - 1]["id"].refuse(f"{outcome.token}, drawn at rank {outcome.rank}")
    if abs(drawn.logprob - outcome.sampled_logprob) > _NEAR:
        places[outcome.rank - 1]["logprob"].refuse(f"{outcome.sampled_logprob}, as it was drawn")
