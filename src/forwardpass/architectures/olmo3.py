"""OLMo 3.

Differs from `llama.py` as `olmo2.py` does; besides, three of four layers see a sliding window, and
a rope scaling is that of the full layers alone. A base other than 500,000 has to be given by layer
type: transformers 5 gives the sliding layers 500,000 whatever `rope_theta` says, and earlier ones
do not.

GGUF files are of the architecture `olmo2`; those that state a window are of this family.

Source: arXiv:2512.13961 section 3; transformers, models/olmo3 (5.24). Weight names as in the
checkpoints.
"""

from __future__ import annotations

from collections.abc import Sequence

from forwardpass.architectures.family import Family, GgufNames
from forwardpass.architectures.olmo2 import OLMO_DEFAULTS, OLMO_TENSORS, build
from forwardpass.config import ConfigSpec
from forwardpass.config_rope import RopeSpec
from forwardpass.rope import FULL, SLIDING, shown

_BASE = 500_000.0


def _every_fourth_is_full(values: dict[str, object]) -> list[str]:
    layers = values["num_hidden_layers"]
    assert isinstance(layers, int)
    values.setdefault("layer_types", [SLIDING if (i + 1) % 4 else FULL for i in range(layers)])
    theta = values["rope_theta"]
    if theta == _BASE or values.get("rope_parameters"):
        return []
    wanted = f"{_BASE:,.0f}, or rope_parameters by layer type: readers disagree on sliding layers"
    return [f"rope_theta = {shown(theta)}  (wanted {wanted})"]


def _by_layer_type(config: dict[str, object]) -> None:
    """In GGUF files the base is that of all layers, and the pattern may be a list of the sliding.

    Source: llama.cpp, src/models/olmo2.cpp and conversion/olmo.py.
    """
    base = {"rope_theta": config.pop("rope_theta")}
    sliding = {"rope_theta": config.pop("rope_local_base_freq", base["rope_theta"])}
    scaling = config.pop("rope_scaling", None)
    full = {**base, **scaling} if isinstance(scaling, dict) else base
    config["rope_parameters"] = {FULL: full, SLIDING: sliding}
    pattern, layers = config.pop("sliding_window_pattern", 4), config["num_hidden_layers"]
    if isinstance(pattern, int) and not isinstance(pattern, bool) and isinstance(layers, int):
        pattern = [bool(pattern and (i + 1) % pattern) for i in range(min(layers, 4_096))]
    if isinstance(pattern, Sequence) and all(entry in (0, 1) for entry in pattern):
        pattern = [SLIDING if entry else FULL for entry in pattern]
    config["layer_types"] = pattern


FAMILY = Family(
    "olmo3",
    spec=ConfigSpec(
        understood=frozenset({"attention_bias", "sliding_window"}),
        defaults={**OLMO_DEFAULTS, "rope_theta": _BASE, "sliding_window": 4_096},
        accepts={"hidden_act": ("silu",)},
        derive=_every_fourth_is_full,
        ropes=RopeSpec(own_sliding=True),
    ),
    build=build,
    gguf=GgufNames(
        "olmo2",
        when="attention.sliding_window",
        tensors=OLMO_TENSORS,
        keys={
            "attention.sliding_window": "sliding_window",
            "rope.freq_base_swa": "rope_local_base_freq",
        },
        by_layer={"attention.sliding_window_pattern": "sliding_window_pattern"},
        finish=_by_layer_type,
    ),
)
