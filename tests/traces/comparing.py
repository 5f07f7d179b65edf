"""A replay beside a run of the model under the same settings."""

from __future__ import annotations

import math
from typing import Any

import pytest

import forwardpass as fp


def run_of(model: fp.Model, prompt: str, recorded: fp.Answer, asked: dict[str, Any]) -> fp.Answer:
    """A fresh answer under the settings, as long as the recorded one may be."""
    sampling = dict(asked)
    return model.generate(prompt, **sampling, max_tokens=recorded.trace().max_tokens)


def beside(replayed: fp.Replay, run: fp.Answer) -> str:
    """Holds every replayed token to the run's; says whether it is the same answer, differs from
    the recorded one, or was undecided at some place."""
    trace = replayed.trace
    for step, other in zip(replayed.steps, run.steps, strict=False):
        assert step.id == other.id
        assert step.logprob == pytest.approx(other.logprob, rel=1e-6, abs=1e-9)
        assert step.taken is other.taken
        assert step.finish_reason == other.finish_reason
        if step.probability is not None:
            assert step.random == other.random
            low, high = step.probability
            assert low * (1 - 1e-5) <= math.exp(other.sampled_logprob)
            assert high * (1 + 1e-5) >= math.exp(other.sampled_logprob)
        if step.outcome is not None:
            assert step.outcome.left == other.outcome.left
    shared = replayed.steps if replayed.differs_at is None else replayed.steps[:-1]
    assert [step.id for step in shared] == [step.id for step in trace.steps[: len(shared)]]
    if replayed.finish_reason is None:
        assert run.text.startswith(replayed.text)
    else:
        assert run.text == replayed.text
        assert len(run.steps) == len(replayed.steps)
    if replayed.undecided is not None:
        assert replayed.differs_at is None
        assert replayed.undecided.index == len(replayed.steps)
        return "undecided"
    if replayed.differs_at is None:
        assert len(replayed.steps) == len(trace.steps)
        return "same"
    assert replayed.differs_at == len(replayed.steps) - 1
    assert replayed.steps[-1].id != trace.steps[replayed.differs_at].id
    return "differs"
