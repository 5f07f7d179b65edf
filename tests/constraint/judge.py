"""`jsonschema` as an independent judge, without its weaknesses: numbers are exact, and a `pattern`
means what it means in ECMA-262."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from functools import cache
from typing import Any

import jsonschema
from jsonschema import validators

_INSTEAD = {
    ".": r"[^\n\r\u2028\u2029]",
    "$": r"\Z",
    r"\d": "[0-9]",
    r"\D": "[^0-9]",
    r"\w": "[A-Za-z0-9_]",
    r"\W": "[^A-Za-z0-9_]",
    r"\/": "/",
    r"\-": r"\-",
}
_SPACE = r"\t-\r \xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\ufeff"
_IN_CLASS = {r"\d": "0-9", r"\w": "A-Za-z0-9_", r"\s": _SPACE, "[": r"\["}
_PART = re.compile(
    r"\\u\{?[0-9a-fA-F]{2,6}\}?|\\x[0-9a-fA-F]{2}|\\.|\(\?<(?![=!])|[.$\[\]]|[^\\.$\[\](]+|\(", re.S
)


@cache
def translated(pattern: str) -> re.Pattern[str]:
    """Python's form of an ECMA-262 pattern, without `\\p`."""
    out, inside = [], False
    for part in _PART.findall(pattern):
        if part.startswith("\\u") and part.endswith("}"):
            part = re.escape(chr(int(part[3:-1], 16)))
        elif inside:
            inside = part != "]"
            part = _IN_CLASS.get(part, part)
        elif part == "[":
            inside = True
        elif part == "(?<":
            part = "(?P<"
        elif part in (r"\s", r"\S"):
            part = f"[{'^' if part == chr(92) + 'S' else ''}{_SPACE}]"
        else:
            part = _INSTEAD.get(part, part)
        out.append(part)
    return re.compile("".join(out))


def _pattern(_: Any, pattern: str, instance: Any, __: Any) -> Iterator[jsonschema.ValidationError]:
    if isinstance(instance, str) and not translated(pattern).search(instance):
        yield jsonschema.ValidationError(f"{instance!r} does not match {pattern!r}")


def _multiple(_: Any, of: Any, instance: Any, __: Any) -> Iterator[jsonschema.ValidationError]:
    number = isinstance(instance, int | Decimal) and not isinstance(instance, bool)
    if number and Fraction(instance) % Fraction(of):
        yield jsonschema.ValidationError(f"{instance} is no multiple of {of}")


def exact(text: str | bytes, *, whole: bool = True) -> Any:
    """The value of a JSON text, with numbers as they are written; `whole`: 1.0 is an integer."""

    def number(digits: str) -> Decimal | int | float:
        try:
            value = Decimal(digits)
        except InvalidOperation:  # an exponent of 19 digits
            return float(digits)
        small = value.is_zero() or value.adjusted() < 400
        return int(value) if whole and small and value == value.to_integral_value() else value

    return json.loads(text, parse_float=number)


def _rewritten(schema: Any) -> Any:
    """The schema with the patterns of names in Python's form."""
    if isinstance(schema, list):
        return [_rewritten(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    out = {key: _rewritten(part) for key, part in schema.items()}
    named = out.get("patternProperties")
    if isinstance(named, dict) and all(isinstance(part, dict | bool) for part in named.values()):
        out["patternProperties"] = {translated(key).pattern: part for key, part in named.items()}
    return out


class Judge:
    """Says whether a JSON text is valid under a schema; formats are annotations."""

    def __init__(self, schema: Any) -> None:
        chosen = validators.validator_for(schema, jsonschema.Draft202012Validator)
        old = (jsonschema.Draft3Validator, jsonschema.Draft4Validator)
        self._whole = chosen not in old
        exactly = exact(json.dumps(schema), whole=self._whole)
        self._judge = validators.extend(chosen, {"pattern": _pattern, "multipleOf": _multiple})(
            _rewritten(exactly)
        )

    def fault(self, text: str | bytes) -> str:
        """Why a text is not valid, or nothing. Raises ValueError for one that is no JSON."""
        found = next(self._judge.iter_errors(exact(text, whole=self._whole)), None)
        return "" if found is None else f"{found.json_path}: {found.message:.300}"
