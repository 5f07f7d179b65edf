"""Granite 4: scans with one decay a head and a few layers of attention, counted only.

Differs from `granitemoeshared.py`: most layers are Mamba-2 mixers; those that attend are not turned
by position unless `position_embedding_type` is `rope`; without experts the shared MLP is the only
one.

Source: "Granite 4.0" (IBM, 2025) and arXiv:2405.21060 section 7.1. Config keys and weight names as
in transformers 5.24, models/granitemoehybrid, and in the checkpoints.
"""

from __future__ import annotations

from forwardpass.architectures.family import Family
from forwardpass.architectures.granitemoe import (
    DEFAULTS,
    EXPERT_KEYS,
    MULTIPLIERS,
    NEUTRAL_KEYS,
    attended,
    chosen_experts,
    experts_and_choice,
    finished,
)
from forwardpass.architectures.granitemoeshared import shared_mlp
from forwardpass.architectures.mamba import NEUTRAL_KEYS as SCAN_NEUTRAL
from forwardpass.architectures.mamba import nulls, standard_names
from forwardpass.architectures.mamba2 import product, shared_groups
from forwardpass.config import ConfigSpec, ModelConfig
from forwardpass.config_kinds import FLAG, SIZE, Kind, either, word
from forwardpass.graph.builder import GraphBuilder
from forwardpass.graph.graph import Graph
from forwardpass.graph.mixers import StateSpace, mamba2
from forwardpass.rope import FULL, RECURRENT_LAYER


def build(config: ModelConfig) -> Graph:
    """The graph of a Granite 4 with these sizes."""
    g = GraphBuilder(config)
    scan = scan_size(config)
    turned = config.own.get("position_embedding_type") == "rope"
    experts = config.whole("num_local_experts")
    x = g.scale(g.embed("model.embed_tokens"), config.embedding_multiplier)  # n d
    for i in range(config.num_hidden_layers):
        with g.layer(f"model.layers.{i}", i):
            y = g.rms_norm(x, "input_layernorm")
            attends = config.layer_types[i] == FULL
            y = attended(g, y, i, turned) if attends else mamba2(g, y, "mamba", scan)
            x = g.add(x, g.scale(y, config.residual_multiplier))
            y = g.rms_norm(x, "post_attention_layernorm")
            y = g.add(chosen_experts(g, y), shared_mlp(g, y)) if experts else shared_mlp(g, y)
            x = g.add(x, g.scale(y, config.residual_multiplier))
    return finished(g, x, proven=False)


def scan_size(config: ModelConfig) -> StateSpace:
    """The sizes of a recurrent layer."""
    return StateSpace(
        heads=config.whole("mamba_n_heads"),
        head=config.whole("mamba_d_head"),
        state=config.whole("mamba_d_state"),
        groups=config.whole("mamba_n_groups"),
        taps=config.whole("mamba_d_conv"),
        bias=config.flag("mamba_proj_bias"),
        conv_bias=config.flag("mamba_conv_bias"),
    )


SCAN_KEYS = {
    "mamba_n_heads": SIZE,
    "mamba_d_head": either(SIZE, word("auto")),
    "mamba_d_state": SIZE,
    "mamba_n_groups": SIZE,
    "mamba_d_conv": SIZE,
    "mamba_expand": SIZE,
    "mamba_proj_bias": FLAG,
    "mamba_conv_bias": FLAG,
}
SCAN_DEFAULTS: dict[str, object] = {
    "mamba_n_heads": 128,
    "mamba_d_head": "auto",
    "mamba_d_state": 256,
    "mamba_n_groups": 1,
    "mamba_d_conv": 4,
    "mamba_expand": 2,
    "mamba_proj_bias": False,
    "mamba_conv_bias": True,
}


def scan_heads(values: dict[str, object]) -> list[str]:
    """Completes the size of a scan's heads, which together are as wide as the expanded width."""
    if problems := nulls(values, SCAN_KEYS):
        return problems
    heads, each = values["mamba_n_heads"], values["mamba_d_head"]
    width = product(values["mamba_expand"], values["hidden_size"])
    assert isinstance(heads, int)
    if each == "auto":
        each = values["mamba_d_head"] = width // heads
    problems = shared_groups(heads, values["mamba_n_groups"])
    if product(heads, each) != width:
        problems.append(f"mamba_n_heads {heads} of {each} are not mamba_expand × hidden_size")
    return problems


_KEYS: dict[str, Kind] = {
    **EXPERT_KEYS,
    **SCAN_KEYS,
    "shared_intermediate_size": SIZE,
    "position_embedding_type": word("rope", "nope"),
}


def _layers(values: dict[str, object]) -> list[str]:
    standard_names(values)
    layers = values["num_hidden_layers"]
    assert isinstance(layers, int)
    values.setdefault("layer_types", [RECURRENT_LAYER] * layers)
    if problems := nulls(values, _KEYS, ("position_embedding_type",)):
        return problems
    problems = scan_heads(values)
    return problems if values["num_local_experts"] == 0 else problems + experts_and_choice(values)


FAMILY = Family(
    "granitemoehybrid",
    spec=ConfigSpec(
        understood=MULTIPLIERS,
        neutral=NEUTRAL_KEYS | SCAN_NEUTRAL | {"mamba_chunk_size"},
        spellings={"layers_block_type": "layer_types"},
        keys=_KEYS,
        defaults={**DEFAULTS, **SCAN_DEFAULTS, "shared_intermediate_size": 1_024},
        accepts={"hidden_act": ("silu",)},
        derive=_layers,
        layer_kinds=(RECURRENT_LAYER,),
    ),
    build=build,
)
