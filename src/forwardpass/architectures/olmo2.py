"""OLMo 2.

Differs from `llama.py`: norms come after attention and after the MLP, none before; query and key
are normalised over their whole width, all heads together, before they are seen by head and turned.

Source: arXiv:2501.00656 section 3. Weight names as in the checkpoints.
"""

from __future__ import annotations

from forwardpass.architectures.family import LLAMA_TENSORS, Family, GgufNames, Stored, Transform
from forwardpass.architectures.qwen3 import HEAD_NORM_TENSORS
from forwardpass.config import ConfigSpec, ModelConfig
from forwardpass.graph.builder import GraphBuilder
from forwardpass.graph.graph import Graph, Role


def build(config: ModelConfig) -> Graph:
    """The graph of an OLMo 2 (or 3) with these sizes."""
    g = GraphBuilder(config)
    d, f, attn = config.hidden_size, config.intermediate_size, config.attention_bias
    q_width = config.num_attention_heads * config.head_dim
    kv_width = config.num_key_value_heads * config.head_dim
    x = g.embed("model.embed_tokens")  # n d
    for i in range(config.num_hidden_layers):
        with g.layer(f"model.layers.{i}", i):
            q = g.linear(x, "self_attn.q_proj", q_width, Role.QKV, attn)  # n (h e)
            k = g.linear(x, "self_attn.k_proj", kv_width, Role.QKV, attn)  # n (g e)
            v = g.heads(g.linear(x, "self_attn.v_proj", kv_width, Role.QKV, attn))  # n g e
            q = g.rope(g.heads(g.rms_norm(q, "self_attn.q_norm")), config.rope(i))  # n h e
            k = g.rope(g.heads(g.rms_norm(k, "self_attn.k_norm")), config.rope(i))  # n g e
            y = g.flat(g.attention(q, k, v, window=config.window(i)))  # n (h e)
            y = g.linear(y, "self_attn.o_proj", d, Role.ATTENTION_OUTPUT, attn)
            x = g.add(x, g.rms_norm(y, "post_attention_layernorm"))
            gate = g.linear(x, "mlp.gate_proj", f, Role.MLP_UP)  # n f
            up = g.linear(x, "mlp.up_proj", f, Role.MLP_UP)  # n f
            y = g.linear(g.silu_multiply(gate, up), "mlp.down_proj", d, Role.MLP_DOWN)
            x = g.add(x, g.rms_norm(y, "post_feedforward_layernorm"))
    x = g.rms_norm(g.wanted_rows(x), "model.norm")  # r d
    return g.finish(g.head(x, tied_to="model.embed_tokens"))  # r v


OLMO_TENSORS: dict[str, Stored] = {
    **{ours: stored for ours, stored in LLAMA_TENSORS.items() if "layernorm" not in ours},
    **HEAD_NORM_TENSORS,
    **{
        f"model.layers.{{i}}.{ours}.weight": (f"blk.{{i}}.{theirs}.weight", Transform.AS_STORED)
        for ours, theirs in {
            "post_attention_layernorm": "post_attention_norm",
            "post_feedforward_layernorm": "post_ffw_norm",
        }.items()
    },
}
OLMO_DEFAULTS: dict[str, object] = {
    "vocab_size": 50_304,
    "hidden_size": 4_096,
    "intermediate_size": 11_008,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "max_position_embeddings": 2_048,
    "hidden_act": "silu",
    "norm_eps": 1e-5,
    "tie_word_embeddings": False,
}

FAMILY = Family(
    "olmo2",
    spec=ConfigSpec(
        understood=frozenset({"attention_bias"}),
        defaults=OLMO_DEFAULTS,
        accepts={"hidden_act": ("silu",)},
    ),
    build=build,
    gguf=GgufNames("olmo2", tensors=OLMO_TENSORS),
)
