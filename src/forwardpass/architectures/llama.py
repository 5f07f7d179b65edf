"""Llama 2, 3, 3.1, 3.2 and SmolLM2: pre-norm decoder, grouped-query attention, SwiGLU.

Source: arXiv:2302.13971, arXiv:2307.09288, arXiv:2407.21783. Weight names as in the checkpoints.
Other families say in their docstring how they differ from this file.
"""

from __future__ import annotations

from forwardpass.architectures.family import LLAMA_TENSORS, Family, GgufNames, Transform, stored_as
from forwardpass.config import ConfigSpec, ModelConfig
from forwardpass.graph.builder import GraphBuilder
from forwardpass.graph.graph import Graph, Role


def build(config: ModelConfig) -> Graph:
    """The graph of a Llama with these sizes."""
    g = GraphBuilder(config)
    d, f = config.hidden_size, config.intermediate_size
    q_width = config.num_attention_heads * config.head_dim
    kv_width = config.num_key_value_heads * config.head_dim
    attn, mlp = config.attention_bias, config.mlp_bias
    x = g.embed("model.embed_tokens")  # n d
    for i in range(config.num_hidden_layers):
        with g.layer(f"model.layers.{i}", i):
            y = g.rms_norm(x, "input_layernorm")
            q = g.heads(g.linear(y, "self_attn.q_proj", q_width, Role.QKV, attn))  # n h e
            k = g.heads(g.linear(y, "self_attn.k_proj", kv_width, Role.QKV, attn))  # n g e
            v = g.heads(g.linear(y, "self_attn.v_proj", kv_width, Role.QKV, attn))  # n g e
            q, k = g.rope(q, config.rope(i)), g.rope(k, config.rope(i))
            y = g.flat(g.attention(q, k, v))  # n (h e)
            x = g.add(x, g.linear(y, "self_attn.o_proj", d, Role.ATTENTION_OUTPUT, attn))
            y = g.rms_norm(x, "post_attention_layernorm")
            gate = g.linear(y, "mlp.gate_proj", f, Role.MLP_UP, mlp)  # n f
            up = g.linear(y, "mlp.up_proj", f, Role.MLP_UP, mlp)  # n f
            y = g.silu_multiply(gate, up)
            x = g.add(x, g.linear(y, "mlp.down_proj", d, Role.MLP_DOWN, mlp))
    x = g.rms_norm(g.wanted_rows(x), "model.norm")  # r d
    return g.finish(g.head(x, tied_to="model.embed_tokens"))  # r v


FAMILY = Family(
    "llama",
    spec=ConfigSpec(
        understood=frozenset({"attention_bias", "mlp_bias"}),
        defaults={
            "vocab_size": 32_000,
            "hidden_size": 4_096,
            "intermediate_size": 11_008,
            "num_hidden_layers": 32,
            "num_attention_heads": 32,
            "max_position_embeddings": 2_048,
            "hidden_act": "silu",
            "norm_eps": 1e-6,
            "tie_word_embeddings": False,
        },
        accepts={"hidden_act": ("silu",)},
    ),
    build=build,
    gguf=GgufNames(
        "llama",
        # The converter stores each query and key head's rows as the pairs that rope turns.
        tensors=stored_as(
            LLAMA_TENSORS,
            {"q_proj": Transform.UNPAIR_QUERY, "k_proj": Transform.UNPAIR_KEY},
        ),
    ),
)
