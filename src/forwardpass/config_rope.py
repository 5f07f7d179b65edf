"""The rotary parameters of a config: one `Rope` for each layer type, from either spelling."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from forwardpass.rope import (
    COMMON_KINDS,
    FULL,
    LAYER_TYPES,
    SLIDING,
    Rope,
    RopeContext,
    finite,
    key_shown,
    read_rope,
    shown,
)


@dataclass(frozen=True)
class RopeSpec:
    """What a family's rope can be.

    `kinds`: the names of types, and what they mean. `own_sliding`: sliding layers have parameters
    of their own, and a scaling without layer type is that of the full layers alone. `absent`: the
    scaling where the config names none. `of_images`: parameters that mean nothing to text, whose
    positions are the same on every axis. `like_full`: layer types that turn as full ones do.
    """

    kinds: Mapping[str, str] = field(default_factory=lambda: COMMON_KINDS)
    own_sliding: bool = False
    absent: Mapping[str, object] = field(default_factory=dict)
    of_images: frozenset[str] = frozenset()
    like_full: tuple[str, ...] = ()


def read_ropes(
    values: Mapping[str, object],
    spec: RopeSpec,
    kinds: Sequence[str],
    partial: float | None,
    problems: list[str],
) -> dict[str, Rope]:
    """The rotary parameters of each of the layer types `kinds` that the family may have.

    `partial`: the share of each head that turns where the config names none.
    """
    parameters = values.get("rope_parameters") or {}
    scaling = values.get("rope_scaling") or {}
    if not parameters and not scaling:
        scaling = spec.absent
    assert isinstance(parameters, Mapping)
    assert isinstance(scaling, Mapping)
    parameters, scaling = (
        {key: value for key, value in given.items() if key not in spec.of_images}
        for given in (parameters, scaling)
    )
    if parameters and scaling and parameters != scaling:
        problems.append("rope_parameters beside rope_scaling: they are one setting")
    local = values.get("rope_local_base_freq")
    own = spec.own_sliding or local is not None
    nested = any(kind in parameters for kind in LAYER_TYPES)
    if nested:
        problems += [
            f"rope_parameters.{key_shown(key)} = {shown(value)}  "
            "(wanted an object for each layer type)"
            for key, value in parameters.items()
            if key not in LAYER_TYPES or not isinstance(value, Mapping | None)
        ]
    elif parameters and own:
        problems.append("rope_parameters must be given by layer type, whose ropes differ")
    found: dict[str, Rope] = {}
    for kind in kinds:
        where, chosen = ("rope_parameters", parameters) if parameters else ("rope_scaling", scaling)
        theta = values.get("rope_theta", 10_000.0)
        if kind == SLIDING and own:
            # Families with a rope of their own for sliding layers never rescale those.
            theta, chosen = local or theta, {}
        if nested:
            where, chosen = f"rope_parameters.{kind}", parameters.get(kind) or {}
        if isinstance(chosen, Mapping):
            faults: list[str] = []
            given = _context(values, spec, where, theta, partial, nested)
            found[kind] = read_rope(chosen, given, faults)
            problems += [fault for fault in faults if fault not in problems]
    if FULL in found:
        found |= dict.fromkeys(spec.like_full, found[FULL])
    return found


def _context(
    values: Mapping[str, object],
    spec: RopeSpec,
    where: str,
    theta: object,
    partial: float | None,
    nested: bool,
) -> RopeContext:
    positions = values.get("max_position_embeddings", 2_048)
    original = values.get("original_max_position_embeddings")
    assert isinstance(theta, float)
    assert isinstance(positions, int)
    return RopeContext(
        where,
        theta,
        positions,
        original if isinstance(original, int) else None,
        spec.kinds,
        None if partial is None else finite(values.get("partial_rotary_factor")) or partial,
        nested,
    )


def check_theta(values: Mapping[str, object], problems: list[str]) -> None:
    """Names a rope base that is given in both spellings, and not the same."""
    theta, parameters = values.get("rope_theta"), values.get("rope_parameters")
    if theta is None or not isinstance(parameters, Mapping):
        return
    full = parameters.get(FULL)
    inner = (full if isinstance(full, Mapping) else parameters).get("rope_theta", theta)
    if inner != theta:
        problems.append(
            f"rope_theta = {shown(theta)} contradicts {shown(inner)} in rope_parameters"
        )


def check_dims(ropes: Mapping[str, Rope], head_dim: int, problems: list[str]) -> None:
    """Names what does not fit the head: a part that is no pairs, factors that are too many."""
    for rope in ropes.values():
        dims = int(head_dim * rope.partial_rotary_factor)
        if rope.partial_rotary_factor == 1 and dims % 2:
            problems.append(f"head_dim {head_dim} is odd; rotary positions turn pairs")
        elif dims % 2 or not dims:
            problems.append(
                f"partial_rotary_factor {rope.partial_rotary_factor:g} turns {dims} of the "
                f"{head_dim} elements of a head; rotary positions turn pairs"
            )
        elif rope.short_factor and 2 * len(rope.short_factor) != dims:
            entries = len(rope.short_factor)
            problems.append(f"short_factor has {entries} entries, for {dims // 2} pairs of a head")
