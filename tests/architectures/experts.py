"""How the checkpoints of mixtures store what a graph has as one weight for all experts."""

from __future__ import annotations

import re
from collections.abc import Mapping

import numpy as np

from forwardpass.graph.references import F32

_GATE = "mlp.experts.gate_proj."


def as_stored(arrays: Mapping[str, F32], model_type: str) -> dict[str, F32]:
    """The arrays under the names and in the layouts of the family's files."""
    if model_type == "gpt_oss":
        return _in_one(arrays)
    found: dict[str, F32] = {}
    for name, array in arrays.items():
        match = re.fullmatch(r"(.*\.experts)\.(\w+)\.weight", name)
        if match is None:
            found[name] = array
        else:
            rows = enumerate(array)
            found |= {f"{match[1]}.{i}.{match[2]}.weight": row.copy() for i, row in rows}
    return found


def _in_one(arrays: Mapping[str, F32]) -> dict[str, F32]:
    """Gate and up as the columns of one tensor, in turns; tables inputs × outputs."""
    found: dict[str, F32] = {}
    for name, array in arrays.items():
        stored = array
        if _GATE in name:
            up = arrays[name.replace("gate_proj", "up_proj")]
            stored = np.empty((array.shape[0], 2 * array.shape[1], *array.shape[2:]), np.float32)
            stored[:, ::2], stored[:, 1::2] = array, up
            name = name.replace("gate_proj", "gate_up_proj")
        elif ".experts.up_proj." in name:
            continue
        if ".experts." in name:
            name = name.removesuffix(".weight").replace(".bias", "_bias")
            stored = stored.swapaxes(1, 2) if stored.ndim == 3 else stored
        found[name] = np.ascontiguousarray(stored)
    return found
