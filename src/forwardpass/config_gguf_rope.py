"""The `rope.scaling.*` keys of a GGUF file as the `rope_scaling` of a `config.json`.

What llama.cpp makes of them: src/llama-context.cpp and ggml/src/ggml-cpu/ops.cpp (`rope_yarn`).
Converters write them in conversion/base.py and conversion/phi.py.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from forwardpass.rope import finite

PREFIX = "rope.scaling."
SHORT_FACTORS = "rope_factors_short.weight"

_NAMES = {
    "factor": "factor",
    "original_context_length": "original_max_position_embeddings",
    "yarn_beta_fast": "beta_fast",
    "yarn_beta_slow": "beta_slow",
}
_TYPES = ("none", "linear", "yarn", "longrope")


def rope_scaling(
    keys: Mapping[str, object], shapes: Mapping[str, Sequence[int]]
) -> tuple[dict[str, object] | None, dict[str, object]]:
    """The object that `config.json` would have (None: no scaling), and the keys not understood.

    `keys` are those below `rope.scaling.`. A factor without a type is a linear one; with the type
    `none`, or alone, the others mean nothing. Longrope's factors are tensors: the op that reads
    them divides the angles, so the lists here are ones.
    """
    stored = shapes.get(SHORT_FACTORS)
    kind = keys.get("type")
    if kind is None:
        kind = "longrope" if stored else "linear" if "factor" in keys else "none"
    left = {key: value for key, value in keys.items() if key not in (*_NAMES, "type")}
    if kind not in _TYPES:
        return None, {**left, "type": kind}
    if kind == "none":
        return None, _without(left, {"attn_factor": 1.0})
    found = {_NAMES[key]: value for key, value in keys.items() if key in _NAMES}
    found["rope_type"] = kind
    if kind == "longrope":
        if stored and "attn_factor" in left:
            found["attention_factor"] = left.pop("attn_factor")
        if stored and "attention_factor" in found and len(stored) == 1:
            ones = [1.0] * min(stored[0], 2**16)
            found |= {"short_factor": ones, "long_factor": ones}
        return found, left
    neutral = {"attn_factor": 1.0}
    if kind == "yarn":
        # llama.cpp computes the lengthening from the factor, whatever the file says; so a file that
        # says something else means one thing to it and another to its converter.
        factor = finite(keys.get("factor")) or 1.0
        lengthened = 1.0 if factor <= 1 else 0.1 * math.log(factor) + 1.0
        neutral |= {
            "yarn_attn_factor": lengthened,
            "yarn_ext_factor": 1.0,
            "yarn_log_multiplier": 0.0,
        }
    return found, _without(left, neutral)


def _without(left: Mapping[str, object], neutral: Mapping[str, float]) -> dict[str, object]:
    """What is left when keys at their neutral values (float32 in files) are taken out."""
    return {
        key: value
        for key, value in left.items()
        if key not in neutral
        or not math.isclose(finite(value) or 0.0, neutral[key], rel_tol=1e-5, abs_tol=1e-9)
    }
