"""How many experts' tables a pass is expected to read, of a mixture."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from forwardpass.graph.graph import Graph
from forwardpass.units import exact
from forwardpass.work.count import expected_experts
from forwardpass.work.layout import wrapped

TOKENS = (1, 8, 64, 512)  # of the passes that are shown


@dataclass(frozen=True)
class ExpertCount:
    """`layers` layers with `of` experts each, of which a token goes to `chosen`.

    `expected`: for so many tokens in a pass, how many of a layer's experts any of them goes to.
    """

    layers: int
    of: int
    chosen: int
    expected: Mapping[str, float]


def count_experts(graph: Graph) -> tuple[ExpertCount, ...]:
    """One entry for each size of mixture in the graph; none for a dense model."""
    layers: dict[tuple[int, int], set[int | None]] = {}
    for node in graph.nodes:
        chosen = node.sizes.get("k")
        if node.op.experts and isinstance(chosen, int):
            layers.setdefault((node.weights[0].shape[0], chosen), set()).add(node.layer)
    return tuple(
        ExpertCount(
            len(places),
            of,
            chosen,
            {str(tokens): round(expected_experts(of, chosen, tokens), 3) for tokens in TOKENS},
        )
        for (of, chosen), places in layers.items()
    )


def expert_lines(mixtures: tuple[ExpertCount, ...]) -> Iterator[str]:
    """The same in words: a line for each size of mixture."""
    for mixture in mixtures:
        layers = f"{exact(mixture.layers)} layer{'s' * (mixture.layers != 1)}"
        words = [f"experts read, of {exact(mixture.of)} in {layers}: {mixture.chosen} by one token"]
        words += [
            f"{'expected ' * (i == 0)}{expected:.1f} by {tokens}{' tokens' * (i == 0)}"
            for i, (tokens, expected) in enumerate(list(mixture.expected.items())[1:])
        ]
        yield from wrapped(words, ", ", "  ")
