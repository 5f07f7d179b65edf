"""Rotary position parameters, read from every spelling that configs use.

transformers 4 writes `rope_theta` and `rope_scaling`; transformers 5 writes `rope_parameters`,
either one set for all layers or one for each layer type.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass

from forwardpass.formats.source import quoted

FULL, SLIDING = "full_attention", "sliding_attention"
LAYER_TYPES = (FULL, SLIDING)

_KEYS = {
    "default": (),
    "linear": ("factor",),
    "llama3": (
        "factor",
        "low_freq_factor",
        "high_freq_factor",
        "original_max_position_embeddings",
    ),
}


def _changes_nothing(kind: str, key: str, number: float | None) -> bool:
    """Whether the key is neutral at this value; `default` rescales nothing and needs no length."""
    if key == "partial_rotary_factor" or (key == "factor" and kind == "default"):
        return number == 1
    unread = key == "original_max_position_embeddings" and kind == "default"
    return unread and number is not None and number > 0


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


@dataclass(frozen=True)
class Rope:
    """How positions turn query and key vectors: pair i turns by position ÷ theta^(2i/e).

    `kind` rescales these angles: `linear` divides all by `factor` (arXiv:2306.15595); `llama3`
    divides the slow ones by `factor` and blends between (Llama 3.1 model card and reference code).
    """

    theta: float
    kind: str = "default"
    factor: float = 1.0
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    original_max_position_embeddings: float = 8192.0


def read_rope(values: Mapping[str, object], theta: float, where: str, problems: list[str]) -> Rope:
    """The parameters in one `rope_scaling` or `rope_parameters` object.

    `theta` is used where the object has no `rope_theta`. What cannot be honoured is added to
    `problems`, one line each, with its place.
    """
    kind = values.get("rope_type", values.get("type", "default"))
    if "rope_type" in values and "type" in values and values["type"] != kind:
        problems.append(f"{where}.type = {shown(values['type'])} beside rope_type = {shown(kind)}")
    if not isinstance(kind, str) or kind not in _KEYS:
        offered = ", ".join(_KEYS)
        problems.append(f"{where}.rope_type = {shown(kind)}  (this version runs {offered})")
        return Rope(theta)
    numbers: dict[str, float] = {"rope_theta": theta}
    for key, value in values.items():
        if key in ("rope_type", "type") or value is None:
            continue
        number = finite(value)
        if _changes_nothing(kind, key, number):
            continue
        if key not in ("rope_theta", *_KEYS[kind]):
            problems.append(f"{where}.{key} = {shown(value)}  (means nothing to rope_type {kind})")
        elif number is None or number <= 0:
            problems.append(f"{where}.{key} = {shown(value)}  (wanted a finite number above 0)")
        else:
            numbers[key] = number
    missing = [key for key in _KEYS[kind] if values.get(key) is None]
    problems += [f"{where} has no {key}, which rope_type {kind} needs" for key in missing]
    rope = Rope(
        theta=numbers["rope_theta"],
        kind=kind,
        factor=numbers.get("factor", 1.0),
        low_freq_factor=numbers.get("low_freq_factor", 1.0),
        high_freq_factor=numbers.get("high_freq_factor", 4.0),
        original_max_position_embeddings=numbers.get("original_max_position_embeddings", 8192.0),
    )
    if rope.theta < 1:
        problems.append(f"rope_theta = {rope.theta}  (wanted a number from 1)")
    if rope.high_freq_factor <= rope.low_freq_factor:
        problems.append(f"{where}.high_freq_factor is not above low_freq_factor")
    return rope


def inverse_frequencies(rope: Rope, head_dim: int) -> list[float]:
    """The angle a position adds to each of the head_dim / 2 pairs, in radians (float64).

    Source: arXiv:2104.09864 section 3.2.2; `llama3` as in the Llama 3.1 reference code
    (`apply_scaling`), whose blend runs between the wavelengths original ÷ high and original ÷ low.
    """
    angles = [rope.theta ** (-2 * i / head_dim) for i in range(head_dim // 2)]
    if rope.kind == "linear":
        return [angle / rope.factor for angle in angles]
    if rope.kind == "llama3":
        return [_llama3(angle, rope) for angle in angles]
    return angles


def _llama3(angle: float, rope: Rope) -> float:
    turns = rope.original_max_position_embeddings * angle / (2 * math.pi)
    if turns < rope.low_freq_factor:
        return angle / rope.factor
    if turns > rope.high_freq_factor:
        return angle
    smooth = (turns - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor)
    return (1 - smooth) * angle / rope.factor + smooth * angle
