"""Replay: what other settings take from recorded scores is what a run under them gives."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import forwardpass as fp
from forwardpass.sampling.random import uniform
from forwardpass.trace.replay import replay
from forwardpass.trace.trace import Trace
from text.vocabularies import small
from tiny_model import END, ROWS, random_folder, scripted_folder
from traces.comparing import beside, run_of
from traces.rows import asked_of

SAYS = "the Öl fox 🎉."
DRAWN: dict[str, Any] = {"temperature": 1.0, "seed": 4, "max_tokens": 10}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> fp.Model:
    return fp.load(random_folder(tmp_path_factory.mktemp("models") / "tiny"))


@pytest.fixture(scope="module")
def scripted(tmp_path_factory: pytest.TempPathFactory) -> fp.Model:
    return fp.load(scripted_folder(tmp_path_factory.mktemp("models") / "scripted", SAYS))


@pytest.mark.parametrize("kept", [256, ROWS])
def test_a_replay_equals_a_run_as_far_as_it_goes(model: fp.Model, kept: int) -> None:
    rng = random.Random(8)
    found: Counter[str] = Counter()
    recorded = model.generate("hello", **DRAWN, keep_scores=kept)
    for seed in range(150):
        asked = asked_of(ROWS, rng, rng.choice((4, seed)))
        replayed = recorded.resample(**asked)
        run = run_of(model, "hello", recorded, asked)
        found[beside(replayed, run)] += 1
    assert (found["undecided"] > 0) is (kept < ROWS)
    assert found["differs"] > 50


def test_one_that_follows_the_answer_to_its_end_differs_nowhere(scripted: fp.Model) -> None:
    recorded = scripted.generate("what?")
    same = recorded.resample(temperature=0.01, seed=3)
    assert (same.differs_at, same.undecided) == (None, None)
    assert (same.text, same.finish_reason) == (SAYS, "stop")
    assert same.text == scripted.generate("what?", temperature=0.01, seed=3).text
    assert [step.id for step in same.steps] == [step.id for step in recorded.steps]


@pytest.mark.parametrize("kept", [1, 256])
@pytest.mark.parametrize(
    "asked", [{}, {"temperature": 1.0, "seed": 4}, {"temperature": 2.0, "top_k": 300, "seed": 1}]
)
def test_the_same_settings_give_the_same_answer_however_little_was_kept(
    model: fp.Model, asked: dict[str, Any], kept: int
) -> None:
    recorded = model.generate("hello", max_tokens=10, keep_scores=kept, **asked)
    again = recorded.resample()
    assert (again.differs_at, again.undecided) == (None, None)
    assert (again.text, again.finish_reason) == (recorded.text, "length")
    for step, before in zip(again.steps, recorded.steps, strict=True):
        assert (step.id, step.logprob, step.random) == (before.id, before.logprob, before.random)
        assert step.outcome == before.outcome
    assert recorded.resample(**asked).steps == again.steps


def test_no_pass_is_run(model: fp.Model, tmp_path: Path) -> None:
    path = random_folder(tmp_path / "closing")
    with fp.load(path) as closing:
        answer = closing.generate("hello", **DRAWN)
    with pytest.raises(fp.RequestError, match="the model is closed"):
        closing.generate("hello", **DRAWN)
    text = answer.resample(temperature=0.5).text
    assert model.generate("hello", **{**DRAWN, "temperature": 0.5}).text.startswith(text)
    fp.write_trace(answer.trace(), tmp_path / "a.json")
    assert fp.read_trace(tmp_path / "a.json").resample(temperature=0.5).text == text


def test_what_is_not_named_stays_as_it_was(model: fp.Model) -> None:
    recorded = model.generate("hello", **DRAWN, top_k=5, sampler="llama.cpp")
    changed = recorded.resample(temperature=0.5, top_p=None).settings
    before = recorded.sampling
    assert (changed.temperature.value, changed.temperature.source) == (0.5, "request")
    assert replace(changed, temperature=before.temperature) == before
    assert recorded.resample(sampler="default").settings.penalty_last_n.value == -1
    assert before.penalty_last_n.value == 64


def test_a_draw_from_a_greedy_answer_takes_a_fresh_seed_and_records_it(model: fp.Model) -> None:
    recorded = model.generate("hello", max_tokens=10, keep_scores=ROWS)
    assert recorded.sampling.seed.value is None
    drawn = recorded.resample(temperature=5.0)
    assert drawn.settings.seed.source == "engine default"
    again = recorded.resample(temperature=5.0, seed=drawn.settings.seed.value)
    assert [(step.id, step.random) for step in again.steps] == [
        (step.id, step.random) for step in drawn.steps
    ]


def test_tokens_that_the_caller_took_are_taken_again(model: fp.Model) -> None:
    recorded = model.generate("hello", **DRAWN, take={0: 7, 2: 9}, keep_scores=ROWS)
    replayed = recorded.resample(temperature=0.999)
    assert [step.taken for step in replayed.steps][:3] == [True, False, True]
    assert [step.id for step in replayed.steps if step.taken] == [7, 9]
    assert (replayed.steps[0].probability, replayed.steps[0].random) == (None, None)
    alone = model.generate("hello", **{**DRAWN, "temperature": 0.999}, take={0: 7, 2: 9})
    assert beside(replayed, alone) in {"same", "differs"}


def test_a_token_that_would_have_ended_the_answer_ends_it(scripted: fp.Model) -> None:
    end = small().find(END)
    assert end is not None
    recorded = scripted.generate("what?", keep_scores=ROWS)
    ended = recorded.resample(logit_bias={end: 100.0})
    assert (ended.differs_at, ended.text, ended.finish_reason) == (0, "", "stop")
    assert ended.steps[0].finish_reason == "stop"


def test_a_repeat_is_looked_for_although_the_recorded_answer_did_not(model: fp.Model) -> None:
    recorded = model.generate("a b\na b", max_tokens=20, keep_scores=ROWS)
    assert recorded.trace().breakers == frozenset()
    for breakers in (["\n"], ["b"], ["<|im_start|>"], []):
        asked: dict[str, Any] = {
            "dry_multiplier": 3.0,
            "dry_allowed_length": 1,
            "dry_sequence_breakers": breakers,
        }
        replayed = recorded.resample(**asked)
        outcome = beside(replayed, model.generate("a b\na b", max_tokens=20, **asked))
        assert outcome in {"same", "differs"}


def masked(trace: Trace) -> Trace:
    """The trace of an answer to which a grammar's mask was applied."""
    steps = [replace(step, outcome=replace(step.outcome, masked=True)) for step in trace.steps]
    return replace(trace, steps=tuple(steps))


def test_where_a_grammar_s_mask_acted_nothing_else_is_certain(model: fp.Model) -> None:
    trace = masked(model.generate("hello", **DRAWN, keep_scores=ROWS).trace())
    other = trace.resample(temperature=0.5)
    assert (other.steps, other.differs_at) == ((), None)
    assert str(other.undecided) == (
        "token 0: a grammar's mask acted here, and which tokens it allowed is not kept"
    )
    assert trace.resample().text == trace.text


def test_where_the_kept_scores_do_not_suffice_a_replay_says_why(model: fp.Model) -> None:
    def reason(**asked: Any) -> str:
        kept: dict[str, Any] = {"keep_scores": 4, "max_tokens": 1, "seed": 4}
        undecided = model.generate("hello", **kept).resample(**asked).undecided
        assert undecided is not None
        assert undecided.index == 0
        return undecided.reason

    tokens = f"the {ROWS - 4} tokens whose scores were not kept"
    assert reason(temperature=3.0) == f"the draw {uniform(4, 0, 0):.3f} falls among {tokens}"
    assert reason(temperature=1.0, typical_p=0.5).startswith("typical_p looks at every score")
    assert reason(temperature=1.0, top_n_sigma=1.0).startswith("top_n_sigma looks at every score")
    assert reason(logit_bias={ROWS - 1: 100.0}) == (
        "bias or penalties may make a token the best whose score was not kept"
    )


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({"heat": 1.0}, r"no sampler setting is called 'heat'"),
        ({"temprature": 1.0}, r"did you mean temperature\?"),
        ({"max_tokens": 5}, "no sampler setting is called 'max_tokens'"),
        ({"temperature": -1.0}, "temperature = -1.0: wanted a number from 0 up"),
        ({"top_p": 0}, "top_p = 0: wanted"),
        ({"logit_bias": {ROWS: 1.0}}, f"token id {ROWS} is outside the vocabulary of {ROWS}"),
        ({"stages": "temperature", "top_k": 5}, "the stages leave top_k out"),
    ],
)
def test_a_setting_that_cannot_be_is_refused(
    model: fp.Model, asked: dict[str, Any], says: str
) -> None:
    answer = model.generate("hello", **DRAWN)
    with pytest.raises(fp.RequestError, match=says):
        answer.resample(**asked)


def test_a_token_that_the_trace_does_not_explain_is_shown_by_its_number(model: fp.Model) -> None:
    trace = model.generate("hello", **DRAWN).trace()
    few = replace(trace, tokens={token: trace.tokens[token] for token in trace.prompt})
    first = replay(few, trace.sampling).steps[0]
    assert first.text == f"[token {first.id}]"
    assert replay(few, trace.sampling).text.startswith(first.text)
