"""Real models held to schemas as people write them, and what forced text and the mask do there.

Run the large part by itself: `pytest -q -s -m large tests/shapes/test_real_models.py`.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import jsonschema
import pytest

import forwardpass as fp
from constraint.judge import Judge
from constraint.test_maskbench import schemas
from forwardpass.errors import SchemaError
from shapes.tool_requests import SHOPPING, SHOPPING_TOOL

ModelPath = Callable[[str], Path]
SMALL, LARGE = "smollm2-135m", "qwen2.5-coder-1.5b"
SEED = 6
PROMPT = "Go."
# How many tokens more than the least an answer may have: hardly any, and some.
TIGHT, WIDE = (0, 1, 3), (10, 24, 64)
BASIL = "put basil on my list"
CALLED: dict[str, Any] = {
    "tools": [SHOPPING_TOOL], "tool_choice": "required", "parallel_tool_calls": False,
    "temperature": 0, "max_tokens": 150,
}  # fmt: skip


def least_of(model: fp.Model, schema: Any) -> int | None:
    """The number that a refused limit tells; None where the schema is refused."""
    with pytest.raises(fp.RequestError) as told:
        model.generate(PROMPT, schema=schema, max_tokens=1)
    if isinstance(told.value, SchemaError):
        return None
    found = re.search(r"max_tokens = 1: the shortest .* takes (\d+) tokens", told.value.fact)
    assert found, told.value.fact
    return int(found[1])


def check(answer: fp.Answer, most: int, judge: Judge) -> None:
    """Whole and valid within the limit; forced tokens took no pass of their own."""
    assert len(answer.steps) <= most
    assert answer.shape is not None
    assert answer.shape.complete
    fault = judge.fault(answer.text)
    assert not fault, (answer.text, fault)
    check_passes(answer)


def check_passes(answer: fp.Answer) -> None:
    """One pass for the prompt, one for each token but the last and those that were forced."""
    assert answer.shape is not None
    assert answer.shape.forced == sum(step.forced for step in answer.steps)
    assert answer.work.passes == 1 + sum(not step.forced for step in answer.steps[:-1])


@pytest.mark.timeout(3_600)
@pytest.mark.parametrize(
    ("alias", "count", "beyond"),
    [
        (SMALL, 30, (TIGHT, WIDE)),
        pytest.param(SMALL, 200, (TIGHT, WIDE), marks=pytest.mark.large),
        pytest.param(LARGE, 40, (TIGHT + WIDE,), marks=pytest.mark.large),
    ],
)
def test_whatever_a_model_draws_is_valid_and_too_small_a_limit_is_refused(
    model_path: ModelPath,
    cases: Path | None,
    alias: str,
    count: int,
    beyond: tuple[tuple[int, ...], ...],
) -> None:
    listed = schemas(cases)
    drawn = Random(SEED).sample(listed, min(count, len(listed)))
    accepted = answers = tokens = passes = closed = 0
    faults: list[str] = []
    started = time.perf_counter()
    with fp.load(model_path(alias)) as model:
        for case in drawn:
            rng, schema = Random(f"{SEED} {case['id']}"), case["schema"]
            least = least_of(model, schema)
            if least is None:
                continue
            accepted += 1
            if least > 2:
                with pytest.raises(fp.RequestError, match=f"takes {least} tokens"):
                    model.generate(PROMPT, schema=schema, max_tokens=least - 1)
            for more in beyond:
                most, seed = least + rng.choice(more), rng.randrange(10**6)
                try:
                    answer = model.generate(
                        PROMPT, schema=schema, max_tokens=most, temperature=1.0, seed=seed
                    )
                    check(answer, most, Judge(schema))
                except (AssertionError, ValueError, fp.ForwardpassError) as fault:
                    faults.append(f"{case['id']}, max_tokens {most}, seed {seed}: {fault!s:.600}")
                    continue
                assert answer.shape is not None
                answers, tokens = answers + 1, tokens + len(answer.steps)
                passes += answer.work.passes
                closed += answer.shape.closed_by_budget
    print(
        f"\n{alias}, seed {SEED}: {answers} valid answers under {accepted} of {len(drawn)} schemas,"
        f" {closed} closed by the limit; {tokens} tokens in {passes} passes,"
        f" {time.perf_counter() - started:.0f} s"
    )
    assert not faults, "\n".join(faults)
    assert accepted >= 0.95 * len(drawn)


def called(
    model: fp.Model, words: str, monkeypatch: pytest.MonkeyPatch, *, runs: bool
) -> fp.Answer:
    """The shopping list's call; without `runs`, token by token."""
    with monkeypatch.context() as patch:
        if not runs:
            patch.setattr("forwardpass.generate.forced_run", lambda *_: [])
        answer = model.generate(words, **CALLED)
    (call,) = answer.tool_calls
    jsonschema.validate(call.values(), SHOPPING)
    check_passes(answer)
    return answer


def test_text_that_is_read_ahead_leaves_every_score_as_it_is_token_by_token(
    model_path: ModelPath, monkeypatch: pytest.MonkeyPatch
) -> None:
    with fp.load(model_path(SMALL)) as model:
        ahead, single = (called(model, BASIL, monkeypatch, runs=runs) for runs in (True, False))
    assert ahead.shape is not None
    assert single.shape is not None
    assert ahead.shape.forced >= 10
    assert single.shape.forced == 0
    # Where the model itself would cut the text in another way, the answers part.
    pairs = list(zip(ahead.steps, single.steps, strict=False))
    apart = next((i for i, (one, other) in enumerate(pairs) if one.id != other.id), len(pairs))
    alike = pairs[:apart]
    assert sum(one.forced for one, _ in alike) >= 5
    assert [one.logprob for one, _ in alike] == [other.logprob for _, other in alike]


@pytest.mark.large
def test_a_call_takes_a_fifth_fewer_passes_than_tokens_and_has_the_same_text(
    model_path: ModelPath, monkeypatch: pytest.MonkeyPatch
) -> None:
    with fp.load(model_path(LARGE)) as model:
        for words in (BASIL, "two litres of milk and 500 g of flour please"):
            ahead, single = (called(model, words, monkeypatch, runs=runs) for runs in (True, False))
            assert ahead.shape is not None
            tokens, passes = len(ahead.steps), ahead.work.passes
            print(f"\n{words}: {tokens} tokens, {ahead.shape.forced} forced, {passes} passes")
            assert ahead.text == single.text
            if [step.id for step in ahead.steps] == [step.id for step in single.steps]:
                found = [[step.logprob for step in one.steps] for one in (ahead, single)]
                assert found[0] == found[1]
            assert passes <= 0.8 * tokens
            assert ahead.shape.as_dict()["forced"] == ahead.shape.forced >= 0.2 * tokens


@pytest.mark.large
def test_what_is_legal_in_the_shopping_list_and_the_best_of_what_is_refused(
    model_path: ModelPath,
) -> None:
    with fp.load(model_path(LARGE)) as model:
        going = model.stream(BASIL, **CALLED)
        steps = list(going)
        notes = going.trace().masks
        named = [model.token_text(step.id) for step in steps]
        assert notes is not None
        places = ["".join(named[:i]) for i in range(len(named))]
        quantity = next(i for i, text in enumerate(places) if text.endswith('"quantity":'))
        unit = next(i for i, text in enumerate(places) if text.endswith('"unit": "'))
        note = notes.steps[quantity]
        assert note.refused is not None
        best = model.token_text(note.refused.id)
        for i in (0, quantity, unit):
            print(f"\n{places[i][-20:]!r}: {notes.steps[i]}")
        assert (note.allowed, best) == (13, ' "')
        assert note.refused.rule == "number, not string"
        assert notes.steps[unit].allowed == 15
        assert notes.steps[0].removed > 0.9
