"""What the nodes of a fused step took: its seconds, divided by their counted work.

A step is timed as a whole. Its nodes share that time by their FLOP and the elements that they make,
which is an estimate where a step has nodes of several roles.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from forwardpass.backends.recorder import Recorder, visible_pairs
from forwardpass.backends.slots import VIEWS
from forwardpass.backends.steps import Plan
from forwardpass.graph.axes import Dim
from forwardpass.graph.graph import Graph, Node
from forwardpass.graph.references import Ids

Shapes = tuple[list[tuple[int, ...]], tuple[int, ...]]


@dataclass
class StepTimes:
    """Divides the seconds of the steps of a plan among the nodes of its graph."""

    graph: Graph
    plan: Plan
    _shares: dict[tuple[int, int], list[tuple[int, int, float]]] = field(default_factory=dict)

    def empty(self) -> npt.NDArray[np.float64]:
        """No seconds: of work, and of waiting, for each step of the plan."""
        return np.zeros((2, len(self.plan.steps)))

    def record(
        self, recorder: Recorder, seconds: npt.NDArray[np.float64], positions: Ids, wanted: int
    ) -> None:
        """Hands the steps of a pass to a recorder, which says when they are folded to nodes."""
        recorder.steps(self.fold, seconds, positions, wanted)

    def fold(
        self, recorder: Recorder, seconds: npt.NDArray[np.float64], positions: Ids, wanted: int
    ) -> None:
        """Notes every node of a pass with its part of its step's seconds, in the graph's order."""
        key = (len(positions), wanted)
        if key not in self._shares:
            self._shares[key] = self._divide(*key)
        sizes = {"n": len(positions), "r": wanted, "s": int(positions.max()) + 1}
        pairs: dict[object, int] = {}
        for number, step, share in self._shares[key]:
            node = self.graph.nodes[number]
            window = node.attributes.get("window")
            if window not in pairs:
                pairs[window] = visible_pairs(node, positions)
            shapes = [_sized(value.shape, sizes) for value in node.inputs]
            shapes += [weight.shape for weight in node.weights]
            output = _sized(node.output.shape, sizes)
            recorder.add(node, shapes, output, pairs[window], share * float(seconds[0, step]))
        recorder.waiting += float(seconds[1].sum())

    def _divide(self, tokens: int, wanted: int) -> list[tuple[int, int, float]]:
        """Each node, its step, and its share of that step."""
        found: list[tuple[int, int, float]] = []
        for place, step in enumerate(self.plan.steps):
            costs = [_cost(self.graph.nodes[n], tokens, wanted) for n in step.nodes]
            total = sum(costs)
            found += [
                (node, place, cost / total if total else 1 / len(costs))
                for node, cost in zip(step.nodes, costs, strict=True)
            ]
        return sorted(found)


def _cost(node: Node, tokens: int, wanted: int) -> int:
    """FLOP of all roles and elements made; nothing for a view."""
    if node.op.name in VIEWS:
        return 0
    known = {"n": tokens, "r": wanted, "s": tokens}
    elements = int(np.prod(_sized(node.output.shape, known)))
    sizes = {
        name: known.get(dim, 0) if isinstance(dim, str) else dim
        for name, dim in node.sizes.items()
        if not name.startswith(".")
    }
    sizes |= {"elements": elements, "pairs": tokens}
    return node.op.flops(**sizes) + node.op.other(**sizes) + elements


def _sized(shape: tuple[Dim, ...], sizes: dict[str, int]) -> tuple[int, ...]:
    return tuple(sizes[dim] if isinstance(dim, str) else dim for dim in shape)
