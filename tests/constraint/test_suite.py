"""Held against the official JSON Schema test suite, JSON parsing cases and reported bugs.

An instance's text is `json.dumps` of it, so its names come in the order of the instance:
`key_order="any"` is what the suite asks of an engine. Nothing is fetched; formats are annotations.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from constraint.ratchets import only_improves
from forwardpass.constraint.documents import Dialect
from forwardpass.constraint.grammar import Grammar, Style, compile_schema, json_grammar
from forwardpass.errors import SchemaError

ANY_ORDER = Style("one", "any")
OWN_SUITE = [
    {
        "description": "own cases",
        "schema": {"type": "object", "required": ["a"], "properties": {"a": {"type": "integer"}}},
        "tests": [
            {"description": "right", "data": {"b": 1, "a": 2}, "valid": True},
            {"description": "wrong", "data": {"b": 1, "a": "2"}, "valid": False},
        ],
    }
]


def compiled(schema: object, default: Dialect) -> Grammar | str:
    """The grammar, or what its refusal means for an instance."""
    try:
        return compile_schema(schema, ANY_ORDER, default)
    except SchemaError as error:
        return "nothing is valid" if error.unsatisfiable else "refused"


def outcome(grammar: Grammar | str, data: object, valid: bool) -> str:
    if grammar == "refused":
        return "refused"
    text = json.dumps(data).encode()
    accepted = isinstance(grammar, Grammar) and grammar.accepts(text)
    if accepted == valid:
        return "right"
    return "invalid accepted" if accepted else "valid refused"


@pytest.mark.parametrize(
    ("draft", "default", "right", "of"),
    [
        ("draft2020-12", Dialect.DRAFT2020, 1_170, 1_299),
        ("draft7", Dialect.DRAFT7, 850, 927),
    ],
)
def test_the_suite_comes_out_right_or_refused_and_never_looser(
    cases: Path | None, draft: str, default: Dialect, right: int, of: int
) -> None:
    folder = cases and cases / "constraint" / "json-schema-test-suite" / "tests" / draft
    groups = [
        (path.stem, group)
        for path in sorted(folder.glob("*.json") if folder else [])
        for group in json.loads(path.read_text("utf-8"))
    ] or [("own", group) for group in OWN_SUITE]
    outcomes = {}
    for stem, group in groups:
        grammar = compiled(group["schema"], default)
        for test in group["tests"]:
            name = f"{stem} / {group['description']} / {test['description']}"
            outcomes[name] = outcome(grammar, test["data"], test["valid"])
    counts = Counter(outcomes.values())
    print(draft, dict(counts))
    assert counts["invalid accepted"] == 0
    assert counts["valid refused"] == 0
    if folder:
        assert len(outcomes) == of
        assert counts["right"] >= right
        only_improves(draft, outcomes)


OWN_SYNTAX = [
    {"expect": "accept", "text": ' [1, -0, 1.5e+3, "\\ud83d\\ude00", {"a": null, "a": {}}]\n'},
    {"expect": "reject", "text": "[1,]"},
    {"expect": "reject", "text": "[01]"},
    {"expect": "reject", "hex": "22edA08022"},
    {"expect": "reject", "text": "[" * 100_000},
]


def test_bare_json_is_what_rfc_8259_says(cases: Path | None) -> None:
    listed = OWN_SYNTAX
    if cases:
        path = cases / "constraint" / "json-syntax" / "test_parsing.json"
        listed = json.loads(path.read_text("utf-8"))
    grammar = json_grammar()
    counts: Counter[str] = Counter()
    for case in listed:
        text = case["text"].encode() if "text" in case else bytes.fromhex(case["hex"])
        accepted = grammar.accepts(text)
        if case["expect"] != "either":
            assert accepted == (case["expect"] == "accept"), case
            counts[case["expect"]] += 1
    if cases:
        assert counts == {"accept": 95, "reject": 187}


OWN_REPORTS = [
    {
        "id": "both of pattern and maxLength",
        "schema": {"pattern": "^[a-z]+$", "maxLength": 3},
        "accept": ['"abc"'],
        "reject": ['"abcd"', '"A"'],
    },
]


@pytest.mark.parametrize("key_order", ["schema", "any"])
def test_what_was_reported_of_other_engines_comes_out_right(
    cases: Path | None, key_order: str
) -> None:
    listed = OWN_REPORTS
    if cases:
        listed = json.loads((cases / "constraint" / "reports.json").read_text("utf-8"))
    for report in listed:
        grammar = compile_schema(report["schema"], Style("one", key_order))
        for text in report["accept"]:
            assert grammar.accepts(text.encode()), (report["id"], text)
        for text in report["reject"]:
            assert not grammar.accepts(text.encode()), (report["id"], text)


def test_a_string_may_be_65_536_long_and_no_longer() -> None:
    grammar = compile_schema({"type": "string", "maxLength": 65_536})
    assert grammar.accepts(b'"' + b"a" * 65_536 + b'"')
    assert not grammar.accepts(b'"' + b"a" * 65_537 + b'"')
