"""Granite 3, dense.

Differs from `llama.py` by four multipliers: the embedding × `embedding_multiplier`, what each half
of a layer adds × `residual_multiplier`, scores × `attention_multiplier` (in place of 1/√e), logits
÷ `logits_scaling`.

Source: "Granite 3.0 Language Models" (IBM, 2024) section 2; arXiv:2203.03466 for why. Weight names
as in the checkpoints.
"""

from __future__ import annotations

from forwardpass.architectures.family import LLAMA_TENSORS, Family, GgufNames, Transform, stored_as
from forwardpass.config import ConfigSpec, ModelConfig
from forwardpass.graph.builder import GraphBuilder
from forwardpass.graph.graph import Graph, Role


def build(config: ModelConfig) -> Graph:
    """The graph of a Granite with these sizes."""
    g = GraphBuilder(config)
    d, f = config.hidden_size, config.intermediate_size
    q_width = config.num_attention_heads * config.head_dim
    kv_width = config.num_key_value_heads * config.head_dim
    attn, mlp, added = config.attention_bias, config.mlp_bias, config.residual_multiplier
    x = g.scale(g.embed("model.embed_tokens"), config.embedding_multiplier)  # n d
    for i in range(config.num_hidden_layers):
        with g.layer(f"model.layers.{i}", i):
            y = g.rms_norm(x, "input_layernorm")
            q = g.heads(g.linear(y, "self_attn.q_proj", q_width, Role.QKV, attn))  # n h e
            k = g.heads(g.linear(y, "self_attn.k_proj", kv_width, Role.QKV, attn))  # n g e
            v = g.heads(g.linear(y, "self_attn.v_proj", kv_width, Role.QKV, attn))  # n g e
            q, k = g.rope(q, config.rope(i)), g.rope(k, config.rope(i))
            y = g.flat(g.attention(q, k, v, scale=config.attention_multiplier))  # n (h e)
            y = g.linear(y, "self_attn.o_proj", d, Role.ATTENTION_OUTPUT, attn)
            x = g.add(x, g.scale(y, added))
            y = g.rms_norm(x, "post_attention_layernorm")
            gate = g.linear(y, "mlp.gate_proj", f, Role.MLP_UP, mlp)  # n f
            up = g.linear(y, "mlp.up_proj", f, Role.MLP_UP, mlp)  # n f
            y = g.linear(g.silu_multiply(gate, up), "mlp.down_proj", d, Role.MLP_DOWN, mlp)
            x = g.add(x, g.scale(y, added))
    x = g.rms_norm(g.wanted_rows(x), "model.norm")  # r d
    logits = g.head(x, tied_to="model.embed_tokens")  # r v
    return g.finish(g.scale(logits, 1 / config.logits_scaling))


def _what_absence_means(config: dict[str, object]) -> None:
    """Scores without a multiplier are scaled by 1/√e in GGUF files, by 1 in config.json.

    Source: llama.cpp, src/models/granite.cpp (kq_scale).
    """
    head_dim = config.get("head_dim")
    if isinstance(head_dim, int) and head_dim > 0:
        config.setdefault("attention_multiplier", head_dim**-0.5)


FAMILY = Family(
    "granite",
    spec=ConfigSpec(
        understood=frozenset(
            {
                "attention_bias",
                "mlp_bias",
                "embedding_multiplier",
                "attention_multiplier",
                "residual_multiplier",
                "logits_scaling",
                "rope_finetuned",
            }
        ),
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
            "embedding_multiplier": 1.0,
            "attention_multiplier": 1.0,
            "residual_multiplier": 1.0,
            "logits_scaling": 1.0,
        },
        accepts={"hidden_act": ("silu",), "rope_finetuned": (True,)},
    ),
    build=build,
    gguf=GgufNames(
        "granite",
        tensors=stored_as(
            LLAMA_TENSORS,
            {"q_proj": Transform.UNPAIR_QUERY, "k_proj": Transform.UNPAIR_KEY},
        ),
        keys={
            "embedding_scale": "embedding_multiplier",
            "attention.scale": "attention_multiplier",
            "residual_scale": "residual_multiplier",
            "logit_scale": "logits_scaling",
            # Elsewhere a note on how the model was made; here false switches rope off.
            "rope.scaling.finetuned": "rope_finetuned",
        },
        finish=_what_absence_means,
    ),
)
