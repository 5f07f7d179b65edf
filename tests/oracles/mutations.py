"""Every way to leave something out of a graph, or to put something wrong into it, one at a time.

A test that holds logits to transformers is worth something only if each of these fails it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from forwardpass.backends.backend import WeightSource
from forwardpass.backends.reference import Reference
from forwardpass.graph import references
from forwardpass.graph.graph import Graph, Node, Value
from forwardpass.graph.reference_table import REFERENCES
from forwardpass.graph.references import F32, Ids
from oracles.gpt_mutations import (
    WRONG_ATTRIBUTES,
    other_layouts,
    wrong_activations,
    wrong_rows,
)
from oracles.latent_mutations import WRONG_GROUPS, wrong_latent
from oracles.llama_mutations import other_graphs, wrong_norms, wrong_score_caps
from oracles.moe_mutations import WRONG_ROUTING, wrong_experts
from oracles.rope_mutations import wrong_ropes

Change = Callable[[Node], Node | None]


@dataclass(frozen=True)
class Mutation:
    """What is done, and the model to which it was done."""

    what: str
    model: Reference


def mutations(graph: Graph, weights: WeightSource) -> Iterator[Mutation]:
    """All mutations that apply to the graph."""
    turned = any("rope" in node.attributes for node in graph.nodes)
    for kind in sorted({kind_of(name) for name in graph.weights}):
        ending = kind.rpartition(".")[2]
        if kind.endswith("k_proj.bias") and not turned:
            continue  # it adds one number to all scores of a query, which the softmax takes out
        axes = len(next(w.shape for w in graph.weights.values() if kind_of(w.name) == kind))
        if axes == 1 or ending == "bias" or "norm" in kind.split(".")[-2]:
            value = 0.0 if ending == "bias" else 1.0
            yield Mutation(f"{kind} = {value}", Reference(graph, Constant(weights, kind, value)))
    for what, change in changes(graph):
        yield Mutation(what, Reference(changed(graph, change), weights))
    wrong = (
        *wrong_functions(graph),
        *wrong_activations(graph),
        *wrong_norms(graph),
        *wrong_experts(graph),
        *wrong_latent(graph),
    )
    for what, functions in wrong:
        yield Mutation(what, Reference(graph, weights, {**right_functions(), **functions}))
    for what, rows in wrong_rows(weights):
        yield Mutation(what, Reference(graph, rows))
    for what, other in (*other_layouts(graph), *other_graphs(graph)):
        yield Mutation(what, Reference(other, weights))


@dataclass(frozen=True)
class Constant:
    """The weights, with all of one kind set to one value."""

    weights: WeightSource
    kind: str
    value: float

    def numpy(self, name: str) -> F32:
        found = self.weights.numpy(name)
        return np.full_like(found, self.value) if kind_of(name) == self.kind else found


def kind_of(name: str) -> str:
    """The name without the number of its layer."""
    return re.sub(r"\.\d+\.", ".", f".{name}").lstrip(".")


def changed(graph: Graph, change: Change) -> Graph:
    """The graph with each node as `change` returns it; None takes the node out."""
    alias: dict[Value, Value] = {}
    nodes: list[Node] = []
    for node in graph.nodes:
        inputs = tuple(alias.get(value, value) for value in node.inputs)
        new = change(replace(node, inputs=inputs))
        if new is None:
            alias[node.output] = inputs[0]
        else:
            nodes.append(new)
    logits = alias.get(graph.logits, graph.logits)
    return replace(graph, nodes=tuple(nodes), logits=logits)


def changes(graph: Graph) -> Iterator[tuple[str, Change]]:
    """Changes to nodes: each kind of node taken out, each attribute wrong."""
    kinds = kinds_of_nodes(graph)
    for kind in dict.fromkeys(kinds.values()):
        members = {output for output, other in kinds.items() if other == kind}
        first = next(node for node in graph.nodes if node.output in members)
        if first.inputs and first.inputs[0].shape == first.output.shape:
            yield f"without {kind}", _without(members)
    for attribute, wrong in _WRONG:
        for what, value in wrong(graph):
            yield what, _with_attribute(attribute, value)


def kinds_of_nodes(graph: Graph) -> Mapping[Value, str]:
    """For each node's output: its op, its weight's kind, and which of the layer's like it is."""
    kinds: dict[Value, str] = {}
    seen: dict[tuple[int | None, str], int] = {}
    for node in graph.nodes:
        label = " ".join([node.op.name, *(kind_of(weight.name) for weight in node.weights[:1])])
        label += "" if node.layer is not None else " outside of layers"
        number = seen[node.layer, label] = seen.get((node.layer, label), 0) + 1
        kinds[node.output] = f"{label} #{number}"
    return kinds


def _without(members: set[Value]) -> Change:
    return lambda node: None if node.output in members else node


Wrong = Callable[[Graph], Iterator[tuple[str, Callable[[object], object]]]]


def _with_attribute(name: str, value: Callable[[object], object]) -> Change:
    def change(node: Node) -> Node:
        if node.attributes.get(name) is None:
            return node
        attributes = {**node.attributes, name: value(node.attributes[name])}
        return replace(node, attributes=attributes)  # type: ignore[arg-type]

    return change


def _wrong_scales(graph: Graph) -> Iterator[tuple[str, Callable[[object], object]]]:
    config = graph.config
    scales = {node.attributes["scale"] for node in graph.nodes if "scale" in node.attributes}
    for width in (config.head_dim, config.hidden_size // config.num_attention_heads):
        if width**-0.5 not in scales:
            yield f"scores scaled by 1/√{width}", _always(width**-0.5)
    yield "scores not scaled", lambda _: 1.0


def _wrong_windows(graph: Graph) -> Iterator[tuple[str, Callable[[object], object]]]:
    if graph.config.sliding_window:
        yield "no window", lambda _: None
        yield "a window one too long", lambda window: window + 1  # type: ignore[operator]
        yield "a window one too short", lambda window: window - 1  # type: ignore[operator]


def _wrong_eps(graph: Graph) -> Iterator[tuple[str, Callable[[object], object]]]:
    if graph.config.norm_eps > 1e-4:
        yield "epsilon of 1e-6", lambda _: 1e-6
    else:
        yield "epsilon of 1e-3", lambda _: 1e-3


def _wrong_caps(graph: Graph) -> Iterator[tuple[str, Callable[[object], object]]]:
    if graph.config.final_logit_softcapping:
        yield "a cap 1 % too high", lambda cap: cap * 1.01  # type: ignore[operator]


def _wrong_factors(graph: Graph) -> Iterator[tuple[str, Callable[[object], object]]]:
    if any(node.op.name == "scale" for node in graph.nodes):
        yield "everything scaled by 1 % more", lambda factor: factor * 1.01  # type: ignore[operator]


def _always(value: object) -> Callable[[object], object]:
    return lambda _: value


_WRONG: tuple[tuple[str, Wrong], ...] = (
    ("scale", _wrong_scales),
    ("window", _wrong_windows),
    ("eps", _wrong_eps),
    ("cap", _wrong_caps),
    ("factor", _wrong_factors),
    ("rope", wrong_ropes),
    ("softcap", wrong_score_caps),
    *WRONG_ATTRIBUTES,
    *WRONG_ROUTING,
    *WRONG_GROUPS,
)

Functions = Mapping[str, Callable[..., F32]]


def right_functions() -> Functions:
    return dict(REFERENCES)


@dataclass(frozen=True)
class _Wrongly:
    """An op's function with something done to its arguments or its result."""

    name: str
    before: Callable[..., tuple[object, ...]] = field(default=lambda *arguments: arguments)
    after: Callable[[F32], F32] = field(default=lambda result: result)

    def __call__(self, *arguments: object, **options: object) -> F32:
        result: F32 = REFERENCES[self.name](*self.before(*arguments), **options)
        return self.after(result)


def wrong_functions(graph: Graph) -> Iterator[tuple[str, Functions]]:
    """Ops that compute something near by."""
    config, ops = graph.config, {node.op.name for node in graph.nodes}

    def groups_rolled(q: F32, keys: F32, values: F32, *rest: object) -> tuple[object, ...]:
        return q, np.roll(keys, 1, axis=0), np.roll(values, 1, axis=0), *rest

    def heads_interleaved(q: F32, keys: F32, values: F32, *rest: object) -> tuple[object, ...]:
        g = config.num_key_value_heads
        order = np.arange(q.shape[1]).reshape(g, -1).T.reshape(-1)
        return q[:, order], keys, values, *rest

    def pairs_neighboring(x: F32, *rest: object) -> tuple[object, ...]:
        e = x.shape[-1]
        return x.reshape(*x.shape[:-1], e // 2, 2).swapaxes(-1, -2).reshape(x.shape), *rest

    def turned_back(x: F32, positions: Ids, *rest: object) -> tuple[object, ...]:
        return x, -positions, *rest

    def next_row(x: F32, positions: Ids, table: F32) -> tuple[object, ...]:
        return x, positions + 1, table

    reading = "attention_sinks" if "attention_sinks" in ops else "attention"
    if config.num_key_value_heads > 1:
        yield "key heads in another order", {reading: _Wrongly(reading, groups_rolled)}
    if 1 < config.num_key_value_heads < config.num_attention_heads:
        yield "heads shared in turns", {reading: _Wrongly(reading, heads_interleaved)}
    if "rope" in ops:
        yield "neighbors paired", {"rope": _Wrongly("rope", pairs_neighboring)}
        yield "turned the other way", {"rope": _Wrongly("rope", turned_back)}
    if "add_positions" in ops:
        yield "positions one too high", {"add_positions": _Wrongly("add_positions", next_row)}
    if "gelu" in ops:
        yield "GELU by its integral", {"gelu": _gelu_by_erf}
        yield "GELU by sigmoid", {"gelu": _gelu_by_sigmoid}
    if "gelu_multiply" in ops:
        yield "GELU by its integral", {"gelu_multiply": lambda gate, up: _gelu_by_erf(gate) * up}
        yield "GELU by sigmoid", {"gelu_multiply": lambda gate, up: _gelu_by_sigmoid(gate) * up}
        yield "SiLU for GELU", {"gelu_multiply": references.silu_multiply}
    if "silu_multiply" in ops:
        yield "GELU for SiLU", {"silu_multiply": references.gelu_multiply}
        yield (
            "gate and up exchanged",
            {"silu_multiply": lambda gate, up: references.silu_multiply(up, gate)},
        )


def _gelu_by_erf(x: F32) -> F32:
    share = np.vectorize(math.erf, otypes=[np.float32])(x / np.float32(math.sqrt(2)))
    curve: F32 = x * np.float32(0.5) * (share + np.float32(1))
    return curve


def _gelu_by_sigmoid(x: F32) -> F32:
    curve: F32 = 1 + np.exp(np.float32(-1.702) * x)
    return x / curve
