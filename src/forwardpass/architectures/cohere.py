"""Command R, Command R+ and Aya 23.

Differs from `llama.py`: norms center and have a gain and no bias (LayerNorm); attention and MLP
read one norm of the layer's input and both are added to it at once; neighbors of a head turn
together; `use_qk_norm` normalises each query and key head by a gain of its own before rope; logits
are multiplied by `logit_scale`; the head is the embedding.

Source: transformers, models/cohere (5.24); https://huggingface.co/CohereLabs/c4ai-command-r-v01.
Weight names as in the checkpoints.
"""

from __future__ import annotations

from forwardpass.architectures.family import LLAMA_TENSORS, Family, GgufNames
from forwardpass.architectures.qwen3 import HEAD_NORM_TENSORS
from forwardpass.config import ConfigSpec, ModelConfig
from forwardpass.graph.builder import GraphBuilder
from forwardpass.graph.graph import Graph, Role


def build(config: ModelConfig) -> Graph:
    """The graph of a Command R with these sizes."""
    g = GraphBuilder(config)
    d, f, attn = config.hidden_size, config.intermediate_size, config.attention_bias
    q_width = config.num_attention_heads * config.head_dim
    kv_width = config.num_key_value_heads * config.head_dim
    x = g.embed("model.embed_tokens")  # n d
    for i in range(config.num_hidden_layers):
        with g.layer(f"model.layers.{i}", i):
            normed = g.plain_layer_norm(x, "input_layernorm")
            q = g.heads(g.linear(normed, "self_attn.q_proj", q_width, Role.QKV, attn))  # n h e
            k = g.heads(g.linear(normed, "self_attn.k_proj", kv_width, Role.QKV, attn))  # n g e
            v = g.heads(g.linear(normed, "self_attn.v_proj", kv_width, Role.QKV, attn))  # n g e
            if config.use_qk_norm:
                q = g.head_layer_norm(q, "self_attn.q_norm")
                k = g.head_layer_norm(k, "self_attn.k_norm")
            q, k = (g.rope(heads, config.rope(i), interleaved=True) for heads in (q, k))
            y = g.flat(g.attention(q, k, v))  # n (h e)
            x = g.add(x, g.linear(y, "self_attn.o_proj", d, Role.ATTENTION_OUTPUT, attn))
            gate = g.linear(normed, "mlp.gate_proj", f, Role.MLP_UP)  # n f
            up = g.linear(normed, "mlp.up_proj", f, Role.MLP_UP)  # n f
            x = g.add(x, g.linear(g.silu_multiply(gate, up), "mlp.down_proj", d, Role.MLP_DOWN))
    x = g.plain_layer_norm(g.wanted_rows(x), "model.norm")  # r d
    return g.finish(g.scale(g.head(x, tied_to="model.embed_tokens"), config.logit_scale))  # r v


FAMILY = Family(
    "cohere",
    spec=ConfigSpec(
        understood=frozenset({"attention_bias", "logit_scale", "use_qk_norm"}),
        spellings={"layer_norm_eps": "norm_eps"},
        defaults={
            "vocab_size": 256_000,
            "hidden_size": 8_192,
            "intermediate_size": 22_528,
            "num_hidden_layers": 40,
            "num_attention_heads": 64,
            "max_position_embeddings": 8_192,
            "hidden_act": "silu",
            "norm_eps": 1e-5,
            "rope_theta": 500_000.0,
            "logit_scale": 0.0625,
            "use_qk_norm": False,
            "tie_word_embeddings": True,
        },
        accepts={"hidden_act": ("silu",)},
    ),
    build=build,
    gguf=GgufNames(
        "command-r",
        tensors={**LLAMA_TENSORS, **HEAD_NORM_TENSORS},
        keys={"attention.layer_norm_epsilon": "norm_eps", "logit_scale": "logit_scale"},
        told_by_tensors=lambda shapes: {"use_qk_norm": "blk.0.attn_q_norm.weight" in shapes},
    ),
)
