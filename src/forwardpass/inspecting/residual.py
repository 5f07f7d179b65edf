"""Where the running vector is in a graph: what begins it, what each layer adds, what reads it last.

Every decoder that is run has one: it begins as the embedding, attention and MLP of each layer add
an update to it, and the wanted rows of what the last layer leaves go to the final norm and the
head. The walk knows no family. It follows the vector from the embedding along the only `add` that
reads it, or, where nothing is added to it, along the only node that reads it at all (a scaling,
positions, a norm), which then makes it anew.

Source: "residual connection" of arXiv:1706.03762 section 3.1; arXiv:2304.14767 section 2 for the
view of a layer as two updates.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby

from forwardpass.errors import GraphError
from forwardpass.graph.graph import Graph, Node, Role, Value

_WANTED = "wanted_rows"
_MLP = {Role.MLP_ROUTER, Role.MLP_UP, Role.MLP_DOWN}


@dataclass(frozen=True)
class Update:
    """What is added to the running vector, and the running vector that it is added to, n d each."""

    added: Value
    to: Value


@dataclass(frozen=True)
class LayerStream:
    """The running vector in one layer.

    `before` and `after` the layer, n d each, and the updates between them. `normed`: a norm of the
    layer stands on the running vector itself, so that `after` is not `before` plus both updates.
    `read`: the node that mixes the values that attention sees.
    """

    before: Value
    attention: Update
    mlp: Update
    after: Value
    normed: bool
    read: Node


@dataclass(frozen=True)
class Residual:
    """The running vector of a graph, layer by layer, and the nodes that make logits of its rows."""

    layers: tuple[LayerStream, ...]
    tail: tuple[Node, ...]


def residual(graph: Graph) -> Residual:
    """The running vector of the graph.

    Raises GraphError, naming the architecture and the place, where there is not exactly one, and
    where a layer adds something else than one attention and one MLP.
    """
    return _Walk(graph).done()


class _Walk:
    """Follows the running vector through one graph."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.makers = {node.output: node for node in graph.nodes}
        self.readers: dict[Value, list[Node]] = {}
        for node in graph.nodes:
            for value in dict.fromkeys(node.inputs):
                self.readers.setdefault(value, []).append(node)

    def done(self) -> Residual:
        """The whole way."""
        *steps, wanted = self._steps()
        self.running = {node.output for node in steps}
        layers: list[LayerStream] = []
        now = self.graph.tokens
        for number, nodes in groupby(steps, lambda node: node.layer):
            here = list(nodes)
            if number is not None:
                layers.append(self._layer(now, here))
            now = here[-1].output
        return Residual(tuple(layers), self._tail(wanted))

    def _steps(self) -> list[Node]:
        """The nodes that make the running vector one after another, and the one that ends it."""
        steps: list[Node] = []
        now = self.graph.tokens
        while not steps or steps[-1].op.name != _WANTED:
            readers = self.readers.get(now, [])
            adding = [node for node in readers if node.op.name == "add"]
            following = adding or readers
            if len(following) != 1:
                where = steps[-1].name if steps else "the embedding"
                raise self._refusal(
                    f"behind {where}, {len(adding)} of {len(readers)} readers add to it"
                )
            steps.append(following[0])
            now = following[0].output
        return steps

    def _layer(self, before: Value, steps: list[Node]) -> LayerStream:
        """The layer whose running vectors these nodes make."""
        attention: list[tuple[Update, Node]] = []
        mlp: list[Update] = []
        now = before
        for node in steps:
            if node.op.name == "add":
                update = Update(next(value for value in node.inputs if value != now), now)
                inside = self._behind(update.added)
                reads = [n for n in inside if n.role is Role.READ and not n.op.state]
                attention += [(update, read) for read in reads]
                if any(n.role in _MLP for n in inside):
                    mlp.append(update)
            now = node.output
        adds = sum(node.op.name == "add" for node in steps)
        if (len(attention), len(mlp), adds) != (1, 1, 2):
            raise self._refusal(f"layer {steps[0].layer} is not one attention and one MLP")
        (mixed, read), normed = attention[0], adds < len(steps)
        return LayerStream(before, mixed, mlp[0], now, normed, read)

    def _behind(self, update: Value) -> list[Node]:
        """The nodes that make an update out of running vectors."""
        found: dict[Value, Node] = {}
        waiting = [update]
        while waiting:
            value = waiting.pop()
            if value in self.makers and value not in found and value not in self.running:
                found[value] = self.makers[value]
                waiting += found[value].inputs
        return list(found.values())

    def _tail(self, wanted: Node) -> tuple[Node, ...]:
        """The nodes behind the wanted rows, which must need nothing else."""
        nodes = self.graph.nodes[self.graph.nodes.index(wanted) + 1 :]
        known = {wanted.output}
        for node in nodes:
            if not known.issuperset(node.inputs):
                raise self._refusal(f"{node.name} needs more than the wanted rows")
            known.add(node.output)
        return nodes

    def _refusal(self, why: str) -> GraphError:
        kind = self.graph.config.model_type
        return GraphError(f"{kind}: the running vector cannot be followed: {why}")
