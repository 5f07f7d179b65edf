from __future__ import annotations

import math

import pytest

from forwardpass.errors import FormatError
from forwardpass.formats.strict_json import parse_object


def test_a_json_object_is_read_as_it_is() -> None:
    assert parse_object(b' {"a": [1, 2.5, null, true], "b": {"c": "\xc3\xa9"}} ', "f") == {
        "a": [1, 2.5, None, True],
        "b": {"c": "é"},
    }


@pytest.mark.parametrize(
    ("text", "fact"),
    [
        (b"", "not valid JSON"),
        (b"{", "not valid JSON"),
        (b'{"a": "\xff"}', "not valid JSON: 'utf-8'"),
        (b"[]", "a JSON object was wanted, found list"),
        (b"null", "found NoneType"),
        (b'{"a": 1, "b": 2, "a": 3}', "the key 'a' is given twice"),
        (b'{"x": {"b": 2, "b": 3}}', "the key 'b' is given twice"),
        (b'{"a": NaN}', "NaN is not JSON"),
        (b'{"a": Infinity}', "Infinity is not JSON"),
        (b'{"a": -Infinity}', "-Infinity is not JSON"),
        (b'{"a": ' + b"9" * 5000 + b"}", "a number of 5000 digits"),
        (b'{"a": ' + b"[" * 100_000, "nested too deep"),
        (b'{"a":' * 100_000, "nested too deep"),
    ],
)
def test_what_is_no_strict_json_is_refused_saying_why(text: bytes, fact: str) -> None:
    with pytest.raises(FormatError) as error:
        parse_object(text, "some.json: the header")
    assert error.value.fact.startswith("some.json: the header: ")
    assert fact in error.value.fact
    assert len(str(error.value)) < 300


def test_infinity_is_read_where_a_config_may_say_it_and_nothing_else() -> None:
    assert parse_object(b'{"a": [0.0, Infinity]}', "f", infinity=True) == {"a": [0.0, math.inf]}
    for word in (b"NaN", b"-Infinity"):
        with pytest.raises(FormatError, match="is not JSON"):
            parse_object(b'{"a": ' + word + b"}", "f", infinity=True)
