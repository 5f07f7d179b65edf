"""Prefill, decode, sample, stop: one `Step` a token."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import forwardpass as fp
from forwardpass.engine.runner import Runner
from forwardpass.generate import generate
from forwardpass.graph.references import F32
from forwardpass.sampling.sampler import Sampler
from forwardpass.sampling.settings import resolve
from forwardpass.trace.step import Step
from text.vocabularies import small
from tiny_model import END, ROWS, TOKENS, byte_ids, random_folder, scripted_folder

SAYS = "Zür 你🎉."


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> fp.Model:
    return fp.load(random_folder(tmp_path_factory.mktemp("models") / "tiny"))


@pytest.fixture(scope="module")
def scripted(tmp_path_factory: pytest.TempPathFactory) -> fp.Model:
    return fp.load(scripted_folder(tmp_path_factory.mktemp("models") / "scripted", SAYS))


def steps_of(model: fp.Model, runner: Runner | None = None, *, max_tokens: int = 50) -> list[Step]:
    """The greedy answer to a raw prompt."""
    runner = runner or model.runner
    sequence = runner.prefill(small().encode("the quick brown"))
    ends, sampler = frozenset(model.tokenizer.eos_ids), Sampler(resolve({}))
    return list(
        generate(
            runner, model.tokenizer, sequence, sampler, max_tokens=max_tokens, ends=ends
        )
    )  # fmt: skip


def test_each_token_is_the_best_of_a_whole_pass_over_all_before_it(model: fp.Model) -> None:
    prompt = small().encode("the quick brown")
    steps = steps_of(model, max_tokens=8)
    for count, step in enumerate(steps):
        for row in whole_pass(model, prompt, [done.id for done in steps[:count]]):
            assert step.id == int(row.argmax())
            assert step.logprob == pytest.approx(log_softmax(row)[step.id], abs=1e-5)
    assert [step.index for step in steps] == list(range(8))


def whole_pass(model: fp.Model, prompt: list[int], answer: list[int]) -> list[F32]:
    """The scores behind all tokens: each as what it is and, where prompts are no other, as one."""
    backend: Any = model.runner.backend
    cache = backend.new_cache()
    found: list[F32] = [backend.run(cache, prompt)[-1]]
    if answer:
        found = [backend.run(cache, answer, generated=True)[-1]]
    if not with_tiles(backend):
        found.append(model.runner.prefill([*prompt, *answer]).scores)
    return found


def with_tiles(backend: Any) -> bool:
    """Whether the backend multiplies prompts another way than generated tokens."""
    if backend.name != "native":
        return False
    from forwardpass import _native

    return _native.has_tiles(backend.level)


def log_softmax(row: F32) -> F32:
    shifted = row - row.max()
    result: F32 = shifted - np.log(np.exp(shifted).sum())
    return result


def test_the_token_that_ends_an_answer_is_counted_and_no_part_of_its_text(
    scripted: fp.Model,
) -> None:
    steps = steps_of(scripted)
    assert "".join(step.text for step in steps) == SAYS
    assert steps[-1].id == small().find(END)
    assert (steps[-1].text, steps[-1].bytes) == ("", b"")
    assert [step.finish_reason for step in steps[-2:]] == [None, "stop"]


def test_text_comes_in_whole_characters(tmp_path: Path) -> None:
    path = scripted_folder(tmp_path / "m", "Ж🎉.")
    with fp.load(path) as model:
        steps = steps_of(model)
    assert [step.text for step in steps if step.text] == ["Ж", "🎉", "."]
    assert b"".join(step.bytes for step in steps) == "Ж🎉.".encode()
    assert len(steps) > 4


def test_an_answer_that_a_limit_cuts_in_a_character_ends_with_a_replacement(
    tmp_path: Path,
) -> None:
    path = scripted_folder(tmp_path / "m", "Ж🎉.")
    with fp.load(path) as model:
        whole = steps_of(model)
        inside = next(step.index for step in whole if step.text == "🎉") - 1
        cut = steps_of(model, max_tokens=inside + 1)
    assert cut[-1].finish_reason == "length"
    assert "".join(step.text for step in cut) == "Ж\ufffd"


def test_no_token_comes_beyond_the_context(model: fp.Model) -> None:
    prompt = len(small().encode("the quick brown"))
    steps = steps_of(model, replace(model.runner, context=prompt + 4))
    assert len(steps) == 5  # the fifth is drawn from a full context, and no pass reads it
    assert steps[-1].finish_reason == "length"
    (only,) = steps_of(model, replace(model.runner, context=prompt))
    assert only.finish_reason == "length"


def test_a_row_of_the_table_that_stands_for_no_token_can_be_drawn(model: fp.Model) -> None:
    for row in (TOKENS, ROWS - 1):
        answer = model.generate("hello", logit_bias={row: 100.0}, max_tokens=3)
        assert [step.id for step in answer.steps] == [row] * 3
        assert (answer.text, answer.steps[0].bytes) == ("", b"")
        assert model.token_text(row) == f"[no token {row}]"


def test_a_control_token_in_an_answer_is_no_text(model: fp.Model) -> None:
    start = small().find("<|im_start|>")
    assert start is not None
    answer = model.generate("hello", logit_bias={start: 100.0}, max_tokens=2)
    assert [step.id for step in answer.steps] == [start] * 2
    assert answer.text == ""


def test_bytes_that_are_no_utf8_are_replaced_one_by_one(model: fp.Model) -> None:
    (first, *_) = byte_ids("Ж")
    answer = model.generate("hello", logit_bias={first: 100.0}, max_tokens=3)
    assert answer.text == "\ufffd" * 3
    assert [step.text for step in answer.steps] == ["", "\ufffd", "\ufffd\ufffd"]


def test_scores_that_are_no_numbers_name_the_place_in_the_answer(model: fp.Model) -> None:
    sequence = model.runner.prefill(small().encode("the"))
    sequence.scores = np.full_like(sequence.scores, np.nan)
    sampler = Sampler(resolve({}))
    made = generate(
        model.runner, model.tokenizer, sequence, sampler, max_tokens=1, ends=frozenset()
    )
    with pytest.raises(fp.ComputeError, match="token 0 of the answer: scores: token id 0"):
        next(made)
