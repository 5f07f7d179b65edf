"""Whatever a sampler does and wherever the limit lies, the answer ends in time and is valid."""

from __future__ import annotations

import time
from pathlib import Path
from random import Random
from typing import Any

import pytest

from constraint.judge import Judge
from constraint.test_maskbench import schemas
from constraint.vocabularies import ENDS, small
from constraint.walks import blank, longest, uniform, written
from forwardpass.constraint.grammar import Style, compile_schema, text_grammar
from forwardpass.constraint.guide import Guide
from forwardpass.constraint.masks import Masker
from forwardpass.errors import RequestError, SchemaError

SEED = 4
BEYOND = (0, 1, 3, 10, 64)  # tokens more than the least
STYLES = [Style("one"), Style("compact"), Style("free"), Style("one", "any"), Style("free", "any")]


def check(case: dict[str, Any]) -> int:
    """How many answers were written; none where the schema is refused."""
    rng = Random(f"{SEED} {case['id']}")
    try:
        grammar = compile_schema(case["schema"], rng.choice(STYLES))
    except SchemaError:
        return 0
    masker, judge = Masker(grammar, small()), Judge(case["schema"])
    least = Guide(masker, ENDS).least
    with pytest.raises(RequestError, match=f"takes {least} tokens"):
        Guide(masker, ENDS).check(least - 1)
    answers = 0
    for beyond in BEYOND:
        for sampler in (uniform, longest, blank):
            text = written(masker, least + beyond, sampler, rng)
            fault = judge.fault(text)
            assert not fault, (case["id"], sampler.__name__, beyond, text, fault)
            answers += 1
    return answers


@pytest.mark.parametrize("count", [40, pytest.param(None, marks=pytest.mark.large)])
def test_every_answer_ends_in_time_and_is_valid(cases: Path | None, count: int | None) -> None:
    listed = schemas(cases)
    drawn = listed if count is None else Random(SEED).sample(listed, min(count, len(listed)))
    started = time.perf_counter()
    answers = [check(case) for case in drawn]
    accepted = sum(map(bool, answers))
    seconds = time.perf_counter() - started
    print(f"seed {SEED}: {sum(answers)} answers under {accepted} schemas in {seconds:.0f} s")
    assert accepted >= 0.98 * len(drawn)


TIGHT: list[Any] = [
    {"enum": ["a", "ab", "abc", 12, 123, None, {"a": [1, 2]}]},
    {"type": "array", "items": {"enum": ["x", "y", "abc"]}, "uniqueItems": True, "minItems": 3},
    {"type": "array", "items": {"type": "object"}, "uniqueItems": True, "minItems": 3},
    {"type": "array", "items": {"type": "number"}, "uniqueItems": True, "minItems": 4},
    {"type": "array", "items": {"type": ["string", "null"]}, "uniqueItems": True, "minItems": 2},
    {"type": "array", "contains": {"type": "integer"}, "minContains": 2, "maxItems": 4},
    {"type": "object", "minProperties": 3, "additionalProperties": {"type": "boolean"}},
    {"type": "object", "patternProperties": {"^a": {"const": 1}}, "minProperties": 2},
    {"type": "object", "propertyNames": {"enum": ["a", "name", "id"]}, "minProperties": 2},
    {"type": "string", "pattern": "^(ab|c)+[0-9]{3}$", "minLength": 6},
    {"type": "string", "minLength": 3, "maxLength": 5},
    {"type": "number", "minimum": 0.5, "maximum": 1000, "multipleOf": 0.25},
    {"type": "integer", "exclusiveMinimum": 1234567},
    {"properties": {"a": {"$ref": "#"}, "b": {"type": "integer"}}, "required": ["b"]},
    {
        "anyOf": [
            {"type": "object", "properties": {"a": {"const": 1}}, "required": ["a"]},
            {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a", "name"]},
            {"type": "array", "items": {"$ref": "#"}, "minItems": 1},
        ]
    },
    {
        "if": {"properties": {"a": {"const": 1}}, "required": ["a"]},
        "then": {"required": ["b"], "minProperties": 3},
        "else": {"type": "array", "minItems": 2},
    },
]


@pytest.mark.parametrize("schema", TIGHT, ids=str)
def test_limits_next_to_the_least_are_kept_where_much_is_owed(schema: Any) -> None:
    judge = Judge(schema)
    for style in STYLES:
        masker, rng = Masker(compile_schema(schema, style), small()), Random(f"{schema}")
        least = Guide(masker, ENDS).least
        for most in (*range(least, least + 6), least + 20):
            for sampler in (uniform, longest):
                text = written(masker, most, sampler, rng)
                assert not judge.fault(text), text


def test_plain_texts_end_in_time_too() -> None:
    for grammar in (text_grammar("(ab|c)+[0-9]{3}é*"), text_grammar(choice=["ab", "abc", "日本"])):
        masker, rng = Masker(grammar, small()), Random(SEED)
        least = Guide(masker, ENDS).least
        for beyond in BEYOND:
            for sampler in (uniform, longest):
                assert grammar.accepts(written(masker, least + beyond, sampler, rng))


def test_the_same_holds_without_the_native_masks() -> None:
    for schema in TIGHT[1:8]:
        masker = Masker(compile_schema(schema), small(), plain=True)
        judge, rng = Judge(schema), Random(SEED)
        least = Guide(masker, ENDS).least
        for most in (least, least + 3):
            assert not judge.fault(written(masker, most, uniform, rng))
