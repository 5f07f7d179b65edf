"""Qwen3, dense.

Differs from `llama.py`: query and key heads are normalised (RMS over head_dim, one gain for all
heads) before rope; head_dim is independent of hidden_size; layers from `max_window_layers` on see a
sliding window where `use_sliding_window` is set.

Source: arXiv:2505.09388. Weight names as in the checkpoints.
"""

from __future__ import annotations

from forwardpass.architectures.family import LLAMA_TENSORS, Family, GgufNames, Stored, Transform
from forwardpass.architectures.qwen2 import QWEN_DEFAULTS, SLIDING_KEYS, window_late_layers
from forwardpass.config import ConfigSpec, ModelConfig
from forwardpass.graph.builder import GraphBuilder
from forwardpass.graph.graph import Graph, Role


def build(config: ModelConfig) -> Graph:
    """The graph of a Qwen3 with these sizes."""
    g = GraphBuilder(config)
    d, f, attn = config.hidden_size, config.intermediate_size, config.attention_bias
    q_width = config.num_attention_heads * config.head_dim
    kv_width = config.num_key_value_heads * config.head_dim
    x = g.embed("model.embed_tokens")  # n d
    for i in range(config.num_hidden_layers):
        with g.layer(f"model.layers.{i}", i):
            y = g.rms_norm(x, "input_layernorm")
            q = g.heads(g.linear(y, "self_attn.q_proj", q_width, Role.QKV, attn))  # n h e
            k = g.heads(g.linear(y, "self_attn.k_proj", kv_width, Role.QKV, attn))  # n g e
            v = g.heads(g.linear(y, "self_attn.v_proj", kv_width, Role.QKV, attn))  # n g e
            q = g.rope(g.rms_norm(q, "self_attn.q_norm"), config.rope(i))
            k = g.rope(g.rms_norm(k, "self_attn.k_norm"), config.rope(i))
            y = g.flat(g.attention(q, k, v, window=config.window(i)))  # n (h e)
            x = g.add(x, g.linear(y, "self_attn.o_proj", d, Role.ATTENTION_OUTPUT, attn))
            y = g.rms_norm(x, "post_attention_layernorm")
            gate = g.linear(y, "mlp.gate_proj", f, Role.MLP_UP)  # n f
            up = g.linear(y, "mlp.up_proj", f, Role.MLP_UP)  # n f
            x = g.add(x, g.linear(g.silu_multiply(gate, up), "mlp.down_proj", d, Role.MLP_DOWN))
    x = g.rms_norm(g.wanted_rows(x), "model.norm")  # r d
    return g.finish(g.head(x, tied_to="model.embed_tokens"))  # r v


HEAD_NORM_TENSORS: dict[str, Stored] = {
    f"model.layers.{{i}}.self_attn.{side}_norm.weight": (
        f"blk.{{i}}.attn_{side}_norm.weight",
        Transform.AS_STORED,
    )
    for side in ("q", "k")
}

FAMILY = Family(
    "qwen3",
    spec=ConfigSpec(
        understood=SLIDING_KEYS | {"attention_bias"},
        defaults={**QWEN_DEFAULTS, "head_dim": 128},
        accepts={"hidden_act": ("silu",)},
        derive=window_late_layers,
    ),
    build=build,
    gguf=GgufNames("qwen3", tensors={**LLAMA_TENSORS, **HEAD_NORM_TENSORS}),
)
