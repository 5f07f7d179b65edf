"""What can be wrong in how positions turn: every parameter of every kind of scaling."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from forwardpass.graph.graph import Graph
from forwardpass.rope import Rope

Change = Callable[[object], object]

# By kind, which numbers matter; within the trained length `dynamic` has none but its base.
_NUMBERS = {
    "default": ("theta",),
    "linear": ("theta", "factor"),
    "dynamic": ("theta",),
    "llama3": (
        *("theta", "factor", "low_freq_factor", "high_freq_factor"),
        "original_max_position_embeddings",
    ),
    "yarn": (
        *("theta", "factor", "beta_fast", "beta_slow"),
        "original_max_position_embeddings",
    ),
    "longrope": ("theta",),
}


def wrong_ropes(graph: Graph) -> Iterator[tuple[str, Change]]:
    """Changes to the `rope` of all ops that have one."""
    used = (node.attributes.get("rope") for node in graph.nodes)
    ropes = [rope for rope in dict.fromkeys(used) if isinstance(rope, Rope)]
    kinds = {rope.kind for rope in ropes}
    rounded = any(rope.kind == "yarn" and rope.truncate for rope in ropes)
    for name in dict.fromkeys(name for kind in sorted(kinds) for name in _NUMBERS[kind]):
        # Where YaRN rounds the ends of its blend, a little more may be nothing.
        coarse = rounded and name in ("beta_fast", "beta_slow", "original_max_position_embeddings")
        more = 4.0 if coarse else 1.1
        yield f"rope's {name} × {more:g}", _times(name, more)
    if kinds - {"default", "dynamic"}:
        yield "rope not rescaled", lambda rope: _with(rope, kind="default")
    if "yarn" in kinds:
        yield "the blend's ends rounded otherwise", _otherwise_rounded
    if any(rope.attention_factor != 1 for rope in ropes):
        yield "turned elements not lengthened", lambda rope: _with(rope, attention_factor=1.0)
        yield "turned elements 1 % too long", _times("attention_factor", 1.01)
    if any(len(set(rope.short_factor)) > 1 for rope in ropes):
        yield "angles divided in another order", _reversed
    if len(ropes) > 1:
        other = {rope: ropes[1 - i] for i, rope in enumerate(ropes)}
        yield "rope's two settings exchanged", lambda rope: other[rope]  # type: ignore[index]
        for i, rope in enumerate(ropes):
            yield f"rope {i} everywhere", lambda _, rope=rope: rope  # type: ignore[misc]


def _with(rope: object, **changes: object) -> Rope:
    assert isinstance(rope, Rope)
    return replace(rope, **changes)  # type: ignore[arg-type]


def _times(name: str, factor: float) -> Change:
    return lambda rope: _with(rope, **{name: factor * getattr(rope, name)})


def _otherwise_rounded(rope: object) -> Rope:
    assert isinstance(rope, Rope)
    return replace(rope, truncate=not rope.truncate)


def _reversed(rope: object) -> Rope:
    assert isinstance(rope, Rope)
    return replace(rope, short_factor=rope.short_factor[::-1])
