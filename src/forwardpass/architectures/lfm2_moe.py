"""LFM2 8B-A1B and its kin, counted only.

Differs from `lfm2.py`: all but the first `num_dense_layers` layers have experts instead of an MLP.
A sigmoid scores each expert, a bias that is no parameter steers the choice, and the chosen scores
are brought to a sum of 1. `intermediate_size` is the width of the MLPs as it is.

Source: arXiv:2511.23404 section 2. Config keys and weight names as in transformers 5.24,
models/lfm2_moe, and in the checkpoints, where each expert has tables of its own.
"""

from __future__ import annotations

from forwardpass.architectures.family import Family
from forwardpass.architectures.lfm2 import (
    CONV_LAYER,
    NEUTRAL_KEYS,
    SPELLINGS,
    layers_by_name,
    mixed,
)
from forwardpass.architectures.mamba import nulls
from forwardpass.config import ConfigSpec, ModelConfig
from forwardpass.config_kinds import FLAG, NUMBER, SIZE, listed, size
from forwardpass.graph.builder import GraphBuilder
from forwardpass.graph.experts import Routing, router, swiglu_experts
from forwardpass.graph.graph import Graph, Role, Value

_TABLES = ("w1", "w3", "w2")  # gate, up, down


def build(config: ModelConfig) -> Graph:
    """The graph of an LFM2 with experts of these sizes."""
    g = GraphBuilder(config)
    d, f = config.hidden_size, config.intermediate_size
    x = g.embed("model.embed_tokens")  # n d
    for i in range(config.num_hidden_layers):
        with g.layer(f"model.layers.{i}", i):
            x = g.add(x, mixed(g, g.rms_norm(x, "operator_norm"), i))
            y = g.rms_norm(x, "ffn_norm")
            if i < config.whole("num_dense_layers"):
                gate = g.linear(y, "feed_forward.w1", f, Role.MLP_UP)  # n f
                up = g.linear(y, "feed_forward.w3", f, Role.MLP_UP)  # n f
                y = g.linear(g.silu_multiply(gate, up), "feed_forward.w2", d, Role.MLP_DOWN)
            else:
                y = _experts(g, y)
            x = g.add(x, y)
    x = g.rms_norm(g.wanted_rows(x), "model.embedding_norm")  # r d
    return g.finish(g.head(x, tied_to="model.embed_tokens"), proven=False)  # r v


def _experts(g: GraphBuilder, y: Value) -> Value:
    config = g.config
    routing = Routing(
        config.whole("num_experts"),
        config.whole("num_experts_per_tok"),
        scoring="sigmoid",
        normal="sum" if config.flag("norm_topk_prob") else "none",
        factor=config.number("routed_scaling_factor"),
        bias="feed_forward.expert_bias" if config.flag("use_expert_bias") else None,
    )
    width = config.whole("moe_intermediate_size")
    scores = router(g, y, "feed_forward.gate", routing)  # n x
    return swiglu_experts(g, y, scores, "feed_forward.experts", width, routing, _TABLES)


_KEYS = {
    "conv_bias": FLAG,
    "conv_L_cache": SIZE,
    "full_attn_idxs": listed(size(0)),
    "moe_intermediate_size": SIZE,
    "num_dense_layers": size(0),
    "num_experts": SIZE,
    "num_experts_per_tok": SIZE,
    "use_expert_bias": FLAG,
    "routed_scaling_factor": NUMBER,
    "norm_topk_prob": FLAG,
}


def _layers(values: dict[str, object]) -> list[str]:
    if problems := nulls(values, _KEYS, ("full_attn_idxs",)):
        return problems
    experts, chosen = values["num_experts"], values["num_experts_per_tok"]
    assert isinstance(experts, int)
    assert isinstance(chosen, int)
    problems = layers_by_name(values)
    if chosen > experts:
        problems.append(f"num_experts_per_tok = {chosen}  (there are {experts} experts)")
    return problems


FAMILY = Family(
    "lfm2_moe",
    spec=ConfigSpec(
        neutral=NEUTRAL_KEYS | {"output_router_logits"},
        spellings=SPELLINGS,
        keys=_KEYS,
        defaults={
            "vocab_size": 65_536,
            "hidden_size": 2_048,
            "intermediate_size": 7_168,
            "num_hidden_layers": 32,
            "num_attention_heads": 32,
            "num_key_value_heads": 8,
            "max_position_embeddings": 128_000,
            "hidden_act": "silu",
            "norm_eps": 1e-5,
            "tie_word_embeddings": True,
            "rope_theta": 1_000_000.0,
            "conv_bias": False,
            "conv_L_cache": 3,
            "moe_intermediate_size": 1_792,
            "num_dense_layers": 2,
            "num_experts": 32,
            "num_experts_per_tok": 4,
            "use_expert_bias": True,
            "routed_scaling_factor": 1.0,
            "norm_topk_prob": True,
        },
        accepts={"hidden_act": ("silu",)},
        derive=_layers,
        layer_kinds=(CONV_LAYER,),
    ),
    build=build,
    stacks=(r"(model\.layers\.\d+\.feed_forward\.experts)\.(\d+)(\.w[123])\.weight",),
)
