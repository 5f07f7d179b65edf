"""What can be wrong in the families that come from GPT: slopes, offsets, parts that turn, rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from forwardpass.architectures import family
from forwardpass.architectures.bloom import slopes
from forwardpass.architectures.family import Transform
from forwardpass.backends.backend import WeightSource
from forwardpass.graph import references
from forwardpass.graph.graph import Graph
from forwardpass.graph.references import F32
from forwardpass.weights import Weights

Values = Iterator[tuple[str, Callable[[object], object]]]


def _used(graph: Graph, name: str) -> set[object]:
    found: set[object] = {node.attributes.get(name) for node in graph.nodes}
    return found - {None}


def wrong_dims(graph: Graph) -> Values:
    dims = _used(graph, "dims")
    if any(rope.short_factor for rope in graph.config.rope_parameters.values()):
        return  # as many factors as pairs: more of either does not even run
    if dims and min(dims) < graph.config.head_dim:  # type: ignore[type-var, operator]
        yield "two elements more turned", lambda dims: dims + 2  # type: ignore[operator]
        yield "whole heads turned", lambda _: graph.config.head_dim
    if dims and min(dims) > 2:  # type: ignore[type-var, operator]
        yield "two elements fewer turned", lambda dims: dims - 2  # type: ignore[operator]


def wrong_pairs(graph: Graph) -> Values:
    if _used(graph, "interleaved"):
        yield "the other way of pairing", lambda interleaved: not interleaved


def wrong_offsets(graph: Graph) -> Values:
    if any(_used(graph, "offset")):
        yield "positions from row 0", lambda _: 0
        yield "positions one row too early", lambda offset: offset - 1  # type: ignore[operator]


def wrong_slopes(graph: Graph) -> Values:
    for found in _used(graph, "slopes"):
        assert isinstance(found, tuple)
        wrong = {
            "no slopes": None,
            "slopes 1 % steeper": tuple(1.01 * slope for slope in found),
            "slopes in another order": found[::-1],
            "slopes of other heads": slopes(2 * len(found))[: len(found)],
            "the last slope that of its neighbor": (*found[:-1], found[-2]),
        }
        for what, value in wrong.items():
            yield what, lambda _, value=value: value  # type: ignore[misc]


WRONG_ATTRIBUTES = (
    ("dims", wrong_dims),
    ("interleaved", wrong_pairs),
    ("offset", wrong_offsets),
    ("slopes", wrong_slopes),
)


def wrong_activations(graph: Graph) -> Iterator[tuple[str, Mapping[str, Callable[..., F32]]]]:
    ops = {node.op.name for node in graph.nodes}
    if "gelu_erf" in ops:
        yield "GELU by tanh", {"gelu_erf": references.gelu}
    if "relu" in ops:
        yield "GELU for ReLU", {"relu": references.gelu}
    if "head_layer_norm" in ops:

        def of_the_first(x: F32, gain: F32, *, eps: float) -> F32:
            return references.head_layer_norm(x, np.repeat(gain[:1], len(gain), 0), eps=eps)

        yield "the first head's gain for all", {"head_layer_norm": of_the_first}


@dataclass(frozen=True)
class AsStored:
    """The weights, the rows of fused tables in the order of the file."""

    weights: Weights

    def numpy(self, name: str) -> F32:
        placed = self.weights.placed[name]
        if placed.transform is Transform.SPLIT_GROUPS:
            return np.ascontiguousarray(placed.stored.numpy())
        return self.weights.numpy(name)


@dataclass(frozen=True)
class OneHeadFurther:
    """The weights, the rows of fused tables taken from one head further on."""

    weights: Weights

    def numpy(self, name: str) -> F32:
        placed, found = self.weights.placed[name], self.weights.numpy(name)
        if placed.transform is not Transform.SPLIT_GROUPS:
            return found
        return np.roll(found, self.weights.config.head_dim, axis=0)


def wrong_rows(weights: WeightSource) -> Iterator[tuple[str, WeightSource]]:
    if not isinstance(weights, Weights):
        return
    if any(placed.transform is Transform.SPLIT_GROUPS for placed in weights.placed.values()):
        if weights.config.num_key_value_heads > 1:
            yield "fused rows as they are stored", AsStored(weights)
        yield "fused rows one head further", OneHeadFurther(weights)


def other_layouts(graph: Graph) -> Iterator[tuple[str, Graph]]:
    """The family's other order of attention and MLP, where it needs no other weights."""
    config = graph.config
    changes = (
        {"use_parallel_residual": not config.use_parallel_residual},
        {"do_layer_norm_before": not config.do_layer_norm_before},
        {"num_ln_in_parallel_attn": 3 - config.num_ln_in_parallel_attn},
    )
    for change in changes:
        other = family(config.model_type).build(replace(config, **change))
        if other.nodes != graph.nodes and set(other.weights) <= set(graph.weights):
            yield f"with {change}", other
