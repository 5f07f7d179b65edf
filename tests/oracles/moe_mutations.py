"""What can be wrong in mixtures of experts: who is chosen, what they weigh, how they compute."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from forwardpass.graph import references, references_experts
from forwardpass.graph.graph import Graph
from forwardpass.graph.reference_table import REFERENCES
from forwardpass.graph.references import F32, Ids

Values = Iterator[tuple[str, Callable[[object], object]]]


def _ops(graph: Graph) -> set[str]:
    return {node.op.name for node in graph.nodes}


def _used(graph: Graph, name: str) -> set[object]:
    return {node.attributes[name] for node in graph.nodes if name in node.attributes}


def wrong_scorings(graph: Graph) -> Values:
    for right in _used(graph, "scoring"):
        other = "sigmoid" if right == "softmax" else "softmax"
        yield f"experts scored by {other}", lambda _, other=other: other  # type: ignore[misc]


def wrong_normals(graph: Graph) -> Values:
    for right in _used(graph, "normal"):
        for other in {"none", "sum", "softmax"} - {right}:
            if (right, other) != ("softmax", "sum"):  # numbers that may be negative have no sum
                yield f"weights of experts: {other}", lambda _, other=other: other  # type: ignore[misc]


def wrong_numbers(graph: Graph) -> Values:
    if _used(graph, "k"):
        yield "one expert fewer", lambda k: k - 1  # type: ignore[operator]
        yield "one expert more", lambda k: k + 1  # type: ignore[operator]


def wrong_weights(graph: Graph) -> Values:
    if "expert_weights" in _ops(graph):
        yield "experts weigh 1 % more", lambda factor: factor * 1.01  # type: ignore[operator]


def wrong_alphas(graph: Graph) -> Values:
    if _used(graph, "alpha"):
        yield "alpha 1 % higher", lambda alpha: alpha * 1.01  # type: ignore[operator]


def wrong_limits(graph: Graph) -> Values:
    if _used(graph, "limit"):
        yield "experts not clamped", lambda _: 1e9
        yield "a limit 1 % lower", lambda limit: limit * 0.99  # type: ignore[operator]


WRONG_ROUTING = (
    ("scoring", wrong_scorings),
    ("normal", wrong_normals),
    ("k", wrong_numbers),
    ("factor", wrong_weights),
    ("alpha", wrong_alphas),
    ("limit", wrong_limits),
)

_CLAMPED = references_experts.clamped_silu_multiply


def wrong_experts(graph: Graph) -> Iterator[tuple[str, Mapping[str, Callable[..., Any]]]]:
    """Ops of mixtures that compute something near by."""
    ops = _ops(graph)
    if "route" in ops:
        yield "the worst experts", {"route": _worst}
        yield "the experts of the token before", {"route": _late}
        yield "the first experts for all tokens", {"route": _first}
    if "combine" in ops:
        yield "weights in another order", {"combine": _other_weights}
        yield "the best expert alone", {"combine": _best_alone}
    if "sigmoid_scale" in ops:
        yield (
            "a shared expert without its sigmoid",
            {"sigmoid_scale": lambda x, numbers: x * numbers},
        )
    if "clamped_silu_multiply" in ops:
        yield "gate and up exchanged", {"clamped_silu_multiply": _exchanged}
        yield "up without its 1", {"clamped_silu_multiply": _without_one}
        yield "a gate clamped from below too", {"clamped_silu_multiply": _clamped_below}
        yield "up clamped from above alone", {"clamped_silu_multiply": _clamped_above}
    if "attention_sinks" in ops:
        yield "no sinks", {"attention_sinks": _without_sinks}
        yield "sinks of other heads", {"attention_sinks": _other_sinks}


def _worst(scores: F32, **options: int) -> Ids:
    return references_experts.route(-scores, **options)


def _late(scores: F32, **options: int) -> Ids:
    return np.roll(references_experts.route(scores, **options), 1, axis=0)


def _first(scores: F32, **options: int) -> Ids:
    return references_experts.route(np.zeros_like(scores), **options)


def _other_weights(rows: F32, weights: F32) -> F32:
    return references_experts.combine(rows, weights[:, ::-1])


def _best_alone(rows: F32, weights: F32) -> F32:
    return references_experts.combine(rows[:, :1], weights[:, :1])


def _exchanged(gate: F32, up: F32, **options: float) -> F32:
    return _CLAMPED(up, gate, **options)


def _without_one(gate: F32, up: F32, **options: float) -> F32:
    return _CLAMPED(gate, up - np.float32(1), **options)


def _clamped_below(gate: F32, up: F32, *, alpha: float, limit: float) -> F32:
    return _CLAMPED(np.maximum(gate, np.float32(-limit)), up, alpha=alpha, limit=limit)


def _clamped_above(gate: F32, up: F32, *, alpha: float, limit: float) -> F32:
    below: F32 = np.minimum(gate, np.float32(limit))
    factor: F32 = np.minimum(up, np.float32(limit)) + np.float32(1)
    return below * references.sigmoid(below * np.float32(alpha)) * factor


def _without_sinks(*arguments: Any, **options: Any) -> F32:
    return references.attention(*arguments[:-1], **options)


def _other_sinks(*arguments: Any, **options: Any) -> F32:
    *others, sinks = arguments
    result: F32 = REFERENCES["attention_sinks"](*others, np.roll(sinks, 1), **options)
    return result
