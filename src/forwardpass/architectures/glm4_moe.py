"""GLM-4.5, GLM-4.5-Air, GLM-4.6 and GLM-4.7.

Differs from `llama.py`: query, key and value have biases where the config says so, and norms on
query and key heads; half of each head turns. From layer `first_k_dense_replace` on, the MLP is a
mixture as in `deepseek_v3.py`: sigmoid scores, a steered bias, experts that take every token.
Layers that predict further tokens are not run.

Source: arXiv:2508.06471 section 2.1. Weight names as in the checkpoints.
"""

from __future__ import annotations

from forwardpass.architectures.deepseek_v2 import EXPERT_STACKS, TRAINING, shared_and_routed
from forwardpass.architectures.deepseek_v3 import (
    SPELLINGS,
    STEERED_DEFAULTS,
    STEERED_KEYS,
    prediction_layer,
    steered,
)
from forwardpass.architectures.family import Family
from forwardpass.config import ConfigSpec, ModelConfig
from forwardpass.config_kinds import FLAG, NUMBER, SIZE, size
from forwardpass.graph.builder import GraphBuilder
from forwardpass.graph.experts import swiglu
from forwardpass.graph.graph import Graph, Role


def build(config: ModelConfig) -> Graph:
    """The graph of a GLM-4.5 with these sizes."""
    g = GraphBuilder(config)
    d, biased = config.hidden_size, config.attention_bias
    q_width = config.num_attention_heads * config.head_dim
    kv_width = config.num_key_value_heads * config.head_dim
    routing = steered(config)
    x = g.embed("model.embed_tokens")  # n d
    for i in range(config.num_hidden_layers):
        with g.layer(f"model.layers.{i}", i):
            y = g.rms_norm(x, "input_layernorm")
            q = g.heads(g.linear(y, "self_attn.q_proj", q_width, Role.QKV, biased))  # n h e
            k = g.heads(g.linear(y, "self_attn.k_proj", kv_width, Role.QKV, biased))  # n g e
            v = g.heads(g.linear(y, "self_attn.v_proj", kv_width, Role.QKV, biased))  # n g e
            if config.use_qk_norm:
                q, k = g.rms_norm(q, "self_attn.q_norm"), g.rms_norm(k, "self_attn.k_norm")
            q, k = g.rope(q, config.rope(i)), g.rope(k, config.rope(i))
            y = g.flat(g.attention(q, k, v))  # n (h e)
            x = g.add(x, g.linear(y, "self_attn.o_proj", d, Role.ATTENTION_OUTPUT))
            y = g.rms_norm(x, "post_attention_layernorm")
            if i < config.whole("first_k_dense_replace"):
                y = swiglu(g, y, "mlp", config.intermediate_size)
            else:
                y = shared_and_routed(g, y, routing)
            x = g.add(x, y)
    x = g.rms_norm(g.wanted_rows(x), "model.norm")  # r d
    return g.finish(g.head(x, tied_to="model.embed_tokens"))  # r v


FAMILY = Family(
    "glm4_moe",
    spec=ConfigSpec(
        understood=frozenset({"attention_bias", "use_qk_norm"}),
        neutral=TRAINING,
        keys={
            **STEERED_KEYS,
            **dict.fromkeys(
                (
                    *("moe_intermediate_size", "n_routed_experts", "n_shared_experts"),
                    *("num_experts_per_tok", "n_group", "topk_group", "moe_layer_freq"),
                ),
                SIZE,
            ),
            "first_k_dense_replace": size(0),
            "routed_scaling_factor": NUMBER,
            "norm_topk_prob": FLAG,
        },
        spellings=SPELLINGS,
        defaults={
            "vocab_size": 151_552,
            "hidden_size": 4_096,
            "intermediate_size": 10_944,
            "moe_intermediate_size": 1_408,
            "num_hidden_layers": 46,
            "num_attention_heads": 96,
            "num_key_value_heads": 8,
            "max_position_embeddings": 131_072,
            "hidden_act": "silu",
            "norm_eps": 1e-5,
            "tie_word_embeddings": False,
            "first_k_dense_replace": 1,
            "n_routed_experts": 128,
            "n_shared_experts": 1,
            "num_experts_per_tok": 8,
            "n_group": 1,
            "topk_group": 1,
            "norm_topk_prob": True,
            "routed_scaling_factor": 1.0,
            "num_nextn_predict_layers": 1,
            **STEERED_DEFAULTS,
        },
        partial_rotary=0.5,
        accepts={"hidden_act": ("silu",), "moe_layer_freq": (1,)},
    ),
    build=build,
    stacks=EXPERT_STACKS,
    prediction_layer=prediction_layer,
)
