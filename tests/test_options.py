"""What a request asks beside the sampler's settings: log probabilities, scores, tokens to take."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

import forwardpass as fp
from tiny_model import ROWS, TOKENS, random_folder, scripted_folder


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> fp.Model:
    return fp.load(random_folder(tmp_path_factory.mktemp("models") / "tiny"))


ASKED: dict[str, Any] = {"temperature": 1, "top_k": 3, "seed": 8, "max_tokens": 4}


def others(step: Any) -> list[int]:
    """Tokens that the stages left out."""
    left = {entry.id for entry in step.after_stages(32)}
    return [token for token in range(ROWS) if token not in left]


@pytest.mark.parametrize(
    ("options", "fact"),
    [
        ({"logprob_ids": 5}, "logprob_ids = 5: wanted a list of token ids"),
        ({"logprob_ids": "12"}, "logprob_ids = '12': wanted a list of token ids"),
        ({"logprob_ids": [1, "2"]}, r"logprob_ids = \[1, '2'\]: wanted a list of token ids"),
        ({"logprob_ids": [True]}, r"logprob_ids = \[True\]: wanted a list of token ids"),
        ({"logprob_ids": [1.5]}, r"logprob_ids = \[1.5\]: wanted a list of token ids"),
        ({"logprob_ids": [-1]}, f"logprob_ids: token id -1 is outside the vocabulary of {ROWS}"),
        ({"logprob_ids": [ROWS]}, f"logprob_ids: token id {ROWS} is outside the vocabulary"),
        ({"logprob_ids": [0] * 1_001}, "logprob_ids: 1,001 ids: wanted at most 1,000"),
        ({"keep_scores": 0}, "keep_scores = 0: wanted a whole number from 1 up"),
        ({"keep_scores": -3}, "keep_scores = -3: wanted a whole number from 1 up"),
        ({"keep_scores": 1.5}, "keep_scores = 1.5: wanted a whole number from 1 up"),
        ({"keep_scores": True}, "keep_scores = True: wanted a whole number from 1 up"),
        ({"take": [1]}, r"take = \[1\]: wanted a mapping from places to token ids"),
        ({"take": {-1: 5}}, "take: -1: 5: wanted a place in the answer, from 0 up, and a token id"),
        ({"take": {"x": 5}}, "take: 'x': 5: wanted a place in the answer"),
        ({"take": {0: "5"}}, "take: 0: '5': wanted a place in the answer"),
        ({"take": {0: True}}, "take: 0: True: wanted a place in the answer"),
        ({"take": {0: ROWS}}, f"take: token id {ROWS} is outside the vocabulary of {ROWS}"),
        ({"take": {0: -1}}, "take: token id -1 is outside the vocabulary"),
        ({"sampler": "vllm"}, "sampler = 'vllm': wanted default or transformers or llama.cpp"),
        ({"stages": "top_k"}, "stages: temperature is missing"),
        ({"top_a": 1}, "there is no option 'top_a'"),
    ],
)
def test_what_cannot_be_is_refused_by_name(
    model: fp.Model, options: dict[str, Any], fact: str
) -> None:
    with pytest.raises(fp.RequestError, match=fact):
        model.generate("hello", max_tokens=1, **options)


def test_none_of_them_means_absent(model: fp.Model) -> None:
    absent = model.generate("hello", **ASKED, logprob_ids=None, keep_scores=None, take=None)
    assert [step.id for step in absent.steps] == [
        step.id for step in model.generate("hello", **ASKED).steps
    ]
    assert absent.steps[0].wanted == ()


def test_both_log_probabilities_of_any_token_can_be_asked_for(model: fp.Model) -> None:
    first = model.generate("hello", **ASKED).steps[0]
    best, left_out = first.after_stages(1)[0], others(first)[0]
    ids = [left_out, best.id, left_out, TOKENS]
    answer = model.generate("hello", **ASKED, logprob_ids=ids)
    for step in answer.steps:
        assert [found.id for found in step.wanted] == ids
    found = answer.steps[0].wanted
    assert found[0].sampled_logprob == -math.inf
    assert found[1].sampled_logprob == best.logprob
    assert found[0] == found[2]
    own = {entry.id: entry.logprob for entry in first.top(256)}
    assert found[1].logprob == pytest.approx(own[best.id], abs=1e-12)
    assert all(math.isfinite(entry.logprob) for entry in found)


def test_as_many_best_scores_are_kept_as_are_asked_for(model: fp.Model) -> None:
    def kept(**options: Any) -> Any:
        return model.generate("hello", **ASKED, **options).steps[0].outcome.best

    all_of_them = kept(keep_scores=10**9)
    assert len(all_of_them.ids) == ROWS
    assert (all_of_them.rest, all_of_them.rest_mass) == (0, 0.0)
    for count in (1, 7, 256):
        best = kept(keep_scores=count)
        assert best.ids.tolist() == all_of_them.ids[:count].tolist()
        assert best.scores.tolist() == all_of_them.scores[:count].tolist()
        assert best.rest == ROWS - count
        mass = math.fsum(math.exp(x) for x in all_of_them.logprobs()[count:])
        assert best.rest_mass == pytest.approx(mass, abs=1e-12)
    assert len(kept().ids) == 256


def test_a_token_that_is_taken_is_gone_on_with_whatever_would_have_been_drawn(
    model: fp.Model,
) -> None:
    drawn = model.generate("hello", **ASKED)
    left_out = others(drawn.steps[1])[0]
    answer = model.generate("hello", **ASKED, take={1: left_out}, logprob_ids=[3])
    before, step, after = answer.steps[0], answer.steps[1], answer.steps[2]
    assert (before.id, before.taken) == (drawn.steps[0].id, False)
    assert (step.id, step.taken, step.random) == (left_out, True, None)
    assert step.outcome.token == drawn.steps[1].id
    assert [entry.id for entry in step.wanted] == [3]
    own = {entry.id: entry.logprob for entry in drawn.steps[1].top(256)}
    if left_out in own:
        assert step.logprob == pytest.approx(own[left_out], abs=1e-12)
    assert step.sampled_logprob == -math.inf
    assert math.isfinite(step.logprob)
    # what follows is conditioned on the token that was taken
    again = model.generate("hello", **ASKED, take={0: before.id, 1: left_out})
    assert [s.id for s in again.steps] == [s.id for s in answer.steps]
    assert after.outcome.best != drawn.steps[2].outcome.best


def test_a_token_that_the_stages_left_in_keeps_the_probability_that_it_had(
    model: fp.Model,
) -> None:
    drawn = model.generate("hello", **ASKED)
    entry = drawn.steps[0].after_stages(3)[-1]
    step = model.generate("hello", **ASKED, take={0: entry.id}).steps[0]
    assert step.sampled_logprob == entry.logprob
    assert step.outcome == drawn.steps[0].outcome


def test_taking_the_drawn_tokens_changes_nothing(model: fp.Model) -> None:
    drawn = model.generate("hello", **ASKED)
    take = {step.index: step.id for step in drawn.steps}
    taken = model.generate("hello", **ASKED, take=take)
    assert taken.text == drawn.text
    for mine, theirs in zip(taken.steps, drawn.steps, strict=True):
        assert (mine.taken, mine.random) == (False, theirs.random)
        assert mine == theirs


def test_a_taken_end_ends_the_answer(model: fp.Model) -> None:
    end = model.tokenizer.find("<|im_end|>")
    assert end is not None
    answer = model.generate("hello", **ASKED, take={1: end})
    assert (len(answer.steps), answer.finish_reason) == (2, "stop")
    assert answer.steps[1].taken


def test_a_greedy_step_gives_what_it_did_not_take_no_chance(model: fp.Model) -> None:
    greedy = model.generate("hello", max_tokens=1).steps[0]
    other = others(greedy)[0]
    step = model.generate("hello", max_tokens=1, take={0: other}).steps[0]
    assert (step.sampled_logprob, step.random) == (-math.inf, None)


def test_presets_and_orders_reach_the_answers_settings(model: fp.Model) -> None:
    answer = model.generate("hello", max_tokens=1, temperature=1, seed=1, sampler="llama.cpp")
    assert answer.sampling.sampler.value == "llama.cpp"
    assert answer.sampling.penalty_last_n.value == 64
    assert [stage.name for stage in answer.steps[0].stages][-3:] == [
        "temperature",
        "rescale",
        "draw",
    ]
    ordered = model.generate(
        "hello", max_tokens=1, temperature=1, seed=1, stages=["top_p", "temperature"]
    )
    names = [stage.name for stage in ordered.steps[0].stages]
    assert names == ["adjust", "mask", "top_p", "temperature", "rescale", "draw"]


def test_dry_ends_a_loop_unless_one_of_the_models_own_tokens_breaks_it(tmp_path: Path) -> None:
    text = "the quick dog"
    model = fp.load(scripted_folder(tmp_path / "endless", text, endless=True))
    cycle = model.tokenizer.encode(text)
    asked: dict[str, Any] = {
        "max_tokens": 4 * len(cycle),
        "dry_multiplier": 100.0,
        "dry_allowed_length": len(cycle),
    }

    def answer(**options: Any) -> str:
        return model.generate(fp.raw("the"), **{**asked, **options}).text

    looped = answer(dry_multiplier=0.0)
    assert looped.count("quick") >= 3
    assert answer(dry_sequence_breakers=[]) != looped
    assert answer(dry_sequence_breakers=["zzz"]) == answer(dry_sequence_breakers=[])
    broken = model.tokenizer.token_bytes(cycle[-1]).decode()
    assert answer(dry_sequence_breakers=[broken]) == looped
