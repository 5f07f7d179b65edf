"""Mixtral 8x7B and 8x22B.

Differs from `mistral.py`: instead of one MLP there are several, of which a router chooses two for
each token; their results are weighed by the softmax of the chosen two's scores.

GGUF files are of the architecture `llama`, with a number of experts.

Source: arXiv:2401.04088 section 2.1. Weight names as in the checkpoints, where each expert has
tables of its own.
"""

from __future__ import annotations

from forwardpass.architectures.family import (
    LLAMA_TENSORS,
    Family,
    GgufNames,
    Transform,
    expert_tensors,
    stored_as,
)
from forwardpass.architectures.mistral import window_every_layer
from forwardpass.config import ConfigSpec, ModelConfig
from forwardpass.config_kinds import SIZE
from forwardpass.graph.builder import GraphBuilder
from forwardpass.graph.experts import Routing, router, swiglu_experts
from forwardpass.graph.graph import Graph, Role

_TABLES = ("w1", "w3", "w2")  # gate, up, down


def build(config: ModelConfig) -> Graph:
    """The graph of a Mixtral with these sizes."""
    g = GraphBuilder(config)
    d, f = config.hidden_size, config.intermediate_size
    q_width = config.num_attention_heads * config.head_dim
    kv_width = config.num_key_value_heads * config.head_dim
    experts, chosen = config.whole("num_local_experts"), config.whole("num_experts_per_tok")
    routing = Routing(experts, chosen, normal="sum")
    x = g.embed("model.embed_tokens")  # n d
    for i in range(config.num_hidden_layers):
        with g.layer(f"model.layers.{i}", i):
            y = g.rms_norm(x, "input_layernorm")
            q = g.heads(g.linear(y, "self_attn.q_proj", q_width, Role.QKV))  # n h e
            k = g.heads(g.linear(y, "self_attn.k_proj", kv_width, Role.QKV))  # n g e
            v = g.heads(g.linear(y, "self_attn.v_proj", kv_width, Role.QKV))  # n g e
            q, k = g.rope(q, config.rope(i)), g.rope(k, config.rope(i))
            y = g.flat(g.attention(q, k, v, window=config.window(i)))  # n (h e)
            x = g.add(x, g.linear(y, "self_attn.o_proj", d, Role.ATTENTION_OUTPUT))
            y = g.rms_norm(x, "post_attention_layernorm")
            scores = router(g, y, "block_sparse_moe.gate", routing)  # n x
            y = swiglu_experts(g, y, scores, "block_sparse_moe.experts", f, routing, _TABLES)
            x = g.add(x, y)
    x = g.rms_norm(g.wanted_rows(x), "model.norm")  # r d
    return g.finish(g.head(x, tied_to="model.embed_tokens"))  # r v


# What only training looks at: losses that spread the work, noise on the router's numbers.
ROUTER_TRAINING = frozenset({"output_router_logits", "router_aux_loss_coef", "router_jitter_noise"})

FAMILY = Family(
    "mixtral",
    spec=ConfigSpec(
        understood=frozenset({"sliding_window"}),
        neutral=ROUTER_TRAINING,
        keys={"num_local_experts": SIZE, "num_experts_per_tok": SIZE},
        spellings={"num_experts": "num_local_experts"},
        defaults={
            "vocab_size": 32_000,
            "hidden_size": 4_096,
            "intermediate_size": 14_336,
            "num_hidden_layers": 32,
            "num_attention_heads": 32,
            "num_key_value_heads": 8,
            "max_position_embeddings": 131_072,
            "hidden_act": "silu",
            "norm_eps": 1e-5,
            "tie_word_embeddings": False,
            "rope_theta": 1_000_000.0,
            "num_local_experts": 8,
            "num_experts_per_tok": 2,
        },
        accepts={"hidden_act": ("silu",)},
        derive=window_every_layer,
    ),
    build=build,
    gguf=GgufNames(
        "llama",
        when="expert_count",
        tensors={
            **stored_as(
                LLAMA_TENSORS,
                {"q_proj": Transform.UNPAIR_QUERY, "k_proj": Transform.UNPAIR_KEY},
            ),
            **expert_tensors("block_sparse_moe.gate", "block_sparse_moe.experts", _TABLES),
        },
        keys={"expert_count": "num_local_experts", "expert_used_count": "num_experts_per_tok"},
    ),
    stacks=(r"(model\.layers\.\d+\.block_sparse_moe\.experts)\.(\d+)(\.w[123])\.weight",),
)
