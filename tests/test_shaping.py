"""Answers that have a shape: schemas, patterns, choices, tools, whatever the model would write.

The models are random: of what they write on their own, next to nothing would be valid.
"""

from __future__ import annotations

import itertools
import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest

import forwardpass as fp
from forwardpass.errors import SchemaError
from text.call_templates import OWN
from tiny_model import random_folder

NOTE: dict[str, Any] = {
    "type": "object",
    "properties": {
        "title": {"type": "string", "maxLength": 12},
        "pages": {"type": "integer", "minimum": 1, "maximum": 900},
        "kind": {"enum": ["novel", "poem", "play"]},
    },
    "required": ["title", "pages", "kind"],
    "additionalProperties": False,
}
LEND: dict[str, Any] = {"name": "lend_book", "description": "Lends.", "input_schema": NOTE}
RENEW: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "renew",
        "parameters": {
            "type": "object",
            "properties": {"days": {"enum": [7, 14]}},
            "required": ["days"],
            "additionalProperties": False,
        },
    },
}
PLAIN = """\
{%- for m in messages %}
    {{- '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}
"""
CALLING = """\
{%- if tools %}{{ '<|im_start|>system\\n' + tools | tojson + '<|im_end|>\\n' }}{% endif %}
{%- for m in messages %}
    {{- '<|im_start|>' + m.role + '\\n' }}
    {%- if m.tool_calls %}
        {{- m.content }}
        {%- if m.content %}{{ '\\n' }}{% endif %}
        {%- for c in m.tool_calls %}{% set f = c.function %}
            {{- '\\n' if not loop.first }}{{ '<tool_call>\\n{"name": "' + f.name }}
            {{- '", "arguments": ' + f.arguments | tojson + '}\\n</tool_call>' }}
        {%- endfor %}
    {%- else %}{{ m.content }}{% endif %}
    {{- '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}
"""
SEEDS = range(8)
WILD = {"temperature": 3.0}


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


# ---- one shape --------------------------------------------------------------------------


@pytest.mark.parametrize("seed", SEEDS)
def test_an_answer_is_valid_under_its_schema(plain: fp.Model, seed: int) -> None:
    answer = plain.generate("hello", schema=NOTE, seed=seed, max_tokens=80, **WILD)
    jsonschema.validate(json.loads(answer.text), NOTE)
    assert answer.shape is not None
    assert answer.shape.complete
    assert answer.shape.steps == len(answer.steps)


def test_the_shortest_answer_fits_and_less_is_refused_before_the_first_token(
    plain: fp.Model,
) -> None:
    with pytest.raises(fp.RequestError, match=r"max_tokens = 1: the shortest") as told:
        plain.stream("hello", schema=NOTE, max_tokens=1)
    found = re.search(r"takes (\d+) tokens", str(told.value))
    assert found is not None
    least = int(found.group(1))
    with pytest.raises(fp.RequestError, match=f"max_tokens = {least - 1}: the shortest"):
        plain.stream("hello", schema=NOTE, max_tokens=least - 1)
    for most, seed in itertools.product((least, least + 1, least + 3, least + 10), SEEDS):
        answer = plain.generate("hello", schema=NOTE, seed=seed, max_tokens=most, **WILD)
        jsonschema.validate(json.loads(answer.text), NOTE)
        assert len(answer.steps) <= most


def test_an_answer_that_the_limit_closed_says_so(plain: fp.Model) -> None:
    schema = {"type": "string", "minLength": 4}
    answer = plain.generate("hello", schema=schema, max_tokens=12, seed=1, **WILD)
    assert answer.shape is not None
    assert (answer.finish_reason, answer.shape.closed_by_budget) == ("length", True)
    assert any(step.mask is not None and step.mask.steered for step in answer.steps)
    jsonschema.validate(json.loads(answer.text), schema)


def test_a_context_that_has_no_room_for_the_shape_is_refused(tmp_path: Path) -> None:
    with fp.load(random_folder(tmp_path / "m"), context=40) as model:
        room = 40 - len(model.prepare("hello").ids) + 1
        with pytest.raises(fp.ContextError, match=f"the prompt leaves {room} tokens"):
            model.stream("hello", schema={"const": "x" * 200})


@pytest.mark.parametrize("seed", SEEDS)
def test_all_of_an_answer_matches_its_pattern(plain: fp.Model, seed: int) -> None:
    pattern = r"[A-Z]{2}-\d{3,5}(, [a-f]+)?"
    answer = plain.generate("hello", regex=pattern, seed=seed, max_tokens=30, **WILD)
    assert re.fullmatch(pattern, answer.text)


@pytest.mark.parametrize("seed", SEEDS)
def test_an_answer_is_one_of_the_choices(plain: fp.Model, seed: int) -> None:
    choice = ["yes", "yes, please", "no – never", "🎉"]
    answer = plain.generate("hello", choice=choice, seed=seed, **WILD)
    assert (answer.text in choice, answer.finish_reason) == (True, "stop")


@pytest.mark.parametrize("seed", SEEDS)
def test_any_json_object_is_one(plain: fp.Model, seed: int) -> None:
    answer = plain.generate("hello", json_object=True, seed=seed, max_tokens=25, **WILD)
    assert isinstance(json.loads(answer.text), dict)


def test_a_raw_text_is_continued_in_a_shape(plain: fp.Model) -> None:
    answer = plain.generate(fp.raw("The answer is "), choice=["left", "right"], seed=2, **WILD)
    assert answer.text in ("left", "right")


def test_keys_may_come_in_any_order_where_that_is_asked(plain: fp.Model) -> None:
    orders = set()
    for seed in range(20):
        asked = {"schema": NOTE, "seed": seed, "max_tokens": 80, **WILD}
        free = json.loads(plain.generate("hello", key_order="any", **asked).text)
        jsonschema.validate(free, NOTE)
        orders.add(tuple(free))
        kept = json.loads(plain.generate("hello", **asked).text)
        assert [*kept] == ["title", "pages", "kind"]
    assert len(orders) > 1  # 1 in 6^19 if all orders were as likely


def test_a_seed_gives_the_same_answer_streamed_or_not_and_among_others(plain: fp.Model) -> None:
    asked: dict[str, Any] = {"schema": NOTE, "max_tokens": 60, **WILD}
    alone = plain.generate("hello", seed=5, **asked)
    streamed = [step.text for step in plain.stream("hello", seed=5, **asked)]
    assert "".join(streamed) == alone.text
    among = {}
    for seed, going in zip((4, 5), plain.each_seed("hello", (4, 5), **asked), strict=True):
        for _ in going:
            pass
        among[seed] = going.answer().text
    assert among[5] == alone.text != among[4]


def test_a_step_tells_what_the_mask_left(plain: fp.Model) -> None:
    answer = plain.generate("hello", choice=["ab", "cd"], seed=3, **WILD)
    first = answer.steps[0].mask
    assert first is not None
    starts = {bytes(text[:end], "ascii") for text in ("ab", "cd") for end in (1, 2)}
    assert first.allowed == sum(text in starts for text in plain.shapes.tokens.texts)
    assert 0 < first.removed < 1
    assert plain.generate("hello", max_tokens=1).steps[0].mask is None
    assert plain.generate("hello", max_tokens=1).shape is None


def test_what_a_schema_says_and_nobody_enforces_is_told(plain: fp.Model) -> None:
    schema = {"type": "object", "properties": {"at": {"type": "string", "format": "postcode"}}}
    answer = plain.generate("hello", schema=schema, max_tokens=30, seed=1)
    assert answer.shape is not None
    assert [w.split(":")[0] for w in answer.shape.warnings] == ["/properties/at"]


def test_a_token_taken_against_the_grammar_is_refused(plain: fp.Model) -> None:
    token = plain.tokenizer.encode("x")[0]
    with pytest.raises(fp.RequestError, match=rf"take: token {token} at place 0 is not in"):
        plain.generate("hello", choice=["ab", "cd"], take={0: token})


# ---- tools ------------------------------------------------------------------------------


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


# ---- what is refused --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"schema": True, "regex": "a"}, "schema and regex were both given"),
        ({"choice": ["a"], "json_object": True}, "json_object and choice were both given"),
        ({"schema": "x"}, "schema = 'x': wanted an object, True or False"),
        ({"schema": False}, "the JSON schema cannot be enforced"),
        ({"schema": {"type": "integr"}}, "the JSON schema cannot be enforced"),
        ({"regex": 5}, "regex = 5: wanted a text"),
        ({"regex": "("}, r"regex '\('"),
        ({"regex": "a(?!a)b(?<=x)"}, "regex "),
        ({"choice": []}, "choice: wanted at least one text"),
        ({"choice": "ab"}, "choice = 'ab': wanted a list of texts"),
        ({"choice": [1]}, r"choice = \[1\]: wanted a list of texts"),
        ({"json_object": 1}, "json_object = 1: wanted True or False"),
        ({"key_order": "any"}, "key_order needs schema or tools"),
        ({"schema": True, "key_order": "anny"}, "key_order = 'anny': wanted schema or any  "),
        ({"schema": True, "constraint": "lmql"}, "constraint = 'lmql': wanted own or llguidance"),
        ({"choice": ["a"], "constraint": "llguidance"}, "constraint = llguidance: wanted with"),
        ({"lark": "start: x", "constraint": "own"}, "lark needs constraint = llguidance"),
        ({"tools": [LEND], "constraint": "llguidance"}, "llguidance and tools were both given"),
        ({"strict": True}, "strict needs tools"),
        ({"parallel_tool_calls": False}, "parallel_tool_calls needs tools"),
        ({"tool_choice": "required"}, "tool_choice needs tools"),
        ({"tools": [LEND], "tool_choice": "must"}, "tool_choice = 'must'"),
        ({"tools": [LEND], "tool_choice": {"type": "tool", "name": "x"}}, "there is no tool 'x'"),
        (
            {"tools": [LEND], "tool_choice": "required", "schema": True},
            "schema and required tools: an answer is a call or has the shape",
        ),
        ({"shema": True}, "there is no option 'shema'"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
)
def test_what_contradicts_itself_is_refused_by_name(
    plain: fp.Model, options: dict[str, Any], said: str
) -> None:
    with pytest.raises(fp.RequestError, match=said):
        plain.generate("hello", max_tokens=20, **options)


def test_equal_requests_share_what_was_compiled(plain: fp.Model) -> None:
    one = plain.prepare("hello", schema=NOTE).shape
    other = plain.prepare("another", schema=json.loads(json.dumps(NOTE))).shape
    assert one is not None
    assert other is not None
    assert one.made is other.made
    assert plain.prepare("hello", schema=NOTE, key_order="any").shape is not one


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
