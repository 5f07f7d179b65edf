"""When two JSON texts are the same value (JSON Schema 2020-12, section 4.2.2)."""

from __future__ import annotations

import json
from fractions import Fraction

Comparable = tuple[str, object]
_FAR = 400  # powers of ten that are not written out


class _Number(str):
    """A number as it is written."""

    __slots__ = ()


def comparable(text: bytes) -> Comparable:
    """A key that is equal for equal values, numbers being exact. Raises RecursionError where the
    value is nested too deeply."""
    return _key(json.loads(text, parse_float=_Number, parse_int=_Number))


def _key(value: object) -> Comparable:
    if value is None:
        return "null", None
    if isinstance(value, bool):
        return "boolean", value
    if isinstance(value, _Number):
        return _number(value)
    if isinstance(value, str):
        return "text", value
    if isinstance(value, list):
        return "array", tuple(map(_key, value))
    assert isinstance(value, dict)
    return "object", frozenset((name, _key(inner)) for name, inner in value.items())


def _number(text: str) -> Comparable:
    """Sign, digits and power of ten; as a fraction where that is no long number."""
    digits, _, power = text.lower().partition("e")
    sign = "-" if digits.startswith("-") else ""
    whole, _, behind = digits.lstrip("-").partition(".")
    digits = (whole + behind).lstrip("0")
    kept = digits.rstrip("0")
    if not kept:
        return "number", Fraction(0)
    if len(power) > _FAR:
        power = power[:1].strip("0123456789+") + power.lstrip("+-").lstrip("0")
        if len(power) > _FAR:
            return "far", (sign, digits, len(behind), power)
    exponent = int(power or "0") - len(behind) + len(digits) - len(kept)
    if abs(exponent) > _FAR or len(kept) > _FAR:
        return "far", (sign, kept, exponent)
    return "number", Fraction(int(sign + kept)) * Fraction(10) ** exponent
