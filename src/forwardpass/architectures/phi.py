"""Phi-1, Phi-1.5 and Phi-2.

Differs from `llama.py`: one norm a layer, which centers and has a bias (LayerNorm), feeds attention
and MLP, and both are added at once; only the first half of each head turns unless the config says
otherwise; every projection has a bias, the head too; one expanding table and GELU instead of
SwiGLU; `qk_layernorm` normalises query and key heads (one gain and bias for all heads) before rope.

Source: arXiv:2306.11644 section 2.3, arXiv:2309.05463 section 2.1;
https://huggingface.co/microsoft/phi-2. Weight names as in the checkpoints.
"""

from __future__ import annotations

from forwardpass.architectures.family import Family, GgufNames, Stored, Transform
from forwardpass.config import ConfigSpec, ModelConfig
from forwardpass.graph.builder import GraphBuilder
from forwardpass.graph.graph import Graph, Role
from forwardpass.graph.ops import ACTIVATIONS


def build(config: ModelConfig) -> Graph:
    """The graph of a Phi with these sizes."""
    g = GraphBuilder(config)
    d, f = config.hidden_size, config.intermediate_size
    kv_width = config.num_key_value_heads * config.head_dim
    x = g.embed("model.embed_tokens")  # n d
    for i in range(config.num_hidden_layers):
        with g.layer(f"model.layers.{i}", i):
            normed = g.layer_norm(x, "input_layernorm")
            q = g.heads(g.linear(normed, "self_attn.q_proj", d, Role.QKV, bias=True))  # n h e
            k = g.heads(g.linear(normed, "self_attn.k_proj", kv_width, Role.QKV, bias=True))
            v = g.heads(g.linear(normed, "self_attn.v_proj", kv_width, Role.QKV, bias=True))
            if config.qk_layernorm:
                q = g.layer_norm(q, "self_attn.q_layernorm")
                k = g.layer_norm(k, "self_attn.k_layernorm")
            q, k = g.rope(q, config.rope(i)), g.rope(k, config.rope(i))
            y = g.flat(g.attention(q, k, v))  # n d
            y = g.linear(y, "self_attn.dense", d, Role.ATTENTION_OUTPUT, bias=True)
            x = g.add(x, y)
            y = g.activation(g.linear(normed, "mlp.fc1", f, Role.MLP_UP, bias=True))  # n f
            x = g.add(x, g.linear(y, "mlp.fc2", d, Role.MLP_DOWN, bias=True))
    x = g.layer_norm(g.wanted_rows(x), "model.final_layernorm")  # r d
    return g.finish(g.head(x, tied_to="model.embed_tokens", bias=True))  # r v


_TENSORS: dict[str, Stored] = {
    "model.embed_tokens.weight": ("token_embd.weight", Transform.AS_STORED),
    **{
        f"{ours}.{kind}": (f"{theirs}.{kind}", Transform.AS_STORED)
        for ours, theirs in {
            "lm_head": "output",
            "model.final_layernorm": "output_norm",
            "model.layers.{i}.input_layernorm": "blk.{i}.attn_norm",
            "model.layers.{i}.self_attn.q_proj": "blk.{i}.attn_q",
            "model.layers.{i}.self_attn.k_proj": "blk.{i}.attn_k",
            "model.layers.{i}.self_attn.v_proj": "blk.{i}.attn_v",
            "model.layers.{i}.self_attn.dense": "blk.{i}.attn_output",
            "model.layers.{i}.mlp.fc1": "blk.{i}.ffn_up",
            "model.layers.{i}.mlp.fc2": "blk.{i}.ffn_down",
        }.items()
        for kind in ("weight", "bias")
    },
}

FAMILY = Family(
    "phi",
    spec=ConfigSpec(
        understood=frozenset({"qk_layernorm"}),
        spellings={"layer_norm_eps": "norm_eps"},
        defaults={
            "vocab_size": 51_200,
            "hidden_size": 2_048,
            "intermediate_size": 8_192,
            "num_hidden_layers": 24,
            "num_attention_heads": 32,
            "max_position_embeddings": 2_048,
            "hidden_act": "gelu_new",
            "norm_eps": 1e-5,
            "tie_word_embeddings": False,
        },
        accepts={"hidden_act": tuple(ACTIVATIONS)},
        partial_rotary=0.5,
        full_width=True,
    ),
    build=build,
    gguf=GgufNames("phi2", tensors=_TENSORS, keys={"attention.layer_norm_epsilon": "norm_eps"}),
)
