"""Calls of tools, and reasoning, whatever the model would write: the models are random."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

import forwardpass as fp
from forwardpass.errors import SchemaError
from shaped import CALLING, LEND, NOTE, PLAIN, RENEW, SEEDS, WILD
from text.call_templates import OWN
from tiny_model import random_folder


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> fp.Model:
    """A model whose template knows no tools."""
    path = tmp_path_factory.mktemp("models") / "plain"
    return fp.load(random_folder(path, template=PLAIN, max_position_embeddings=4_096))


@pytest.fixture(scope="module")
def calling(tmp_path_factory: pytest.TempPathFactory) -> fp.Model:
    """A model whose calls begin with <tool_call>, with text before them."""
    path = tmp_path_factory.mktemp("models") / "calling"
    return fp.load(random_folder(path, template=CALLING, max_position_embeddings=4_096))


@pytest.fixture(scope="module")
def thinking(tmp_path_factory: pytest.TempPathFactory) -> fp.Model:
    """The same, which may think before it answers."""
    begins = CALLING.replace("assistant\\n' }}{% endif %}", "assistant\\n<think>\\n' }}{% endif %}")
    folder = tmp_path_factory.mktemp("models") / "thinking"
    words = "{# <think> </think> #}"
    return fp.load(random_folder(folder, template=words + begins, max_position_embeddings=4_096))


@pytest.mark.parametrize("name", ["plain", "calling"])
@pytest.mark.parametrize("seed", SEEDS)
def test_required_tools_are_called_with_valid_arguments(
    request: pytest.FixtureRequest, name: str, seed: int
) -> None:
    model: fp.Model = request.getfixturevalue(name)
    answer = model.generate(
        "hello", tools=[LEND, RENEW], tool_choice="required", seed=seed, max_tokens=150, **WILD
    )
    assert answer.tool_calls
    assert answer.content == ""
    schemas = {"lend_book": NOTE, "renew": RENEW["function"]["parameters"]}
    for call in answer.tool_calls:
        jsonschema.validate(call.values(), schemas[call.name])


@pytest.mark.parametrize("seed", SEEDS)
def test_the_named_tool_is_the_one_called_once_where_one_is_asked(
    calling: fp.Model, seed: int
) -> None:
    choice = {"type": "tool", "name": "renew", "disable_parallel_tool_use": True}
    answer = calling.generate(
        "hello", tools=[LEND, RENEW], tool_choice=choice, seed=seed, max_tokens=120, **WILD
    )
    assert [call.name for call in answer.tool_calls] == ["renew"]


@pytest.mark.parametrize("name", ["plain", "calling"])
@pytest.mark.parametrize("seed", SEEDS)
def test_with_none_nothing_is_called(request: pytest.FixtureRequest, name: str, seed: int) -> None:
    model: fp.Model = request.getfixturevalue(name)
    begin = model.tokenizer.encode('<tool_call>\n{"name": "' if name == "calling" else '{"name":')
    bias = dict.fromkeys(begin, 8.0)
    answer = model.generate(
        "hello", tools=[RENEW], tool_choice="none", seed=seed, max_tokens=60,
        logit_bias=bias, **WILD
    )  # fmt: skip
    assert answer.tool_calls == ()
    assert "<tool_call>" not in answer.text or name == "plain"


@pytest.mark.parametrize("seed", SEEDS)
def test_auto_leaves_text_free_and_never_leaves_a_broken_call(calling: fp.Model, seed: int) -> None:
    pieces = dict.fromkeys(calling.tokenizer.encode("<tool_call>"), 6.0)
    answer = calling.generate(
        "hello", tools=[RENEW], seed=seed, max_tokens=60, logit_bias=pieces, **WILD
    )
    whole = answer.text.count("<tool_call>")
    assert whole == answer.text.count("</tool_call>") == len(answer.tool_calls)
    assert "<tool_call>" not in answer.content


def test_in_auto_a_call_that_has_begun_is_a_whole_one(calling: fp.Model) -> None:
    asked: dict[str, Any] = {"tools": [RENEW], "seed": 3, "max_tokens": 90, **WILD}
    begun = calling.tokenizer.encode("Let me see.\n<tool_call>")
    answer = calling.generate("hello", take=dict(enumerate(begun)), **asked)
    assert answer.content == "Let me see."
    assert answer.tool_calls[0].values() in ({"days": 7}, {"days": 14})
    begun = calling.tokenizer.encode("Let me see.")
    free = calling.generate("hello", take=dict(enumerate(begun)), **asked)
    assert free.content.startswith("Let me see.")


def test_in_auto_a_form_without_text_before_calls_is_told_by_how_it_begins(
    plain: fp.Model,
) -> None:
    asked: dict[str, Any] = {"tools": [RENEW], "seed": 3, "max_tokens": 60, **WILD}
    begun = plain.tokenizer.encode('{"name": "')
    answer = plain.generate("hello", take=dict(enumerate(begun)), **asked)
    assert [call.name for call in answer.tool_calls] == ["renew"]
    inside = plain.tokenizer.encode('So: {"name": "')
    assert plain.generate("hello", take=dict(enumerate(inside)), **asked).tool_calls == ()


def test_a_tool_that_is_not_strict_is_called_with_any_object_and_said_to_be(
    calling: fp.Model,
) -> None:
    asked: dict[str, Any] = {"tools": [LEND], "tool_choice": "required", "max_tokens": 60, **WILD}
    valid = []
    for seed in SEEDS:
        answer = calling.generate("hello", strict=False, seed=seed, **asked)
        assert all(isinstance(call.values(), dict) for call in answer.tool_calls)
        assert answer.shape is not None
        assert "tool lend_book is not strict" in answer.shape.warnings[0]
        valid.append(jsonschema.Draft202012Validator(NOTE).is_valid(answer.tool_calls[0].values()))
    assert not all(valid)


def test_tools_and_a_schema_together_are_a_call_or_a_value(calling: fp.Model) -> None:
    schema = {"enum": ["a", "b"]}
    for seed in range(12):
        answer = calling.generate(
            "hello", tools=[RENEW], schema=schema, seed=seed, max_tokens=80, **WILD
        )
        assert answer.tool_calls or json.loads(answer.content) in ("a", "b")


def test_all_problems_of_all_tools_are_told_with_the_tool(calling: fp.Model) -> None:
    bad = {"type": "object", "properties": {"a": {"$ref": "http://example.com/x"}}}
    tools = [{**LEND, "input_schema": bad}, {"name": "no", "input_schema": {"type": "array"}}]
    with pytest.raises(SchemaError) as told:
        calling.generate("hello", tools=tools)
    places = [problem.pointer for problem in told.value.problems]
    assert places == ["tool lend_book, /properties/a", "tool no, /"]


@pytest.mark.parametrize("name", [name for name, (_, form) in OWN.items() if form is not None])
def test_every_form_of_calls_is_enforced_and_read_back(name: str, tmp_path: Path) -> None:
    template, _ = OWN[name]
    folder = random_folder(tmp_path / "m", template=template, max_position_embeddings=4_096)
    with fp.load(folder) as model:
        asked: dict[str, Any] = {"tools": [LEND, RENEW], "max_tokens": 120, **WILD}
        for seed in range(4):
            answer = model.generate("hello", tool_choice="required", seed=seed, **asked)
            assert answer.tool_calls
            assert {call.name for call in answer.tool_calls} <= {"lend_book", "renew"}
            for call in answer.tool_calls:
                schema = NOTE if call.name == "lend_book" else RENEW["function"]["parameters"]
                jsonschema.validate(call.values(), schema)
            free = model.generate("hello", tool_choice="none", seed=seed, **asked)
            assert free.tool_calls == ()


def test_a_form_that_cannot_be_enforced_is_refused_by_name_and_schemas_are_not(
    tmp_path: Path,
) -> None:
    template, _ = OWN["xml"]
    folder = random_folder(tmp_path / "m", template=template, max_position_embeddings=4_096)
    with fp.load(folder) as model:
        with pytest.raises(fp.RequestError, match="in XML"):
            model.generate("hello", tools=[RENEW])
        answer = model.generate("hello", schema=NOTE, seed=1, max_tokens=60, **WILD)
        jsonschema.validate(json.loads(answer.text), NOTE)


# ---- reasoning --------------------------------------------------------------------------


@pytest.mark.parametrize("seed", SEEDS)
def test_reasoning_that_the_prompt_opened_is_closed_in_time(thinking: fp.Model, seed: int) -> None:
    answer = thinking.generate("hello", schema=NOTE, seed=seed, max_tokens=60, **WILD)
    assert answer.reasoning is not None
    thought, end, rest = answer.text.partition("</think>")
    assert end
    assert thought.strip() == answer.reasoning
    jsonschema.validate(json.loads(rest), NOTE)
    assert json.loads(answer.content) == json.loads(rest)


def test_required_calls_come_after_the_reasoning(thinking: fp.Model) -> None:
    answer = thinking.generate(
        "hello", tools=[RENEW], tool_choice="required", seed=1, max_tokens=90, **WILD
    )
    assert answer.reasoning is not None
    assert answer.tool_calls[0].name == "renew"


@pytest.mark.parametrize("count", [3])
def test_a_real_model_calls_as_its_form_has_it(model_path: Any, count: int) -> None:
    with fp.load(model_path("smollm2-135m")) as model:
        for seed in range(count):
            answer = model.generate(
                "Lend me a play.", tools=[LEND], tool_choice="required", seed=seed,
                temperature=1.0, max_tokens=90,
            )  # fmt: skip
            (call,) = answer.tool_calls
            jsonschema.validate(call.values(), NOTE)
