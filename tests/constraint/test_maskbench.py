"""Held against schemas as people write them, with instances, and `jsonschema` as the judge.

The instances come in an order of their own, so `key_order="any"` is used here. Some are marked
invalid for a format alone; formats are annotations, so there `jsonschema` without formats decides.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import jsonschema
from jsonschema.validators import validator_for

from constraint.ratchets import only_improves
from forwardpass.constraint.grammar import Grammar, Style, compile_schema
from forwardpass.errors import SchemaError

OWN: list[dict[str, Any]] = [
    {
        "id": "own",
        "schema": {"oneOf": [{"type": "string", "format": "uuid"}, {"type": "integer"}]},
        "tests": [
            {"data": "no uuid", "valid": False},
            {"data": 3, "valid": True},
            {"data": None, "valid": False},
        ],
    }
]


def schemas(cases: Path | None) -> list[dict[str, Any]]:
    if cases is None:
        return OWN
    paths = sorted((cases / "constraint" / "maskbench").glob("*.json"))
    return [case for path in paths for case in json.loads(path.read_text("utf-8"))]


def judged(case: dict[str, Any], grammar: Grammar) -> str:
    """`right`, or what went wrong with an instance."""
    judge = validator_for(case["schema"], jsonschema.Draft202012Validator)(case["schema"])
    for test in case["tests"]:
        accepted = grammar.accepts(json.dumps(test["data"]).encode())
        if accepted != test["valid"]:
            if not accepted:
                return "valid refused"
            if not judge.is_valid(test["data"]):
                return "invalid accepted"
    return "right"


def test_schemas_of_the_field_are_accepted_and_their_instances_come_out_right(
    cases: Path | None,
) -> None:
    outcomes, seconds = {}, []
    for case in schemas(cases):
        started = time.perf_counter()
        try:
            grammar = compile_schema(case["schema"], Style("one", "any"))
        except SchemaError as error:
            some_valid = any(test["valid"] for test in case["tests"])
            nothing = "valid refused" if some_valid else "no value"
            outcomes[case["id"]] = nothing if error.unsatisfiable else "refused"
        else:
            outcomes[case["id"]] = judged(case, grammar)
        seconds.append(time.perf_counter() - started)
    found = list(outcomes.values())
    seconds.sort()
    print(
        f"{found.count('right')} of {len(found)} accepted; with instances"
        f" p50 {seconds[len(seconds) // 2] * 1e3:.2f} ms, worst {seconds[-1] * 1e3:.0f} ms"
    )
    assert "invalid accepted" not in found
    assert "valid refused" not in found
    if cases:
        assert len(found) == 2_038
        assert found.count("right") >= 2_000
        only_improves("maskbench", outcomes)
