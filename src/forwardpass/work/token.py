"""The work of one token, and how attention's part of it grows with the visible tokens.

Nodes that do the same arithmetic are counted once and multiplied, so the time that counting takes
does not depend on the number of layers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from forwardpass.graph.graph import Graph, Node, Role
from forwardpass.work.count import node_flop
from forwardpass.work.passes import PassShape

Alike = tuple[tuple[Node, int], ...]


@dataclass(frozen=True)
class Growth:
    """Layers whose attention reads at most `window` tokens (None: all that are visible).

    `flop` and `kv_elements` are what one more visible token adds, over these layers together.
    """

    window: int | None
    layers: int
    flop: int
    kv_elements: int


def alike(graph: Graph) -> Alike:
    """One node of each sort, with the number of nodes that count the same."""
    found: dict[tuple[object, ...], list[Node]] = {}
    for node in graph.nodes:
        key = (
            node.op.name,
            node.role,
            node.reach,
            node.output.shape,
            tuple(node.sizes.items()),
        )
        found.setdefault(key, []).append(node)
    return tuple((nodes[0], len(nodes)) for nodes in found.values())


def flop_by_role(nodes: Alike, shape: PassShape) -> dict[Role, int]:
    """FLOP of a pass by role, as `count_pass` has them."""
    by_role = dict.fromkeys(Role, 0)
    for node, count in nodes:
        own, other = node_flop(node, shape)
        by_role[node.role] += count * own
        by_role[Role.OTHER] += count * other
    return by_role


def total(by_role: dict[Role, int]) -> int:
    """Matrix products and attention: all roles but `other`."""
    return sum(flop for role, flop in by_role.items() if role is not Role.OTHER)


def weights_flop(graph: Graph) -> int:
    """2 × every parameter that does arithmetic for a token.

    All but the tables that are only looked up, and of experts only the chosen ones.
    """
    idle = {weight.name for weight in graph.embedding_only}
    return 2 * sum(
        elements for name, elements in active_elements(graph).items() if name not in idle
    )


def active_elements(graph: Graph) -> dict[str, int]:
    """Parameters that one token reads, by weight: of experts' tables the share of the chosen."""
    shares = graph.experts
    return {
        weight.name: int(weight.elements * shares.get(weight.name, 1))
        for weight in graph.parameters
    }


def growth(graph: Graph, nodes: Alike, absorbed: bool = False) -> tuple[Growth, ...]:
    """What a visible token adds, by window: narrowest first, unlimited layers last.

    `absorbed`: latent attention in that form.
    """
    one = PassShape.decode(1)
    layers: dict[int | None, int] = {}
    flop: dict[int | None, int] = {}
    for node, count in nodes:
        if node.role is Role.READ and node.state is None:
            window = node.reach
            layers[window] = layers.get(window, 0) + count
            flop[window] = flop.get(window, 0) + count * _read_flop(node, one, absorbed)
    elements = dict.fromkeys(layers, 0)
    for state in graph.states:
        if state.elements_per_token:
            elements[state.window] = elements.get(state.window, 0) + state.elements_per_token
    return tuple(
        Growth(window, layers.get(window, 0), flop.get(window, 0), elements[window])
        for window in sorted(elements, key=lambda w: (w is None, w or 0))
    )


def _read_flop(node: Node, shape: PassShape, absorbed: bool) -> int:
    """FLOP of reading the cache.

    Absorbed, each head scores a latent row and what turns beside it, and mixes the latent row:
    2 × heads × (2 × rank + turned) a pair.
    """
    latent = node.attributes.get("absorbed")
    if not absorbed or not isinstance(latent, tuple):
        return node_flop(node, shape)[0]
    heads, (rank, turned) = node.sizes["h"], latent
    assert isinstance(heads, int)
    return 2 * heads * int(2 * rank + turned) * shape.pairs(node.reach)


def attention_at(parts: Sequence[Growth], visible: int) -> int:
    """FLOP of reading `visible` tokens, over all layers."""
    return sum(part.flop * min(visible, part.window or visible) for part in parts)


def crossover(weights: int, parts: Sequence[Growth]) -> int | None:
    """The most visible tokens at which attention is no more work than the weights.

    Without windows that is weights ÷ FLOP a visible token, rounded down. With windows, what the
    full ones cost stays, and only the other layers go on growing. None where no layer does and
    attention never comes to the weights.
    """
    fixed, growing = 0, sum(part.flop for part in parts)
    for part in sorted(parts, key=lambda part: (part.window is None, part.window or 0)):
        if growing == 0:
            return None
        reached = (weights - fixed) // growing
        if part.window is None or reached < part.window:
            return reached
        fixed += part.flop * part.window
        growing -= part.flop
    return None
