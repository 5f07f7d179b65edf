"""The NumPy reference of each op of the table that has one, by the op's name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from forwardpass.graph import references, references_experts
from forwardpass.graph.ops import OPS
from forwardpass.graph.ops_experts import EXPERTS

_EXPERTS = {op.name for op in EXPERTS} - {"attention_sinks"}

REFERENCES: Mapping[str, Callable[..., Any]] = {
    name: getattr(references_experts if name in _EXPERTS else references, name)
    for name, op in OPS.items()
    if not op.counted_only
}
