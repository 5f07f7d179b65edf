"""Rotary position parameters, read from every spelling that configs use.

transformers 4 writes `rope_theta` and `rope_scaling`; transformers 5 writes `rope_parameters`,
either one set for all layers or one for each layer type.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from forwardpass.formats.source import quoted

FULL, SLIDING = "full_attention", "sliding_attention"
LAYER_TYPES = (FULL, SLIDING)
RECURRENT_LAYER = "linear_attention"  # what transformers 5 calls every recurrent layer

_KEYS: Mapping[str, tuple[str, ...]] = {
    "default": (),
    "linear": ("factor",),
    "dynamic": ("factor",),
    "yarn": ("factor",),
    "llama3": (
        "factor",
        "low_freq_factor",
        "high_freq_factor",
        "original_max_position_embeddings",
    ),
    "longrope": ("short_factor", "long_factor", "original_max_position_embeddings"),
    "proportional": (),
}
_OPTIONAL: Mapping[str, tuple[str, ...]] = {
    "yarn": (
        "original_max_position_embeddings",
        "attention_factor",
        "beta_fast",
        "beta_slow",
        "mscale",
        "mscale_all_dim",
        "truncate",
    ),
    "longrope": ("factor", "attention_factor"),
    "proportional": ("factor",),
}
# What a type's name means. Longrope belongs to families whose config class knows its keys.
COMMON_KINDS: Mapping[str, str] = {
    kind: kind for kind in ("default", "linear", "dynamic", "yarn", "llama3")
}
_LISTS = ("short_factor", "long_factor")
_ZERO_IS_NONE = ("mscale", "mscale_all_dim")
_MAX_POSITIONS = 2**31
_MAX_PAIRS = 2**16


def _changes_nothing(kind: str, key: str, number: float | None) -> bool:
    """Whether the key is neutral at this value: `default` rescales nothing and needs no length."""
    if kind != "default" or number is None or number <= 0:
        return False
    return number == 1 if key == "factor" else key == "original_max_position_embeddings"


def finite(value: object) -> float | None:
    """The number as a float; None for what is no number, not finite or beyond a float."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def shown(value: object) -> str:
    """A value out of a config as JSON, cut and safe to print."""
    try:
        text = json.dumps(value)
    except (TypeError, ValueError, RecursionError):
        return quoted(value)
    return text if len(text) <= 60 else f"{text[:57]}…"


def key_shown(key: str) -> str:
    """A key out of a config; quoted where it could upset a terminal."""
    return key if re.fullmatch(r"[\w.-]{1,80}", key, re.ASCII) else shown(key)


@dataclass(frozen=True)
class Rope:
    """How positions turn query and key vectors: pair i turns by position ÷ theta^(2i/dims).

    `kind` rescales these angles: `linear` divides all by `factor` (arXiv:2306.15595); `llama3`
    divides the slow ones by `factor` and blends between (Llama 3.1 model card and reference code);
    `yarn` divides pairs that turn fewer than `beta_slow` times within the original positions,
    keeps those that turn more than `beta_fast` times, and blends between (arXiv:2309.00071);
    `longrope` divides each by a factor of its own (arXiv:2402.13753). `dynamic` changes the base
    beyond the trained length, up to which it is plain rope. `proportional` turns the fastest pairs
    of whole heads, a share `partial_rotary_factor` of them; it is counted, not run. The turned
    elements are multiplied by `attention_factor`; they are the first
    dims = head_dim × `partial_rotary_factor` of a head.
    `whole_factor` is what YaRN's `mscale_all_dim` lengthens whole queries and keys by: families
    that do so multiply their scores by its square, others leave it.

    `limit`: how many positions a sequence may have before all of its angles change.
    """

    theta: float
    kind: str = "default"
    factor: float = 1.0
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    original_max_position_embeddings: float = 8192.0
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    truncate: bool = True
    attention_factor: float = 1.0
    whole_factor: float = 1.0
    short_factor: tuple[float, ...] = ()
    partial_rotary_factor: float = 1.0
    limit: int | None = None


@dataclass(frozen=True)
class RopeContext:
    """What a rope's parameters are read with: where they stand, and what the config says besides.

    `theta` is the base; `original_positions` the trained length that stands outside of the
    parameters (None: `positions`); `kinds` the types that the family can be scaled by, and what
    their names mean; `partial` the share of a head that turns where the parameters name none
    (None: the family turns whole heads). `nested`: the parameters are those of one layer type.
    """

    where: str
    theta: float
    positions: int
    original_positions: int | None = None
    kinds: Mapping[str, str] = field(default_factory=lambda: COMMON_KINDS)
    partial: float | None = None
    nested: bool = False


def read_rope(values: Mapping[str, object], given: RopeContext, problems: list[str]) -> Rope:
    """The parameters in one `rope_scaling` or `rope_parameters` object.

    What cannot be honoured is added to `problems`, one line each, with its place.
    """
    where = given.where
    name = values.get("rope_type", values.get("type", "default"))
    if "rope_type" in values and "type" in values and values["type"] != name:
        problems.append(f"{where}.type = {shown(values['type'])} beside rope_type = {shown(name)}")
    if not isinstance(name, str) or name not in given.kinds:
        offered = ", ".join(given.kinds)
        problems.append(f"{where}.rope_type = {shown(name)}  (this version runs {offered})")
        return Rope(given.theta)
    kind = given.kinds[name]
    before = len(problems)
    found = _checked(values, kind, given, problems)
    missing = [
        key
        for key in _KEYS[kind]
        if values.get(key) is None
        and (key != "original_max_position_embeddings" or given.original_positions is None)
    ]
    problems += [f"{where} has no {key}, which rope_type {kind} needs" for key in missing]
    numbers = {key: value for key, value in found.items() if isinstance(value, float)}
    theta = numbers.get("rope_theta", given.theta)
    if theta < 1 or (theta == 1 and kind == "yarn"):
        problems.append(f"rope_theta = {theta}  (wanted a number from 1)")
    short, long = (found.get(key) for key in _LISTS)
    if isinstance(short, tuple) and isinstance(long, tuple) and len(short) != len(long):
        problems.append(f"{where} has {len(short)} entries of short_factor, {len(long)} of long")
    if numbers.get("high_freq_factor", 4.0) < numbers.get("low_freq_factor", 1.0):
        problems.append(f"{where}.high_freq_factor is below low_freq_factor")
    if len(problems) > before:
        return Rope(given.theta)
    return _rope(kind, theta, numbers, found, given)


def _checked(
    values: Mapping[str, object], kind: str, given: RopeContext, problems: list[str]
) -> dict[str, object]:
    """The values that mean something to the kind, numbers as floats; the others are problems."""
    known = ("rope_theta", *_KEYS[kind], *_OPTIONAL.get(kind, ()))
    found: dict[str, object] = {}
    for key, value in values.items():
        if key in ("rope_type", "type") or value is None:
            continue
        if _changes_nothing(kind, key, finite(value)):
            continue
        if key == "partial_rotary_factor" and (given.partial is not None or finite(value) == 1):
            known_here = True
        elif key == "finetuned" and isinstance(value, bool):
            continue  # how the model was made, which no reader asks
        else:
            known_here = key in known
        read, wanted = _read(key, value, given)
        if not known_here:
            reason = f"means nothing to rope_type {kind}"
            problems.append(f"{given.where}.{key} = {shown(value)}  ({reason})")
        elif wanted is not None:
            problems.append(f"{given.where}.{key} = {shown(value)}  (wanted {wanted})")
        else:
            found[key] = read
    return found


def _read(key: str, value: object, given: RopeContext) -> tuple[object, str | None]:
    """The value, and what it should have been where it is not that."""
    if key == "truncate":
        # transformers looks for it outside of the parameters by layer type, and finds nothing.
        if given.nested and value is False:
            return None, "true: false is not honoured by layer type"
        return value, None if isinstance(value, bool) else "true or false"
    if key in _LISTS:
        numbers = [finite(entry) for entry in value] if isinstance(value, list | tuple) else []
        good = 0 < len(numbers) <= _MAX_PAIRS and all(number and number > 0 for number in numbers)
        return tuple(numbers), None if good else "a list of finite numbers above 0"
    number = finite(value)
    if key in _ZERO_IS_NONE:
        return number, None if number is not None and number >= 0 else "a finite number from 0"
    if key in ("original_max_position_embeddings", "beta_fast", "beta_slow"):
        least = 1.0 if key.startswith("original") else 1e-9
        fits = number is not None and least <= number <= _MAX_POSITIONS
        return number, None if fits else f"a finite number above 0, at most {_MAX_POSITIONS:,}"
    if key == "partial_rotary_factor":
        return number, None if number is not None and 0 < number <= 1 else "a number up to 1"
    return number, None if number is not None and number > 0 else "a finite number above 0"


def _rope(
    kind: str,
    theta: float,
    numbers: Mapping[str, float],
    found: Mapping[str, object],
    given: RopeContext,
) -> Rope:
    """The parameters, completed as `transformers.modeling_rope_utils` (5.24) completes them."""
    partial = numbers.get("partial_rotary_factor", given.partial or 1.0)
    plain = Rope(theta, partial_rotary_factor=partial)
    factor = numbers.get("factor", 1.0)
    outside = given.original_positions or given.positions
    original = numbers.get("original_max_position_embeddings", float(outside))
    if kind == "default":
        return plain
    scaled = replace(plain, kind=kind, factor=factor)
    if kind == "dynamic":
        return replace(scaled, limit=given.positions)
    if kind == "llama3":
        return replace(
            scaled,
            low_freq_factor=numbers["low_freq_factor"],
            high_freq_factor=numbers["high_freq_factor"],
            original_max_position_embeddings=original,
        )
    if kind == "yarn":
        return replace(
            scaled,
            original_max_position_embeddings=original,
            beta_fast=numbers.get("beta_fast", 32.0),
            beta_slow=numbers.get("beta_slow", 1.0),
            truncate=found.get("truncate") is not False,
            attention_factor=numbers.get("attention_factor") or _yarn_lengths(factor, numbers),
            whole_factor=_yarn_length(factor, numbers.get("mscale_all_dim", 0.0)),
        )
    if kind == "longrope":
        # The family's own key wins over the one among the parameters.
        original = float(given.original_positions or original)
        factor = numbers.get("factor", given.positions / original)
        short = found["short_factor"]
        assert isinstance(short, tuple)
        return replace(
            scaled,
            factor=factor,
            original_max_position_embeddings=original,
            attention_factor=numbers.get("attention_factor") or _longrope_length(factor, original),
            short_factor=short,
            limit=int(original),
        )
    return scaled


def _yarn_length(factor: float, mscale: float) -> float:
    """The factor on elements that YaRN recommends; arXiv:2309.00071 equation 22."""
    return 1.0 if factor <= 1 else 0.1 * mscale * math.log(factor) + 1.0


def _yarn_lengths(factor: float, numbers: Mapping[str, float]) -> float:
    """That on turned elements: relative to whole ones where the parameters give both."""
    mscale, all_dim = (_yarn_length(factor, numbers.get(key, 0.0)) for key in _ZERO_IS_NONE)
    both = all(numbers.get(key) for key in _ZERO_IS_NONE)
    return mscale / all_dim if both else _yarn_length(factor, 1.0)


def _longrope_length(factor: float, original: float) -> float:
    """The factor on turned elements that LongRoPE recommends; arXiv:2404.14219 section 2."""
    if factor <= 1 or original <= 1:
        return 1.0
    return math.sqrt(1 + math.log(factor) / math.log(original))


def inverse_frequencies(rope: Rope, dims: int) -> list[float]:
    """The angle a position adds to each of the dims / 2 pairs, in radians (float64).

    Source: arXiv:2104.09864 section 3.2.2; `llama3` as in the Llama 3.1 reference code
    (`apply_scaling`), whose blend runs between the wavelengths original ÷ high and original ÷ low;
    `yarn` as in arXiv:2309.00071 section 3.2, whose blend runs over pairs.
    """
    angles = [rope.theta ** (-2 * i / dims) for i in range(dims // 2)]
    if rope.kind == "linear":
        return [angle / rope.factor for angle in angles]
    if rope.kind == "llama3":
        return [_llama3(angle, rope) for angle in angles]
    if rope.kind == "yarn":
        return _yarn(angles, rope, dims)
    if rope.kind == "longrope" and rope.short_factor:
        return [angle / by for angle, by in zip(angles, rope.short_factor, strict=True)]
    return angles


def _llama3(angle: float, rope: Rope) -> float:
    turns = rope.original_max_position_embeddings * angle / (2 * math.pi)
    if turns <= rope.low_freq_factor:  # where both factors are equal, nothing is between them
        return angle / rope.factor
    if turns > rope.high_freq_factor:
        return angle
    smooth = (turns - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor)
    return (1 - smooth) * angle / rope.factor + smooth * angle


def _yarn(angles: list[float], rope: Rope, dims: int) -> list[float]:
    def pair(turns: float) -> float:
        """The pair, as a fraction, that turns so many times within the original positions."""
        wave = rope.original_max_position_embeddings / (turns * 2 * math.pi)
        return dims * math.log(wave) / (2 * math.log(rope.theta))

    first, last = pair(rope.beta_fast), pair(rope.beta_slow)
    if rope.truncate:
        first, last = math.floor(first), math.ceil(last)
    first, last = max(first, 0), min(last, dims - 1)
    if first == last:
        last += 0.001
    shares = [min(1.0, max(0.0, (i - first) / (last - first))) for i in range(len(angles))]
    return [
        angle / rope.factor * share + angle * (1 - share)
        for angle, share in zip(angles, shares, strict=True)
    ]
