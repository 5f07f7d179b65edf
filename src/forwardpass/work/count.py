"""The work of a pass, read from its graph: FLOP and bytes by role, in columns that never mix.

Nothing is run and no weight is needed. `count_pass` gives one `Work` a role; the tests hold its
sums to closed formulas, to what the reference backend records while it runs, and to torch's
counter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from math import prod

from forwardpass.graph.axes import Dim
from forwardpass.graph.graph import Graph, Node, Role, Weight
from forwardpass.work.passes import PassShape

WeightBytes = Callable[[Weight], int]
_ACTIVATION_WIDTH = 4  # bytes of a float32


@dataclass(frozen=True)
class Work:
    """What some part of a pass does.

    `flop`: arithmetic. `weight_bytes`: tables as stored, each read once a pass; of experts' tables
    those of the experts that a token of the pass is expected to choose. `cache_read` and
    `cache_written`: bytes of the KV cache and of recurrent states. `activation_bytes`: values read
    and written in between.
    """

    flop: int = 0
    weight_bytes: int = 0
    cache_read: int = 0
    cache_written: int = 0
    activation_bytes: int = 0

    def __add__(self, more: Work) -> Work:
        return Work(
            self.flop + more.flop,
            self.weight_bytes + more.weight_bytes,
            self.cache_read + more.cache_read,
            self.cache_written + more.cache_written,
            self.activation_bytes + more.activation_bytes,
        )

    @property
    def bytes(self) -> int:
        """Bytes that must come from memory: weights and cache. Activations stay in caches."""
        return self.weight_bytes + self.cache_read + self.cache_written


@dataclass(frozen=True)
class PassWork:
    """A pass's work by role; every role is present."""

    by_role: Mapping[Role, Work]

    @property
    def total(self) -> Work:
        """All roles but `other`, whose arithmetic is shown beside and never added in silence."""
        return _sum(work for role, work in self.by_role.items() if role is not Role.OTHER)

    @property
    def other(self) -> Work:
        return self.by_role[Role.OTHER]

    @property
    def flop(self) -> int:
        """FLOP by matrix products and attention."""
        return self.total.flop

    @property
    def weight_bytes(self) -> int:
        """Bytes of weights read, those of `other` (the norms' gains) included."""
        return self.total.weight_bytes + self.other.weight_bytes

    def __add__(self, more: PassWork) -> PassWork:
        return PassWork({role: self.by_role[role] + more.by_role[role] for role in Role})


def no_work() -> PassWork:
    """A pass that does nothing: the start of a sum."""
    return PassWork({role: Work() for role in Role})


def count_pass(
    graph: Graph, shape: PassShape, weight_bytes: WeightBytes, kv_width: int
) -> PassWork:
    """The work of one pass.

    `weight_bytes` gives a table's bytes as stored; `kv_width` is the bytes of a cache element.
    """
    by_role = {role: Work() for role in Role}
    read: set[str] = set()  # tables already paid for in this pass
    for node in sorted(graph.nodes, key=lambda node: node.op.lookup):
        flop, other = node_flop(node, shape)
        by_role[node.role] += Work(
            flop,
            _node_weight_bytes(node, shape, weight_bytes, read),
            *_cache_bytes(node, shape, kv_width),
            activation_bytes=_activation_bytes(node, shape),
        )
        by_role[Role.OTHER] += Work(other)
    return PassWork(by_role)


def weights_read(graph: Graph, shape: PassShape, weight_bytes: WeightBytes) -> int:
    """Bytes of weights that a pass reads, in all roles: `PassWork.weight_bytes` alone."""
    read: set[str] = set()
    nodes = sorted(graph.nodes, key=lambda node: node.op.lookup)
    return sum(_node_weight_bytes(node, shape, weight_bytes, read) for node in nodes)


def cache_moved(graph: Graph, shape: PassShape, kv_width: int) -> int:
    """Bytes of the cache and of recurrent states that a pass reads and writes, in all roles."""
    return sum(sum(_cache_bytes(node, shape, kv_width)) for node in graph.nodes)


def node_flop(node: Node, shape: PassShape) -> tuple[int, int]:
    """FLOP for the node's role, and FLOP for `other`."""
    sizes = {name: _resolve(dim, shape) for name, dim in node.sizes.items() if name[0] != "."}
    sizes["elements"] = _elements(node.output.shape, shape)
    sizes["pairs"] = shape.pairs(node.reach)
    return node.op.flops(**sizes), node.op.other(**sizes)


def kv_bytes_per_token(graph: Graph, width: int) -> int:
    """Bytes that one more token adds to the KV cache, over all layers; windows not yet full.

    2·L·g·e·width: a key and a value of g heads × e elements in each of L layers; `width` is bytes
    per element as stored.

    Source: arXiv:1911.02150 section 3, with g for h (arXiv:2305.13245).
    """
    return width * sum(state.elements_per_token for state in graph.states)


def state_bytes(graph: Graph, width: int) -> int:
    """Bytes that a sequence keeps whatever its length: the states of recurrent layers.

    `width`: bytes of an element, where the config does not say how a state is kept.
    """
    return sum((state.width or width) * state.elements_per_sequence for state in graph.states)


def kv_bytes(graph: Graph, tokens: int, width: int) -> int:
    """Bytes of the KV cache for `tokens` tokens; a layer with a window stops growing at it."""
    return width * sum(
        state.elements_per_token * min(tokens, state.window or tokens) for state in graph.states
    )


def expected_experts(experts: int, chosen: int, tokens: int) -> float:
    """Different experts that a pass of `tokens` tokens is expected to read in one layer.

    experts × (1 − (1 − chosen/experts)^tokens): every token chooses on its own, every expert
    equally often. Trained routers are near to that; a run reports the experts really read.
    """
    return experts * (1 - (1 - chosen / experts) ** tokens)


def _node_weight_bytes(
    node: Node, shape: PassShape, weight_bytes: WeightBytes, read: set[str]
) -> int:
    if node.inputs and _resolve(node.inputs[0].shape[0], shape) == 0:
        return 0  # no row is wanted: the head is not read
    total = 0
    for weight in node.weights:
        if weight.name in read:
            continue  # a tied table that this pass reads whole anyway
        if node.op.lookup:
            total += weight_bytes(weight) // weight.shape[0] * shape.tokens
        elif node.op.experts:
            hit = expected_experts(weight.shape[0], _resolve(node.sizes["k"], shape), shape.tokens)
            total += round(weight_bytes(weight) / weight.shape[0] * hit)
        else:
            total += weight_bytes(weight)
            read.add(weight.name)
    return total


def _cache_bytes(node: Node, shape: PassShape, width: int) -> tuple[int, int]:
    if node.state is None:
        return 0, 0
    row = node.state.elements_per_token * width
    kept = node.state.elements_per_sequence * (node.state.width or width) * len(shape.sequences)
    read = prod(node.state.shape) * width if node.state.again else row
    return shape.visible(node.state.reach) * read + kept, shape.tokens * row + kept


def _activation_bytes(node: Node, shape: PassShape) -> int:
    if node.op.state or node.op.name in ("heads", "flat"):
        return 0  # views, and rows already counted as cache
    values = [value for value in (*node.inputs, node.output) if value.shape[:1] != ("g",)]
    moved = sum(_elements(value.shape, shape) for value in values if "s" not in value.shape)
    return moved * _ACTIVATION_WIDTH


def _elements(dims: Iterable[Dim], shape: PassShape) -> int:
    return prod(_resolve(dim, shape) for dim in dims)


def _resolve(dim: Dim, shape: PassShape) -> int:
    if isinstance(dim, int):
        return dim
    return {"n": shape.tokens, "r": shape.rows, "s": shape.visible(None)}[dim]


def _sum(works: Iterable[Work]) -> Work:
    total = Work()
    for work in works:
        total += work
    return total
