"""The NumPy reference of each op of the table that has one, by the op's name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from forwardpass.graph import references, references_experts, references_latent
from forwardpass.graph.ops import OPS
from forwardpass.graph.ops_experts import EXPERTS
from forwardpass.graph.ops_latent import LATENT_OPS

_PLACES = {
    **{op.name: references_experts for op in EXPERTS if op.name != "attention_sinks"},
    **{op.name: references_latent for op in LATENT_OPS},
}

REFERENCES: Mapping[str, Callable[..., Any]] = {
    name: getattr(_PLACES.get(name, references), name)
    for name, op in OPS.items()
    if not op.counted_only
}
