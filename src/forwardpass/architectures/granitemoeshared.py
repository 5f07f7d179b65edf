"""Granite with experts and one that every token passes.

Differs from `granitemoe.py`: an MLP of `shared_intermediate_size` is added to what the chosen
experts come to.

Source: config keys and weight names as in transformers 5.24, models/granitemoeshared.
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
from forwardpass.architectures.mamba import nulls
from forwardpass.config import ConfigSpec, ModelConfig
from forwardpass.config_kinds import size
from forwardpass.graph.builder import GraphBuilder
from forwardpass.graph.graph import Graph, Role, Value


def build(config: ModelConfig) -> Graph:
    """The graph of a Granite with experts and a shared one of these sizes."""
    g = GraphBuilder(config)
    shared = config.whole("shared_intermediate_size")
    x = g.scale(g.embed("model.embed_tokens"), config.embedding_multiplier)  # n d
    for i in range(config.num_hidden_layers):
        with g.layer(f"model.layers.{i}", i):
            y = attended(g, g.rms_norm(x, "input_layernorm"), i)
            x = g.add(x, g.scale(y, config.residual_multiplier))
            y = g.rms_norm(x, "post_attention_layernorm")
            y = g.add(chosen_experts(g, y), shared_mlp(g, y)) if shared else chosen_experts(g, y)
            x = g.add(x, g.scale(y, config.residual_multiplier))
    return finished(g, x)


def shared_mlp(g: GraphBuilder, y: Value) -> Value:
    """The MLP that every token passes, n d; gate and up are one table."""
    width = g.config.whole("shared_intermediate_size")
    both = g.linear(y, "shared_mlp.input_linear", 2 * width, Role.MLP_UP)
    y = g.silu_multiply(g.columns(both, 0, width), g.columns(both, width, 2 * width))  # n f
    return g.linear(y, "shared_mlp.output_linear", g.config.hidden_size, Role.MLP_DOWN)


_KEYS = {**EXPERT_KEYS, "shared_intermediate_size": size(0)}


def _experts(values: dict[str, object]) -> list[str]:
    return nulls(values, _KEYS) or experts_and_choice(values)


FAMILY = Family(
    "granitemoeshared",
    spec=ConfigSpec(
        understood=MULTIPLIERS,
        neutral=NEUTRAL_KEYS,
        keys=_KEYS,
        defaults={**DEFAULTS, "shared_intermediate_size": 0},
        accepts={"hidden_act": ("silu",)},
        derive=_experts,
    ),
    build=build,
)
