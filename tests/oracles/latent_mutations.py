"""What can be wrong in latent attention, and in routers that a bias steers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from forwardpass.graph import references_experts, references_latent
from forwardpass.graph.graph import Graph
from forwardpass.graph.references import F32, Ids

Values = Iterator[tuple[str, Callable[[object], object]]]


def _groups(graph: Graph) -> set[object]:
    found = (node.attributes.get("groups") for node in graph.nodes)
    return {groups for groups in found if groups not in (None, 1)}


def wrong_groups(graph: Graph) -> Values:
    if _groups(graph):
        yield "half as many groups of experts", lambda groups: groups // 2  # type: ignore[operator]


def wrong_kept(graph: Graph) -> Values:
    if _groups(graph):
        yield "one group of experts fewer", lambda kept: kept - 1  # type: ignore[operator]
        yield "one group of experts more", lambda kept: kept + 1  # type: ignore[operator]


def wrong_bests(graph: Graph) -> Values:
    if _groups(graph):
        yield "a group as good as its other best", lambda best: 3 - best  # type: ignore[operator]


WRONG_GROUPS = (
    ("groups", wrong_groups),
    ("kept", wrong_kept),
    ("group_best", wrong_bests),
)


def wrong_latent(graph: Graph) -> Iterator[tuple[str, Mapping[str, Callable[..., Any]]]]:
    """Ops of latent attention and of steered routers that compute something near by."""
    ops = {node.op.name for node in graph.nodes}
    if "route_biased" in ops:
        yield "the worst steered experts", {"route_biased": _worst}
        yield "steered experts of the token before", {"route_biased": _late}
        yield "a bias taken off", {"route_biased": _taken_off}
    if "join_heads" in ops:
        yield "parts of queries and keys exchanged in part", {"join_heads": _rolled}
        yield "the shared part of keys shorter", {"join_heads": _shorter}
        yield "parts of heads one further", {"head_columns": _further}


def _worst(scores: F32, bias: F32, **options: int) -> Ids:
    return references_experts.route(-scores - bias, **options)


def _late(scores: F32, bias: F32, **options: int) -> Ids:
    return np.roll(references_experts.route(scores + bias, **options), 1, axis=0)


def _taken_off(scores: F32, bias: F32, **options: int) -> Ids:
    return references_experts.route(scores - bias, **options)


def _rolled(first: F32, second: F32) -> F32:
    joined = references_latent.join_heads(first, second)
    return joined if first.shape[1] == second.shape[1] else np.roll(joined, 1, axis=-1)


def _shorter(first: F32, second: F32) -> F32:
    scale = np.float32(1 if first.shape[1] == second.shape[1] else 0.99)
    return references_latent.join_heads(first, second * scale)


def _further(x: F32, *, start: int, stop: int) -> F32:
    return references_latent.head_columns(np.roll(x, 1, axis=-1), start=start, stop=stop)
