"""The native masks of real grammars are those that follow every token byte by byte."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from constraint.random_schemas import schemas
from constraint.vocabularies import small
from forwardpass.constraint.grammar import Grammar, Style, compile_schema, text_grammar
from forwardpass.constraint.masks import Masker
from forwardpass.constraint.states import State
from forwardpass.constraint.tokens import ids_of
from forwardpass.errors import SchemaError

STYLES = [Style("one"), Style("compact"), Style("free"), Style("one", "any"), Style("free", "any")]
_AB = {"a": {"type": "integer"}, "b": {"type": "string"}}
_UNIQUE: dict[str, Any] = {"type": "array", "uniqueItems": True, "minItems": 2}
# What it costs to make an item different is told with a margin: a limit leaves few tokens then.
MARGIN = {**_UNIQUE, "items": {"type": "object"}}
CHOSEN: list[Any] = [
    True,
    {"type": "string"},
    {"enum": ["a", "ab", 1, 12, None, True]},
    {"type": "object", "properties": _AB, "required": ["a", "b"], "additionalProperties": False},
    {"type": "object", "properties": _AB, "required": ["b"]},
    {"type": "object", "additionalProperties": {"type": "integer"}, "minProperties": 2},
    {"type": "object", "propertyNames": {"enum": ["a", "name", "id"]}, "maxProperties": 2},
    {**_UNIQUE, "items": {"type": "string"}},
    {**_UNIQUE, "items": {"enum": ["x", "y", "abc"]}},
    MARGIN,
    {**_UNIQUE, "items": {"type": ["number", "boolean"]}, "minItems": 3},
    {"type": "array", "items": {**_UNIQUE, "items": {"enum": ["x", "a", "b"]}}, "minItems": 1},
    {
        "anyOf": [
            {"type": "object", "properties": {"a": {"const": 1}}, "required": ["a"]},
            {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a", "c"]},
            {"type": "array"},
        ]
    },
    {"type": "array", "items": {"type": "string", "minLength": 2, "maxLength": 4}, "maxItems": 3},
    {
        "type": "array",
        "contains": {"type": "integer"},
        "minContains": 2,
        "items": {"type": ["integer", "string"]},
    },
    {"type": "string", "pattern": "^a+b?[0-9]{2}$"},
    {
        "type": "object",
        "patternProperties": {"^a": {"type": "integer"}, "b$": {"type": "integer"}},
        "additionalProperties": {"type": "string"},
        "minProperties": 2,
        "maxProperties": 3,
    },
    {"type": "array", "items": {"$ref": "#"}, "minItems": 1, "prefixItems": [{"type": "integer"}]},
    {"type": "number", "minimum": 0.5, "maximum": 100, "multipleOf": 0.25},
]  # fmt: skip


class Pair:
    """Masks of one grammar from both sides, looked at along a walk."""

    def __init__(self, grammar: Grammar) -> None:
        self.native = Masker(grammar, small())
        self.plain = Masker(grammar, small(), plain=True)

    def walk(self, rng: Random, steps: int) -> Counter[str]:
        """Compares along a random walk; how many limits took something away, how many tokens were
        left, and how many of these the native masks lack."""
        seen: Counter[str] = Counter()
        state, text = self.native.grammar.start(), b""
        for _ in range(steps):
            ids = self.compare(state, rng, text, seen)
            if not ids:
                break
            # Half of the steps open or end something, so that walks get somewhere.
            texts = small().texts
            turns = [i for i in ids if set(texts[i] or b"") & set(b'{}[]",:')]
            token = rng.choice(turns if turns and rng.random() < 0.5 else ids)
            after = self.native.after(state, token)
            assert after is not None, (text, token)
            state, text = after, text + (texts[token] or b"")
        return seen

    def compare(self, state: State, rng: Random, text: bytes, seen: Counter[str]) -> list[int]:
        native, plain = self.native.mask(state), self.plain.mask(state)
        ids: list[int] = ids_of(native.words).tolist()
        assert ids == ids_of(plain.words).tolist(), text
        assert native.count == plain.count == len(ids), text
        assert native.worst >= plain.worst or not ids, text
        limit = rng.randrange(max(native.worst, 1))
        within = self.native.mask(state, limit)
        least = set(ids_of(self.plain.mask(state, limit).words).tolist())
        kept = set(ids_of(within.words).tolist())
        assert kept <= least, (text, limit)
        assert within.count == len(kept), (text, limit)
        seen += Counter(lacking=len(least - kept), least=len(least), cut=len(least) < len(ids))
        return ids


@pytest.mark.parametrize("schema", CHOSEN, ids=str)
def test_the_masks_of_chosen_schemas_are_equal_from_both_sides(schema: Any) -> None:
    seen: Counter[str] = Counter()
    for style in Random(str(schema)).sample(STYLES, 2):
        pair = Pair(compile_schema(schema, style))
        for seed in range(2):
            seen += pair.walk(Random(f"{schema} {seed}"), 10)
    assert seen["cut"], "no limit took anything away"
    assert seen["lacking"] <= 0.1 * seen["least"] or schema is MARGIN


@settings(
    max_examples=40,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
@given(schemas, st.sampled_from(STYLES), st.integers(0, 1 << 32))
def test_the_masks_of_random_schemas_are_equal_from_both_sides(
    schema: Any, style: Style, seed: int
) -> None:
    try:
        grammar = compile_schema(schema, style)
    except SchemaError:
        assume(False)
        raise
    Pair(grammar).walk(Random(seed), 10)


def test_the_masks_of_plain_texts_are_equal_from_both_sides() -> None:
    for grammar in (text_grammar("a+(b|é){1,3}[0-9]*"), text_grammar(choice=["ab", "abc", "日本"])):
        for seed in range(5):
            Pair(grammar).walk(Random(seed), 8)


def test_one_state_has_one_mask_whatever_was_asked_before() -> None:
    """A mask does not hang on the walks that filled the tables."""
    grammar = compile_schema(CHOSEN[5], Style("one", "any"))
    state = grammar.start().feed(b'{"a": 1, "')
    assert state is not None
    used = Pair(grammar)
    for seed in range(5):
        used.walk(Random(seed), 12)
    fresh = Masker(compile_schema(CHOSEN[5], Style("one", "any")), small())
    start = fresh.grammar.start().feed(b'{"a": 1, "')
    assert start is not None
    for limit in (-1, 0, 3, 5, 8):
        assert (used.native.mask(state, limit).words == fresh.mask(start, limit).words).all()
