"""Latent attention in its two forms: what one more visible token costs, and when that is much.

Expanded, each head reads keys and values of its own, made once from a token's latent row. Absorbed,
the tables that expand are applied to the query and to the mix instead, and all heads read the
latent rows themselves: as many products a new token, more a visible one, and far fewer bytes.

Source: arXiv:2405.04434 section 2.1.2.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from forwardpass.graph.graph import Graph
from forwardpass.work.token import Alike, Growth, crossover, growth


@dataclass(frozen=True)
class LatentCount:
    """FLOP of one more visible token in each form, and where attention equals the weights.

    `kv_elements_per_token`: elements that a token adds to the cache, in either form.
    """

    per_visible_token_expanded: int
    per_visible_token_absorbed: int
    crossover_tokens_expanded: int | None
    crossover_tokens_absorbed: int | None
    kv_elements_per_token: int


def count_latent(
    graph: Graph, nodes: Alike, expanded: Sequence[Growth], weights: int
) -> LatentCount | None:
    """Both forms; None for a model without latent attention.

    `expanded`: its growth as the graph has it; `weights`: FLOP of the weights for a token.
    """
    if not any(node.attributes.get("absorbed") for node, _ in nodes):
        return None
    absorbed = growth(graph, nodes, absorbed=True)
    return LatentCount(
        sum(part.flop for part in expanded),
        sum(part.flop for part in absorbed),
        crossover(weights, expanded),
        crossover(weights, absorbed),
        sum(part.kv_elements for part in expanded),
    )
