"""Falcon Mamba 7B: selective scans alone, counted only.

Differs from `mamba.py`: time step, B and C are each divided by their root mean square, without a
gain, before they are used.

Source: arXiv:2410.05355 section 3.1. Config keys and weight names as in transformers 5.24,
models/falcon_mamba, and in the checkpoints.
"""

from __future__ import annotations

from dataclasses import replace

from forwardpass.architectures.family import Family
from forwardpass.architectures.mamba import (
    DEFAULTS,
    KEYS,
    NEUTRAL_KEYS,
    SPELLINGS,
    every_layer_recurrent,
    scan_size,
)
from forwardpass.config import ConfigSpec, ModelConfig
from forwardpass.config_kinds import NUMBER
from forwardpass.graph.builder import GraphBuilder
from forwardpass.graph.graph import Graph
from forwardpass.graph.mixers import mamba1
from forwardpass.rope import RECURRENT_LAYER


def build(config: ModelConfig) -> Graph:
    """The graph of a Falcon Mamba with these sizes."""
    g = GraphBuilder(config)
    size = replace(scan_size(config), norms="plain", eps=config.number("mixer_rms_eps"))
    x = g.embed("backbone.embeddings")  # n d
    for i in range(config.num_hidden_layers):
        with g.layer(f"backbone.layers.{i}", i):
            x = g.add(x, mamba1(g, g.rms_norm(x, "norm"), "mixer", size))
    x = g.rms_norm(g.wanted_rows(x), "backbone.norm_f")  # r d
    return g.finish(g.head(x, tied_to="backbone.embeddings"))  # r v


FAMILY = Family(
    "falcon_mamba",
    spec=ConfigSpec(
        neutral=NEUTRAL_KEYS | {"use_falcon_mambapy"},
        spellings=SPELLINGS,
        keys={**KEYS, "mixer_rms_eps": NUMBER},
        defaults={**DEFAULTS, "mixer_rms_eps": 1e-6},
        accepts={"hidden_act": ("silu",), "rms_norm": (True,)},
        derive=every_layer_recurrent,
        rope=False,
        attention=False,
        layer_kinds=(RECURRENT_LAYER,),
    ),
    build=build,
    embedding="backbone.embeddings.weight",
)
