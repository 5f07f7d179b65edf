"""The NumPy references of the ops of mixtures of experts; conventions as in `references.py`.

A row's result depends on that row alone: each (token, expert) pair is multiplied by itself where it
is generated, and in a prompt in tiles whose places are those of the tokens.
"""

from __future__ import annotations

import numpy as np

from forwardpass.graph.references import F32, TILE, Ids, linear, sigmoid, softmax


def expert_scores(x: F32, *, scoring: str) -> F32:
    """Softmax over all experts, or the sigmoid of each number, n x."""
    return softmax(x) if scoring == "softmax" else sigmoid(x)


def route(scores: F32, *, k: int, groups: int, kept: int, group_best: int) -> Ids:
    """The k best experts of each row, best first, the lower number where scores are equal, n k.

    Of `groups` of neighboring experts those of the best `kept` alone; a group is as good as the sum
    of its `group_best` best.
    """
    n, experts = scores.shape
    if kept < groups:
        by_group = scores.reshape(n, groups, -1)
        best = -np.sort(-by_group, axis=-1)[..., :group_best].sum(axis=-1, dtype=np.float32)
        taken = _best(best, kept)
        open_groups = np.zeros((n, groups), bool)
        np.put_along_axis(open_groups, taken, True, axis=-1)
        scores = np.where(open_groups.repeat(experts // groups, axis=-1), scores, -np.inf)
    return _best(scores, k)


def route_biased(scores: F32, bias: F32, *, k: int, groups: int, kept: int, group_best: int) -> Ids:
    """Like `route`, of scores plus a bias for each expert."""
    return route(scores + bias, k=k, groups=groups, kept=kept, group_best=group_best)


def expert_weights(scores: F32, chosen: Ids, *, normal: str, factor: float) -> F32:
    """The chosen experts' scores, normalised or not, times the factor, n k."""
    weights: F32 = np.take_along_axis(scores, chosen, axis=-1)
    if normal == "softmax":
        weights = softmax(weights)
    elif normal == "sum":
        total: F32 = weights.sum(axis=-1, keepdims=True, dtype=np.float32)
        weights = weights / total
    return weights * np.float32(factor)


def to_experts(x: F32, chosen: Ids) -> F32:
    """Each row once for each of its experts, n k d."""
    return np.repeat(x[:, None], chosen.shape[1], axis=1)


def expert_linear(x: F32, chosen: Ids, tables: F32, *, generated: bool = False) -> F32:
    """Row k of token n times the table of expert `chosen[n, k]`, n k o."""
    n, k, _ = x.shape
    out = np.empty((n, k, tables.shape[1]), np.float32)
    size = 1 if generated else TILE
    for start in range(0, n, size):
        part = chosen[start : start + size]
        for expert in np.unique(part):
            rows, places = np.nonzero(part == expert)
            mine = x[start + rows, places]
            if generated:
                out[start, places] = linear(mine, tables[expert], generated=True)
            else:
                # In the row of its token, so that its sums do not depend on who else came here.
                tile = np.zeros((TILE, x.shape[2]), np.float32)
                tile[rows] = mine
                out[start + rows, places] = (tile @ tables[expert].T)[rows]
    return out


def expert_linear_bias(
    x: F32, chosen: Ids, tables: F32, bias: F32, *, generated: bool = False
) -> F32:
    """The same plus the expert's bias, n k o."""
    return expert_linear(x, chosen, tables, generated=generated) + bias[chosen]


def combine(rows: F32, weights: F32) -> F32:
    """The sum over k of rows (n k d) × weights (n k), in the order of k, n d."""
    total = np.zeros((rows.shape[0], rows.shape[2]), np.float32)
    for k in range(rows.shape[1]):
        total += rows[:, k] * weights[:, k, None]
    return total


def clamped_silu_multiply(gate: F32, up: F32, *, alpha: float, limit: float) -> F32:
    """gate × sigmoid(alpha × gate) × (up + 1); gate ≤ limit and −limit ≤ up ≤ limit first."""
    gate = np.minimum(gate, np.float32(limit))
    up = np.clip(up, np.float32(-limit), np.float32(limit))
    return gate * sigmoid(gate * np.float32(alpha)) * (up + np.float32(1))


def sigmoid_scale(x: F32, numbers: F32) -> F32:
    """Each row of x times the sigmoid of its number (n 1), n d."""
    return x * sigmoid(numbers)


def _best(scores: F32, k: int) -> Ids:
    order = np.argsort(-scores, axis=-1, kind="stable")[:, :k]
    return order.astype(np.int64)
