"""Schemas as the Python clients write them: pydantic's own, and the strict form of OpenAI's.

Written down as they come out of pydantic 2, so that no client has to be installed.
"""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest

from forwardpass.constraint.grammar import Grammar, Style, compile_schema


def strict(**properties: Any) -> dict[str, Any]:
    """An object as the strict form wants it: all names required, no others."""
    return {
        "type": "object",
        "title": "Answer",
        "properties": {n: {"title": n.title(), **p} for n, p in properties.items()},
        "required": list(properties),
        "additionalProperties": False,
    }


def plain(required: list[str], **properties: Any) -> dict[str, Any]:
    """An object as pydantic writes it."""
    return {"title": "Model", "type": "object", "properties": properties, "required": required}


def tagged(tag: str, **properties: Any) -> dict[str, Any]:
    return plain(["kind", *properties], kind={"const": tag, "type": "string"}, **properties)


TEXT, WHOLE = {"type": "string"}, {"type": "integer"}
NONE = {"type": "null"}
PETS = {
    "Cat": tagged("cat", lives={"type": "integer", "minimum": 1, "maximum": 9}),
    "Dog": tagged("dog", breed=TEXT),
}
NODE = strict(value=TEXT, children={"type": "array", "items": {"$ref": "#/$defs/Node"}})
PRICE = {
    "anyOf": [{"type": "number"}, {"type": "string", "pattern": r"^(?!^[-+.]*$)[+-]?0*\d*\.?\d*$"}]
}

# name: schema, valid values, invalid values
CASES: dict[str, tuple[dict[str, Any], list[Any], list[Any]]] = {
    "scalars": (
        strict(a=TEXT, b=WHOLE, c={"type": "number"}, d={"type": "boolean"}),
        [{"a": "x", "b": 1, "c": 1.5, "d": True}],
        [{"a": "x", "b": 1, "c": 1.5}, {"a": "x", "b": 1.5, "c": 1, "d": True}],
    ),
    "optional by null": (
        strict(a={"anyOf": [TEXT, NONE]}), [{"a": None}, {"a": ""}], [{}, {"a": 1}]),
    "optional with default": (
        plain([], a={"anyOf": [TEXT, NONE], "default": None, "title": "A"}),
        [{}, {"a": None}], [{"a": 1}]),
    "literals": (
        strict(a={"enum": ["low", "high"], "type": "string"}, b={"const": "v1", "type": "string"}),
        [{"a": "low", "b": "v1"}], [{"a": "mid", "b": "v1"}, {"a": "low", "b": "v2"}]),
    "mixed literals": (
        plain(["a"], a={"enum": ["auto", 1, True, None]}),
        [{"a": 1}, {"a": None}, {"a": True}], [{"a": 2}, {"a": False}]),
    "enum by reference": (
        {"$defs": {"Colour": {"enum": ["red", "blue"], "title": "Colour", "type": "string"}},
         **strict(c={"$ref": "#/$defs/Colour"})},
        [{"c": "red"}], [{"c": "green"}]),
    "reference with siblings": (
        {"$defs": {"P": strict(x=WHOLE)},
         **plain(["p"], p={"$ref": "#/$defs/P", "description": "where", "default": {"x": 1}})},
        [{"p": {"x": 3}}], [{"p": {}}, {"p": {"x": 3, "y": 1}}]),
    "single allOf": (
        {"$defs": {"P": strict(x=WHOLE)},
         **plain(["p"], p={"allOf": [{"$ref": "#/$defs/P"}], "title": "P"})},
        [{"p": {"x": 3}}], [{"p": {"x": "3"}}]),
    "lists": (
        strict(a={"type": "array", "items": strict(n=TEXT)}),
        [{"a": []}, {"a": [{"n": "x"}]}], [{"a": [{}]}]),
    "bounded list": (
        plain(["a"], a={"type": "array", "items": WHOLE, "minItems": 1, "maxItems": 2}),
        [{"a": [1]}], [{"a": []}, {"a": [1, 2, 3]}]),
    "tuple": (
        plain(["t"], t={"type": "array", "prefixItems": [WHOLE, TEXT],
                        "minItems": 2, "maxItems": 2}),
        [{"t": [1, "a"]}], [{"t": [1]}, {"t": ["a", 1]}, {"t": [1, "a", 2]}]),
    "set of literals": (
        plain(["s"], s={"type": "array", "uniqueItems": True, "items": {"enum": ["a", "b"]}}),
        [{"s": ["b", "a"]}], [{"s": ["a", "a"]}]),
    "dict": (
        plain(["d"], d={"type": "object", "additionalProperties": WHOLE}),
        [{"d": {}}, {"d": {"any": 1}}], [{"d": {"any": "1"}}]),
    "constraints": (
        plain(["a", "b"], a={"type": "string", "minLength": 1, "maxLength": 3,
                             "pattern": "^[a-z]+$"},
              b={"type": "number", "exclusiveMinimum": 0, "maximum": 1}),
        [{"a": "ab", "b": 0.5}, {"a": "abc", "b": 1}], [{"a": "abcd", "b": 1}, {"a": "a", "b": 0}]),
    "multiple of": (
        plain(["a"], a={"type": "number", "multipleOf": 0.25}), [{"a": 1.75}], [{"a": 0.3}]),
    "decimal": (plain(["a"], a=PRICE), [{"a": 1.5}, {"a": "12.50"}], [{"a": "x"}, {"a": None}]),
    "discriminated union": (
        {"$defs": PETS,
         **plain(["pet"], pet={
             "discriminator": {"mapping": {"cat": "#/$defs/Cat", "dog": "#/$defs/Dog"},
                               "propertyName": "kind"},
             "oneOf": [{"$ref": "#/$defs/Cat"}, {"$ref": "#/$defs/Dog"}]})},
        [{"pet": {"kind": "cat", "lives": 9}}, {"pet": {"kind": "dog", "breed": "x"}}],
        [{"pet": {"kind": "cat", "breed": "x"}}, {"pet": {"kind": "cow"}}]),
    "union in a list": (
        {"$defs": PETS,
         **strict(pets={"type": "array",
                        "items": {"anyOf": [{"$ref": "#/$defs/Cat"}, {"$ref": "#/$defs/Dog"}]}})},
        [{"pets": [{"kind": "dog", "breed": ""}, {"kind": "cat", "lives": 1}]}],
        [{"pets": [{"kind": "cat", "lives": 10}]}]),
    "recursive": (
        {"$defs": {"Node": NODE}, "$ref": "#/$defs/Node"},
        [{"value": "a", "children": [{"value": "b", "children": []}]}],
        [{"value": "a", "children": [{"value": "b"}]}]),
    "optional and recursive": (
        {"$defs": {"L": strict(v=WHOLE, next={"anyOf": [{"$ref": "#/$defs/L"}, NONE]})},
         "$ref": "#/$defs/L"},
        [{"v": 1, "next": {"v": 2, "next": None}}], [{"v": 1, "next": {"v": 2}}]),
    "any": (plain(["a"], a={"title": "A"}), [{"a": [1, {"b": None}]}], [{}]),
    "forbidding others": (
        {**plain(["a"], a=TEXT, b=WHOLE), "additionalProperties": False},
        [{"a": "x"}, {"a": "x", "b": 1}], [{"b": 1}, {"a": "x", "c": 1}]),
}  # fmt: skip


@pytest.mark.parametrize("key_order", ["schema", "any"])
@pytest.mark.parametrize("name", CASES)
def test_a_schema_of_the_clients_takes_what_is_valid_and_nothing_else(
    name: str, key_order: str
) -> None:
    schema, valid, invalid = CASES[name]
    judge = jsonschema.Draft202012Validator(schema)
    assert all(map(judge.is_valid, valid))
    assert not any(map(judge.is_valid, invalid))
    grammar = compile_schema(schema, Style(key_order=key_order))
    assert grammar.warnings == ()
    assert all(accepts(grammar, value) for value in valid)
    assert not any(accepts(grammar, value) for value in invalid)
    judge.validate(json.loads(grammar.closing(grammar.start())))


def test_formats_of_pydantic_are_warned_of_and_asserted_where_asked() -> None:
    formats = ("date-time", "date", "time", "duration", "uuid", "email", "uri", "ipv4", "ipv6")
    schema = strict(**{name.replace("-", "_"): {**TEXT, "format": name} for name in formats})
    told = compile_schema(schema).warnings
    assert [pointer for pointer, _ in told] == [
        f"/properties/{name.replace('-', '_')}" for name in formats
    ]
    assert all("x-assert-format" in text for _, text in told)
    day = compile_schema(strict(at={**TEXT, "format": "date-time", "x-assert-format": True}))
    assert accepts(day, {"at": "2025-02-28T10:00:00Z"})
    assert not accepts(day, {"at": "yesterday"})


def accepts(grammar: Grammar, value: Any) -> bool:
    return grammar.accepts(json.dumps(value).encode())
