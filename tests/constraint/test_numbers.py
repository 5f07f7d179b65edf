"""Numbers as they are written, held against exact fractions."""

from __future__ import annotations

import json
import re
from decimal import Decimal
from fractions import Fraction

from hypothesis import given, settings
from hypothesis import strategies as st

from forwardpass.constraint import decimals
from forwardpass.constraint.numbers import LITERAL, WRITTEN_OUT, Numbers, any_number
from forwardpass.constraint.numerals import DEAD, Numerals

ALPHABET = b"0123456789.eE+-"
SMALL = st.builds(lambda n, d: Fraction(n, 10**d), st.integers(-300, 300), st.integers(0, 2))


@st.composite
def sets(draw: st.DrawFn) -> Numbers:
    ranges = decimals.EVERYTHING
    if draw(st.booleans()):
        ranges = decimals.meet(ranges, decimals.at_least(draw(SMALL), above=draw(st.booleans())))
    if draw(st.booleans()):
        ranges = decimals.meet(ranges, decimals.at_most(draw(SMALL), below=draw(st.booleans())))
    steps = [None, Fraction(1), Fraction(5, 2), Fraction(7), Fraction(3, 10)]
    step = draw(st.sampled_from(steps))
    never = draw(st.sampled_from([frozenset[Fraction](), frozenset([Fraction(2)])]))
    form = draw(st.sampled_from([None, None, LITERAL, WRITTEN_OUT]))
    return Numbers(ranges, step, never, form)


def texts() -> st.SearchStrategy[str]:
    plain = st.from_regex(re.compile(r"-?(0|[1-9][0-9]{0,3})(\.[0-9]{1,3})?(e[+-]?0?[0-9])?"),
                          fullmatch=True)  # fmt: skip
    return plain.filter(str.isascii)


@settings(max_examples=600, deadline=None)
@given(sets(), texts())
def test_a_number_is_accepted_exactly_where_its_value_is_in_the_set(
    numbers: Numbers, text: str
) -> None:
    value = Fraction(Decimal(text))
    literal = text.lstrip("-").isdigit()
    expected = numbers.holds(value) and (
        numbers.form is None or (numbers.form == LITERAL) == literal
    )
    accepted = False
    if numbers.ranges and any_number(numbers):
        numerals = Numerals()
        state = numerals.start(numbers)
        for byte in text.encode():
            state = numerals.step(state, byte)
            if state == DEAD:
                break
        accepted = state != DEAD and numerals.done(state)
    assert accepted == expected


@settings(max_examples=300, deadline=None)
@given(sets(), st.lists(st.integers(0, 10**6), max_size=10))
def test_every_beginning_of_a_number_can_be_completed(numbers: Numbers, draws: list[int]) -> None:
    if not numbers.ranges or not any_number(numbers):
        return
    numerals = Numerals()
    state, text = numerals.start(numbers), b""
    for draw in draws:
        legal = [byte for byte in ALPHABET if numerals.step(state, byte) != DEAD]
        if not legal:
            break
        text += bytes([legal[draw % len(legal)]])
        state = numerals.step(state, text[-1])
    text += numerals.finish(state)
    json.loads(text)
    if not numbers.free:
        assert numbers.holds(Fraction(Decimal(text.decode())))
    assert (numbers.form == LITERAL) <= text.lstrip(b"-").isdigit()


@settings(max_examples=300, deadline=None)
@given(sets(), sets(), SMALL)
def test_sets_of_numbers_are_closed_under_intersection_and_complement(
    left: Numbers, right: Numbers, value: Fraction
) -> None:
    def holds(numbers: Numbers | None) -> bool:
        return numbers is not None and numbers.form is None and numbers.holds(value)

    left, right = (Numbers(n.ranges, n.step, n.never) for n in (left, right))
    assert holds(left.meet(right)) == (holds(left) and holds(right))
    assert any(map(holds, left.others())) != holds(left)
