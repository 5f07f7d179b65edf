"""`Recorder`: what a pass really did, node by node, from the arrays that it handled."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from forwardpass.graph.axes import unify
from forwardpass.graph.graph import Node, Role
from forwardpass.graph.references import Ids


@dataclass(frozen=True)
class Executed:
    """One node as it ran: its FLOP by the shapes of its arrays, and its seconds.

    `experts`: of how many experts it read the tables; None where it has none.
    """

    node: Node
    flop: int
    other: int
    seconds: float
    experts: int | None = None


@dataclass
class Recorder:
    """Collects the nodes of one or more passes.

    `waiting`: seconds that the first thread waited for others, which belong to no node.
    """

    nodes: list[Executed] = field(default_factory=list)
    waiting: float = 0.0

    def add(
        self,
        node: Node,
        shapes: Sequence[tuple[int, ...]],
        output: tuple[int, ...],
        pairs: int,
        seconds: float,
        experts: int | None = None,
    ) -> None:
        """Notes a node: the shapes of its inputs and weights, of its output, its visible pairs.

        `experts`: of how many it read the tables.
        """
        given = {name: dim for name, dim in node.sizes.items() if isinstance(dim, int)}
        given |= {"s": output[1]} if node.op.state else {}
        dims, _ = unify(node.op.axes, shapes, given, node.op.name)
        sizes = {name: dim for name, dim in dims.items() if isinstance(dim, int) and name[0] != "."}
        elements = 1
        for size in output:
            elements *= size
        sizes |= {"elements": elements, "pairs": pairs}
        flop, other = node.op.flops(**sizes), node.op.other(**sizes)
        self.nodes.append(Executed(node, flop, other, seconds, experts))

    def steps(
        self,
        fold: Callable[[Recorder, npt.NDArray[np.float64], Ids, int], None],
        seconds: npt.NDArray[np.float64],
        positions: Ids,
        wanted: int,
    ) -> None:
        """Notes a pass of fused steps, their seconds of work and of waiting in two rows.

        `fold` adds its nodes; a recorder that must take no time keeps the array and folds later.
        """
        fold(self, seconds, positions, wanted)

    def flop(self) -> Mapping[Role, int]:
        """FLOP by role; softmax counts as `other`, like everywhere."""
        total = dict.fromkeys(Role, 0)
        for done in self.nodes:
            total[done.node.role] += done.flop
            total[Role.OTHER] += done.other
        return total

    def seconds(self) -> Mapping[Role, float]:
        """Seconds by the role of the node that took them."""
        total = dict.fromkeys(Role, 0.0)
        for done in self.nodes:
            total[done.node.role] += done.seconds
        return total

    def experts(self) -> float | None:
        """How many different experts a layer's tables were read of, on average; None without."""
        read = [done.experts for done in self.nodes if done.experts is not None]
        return sum(read) / len(read) if read else None


def visible_pairs(node: Node, positions: Ids) -> int:
    """(query, visible key) pairs of a node that reads the cache."""
    seen = positions + 1
    return int((seen if node.reach is None else np.minimum(seen, node.reach)).sum())
