"""Random schemas, held against `jsonschema` as an independent judge, in both directions."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from constraint.random_schemas import schemas, values
from forwardpass.constraint.grammar import Grammar, Style, compile_schema
from forwardpass.errors import SchemaError

SETTINGS = settings(
    max_examples=400,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
STYLES = st.builds(
    Style, st.sampled_from(["compact", "one", "free"]), st.sampled_from(["schema", "any"])
)


def compiled(schema: Any, style: Style) -> Grammar | None:
    """The grammar; None where no value is valid; the example is dropped where it is refused."""
    try:
        return compile_schema(schema, style)
    except SchemaError as error:
        assume(error.unsatisfiable)
        return None


@SETTINGS
@given(schemas, st.lists(values, max_size=12))
def test_exactly_the_valid_values_are_accepted(schema: Any, instances: list[Any]) -> None:
    grammar = compiled(schema, Style("one", "any"))
    judge = jsonschema.Draft202012Validator(schema)
    for instance in instances:
        accepted = grammar is not None and grammar.accepts(json.dumps(instance).encode())
        assert accepted == judge.is_valid(instance), instance


@SETTINGS
@given(schemas, STYLES, st.lists(st.integers(0, 255), max_size=40))
def test_every_walk_can_be_closed_into_a_valid_text(
    schema: Any, style: Style, draws: list[int]
) -> None:
    grammar = compiled(schema, style)
    assume(grammar is not None)
    assert grammar is not None
    state, text = grammar.start(), b""
    for draw in draws:
        legal = state.allowed_bytes()
        if not legal:
            break
        # Brackets, quotes and few digits before all else, so that walks get somewhere; no
        # exponents, whose values a judge with 64-bit floats sees differently.
        likely = bytes(byte for byte in legal if byte in b'"[]{},:012abc\\-')
        text += bytes([(likely or legal)[draw % len(likely or legal)]])
        after = state.advance(text[-1])
        assert after is not None
        state = after
    closing = grammar.closing(state)
    end = state.feed(closing)
    assert end is not None
    assert end.complete
    assert jsonschema.Draft202012Validator(schema).is_valid(json.loads(text + closing))


@SETTINGS
@given(schemas, values, st.data())
def test_a_text_with_one_byte_changed_is_accepted_only_if_it_is_valid(
    schema: Any, instance: Any, data: st.DataObject
) -> None:
    grammar = compiled(schema, Style("free", "any"))
    assume(grammar is not None)
    assert grammar is not None
    text = bytearray(json.dumps(instance).encode())
    at = data.draw(st.integers(0, len(text) - 1))
    text[at] = data.draw(st.sampled_from(list(b'01"a,:[]{}-. \\n')))
    if grammar.accepts(bytes(text)):
        assert jsonschema.Draft202012Validator(schema).is_valid(json.loads(text))
