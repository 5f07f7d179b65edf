"""What the sampler says of a choice holds together, by the checks that a trace must pass."""

from __future__ import annotations

import json
import random
from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from forwardpass.errors import ComputeError, FormatError
from forwardpass.sampling.adjusting import History
from forwardpass.sampling.chain import choose
from forwardpass.sampling.outcome import Outcome
from forwardpass.sampling.sampler import Sampler
from forwardpass.sampling.settings import resolve
from forwardpass.trace.entry import Entry
from forwardpass.trace.form import stage_as_dict
from forwardpass.trace.reading_choice import check_choice
from traces.rows import KINDS, row_of, settings_of


def read(outcome: Outcome) -> None:
    shown: dict[str, Any] = {
        "stages": [stage_as_dict(stage) for stage in outcome.stages],
        "interval": outcome.interval,
        "rank": outcome.rank,
        "after": [{"id": ranked.id, "logprob": ranked.logprob} for ranked in outcome.after],
    }
    check_choice(outcome, Entry(json.loads(json.dumps(shown)), "step").members())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [50, 3_000])
def test_every_choice_of_the_sampler_and_of_the_plain_chain_is_read(kind: str, size: int) -> None:
    rng = random.Random(f"{kind} {size}")
    found: Counter[str] = Counter()
    for number in range(600 if size == 50 else 150):
        row, settings = row_of(kind, size, rng), settings_of(size, rng, number)
        history = History(
            [rng.randrange(size) for _ in range(rng.randrange(6))],
            [rng.randrange(size) for _ in range(rng.randrange(6))],
            frozenset(rng.sample(range(size), 3)),
        )
        mask = None
        if rng.random() < 0.3:
            mask = np.array([rng.random() < 0.5 for _ in range(size)])
        sampler = Sampler(settings, choice=number, breakers=history.breakers)
        asked: dict[str, Any] = {"position": number, "mask": mask}
        try:
            plain = choose(row, settings, history=history, choice=number, **asked).outcome()
        except ComputeError:  # nothing that can come is allowed
            continue
        either = sampler.pick(row, prompt=history.prompt, output=history.output, **asked)
        for outcome in (plain, either):
            read(outcome)
        found["greedy" if settings.greedy else "drawn"] += 1
        found["masked"] += plain.masked
    assert min(found["greedy"], found["drawn"], found["masked"]) > 5


def test_a_late_temperature_may_lift_tokens_that_were_too_faint_before_it() -> None:
    row = np.array([0, -900, -5_000], dtype=np.float32)
    asked = {"stages": ["top_k", "temperature"], "temperature": 2.0, "seed": 1}
    outcome = choose(row, resolve(asked), position=0).outcome()
    assert [left.survivors for left in outcome.left[2:]] == [1, 2]
    read(outcome)


def test_ranks_and_survivors_beyond_what_the_stages_left_are_refused() -> None:
    row = np.arange(50, dtype=np.float32)
    outcome = choose(
        row, resolve({"temperature": 1.0, "top_k": 3, "seed": 1}), position=0
    ).outcome()
    with pytest.raises(FormatError, match=r"step: rank = 4: wanted at most 3"):
        read(replace(outcome, rank=4))
    raised = [*outcome.left[:4], outcome.left[4]._replace(survivors=51), *outcome.left[5:]]
    with pytest.raises(FormatError, match=r"stages\[4\]\.survivors = 51: wanted at most 50"):
        read(replace(outcome, left=tuple(raised)))
