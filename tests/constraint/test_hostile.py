"""Schemas made to cost much: each is refused with its place and reason, or compiled within limits.

Work is bounded by a counter of steps and never by a clock, so an outcome is the same on every
machine; the tests hold the counter and the sizes of the tables to their limits.
"""

from __future__ import annotations

from typing import Any

import pytest

from forwardpass.constraint.documents import MOST_SCHEMAS
from forwardpass.constraint.grammar import Builder
from forwardpass.constraint.scripts import single
from forwardpass.constraint.steps import FOR_SCHEMA, MOST_STEPS, Exhausted, Steps, Work
from forwardpass.errors import SchemaError, SchemaProblem


def pattern(text: str, **more: Any) -> dict[str, Any]:
    return {"type": "string", "pattern": text, **more}


def within(builder: Builder) -> None:
    """The steps of what was compiled last are within the limit, and counting has ended."""
    steps = builder.languages.steps
    assert steps.total <= steps.most
    assert steps.most <= MOST_STEPS + FOR_SCHEMA * (MOST_SCHEMAS + 1_000)
    assert not steps.counting


def refused(schema: Any) -> list[SchemaProblem]:
    builder = Builder()
    with pytest.raises(SchemaError) as raised:
        builder.value(schema)
    within(builder)
    assert all(problem.way_out for problem in raised.value.problems)
    assert len(str(raised.value)) < 100_000
    return list(raised.value.problems)


def references(count: int, last: Any) -> dict[str, Any]:
    defs = {f"d{i}": {"$ref": f"#/$defs/d{i + 1}"} for i in range(count)}
    return {"$ref": "#/$defs/d0", "$defs": {**defs, f"d{count}": last}}


def nested_not(depth: int) -> Any:
    schema: Any = {"type": "string"}
    for _ in range(depth):
        schema = {"not": schema}
    return schema


CHOICES = "(alternatives)"
REFUSED: dict[str, tuple[Any, str, str]] = {
    "groups": (pattern("(" * 60_000 + ")" * 60_000), "pattern", "20,000 are read"),
    "groups within length": (pattern("(" * 9_000), "pattern", "deeper than 100"),
    "itself": ({"$ref": "#"}, "$ref", "no value in between"),
    "itself in anyOf": ({"anyOf": [{"$ref": "#"}, True]}, "$ref", "no value in between"),
    "ids in a ring": (
        {"$id": "http://x/a", "$ref": "b", "$defs": {"b": {"$id": "b", "$ref": "a"}}},
        "$ref",
        "no value in between",
    ),
    "anchors in a ring": (
        {"$ref": "#x", "$defs": {"a": {"$anchor": "x", "$ref": "#y"},
                                 "b": {"$anchor": "y", "$ref": "#x"}}},
        "$ref",
        "no value in between",
    ),
    "least items": ({"type": "array", "minItems": 2**64}, "minItems", "1,000,000"),
    "counters crossed": (
        {"type": "string", "minLength": 1_000,
         "allOf": [{"pattern": f"^((a|b){{{i}}}c?)*$"} for i in (7, 11, 13, 17, 19, 23)]},
        "(texts)",
        "175,000 steps",
    ),
    "the same letter from the end": (
        {"type": "string", "allOf": [pattern("^(a|b)*a(a|b){20}$"), pattern("^(a|b)*b(a|b){20}$")]},
        "(texts)",
        "175,000 steps",
    ),
    "multiples of primes": (
        {"type": "string", "not": {"pattern": "^(a{510510})*$"},
         "allOf": [{"pattern": f"^(a{{{i}}})*$"} for i in (2, 3, 5, 7, 11, 13, 17)]},
        "(texts)",
        "175,000 steps",
    ),
    "patterns in allOf": (
        {"type": "string", "allOf": [{"pattern": f"a{i}b"} for i in range(1_000)]},
        "(texts)",
        "175,000 steps",
    ),
    "patterns in oneOf": ({"oneOf": [pattern(f"x{i}y") for i in range(200)]}, "(texts)", "steps"),
    "pattern properties": (
        {"patternProperties": {f"{chr(97 + i % 26)}.*{chr(97 + i // 26)}": {"minimum": i}
                               for i in range(200)}},
        "(texts)",
        "steps",
    ),
    "one long text": ({"enum": ["a" * 10_000_000]}, "$schema", "4,000,000 characters"),
    "many short texts": ({"enum": [f"{i:020}" for i in range(500_000)]}, "$schema", "300,000"),
    "many numbers": ({"enum": list(range(0, 500_000, 2))}, "(numbers)", "175,000 steps"),
    "many lists": ({"enum": [[i] for i in range(1_000)]}, CHOICES, "256"),
    "a long list": ({"const": list(range(100_000))}, "const", "2,000 parts"),
    "a large object": ({"const": {f"k{i}": i for i in range(20_000)}}, "const", "2,000 parts"),
    "anyOf by anyOf": (
        {"allOf": [{"anyOf": [{"required": [f"p{i}-{j}"]} for j in range(1_000)]}
                   for i in range(1_000)]},
        "$schema",
        "300,000 values",
    ),
    "anyOf by allOf": (
        {"anyOf": [{"required": [f"p{i}"]} for i in range(1_000)],
         "allOf": [{"properties": {f"q{i}": {"type": "string"}}} for i in range(1_000)]},
        CHOICES,
        "175,000 steps",
    ),
    "schemas": ({"properties": {f"p{i}": {} for i in range(100_000)}}, "$schema", "15,000 schemas"),
    "names": ({"required": [f"p{i}" for i in range(100_000)]}, "required", "10,000 names"),
    "oneOf of pairs": (
        {"oneOf": [{"required": [a, b]} for a in "abcdefgh" for b in "ijklmnop"]},
        CHOICES,
        "175,000 steps",
    ),
    "if and then": (
        {"allOf": [{"if": {"required": [f"p{i}"]}, "then": {"required": [f"q{i}"]}}
                   for i in range(100)]},
        CHOICES,
        "256",
    ),
    "long prefixes": (
        {"prefixItems": [{"minimum": i} for i in range(2_000)],
         "not": {"prefixItems": [{"maximum": i} for i in range(2_000)]}},
        CHOICES,
        "175,000 steps",
    ),
    "references": (references(10_000, {"type": "null"}), "(size)", "100 schemas"),
    "references in a ring": (references(10_000, {"$ref": "#/$defs/d0"}), "(size)", "100 schemas"),
    "not": (nested_not(500), "$schema", "deeper than 200"),
    "not within depth": (nested_not(190), "(size)", "100 schemas"),
    "seven contains": (
        {"allOf": [{"contains": {"const": i}, "maxContains": 9} for i in range(7)]},
        "contains",
        "more than 6",
    ),
    "many that differ": (
        {"type": "array", "uniqueItems": True, "minItems": 1_000_000, "items": {"type": "integer"}},
        "uniqueItems",
        "10,000 items",
    ),
    "no number": ({"const": float("nan")}, "enum", "JSON does not know"),
    "infinity": ({"multipleOf": float("inf")}, "multipleOf", "not a number"),
    "a long reference": ({"$ref": "x" * 3_000_000}, "$ref", "fetched"),
    "a long pointer": ({"$ref": "#/" + "a/" * 1_000_000}, "$ref", "leads nowhere"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_a_costly_schema_is_refused_with_its_keyword_and_reason(name: str) -> None:
    schema, keyword, reason = REFUSED[name]
    found = refused(schema)
    assert [(problem.keyword, reason in problem.reason) for problem in found] == [(keyword, True)]


COMPILED: dict[str, tuple[Any, str, str]] = {
    "no value up to 2^64": (
        {"type": "array", "items": {"type": "null"}, "maxItems": 2**64}, "[null]", "[1]"),
    "a million dots": (pattern("(.{1000000})"), "", '"a"'),
    "a million by a million": (pattern("a{1000000}{1000000}"), "", '"aa"'),
    "nested plus": (pattern("^(a+)+$"), '"aaaa"', '"aaab"'),
    "either is the same": (pattern("^(a|a)*b$"), '"aab"', '"aa"'),
    "nested counters": (pattern("^((a{1,100}){1,100}b?){1,100}$"), '"aabab"', '"bb"'),
    "counters under not": (
        {"type": "string",
         "not": {"pattern": "|".join(f"^(a{{{i},{i + 7}}}b){{{i}}}$" for i in range(1, 200))}},
        '"aac"',
        '"aab"'),
    "a letter from the end": (
        {"type": "string", "pattern": "^(a|b)*a(a|b){40}$",
         "not": {"pattern": "^(a|b)*b(a|b){41}$"}},
        '"' + "a" * 45 + '"',
        '"' + "b" * 45 + '"'),
    "a long enum": ({"enum": [f"v{i}" for i in range(20_000)]}, '"v19999"', '"v20000"'),
    "many integers": ({"enum": list(range(0, 20_000, 2))}, "19998", "19999"),
    "5,000 properties": (
        {"properties": {f"p{i}": {"type": "integer"} for i in range(5_000)}},
        '{"p4999": 1}',
        '{"p4999": "1"}'),
    "six contains": (
        {"type": "array",
         "allOf": [{"contains": {"multipleOf": p}, "minContains": 1, "maxContains": 50}
                   for p in (2, 3, 5, 7, 11, 13)]},
        "[30030]",
        "[2310]"),
    "a huge multiple": ({"type": "number", "multipleOf": 10**400}, "0", "1"),
    "a huge limit": ({"type": "integer", "maximum": 10**100_000}, "12", "1.5"),
    "a tiny multiple": ({"type": "number", "multipleOf": 1e-300, "minimum": 1}, "1.5", "0.5"),
    "many multiples": (
        {"type": "integer", "allOf": [{"multipleOf": i} for i in range(2, 20)]}, "0", "12"),
    "many that differ": (
        {"type": "array", "uniqueItems": True, "items": {"enum": [f"v{i}" for i in range(10_000)]}},
        '["v1", "v2"]',
        '["v1", "v1"]'),
    "not of not": (nested_not(50), '"a"', "1"),
    "a path with escapes": (
        {"$ref": "#/$defs/a%25b~1c%2520", "$defs": {"a%b/c%20": {"type": "null"}}}, "null", "1"),
}  # fmt: skip


@pytest.mark.parametrize("name", COMPILED)
def test_a_schema_that_looks_costly_compiles_within_its_limits(name: str) -> None:
    schema, valid, invalid = COMPILED[name]
    builder = Builder()
    grammar = builder.grammar(single(builder.value(schema)))
    within(builder)
    assert builder.languages.size < 20_000
    assert not valid or grammar.accepts(valid.encode())
    assert not grammar.accepts(invalid.encode())


def test_a_number_beyond_all_that_is_honoured_has_no_value() -> None:
    for schema in ({"const": 10**100_000}, {"type": "number", "minimum": 10**100_000}):
        with pytest.raises(SchemaError) as raised:
            Builder().value(schema)
        assert raised.value.unsatisfiable


def test_the_hundredth_problem_is_the_last_that_is_looked_for() -> None:
    found = refused({"properties": {f"p{i}": {"type": "nope"} for i in range(5_000)}})
    assert len(found) == 101
    assert {problem.keyword for problem in found[:100]} == {"type"}
    assert found[100].keyword == "(problems)"


def test_one_costly_part_is_told_beside_the_other_problems() -> None:
    schema = {
        "properties": {
            "a": {"minLength": "3"},
            "b": {"anyOf": [{"required": 1}, {"$ref": "#/gone"}]},
            "c": REFUSED["the same letter from the end"][0],
        }
    }
    assert [(p.pointer, p.keyword) for p in refused(schema)] == [
        ("/properties/a", "minLength"),
        ("/properties/b/anyOf/0", "required"),
        ("/properties/b/anyOf/1", "$ref"),
        ("/properties/c", "(texts)"),
    ]


def test_steps_run_out_naming_what_took_most_and_are_not_counted_in_use() -> None:
    steps = Steps()
    steps.spend(Work.TEXTS, 10 * MOST_STEPS)
    steps.begin()
    steps.spend(Work.NUMBERS, MOST_STEPS)
    with pytest.raises(Exhausted) as raised:
        steps.spend(Work.TEXTS, 1)
    assert raised.value.keyword == "(numbers)"
    steps.end()
    steps.spend(Work.TEXTS, 10 * MOST_STEPS)


def test_a_grammar_in_use_looks_only_so_far_and_then_refuses_and_never_loosens() -> None:
    # After x no text is left, which only a search of millions of languages would show.
    hard = [pattern(f"^(c|x(a|b)*{one}(a|b){{20}})$") for one in "ab"]
    builder = Builder()
    grammar = builder.grammar(single(builder.value({"allOf": hard})))
    state = grammar.start().feed(b'"')
    assert state is not None
    assert state.advance(ord("x")) is None
    assert grammar.accepts(b'"c"')
    assert grammar.closing(state) == b'c"'
    assert builder.languages.size < 20_000
