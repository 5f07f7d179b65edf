"""The sampler's values: their names, what each may be, and what the engine takes unasked.

`sampler` and `stages` choose the rules by which the others act: rules.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from numbers import Integral, Real
from types import MappingProxyType

from forwardpass.errors import ForwardpassError, did_you_mean
from forwardpass.sampling.rules import PRESETS, order

Bias = tuple[tuple[int, float], ...]

LARGEST_BIAS = 100.0
MOST_BREAKERS, LONGEST_BREAKER = 100, 100
EVERYTHING = -1  # as many tokens as there are, in llama.cpp's notation
SMALLEST_SEED, LARGEST_SEED = -(2**63), 2**63 - 1

# Nobody asked for anything: the best score wins, and nothing else changes the scores. No seed
# means that whoever runs the request takes a fresh one and records it.
ENGINE_DEFAULTS: Mapping[str, object] = MappingProxyType(
    {
        "temperature": 0.0,
        "top_k": 0,
        "top_p": 1.0,
        "min_p": 0.0,
        "typical_p": 1.0,
        "top_n_sigma": 0.0,
        "xtc_probability": 0.0,
        "xtc_threshold": 0.1,
        "repetition_penalty": 1.0,
        "frequency_penalty": 0.0,
        "presence_penalty": 0.0,
        "penalty_last_n": EVERYTHING,
        "dry_multiplier": 0.0,
        "dry_base": 1.75,
        "dry_allowed_length": 2,
        "dry_penalty_last_n": EVERYTHING,
        "dry_sequence_breakers": ("\n", ":", '"', "*"),
        "logit_bias": (),
        "seed": None,
        "sampler": "default",
        "stages": None,
    }
)


@dataclass(frozen=True, slots=True)
class Range:
    """The values that a setting may take: whole numbers or any finite ones, and which."""

    whole: bool
    holds: Callable[[float], bool]
    text: str


_WINDOW = "a whole number of tokens from 1 up, or -1 for all"


def _is_window(count: float) -> bool:
    return count >= 1 or count == EVERYTHING


RANGES: Mapping[str, Range] = MappingProxyType(
    {
        "temperature": Range(False, lambda x: x >= 0, "a number from 0 up, where 0 is greedy"),
        "top_k": Range(True, lambda x: x >= 0, "a whole number from 0 up, where 0 is off"),
        # 0 has a meaning under other engines' rules: settings.py
        "top_p": Range(False, lambda x: 0 < x <= 1, "a number above 0, up to 1, where 1 is off"),
        "min_p": Range(False, lambda x: 0 <= x < 1, "a number from 0, below 1, where 0 is off"),
        "typical_p": Range(
            False, lambda x: 0 < x <= 1, "a number above 0, up to 1, where 1 is off"
        ),
        "top_n_sigma": Range(False, lambda x: x >= 0, "a number from 0 up, where 0 is off"),
        "xtc_probability": Range(
            False, lambda x: 0 <= x <= 1, "a number from 0 to 1, where 0 is off"
        ),
        # two tokens cannot both have more than half of the probability
        "xtc_threshold": Range(False, lambda x: 0 < x <= 0.5, "a number above 0, up to 0.5"),
        "repetition_penalty": Range(False, lambda x: x > 0, "a number above 0, where 1 is off"),
        "frequency_penalty": Range(
            False, lambda x: -2 <= x <= 2, "a number from -2 to 2, where 0 is off"
        ),
        "presence_penalty": Range(
            False, lambda x: -2 <= x <= 2, "a number from -2 to 2, where 0 is off"
        ),
        "penalty_last_n": Range(True, _is_window, _WINDOW),
        "dry_multiplier": Range(False, lambda x: x >= 0, "a number from 0 up, where 0 is off"),
        "dry_base": Range(False, lambda x: x >= 1, "a number from 1 up"),
        "dry_allowed_length": Range(True, lambda x: x >= 1, "a whole number from 1 up"),
        "dry_penalty_last_n": Range(True, _is_window, _WINDOW),
        "seed": Range(
            True,
            lambda x: SMALLEST_SEED <= x <= LARGEST_SEED,
            "a whole number from -2⁶³ to 2⁶³ - 1",
        ),
    }
)


def checked(
    name: str, value: object, *, label: str, error: type[ForwardpassError], advice: str | None
) -> object:
    """`value` as the int, float or bias that setting `name` holds.

    `label` is what the reader calls it (a field, a file and its key). Raises `error` with the
    range where the value is of another type or outside.
    """
    by_name: Mapping[str, Callable[[object], object]] = {
        "logit_bias": lambda given: _bias(given, label=label, error=error, advice=advice),
        "dry_sequence_breakers": lambda given: _breakers(given, label, error, advice),
        "sampler": lambda given: _preset(given, label, error, advice),
        "stages": lambda given: order(given, label, error, advice),
    }
    if name in by_name:
        return by_name[name](value)
    allowed = RANGES[name]
    number = _number(value, whole=allowed.whole)
    if number is None or not allowed.holds(number):
        raise error(f"{label} = {shown(value)}: wanted {allowed.text}", advice=advice)
    return number


def shown(value: object) -> str:
    """A value as an error prints it: at most 60 characters."""
    if isinstance(value, str | bytes | list | tuple):
        value = value[:60]
    try:
        text = repr(value)
    except ValueError:  # an int of more digits than Python prints
        text = "a very large number"
    return text if len(text) <= 60 else f"{text[:57]}..."


def whole(value: object) -> int | None:
    """`value` where it is a whole number, NumPy's too; None for anything else."""
    number = _number(value, whole=True)
    return None if number is None else int(number)


def _number(value: object, *, whole: bool) -> int | float | None:
    """`value` as an int (`whole`) or a finite float, None where it is neither."""
    if isinstance(value, bool):
        return None
    if whole:
        return int(value) if isinstance(value, Integral) else None
    if not isinstance(value, Real):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def _breakers(
    value: object, label: str, error: type[ForwardpassError], advice: str | None
) -> tuple[str, ...]:
    """Texts at which a repeat ends, each once."""
    given = [value] if isinstance(value, str) else value
    if not isinstance(given, list | tuple) or not all(isinstance(text, str) for text in given):
        raise error(f"{label} = {shown(value)}: wanted a list of texts", advice=advice)
    if len(given) > MOST_BREAKERS or not all(0 < len(text) <= LONGEST_BREAKER for text in given):
        raise error(
            f"{label} = {shown(value)}: wanted at most {MOST_BREAKERS} texts of 1 to "
            f"{LONGEST_BREAKER} characters",
            advice=advice,
        )
    if any("\ud800" <= character <= "\udfff" for text in given for character in text):
        raise error(f"{label} = {shown(value)}: a lone surrogate is no text", advice=advice)
    return tuple(dict.fromkeys(given))


def _preset(value: object, label: str, error: type[ForwardpassError], advice: str | None) -> str:
    if isinstance(value, str) and value in PRESETS:
        return value
    near = did_you_mean(value, PRESETS) if isinstance(value, str) and len(value) < 60 else ""
    raise error(f"{label} = {shown(value)}: wanted {' or '.join(PRESETS)}{near}", advice=advice)


def _bias(value: object, *, label: str, error: type[ForwardpassError], advice: str | None) -> Bias:
    """(token id, bias) pairs, lowest id first; ids may be written as JSON keys."""
    if not isinstance(value, Mapping):
        raise error(
            f"{label} = {shown(value)}: wanted a mapping from token ids to numbers", advice=advice
        )
    pairs: dict[int, float] = {}
    for key, bias in value.items():
        token = _token_id(key)
        if token is None:
            raise error(f"{label}: {shown(key)} is not a token id", advice=advice)
        if token in pairs:
            raise error(f"{label}: token id {token} is given twice", advice=advice)
        number = _number(bias, whole=False)
        if number is None or abs(number) > LARGEST_BIAS:
            raise error(
                f"{label}: {shown(bias)} for token id {token}: wanted a number from "
                f"-{LARGEST_BIAS:g} to {LARGEST_BIAS:g}",
                advice=advice,
            )
        pairs[token] = number
    return tuple(sorted(pairs.items()))


def _token_id(key: object) -> int | None:
    if isinstance(key, str):
        # 20 digits hold every 64-bit id; int() of more is refused or slow
        return int(key) if key.isascii() and key.isdigit() and len(key) <= 20 else None
    number = _number(key, whole=True)
    return int(number) if number is not None and number >= 0 else None
