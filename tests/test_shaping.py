"""Answers that have a shape: schemas, patterns, choices, whatever the model would write.

The models are random: of what they write on their own, next to nothing would be valid.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest

import forwardpass as fp
from shaped import LEND, NOTE, PLAIN, SEEDS, WILD
from tiny_model import random_folder


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> fp.Model:
    """A model whose template knows no tools."""
    path = tmp_path_factory.mktemp("models") / "plain"
    return fp.load(random_folder(path, template=PLAIN, max_position_embeddings=4_096))


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


@pytest.mark.parametrize(
    "options",
    [{"schema": NOTE}, {"schema": {"type": "string", "minLength": 4}, "max_tokens": 12}],
    ids=["forced", "closed"],
)
def test_a_trace_of_it_is_written_read_and_replayed(
    plain: fp.Model, options: dict[str, Any], tmp_path: Path
) -> None:
    going = plain.stream("hello", seed=2, **options, **WILD)
    for _ in going:
        pass
    trace = going.trace()
    assert trace.masks is not None
    assert trace.masks.complete
    fp.write_trace(trace, tmp_path / "trace.json")
    assert fp.read_trace(tmp_path / "trace.json") == trace
    again = going.answer().resample()
    assert (again.text, again.finish_reason) == (trace.text, trace.finish_reason)


def test_answers_that_share_a_shape_may_come_at_once(plain: fp.Model) -> None:
    async def all_of_them() -> list[fp.Answer]:
        asked: dict[str, Any] = {"schema": NOTE, "max_tokens": 60, **WILD}
        return await asyncio.gather(
            *(plain.agenerate("hello", seed=seed, **asked) for seed in range(4))
        )

    for seed, answer in enumerate(asyncio.run(all_of_them())):
        alone = plain.generate("hello", schema=NOTE, max_tokens=60, seed=seed, **WILD)
        assert answer.text == alone.text


def test_a_token_taken_against_the_grammar_is_refused(plain: fp.Model) -> None:
    token = plain.tokenizer.encode("x")[0]
    with pytest.raises(fp.RequestError, match=rf"take: token {token} at place 0 is not in"):
        plain.generate("hello", choice=["ab", "cd"], take={0: token})


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
    one = plain.stream("hello", schema=NOTE).prompt.shape
    other = plain.stream("another", schema=json.loads(json.dumps(NOTE))).prompt.shape
    free = plain.stream("hello", schema=NOTE, key_order="any").prompt.shape
    assert one is not None
    assert other is not None
    assert free is not None
    assert one.made is other.made is not free.made
