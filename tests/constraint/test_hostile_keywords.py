"""Keywords of the wrong type, misspelt or out of place: told with pointer, keyword and reason."""

from __future__ import annotations

from typing import Any

import pytest

from forwardpass.constraint.grammar import compile_schema
from forwardpass.constraint.spelling import distance, nearest
from forwardpass.errors import SchemaError

COUNT = "is not a whole number from 0"
NUMBER = "is not a number"
LIST = "is not a list of schemas"
SCHEMA = "holds what is no schema"


def _each(keywords: str, values: list[Any], reason: str) -> list[tuple[str, Any, str]]:
    return [(keyword, value, reason) for keyword in keywords.split() for value in values]


WRONG: list[tuple[str, Any, str]] = [
    *_each("type", [3, [], ["string", 3], "text", None, {}], "is not one of"),
    *_each("enum", ["a", {}, 3], "is not a list"),
    *_each("minimum maximum exclusiveMinimum exclusiveMaximum", ["1", None, True, []], NUMBER),
    *_each("multipleOf", ["1", None, True, []], NUMBER),
    *_each("multipleOf", [0, -1, -0.5], "is not above 0"),
    *_each("minLength maxLength minItems maxItems", [-1, 1.5, "1", True, None], COUNT),
    *_each("minProperties maxProperties", [-1, 1.5, "1", True, None], COUNT),
    *_each("pattern format $ref $dynamicRef", [3], "is not a text"),
    *_each("uniqueItems", [1], "is not true or false"),
    *_each("allOf anyOf oneOf", [{}, [], 3], LIST),
    *_each("allOf anyOf oneOf prefixItems", [[3]], f"{SCHEMA} at 0"),
    *_each("not items contains additionalProperties propertyNames", [3], SCHEMA),
    *_each("unevaluatedItems unevaluatedProperties", [3], SCHEMA),
    *_each("properties patternProperties", [[]], "is not a map of schemas"),
    *_each("properties dependentSchemas", [{"a": 3}], f"{SCHEMA} at a"),
    *_each("patternProperties", [{"(": True}], "has a ( without its )"),
    *_each("required", ["a", [1], {}], "is not a list of names"),
    *_each("dependentRequired", [[]], "is not a map"),
    *_each("dependentRequired", [{"a": [1]}], "is not a list of names"),
    *_each("prefixItems", [{}], "is not a list"),
    *_each("$ref", ["#/gone"], "leads nowhere"),
    *_each("$ref", ["#gone"], "names no anchor"),
    *_each("$ref", ["other.json"], "would have to be fetched"),
]


@pytest.mark.parametrize(("keyword", "value", "reason"), WRONG)
def test_a_keyword_of_the_wrong_type_is_told_with_its_place_and_reason(
    keyword: str, value: Any, reason: str
) -> None:
    with pytest.raises(SchemaError) as raised:
        compile_schema({"properties": {"a/b": {keyword: value}}})
    (problem,) = raised.value.problems
    assert (problem.pointer, problem.keyword) == ("/properties/a~1b", keyword)
    assert reason in problem.reason
    assert problem.way_out


def test_everything_that_is_wrong_is_told_at_once() -> None:
    chosen = {f"p{i}": {keyword: value} for i, (keyword, value, _) in enumerate(WRONG[:90])}
    with pytest.raises(SchemaError) as raised:
        compile_schema({"properties": chosen})
    told = {(problem.pointer, problem.keyword) for problem in raised.value.problems}
    assert told == {(f"/properties/{n}", *schema) for n, schema in chosen.items()}


def test_several_wrong_keywords_of_one_schema_are_all_told() -> None:
    with pytest.raises(SchemaError) as raised:
        compile_schema({"minimum": "1", "pattern": 3, "required": "a", "minItems": -1, "items": 3})
    assert {p.keyword for p in raised.value.problems} == {
        "minimum",
        "pattern",
        "required",
        "minItems",
        "items",
    }


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("requierd", "required"),
        ("additionalproperties", "additionalProperties"),
        ("minlength", "minLength"),
        ("minLenght", "minLength"),
        ("propertys", "properties"),
        ("item", "items"),
        ("ref", "$ref"),
        ("oneof", "oneOf"),
        ("enums", "enum"),
    ],
)
def test_a_misspelt_keyword_is_a_warning_that_names_what_was_meant(name: str, meant: str) -> None:
    grammar = compile_schema({"properties": {"a": {name: ["b"], "type": "string"}}})
    warning = f"{name} is no keyword and does nothing (did you mean {meant}?)"
    assert grammar.warnings == (("/properties/a", warning),)


def test_a_schema_of_nothing_but_a_misspelt_keyword_is_warned_of_too() -> None:
    assert [pointer for pointer, _ in compile_schema({"requierd": ["a"]}).warnings] == [""]


@pytest.mark.parametrize(
    "name",
    ["title", "example", "colour", "x-type", "$comment", "note", "_format", "id", "markdown", ""],
)
def test_annotations_are_no_misspelt_keywords(name: str) -> None:
    assert compile_schema({name: "b", "type": "string"}).warnings == ()


def test_keywords_of_another_draft_are_warned_of() -> None:
    draft7 = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "dependentRequired": {"a": ["b"]},
        "properties": {"a": {"$ref": "#/definitions/n", "minimum": 3}},
        "definitions": {"n": {"type": "integer"}},
    }
    assert compile_schema(draft7).warnings == (
        ("", "dependentRequired does nothing in draft 7: use 2019-09"),
        ("/properties/a", "minimum does nothing beside $ref in draft 7"),
    )


def test_a_format_that_is_not_enforced_is_warned_of_with_the_way_out() -> None:
    grammar = compile_schema({"properties": {"a~b": {"type": "string", "format": "date"}}})
    ((pointer, text),) = grammar.warnings
    assert pointer == "/properties/a~0b"
    assert text == 'format "date" is an annotation; x-assert-format enforces it'
    asserted = {"type": "string", "format": "date", "x-assert-format": True}
    assert compile_schema(asserted).warnings == ()
    with pytest.raises(SchemaError, match="x-assert-format is not true or false"):
        compile_schema({"format": "date", "x-assert-format": "yes"})


def test_warnings_are_kept_within_bounds() -> None:
    schema: Any = {"properties": {f"p{i}": {"requierd": []} for i in range(5_000)}}
    assert len(compile_schema(schema).warnings) == 100


def test_a_swap_of_neighbours_is_one_step() -> None:
    assert distance("requierd", "required") == 1
    assert distance("", "abc") == 3
    assert distance("kitten", "sitting") == 3
    assert nearest("a" * 10_000) is None
