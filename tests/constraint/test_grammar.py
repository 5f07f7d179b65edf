"""States, layout, refusals: what a caller of the engine sees."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from forwardpass.constraint.grammar import Grammar, State, Style, compile_schema
from forwardpass.errors import RequestError, SchemaError

ITEM = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "quantity": {"type": "number"},
        "unit": {"enum": ["g", "kg", "ml", "l", "tsp", "tbsp", "piece", "bunch"]},
    },
    "required": ["name", "quantity", "unit"],
    "additionalProperties": False,
}
SHOPPING = {
    "type": "object",
    "properties": {"items": {"type": "array", "items": ITEM}},
    "required": ["items"],
    "additionalProperties": False,
}


def after(grammar: Grammar, text: str) -> State:
    state = grammar.start().feed(text.encode())
    assert state is not None
    return state


def problems(schema: Any) -> dict[str, str]:
    with pytest.raises(SchemaError) as raised:
        compile_schema(schema)
    return {f"{p.pointer} {p.keyword}": p.reason for p in raised.value.problems}


@pytest.mark.parametrize(
    ("written", "allowed"),
    [
        ("", b"{"),
        ('{"items": [{"name": "basil", "quantity":', b" -0123456789"),
        ('{"items": [{"name": "basil", "quantity": 1, "unit": "', b"bgklmpt"),
        ('{"items": [{"name": "basil", "quantity": 1, "unit": "b', b"u"),
        ('{"items": [{"name": "basil", "quantity": 1, "unit": "bunch"}]', b"}"),
    ],
)
def test_the_shopping_list_allows_what_its_schema_says(written: str, allowed: bytes) -> None:
    assert after(compile_schema(SHOPPING), written).allowed_bytes() == allowed


def test_a_complete_text_allows_nothing_more() -> None:
    grammar = compile_schema(SHOPPING)
    state = after(grammar, '{"items": []}')
    assert state.complete
    assert state.allowed_bytes() == b""
    assert grammar.closing(state) == b""


def test_equal_places_are_equal_states_however_they_were_reached() -> None:
    grammar = compile_schema({"type": "array", "items": {"type": "string"}})
    left, right = after(grammar, '["a", "b'), after(grammar, '["a","\\u0063')
    assert left == right
    assert hash(left) == hash(right)
    assert left != after(grammar, '["a"')


def test_states_are_values_so_going_on_changes_nothing() -> None:
    state = after(compile_schema(SHOPPING), '{"items')
    before = state.allowed_bytes()
    state.advance(ord('"'))
    assert state.allowed_bytes() == before


@pytest.mark.parametrize(
    ("blanks", "accepted", "refused"),
    [
        ("compact", ['{"a":[1,2]}'], ['{"a": [1,2]}', '{"a":[1, 2]}', ' {"a":[1,2]}']),
        ("one", ['{"a":[1,2]}', '{"a": [1, 2]}'], ['{"a":  [1,2]}', '{ "a":[1,2]}']),
        ("free", ['\n{\n\t"a" :  [ 1 , 2 ] } '], ['{"a":' + " " * 9 + "[1]}"]),
    ],
)
def test_white_space_is_what_the_style_says(
    blanks: str, accepted: list[str], refused: list[str]
) -> None:
    grammar = compile_schema({"type": "object"}, Style(blanks))
    assert all(grammar.accepts(text.encode()) for text in accepted)
    assert not any(grammar.accepts(text.encode()) for text in refused)


def test_who_prefers_blanks_still_comes_to_an_end() -> None:
    grammar = compile_schema(SHOPPING, Style("free"))
    state, text = grammar.start(), b""
    while not state.complete:
        blank = next((b for b in b" \t\n\r" if state.advance(b)), None)
        text += bytes([grammar.closing(state)[0] if blank is None else blank])
        state = after(grammar, text.decode())
    assert json.loads(text) == {"items": []}


def test_names_come_in_the_order_of_the_schema_or_in_any() -> None:
    schema = {
        "properties": {"a": True, "b": True, "c": True},
        "required": ["b"],
        "type": "object",
    }
    ordered = compile_schema(schema)
    assert ordered.accepts(b'{"b":1,"c":2,"other":3}')
    assert ordered.accepts(b'{"a":1,"b":2}')
    assert not ordered.accepts(b'{"b":1,"a":2}')
    assert not ordered.accepts(b'{"other":3,"b":1}')
    free = compile_schema(schema, Style(key_order="any"))
    assert free.accepts(b'{"other":3,"c":2,"b":1,"a":0}')
    assert not free.accepts(b'{"c":2,"a":0}')
    assert not free.accepts(b'{"b":2,"b":0}')
    assert not free.accepts(b'{"b":2,"other":0,"oth\\u0065r":1}')


def test_an_unknown_style_is_named_with_the_nearest() -> None:
    with pytest.raises(RequestError, match="did you mean compact"):
        Style("compct")


def test_text_may_be_escaped_in_every_way_and_no_surrogate_stands_alone() -> None:
    free = compile_schema({"type": "string"})
    for text in ('"a/é😀"', '"\\u0061\\/\\u00E9\\ud83d\\uDE00"', '"\\u0061/\\u00e9😀"'):
        assert free.accepts(text.encode())
    for raw in (
        b'"\\ud83d"',
        b'"\\ude00\\ud83d"',
        b'"\xed\xa0\x80"',
        b'"\xc0\x80"',
        b'"\xff"',
        b'"\n"',
    ):
        assert not free.accepts(raw)


def test_a_listed_text_is_written_one_way_but_for_what_is_not_ascii() -> None:
    grammar = compile_schema({"enum": ['a/é😀"', "\n"]})
    for text in ('"a/é😀\\""', '"a/\\u00E9\\ud83d\\uDE00\\u0022"', '"\\n"', '"\\u000a"'):
        assert grammar.accepts(text.encode())
    for text in ('"\\u0061/é😀\\""', '"a\\/é😀\\""'):
        assert not grammar.accepts(text.encode())


def test_all_problems_are_told_at_once_each_with_its_place_and_a_way_out() -> None:
    found = problems(
        {
            "properties": {
                "a": {"$ref": "https://example.com/other.json"},
                "b": {"type": "text"},
                "c/d": {"pattern": "(a)\\1"},
                "e": {"type": "array", "items": {"minimum": "3"}},
            }
        }
    )
    assert list(found) == [
        "/properties/a $ref",
        "/properties/b type",
        "/properties/c~1d pattern",
        "/properties/e/items minimum",
    ]
    assert "fetched" in found["/properties/a $ref"]
    assert "back reference" in found["/properties/c~1d pattern"]


@pytest.mark.parametrize(
    ("schema", "place"),
    [
        ({"$ref": "#"}, " $ref"),
        ({"anyOf": [{"$ref": "#"}, {"type": "null"}]}, "/anyOf/0 $ref"),
        ({"$ref": "#/$defs/gone"}, " $ref"),
        ({"$schema": "http://json-schema.org/draft-03/schema#"}, " $schema"),
        ({"type": "array", "uniqueItems": True, "items": {"enum": [[1], [2]]}}, " uniqueItems"),
        ({"format": 3}, " format"),
        ({"minLength": -1}, " minLength"),
        ([], " $schema"),
    ],
)
def test_what_cannot_be_kept_is_refused_with_its_keyword(schema: Any, place: str) -> None:
    assert place in problems(schema)


def test_a_schema_without_values_says_so() -> None:
    for schema in (
        {"type": "string", "enum": [1]},
        {"type": "object", "properties": {"a": False}, "required": ["a"]},
        {"$defs": {"n": {"type": "object", "properties": {"n": {"$ref": "#/$defs/n"}},
                         "required": ["n"]}}, "$ref": "#/$defs/n"},
        {"type": "integer", "exclusiveMinimum": 1, "exclusiveMaximum": 2},
        {"type": "array", "items": {"type": "boolean"}, "uniqueItems": True, "minItems": 3},
    ):  # fmt: skip
        with pytest.raises(SchemaError) as raised:
            compile_schema(schema)
        assert raised.value.unsatisfiable


def test_a_format_is_an_annotation_with_a_warning_unless_it_is_asserted() -> None:
    schema = {"properties": {"day": {"type": "string", "format": "date"}}}
    lenient = compile_schema(schema)
    assert lenient.accepts(b'{"day":"soon"}')
    assert [pointer for pointer, _ in lenient.warnings] == ["/properties/day"]
    strict = compile_schema(schema, Style(assert_formats=True))
    assert not strict.accepts(b'{"day":"soon"}')
    assert not strict.accepts(b'{"day":"2023-02-29"}')
    assert strict.accepts(b'{"day":"2024-02-29"}')


NESTED: Any = {"type": "string"}
for _ in range(900):
    NESTED = {"items": NESTED}


@pytest.mark.parametrize(
    ("schema", "accepted"),
    [
        ({"type": "array", "items": {"type": "null"}, "maxItems": 2**64}, "[null,null]"),
        ({"type": "string", "maxLength": 2**64}, '"a"'),
        ({"type": "string", "pattern": "^(a{1000}){1000}$"}, None),
        ({"type": "string", "pattern": "^(a|a)*$", "maxLength": 10**9}, '"aaaa"'),
        ({"type": "string", "pattern": "(" * 60_000 + ")" * 60_000}, SchemaError),
        ({"enum": [f"{i:0100}" for i in range(100_000)]}, SchemaError),
        ({"type": "array", "minItems": 2**64}, SchemaError),
        (NESTED, SchemaError),
        ({"oneOf": [{"required": [a, b]} for a in "abcdefgh" for b in "ijklmnop"]}, SchemaError),
    ],
    ids=range(9),
)
def test_hostile_schemas_are_refused_or_stay_within_their_limits(
    schema: Any, accepted: Any
) -> None:
    started = time.process_time()
    if accepted is SchemaError:
        with pytest.raises(SchemaError):
            compile_schema(schema)
    else:
        grammar = compile_schema(schema)
        assert accepted is None or grammar.accepts(accepted.encode())
    print(f"{(time.process_time() - started) * 1e3:.0f} ms")


def test_an_array_may_nest_a_hundred_thousand_deep() -> None:
    grammar = compile_schema(True)
    state = grammar.start().feed(b"[" * 100_000)
    assert state is not None
    assert grammar.accepts(b"[" * 5_000 + b"]" * 5_000)
