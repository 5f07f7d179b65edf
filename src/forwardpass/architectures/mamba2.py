"""Mamba-2 130M to 2.7B, Codestral Mamba 7B: scans with one decay a head, counted only.

Differs from `mamba.py`: one projection in makes gate, input, B, C and time step; the convolution
runs over input, B and C; groups of heads share B and C; the gated result is normalised by group.

Source: arXiv:2405.21060 section 7.1. Config keys and weight names as in transformers 5.24,
models/mamba2, and in the checkpoints.
"""

from __future__ import annotations

from forwardpass.architectures.family import Family
from forwardpass.architectures.mamba import (
    NEUTRAL_KEYS,
    nulls,
    only_recurrent,
)
from forwardpass.config import ConfigSpec, ModelConfig
from forwardpass.config_kinds import FLAG, MAX_SIZE, SIZE
from forwardpass.graph.builder import GraphBuilder
from forwardpass.graph.graph import Graph
from forwardpass.graph.mixers import StateSpace, mamba2
from forwardpass.rope import RECURRENT_LAYER


def build(config: ModelConfig) -> Graph:
    """The graph of a Mamba-2 with these sizes."""
    g = GraphBuilder(config)
    size = StateSpace(
        heads=config.whole("num_heads"),
        head=config.whole("mixer_head_dim"),
        state=config.whole("state_size"),
        groups=config.whole("n_groups"),
        taps=config.whole("conv_kernel"),
        bias=config.flag("use_bias"),
        conv_bias=config.flag("use_conv_bias"),
    )
    x = g.embed("backbone.embeddings")  # n d
    for i in range(config.num_hidden_layers):
        with g.layer(f"backbone.layers.{i}", i):
            x = g.add(x, mamba2(g, g.rms_norm(x, "norm"), "mixer", size))
    x = g.rms_norm(g.wanted_rows(x), "backbone.norm_f")  # r d
    return g.finish(g.head(x, tied_to="backbone.embeddings"))  # r v


_KEYS = {
    "num_heads": SIZE,
    "mixer_head_dim": SIZE,
    "state_size": SIZE,
    "expand": SIZE,
    "n_groups": SIZE,
    "conv_kernel": SIZE,
    "use_bias": FLAG,
    "use_conv_bias": FLAG,
    "rms_norm": FLAG,
}


def _heads_share_the_width(values: dict[str, object]) -> list[str]:
    if problems := nulls(values, _KEYS):
        return problems
    hidden, expand, heads, each = (
        values[key] for key in ("hidden_size", "expand", "num_heads", "mixer_head_dim")
    )
    values["intermediate_size"] = width = product(expand, hidden)
    problems = only_recurrent(values) + shared_groups(heads, values["n_groups"])
    if product(heads, each) != width:
        problems.append(f"num_heads {heads} of head_dim {each} are not expand × hidden_size")
    return problems


def product(one: object, other: object) -> int:
    """Two sizes of a config multiplied."""
    assert isinstance(one, int)
    assert isinstance(other, int)
    return one * other


def shared_groups(heads: object, groups: object) -> list[str]:
    """What is wrong with so many heads that share so many groups."""
    assert isinstance(heads, int)
    assert isinstance(groups, int)
    if heads % groups == 0:
        return []
    return [f"{heads} heads of a mixer are not a multiple of {groups} groups"]


FAMILY = Family(
    "mamba2",
    spec=ConfigSpec(
        # Whether gate or norm comes first changes no count; transformers gates first, always.
        neutral=NEUTRAL_KEYS | {"chunk_size", "norm_before_gate", "time_step_rank"},
        # Heads here are those of the scan; there are none of attention.
        spellings={"layer_norm_epsilon": "norm_eps", "head_dim": "mixer_head_dim"},
        keys=_KEYS,
        defaults={
            "vocab_size": 32_768,
            "hidden_size": 4_096,
            "num_hidden_layers": 64,
            "max_position_embeddings": MAX_SIZE,  # nothing limits a sequence
            "hidden_act": "silu",
            "norm_eps": 1e-5,
            "tie_word_embeddings": False,
            "num_heads": 128,
            "mixer_head_dim": 64,
            "state_size": 128,
            "expand": 2,
            "n_groups": 8,
            "conv_kernel": 4,
            "use_bias": False,
            "use_conv_bias": True,
            "rms_norm": True,
        },
        accepts={"hidden_act": ("silu",), "rms_norm": (True,)},
        derive=_heads_share_the_width,
        rope=False,
        attention=False,
        layer_kinds=(RECURRENT_LAYER,),
    ),
    build=build,
    embedding="backbone.embeddings.weight",
)
