"""Names in any order keep what is required and come once; white space never runs away."""

from __future__ import annotations

import json
import re
from collections import Counter
from random import Random
from typing import Any

import pytest

from constraint.judge import Judge
from constraint.vocabularies import ENDS, small
from constraint.walks import blank, uniform, written
from forwardpass.constraint.grammar import Grammar, Style, compile_schema
from forwardpass.constraint.guide import Guide
from forwardpass.constraint.masks import Masker

SEED = 10
NAMES = ["a", "b", "ab", "name", "id", "type", "é", 'q"', "x y", "aa", "a\\b", ""]
VALUES: list[Any] = [
    {"type": "integer"},
    {"type": "boolean"},
    {"enum": ["a", "b", 1]},
    {"type": "string", "maxLength": 3},
    {"type": "array", "items": {"type": "integer"}, "maxItems": 2},
    {"type": "object", "properties": {"a": {"type": "null"}}, "required": ["a"]},
]


def random_object(rng: Random) -> dict[str, Any]:
    """A schema of an object: some names, some of them required, others or none beside them."""
    names = rng.sample(NAMES, rng.randint(1, 6))
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {name: rng.choice(VALUES) for name in names},
        "required": rng.sample(names, rng.randint(0, len(names))),
    }
    if rng.random() < 0.7:
        schema["additionalProperties"] = rng.choice([False, {"type": "integer"}])
    if rng.random() < 0.3:
        schema["minProperties"] = rng.randint(0, len(names))
    if rng.random() < 0.3:
        schema["maxProperties"] = rng.randint(len(schema["required"]) or 1, 7)
        schema["minProperties"] = 0
    return schema


def names_of(text: bytes) -> list[list[str]]:
    """The names of each object of a text, as they come."""
    out: list[list[str]] = []

    def note(pairs: list[tuple[str, Any]]) -> None:
        out.append([name for name, _ in pairs])

    json.loads(text, object_pairs_hook=note)
    return out


def test_any_order_keeps_what_is_required_and_no_name_comes_twice() -> None:
    """200 random objects; 64 tokens beyond the least turn most of them round."""
    rng, turned = Random(SEED), 0
    for _ in range(200):
        schema = random_object(rng)
        masker, judge = Masker(compile_schema(schema, Style("one", "any")), small()), Judge(schema)
        least = Guide(masker, ENDS).least
        for beyond in (0, 2, 64):
            text = written(masker, least + beyond, uniform, rng)
            assert not judge.fault(text), (schema, text)
            for names in names_of(text):
                assert max(Counter(names).values(), default=1) == 1, (schema, text)
            names = names_of(text)[-1]
            places = [[*schema["properties"]].index(n) for n in names if n in schema["properties"]]
            turned += places != sorted(places)
    print(f"seed {SEED}: {turned} of 600 answers in another order than the schema's")
    assert turned > 50


def accepted(grammar: Grammar, pairs: list[tuple[str, Any]]) -> bool:
    """Whether an object of these members, written as they come, passes."""
    members = ", ".join(f"{json.dumps(name)}: {json.dumps(value)}" for name, value in pairs)
    return grammar.accepts(f"{{{members}}}".encode())


def test_every_order_of_a_valid_object_is_accepted_and_no_object_with_a_name_missing_or_twice() -> (
    None
):
    rng = Random(SEED)
    for _ in range(200):
        schema = random_object(rng)
        grammar = compile_schema(schema, Style("one", "any"))
        masker = Masker(grammar, small())
        text = written(masker, Guide(masker, ENDS).least + 20, uniform, rng)
        # Fractions may be too large for a float, and 1 may stand for each of them.
        pairs = [*json.loads(text, parse_float=lambda _: 1).items()]
        for _ in range(3):
            rng.shuffle(pairs)
            assert accepted(grammar, pairs), (schema, pairs)
        for pair in pairs:
            assert not accepted(grammar, [*pairs, pair]), (schema, pairs)
            rest = [other for other in pairs if other != pair]
            if pair[0] in schema["required"]:
                assert not accepted(grammar, rest), (schema, rest)


ANYTHING: list[Any] = [
    True,
    {"type": "object"},
    {"type": "array", "items": {"type": "array"}, "minItems": 2},
    {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "number"}},
     "required": ["a", "b"]},
]  # fmt: skip


@pytest.mark.parametrize("blanks", ["compact", "one", "free"])
def test_a_sampler_that_prefers_blanks_still_ends_and_is_never_cut(blanks: str) -> None:
    """Far from its limit: what is written between two signs stays within the style's bound."""
    bound = {"compact": 0, "one": 1, "free": 8}[blanks]
    for schema in ANYTHING:
        for order in ("schema", "any"):
            masker = Masker(compile_schema(schema, Style(blanks, order)), small())
            for most in (30, 400):
                rng = Random(f"{schema} {most}")
                text = written(masker, most, blank, rng)
                outside = re.sub(rb'"(?:[^"\\]|\\.)*"', b"x", text)
                runs = map(len, re.findall(rb"[ \t\r\n]+", outside))
                assert max(runs, default=0) <= bound, text


def test_blanks_alone_never_follow_one_another_without_end() -> None:
    """With nothing but blanks for as long as there are any, every gap runs out within its bound."""
    for blanks, bound in (("compact", 0), ("one", 1), ("free", 8)):
        grammar = compile_schema(True, Style(blanks, "any"))
        for begun in (
            b"",
            b"{",
            b"[",
            b'{"a"',
            b'{"a":',
            b'{"a":1',
            b'{"a":1,',
            b"[1",
            b"[1,",
            b"[]",
        ):
            state = grammar.start().feed(begun)
            assert state is not None
            run = 0
            while (after := state.advance(0x20)) is not None:
                state, run = after, run + 1
                assert run <= bound, begun
