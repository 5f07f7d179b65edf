"""`Op`: one row of the op table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

Rule = Callable[..., int]


def _zero(**_: int) -> int:
    return 0


@dataclass(frozen=True)
class Op:
    """One row of the table.

    `axes`: inputs and weights -> output. `flops` counts for the node's role, `other` for the role
    `other`. `table` marks ops whose first weight is a table and not a vector. `lookup` marks ops
    that read only `n` rows of their weight instead of all of it.
    `constant` marks ops whose weight is a constant that a file happens to store, not learned.
    `state` marks the ops that write a cache and return its visible part. `phased` ops sum prompt
    rows in tiles and generated rows one by one; `graph/references.py` says why. `experts` marks ops
    that read, of weights with a row for each expert, those of the chosen ones. `integers` marks ops
    that make ids instead of float32. `counted_only` marks ops that no backend computes yet.
    `tolerance` is the largest relative error of another backend's float32 result.
    """

    name: str
    axes: str
    source: str
    flops: Rule = _zero
    other: Rule = _zero
    attributes: tuple[str, ...] = field(default=())
    lookup: bool = False
    table: bool = False
    constant: bool = False
    state: bool = False
    phased: bool = False
    experts: bool = False
    integers: bool = False
    counted_only: bool = False
    tolerance: float = 1e-5
