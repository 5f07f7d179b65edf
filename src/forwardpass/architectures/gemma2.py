"""Gemma 2.

Differs from `llama.py`: the embedding is scaled by √d; norms multiply by 1 + gain and there are
four a layer (before and after attention, before and after the MLP); every second layer sees a
sliding window; scores are scaled by `query_pre_attn_scalar` and soft-capped; logits are
soft-capped; GeGLU instead of SwiGLU; the head is the embedding.

Source: arXiv:2408.00118 section 2. Weight names as in the checkpoints.
"""

from __future__ import annotations

from forwardpass.architectures.family import LLAMA_TENSORS, Family, GgufNames, Transform
from forwardpass.architectures.gemma3_text import FOUR_NORM_TENSORS
from forwardpass.config import ConfigSpec, ModelConfig
from forwardpass.graph.builder import GraphBuilder
from forwardpass.graph.graph import Graph, Role
from forwardpass.rope import FULL, SLIDING


def build(config: ModelConfig) -> Graph:
    """The graph of a Gemma 2 with these sizes."""
    g = GraphBuilder(config)
    d, f, attn = config.hidden_size, config.intermediate_size, config.attention_bias
    q_width = config.num_attention_heads * config.head_dim
    kv_width = config.num_key_value_heads * config.head_dim
    scale = (config.query_pre_attn_scalar or config.head_dim) ** -0.5
    cap = config.attn_logit_softcapping
    x = g.scale(g.embed("model.embed_tokens"), d**0.5)  # n d
    for i in range(config.num_hidden_layers):
        with g.layer(f"model.layers.{i}", i):
            y = g.rms_norm(x, "input_layernorm")
            q = g.heads(g.linear(y, "self_attn.q_proj", q_width, Role.QKV, attn))  # n h e
            k = g.heads(g.linear(y, "self_attn.k_proj", kv_width, Role.QKV, attn))  # n g e
            v = g.heads(g.linear(y, "self_attn.v_proj", kv_width, Role.QKV, attn))  # n g e
            q, k = g.rope(q, config.rope(i)), g.rope(k, config.rope(i))
            y = g.attention(q, k, v, scale=scale, window=config.window(i), softcap=cap)  # n h e
            y = g.linear(g.flat(y), "self_attn.o_proj", d, Role.ATTENTION_OUTPUT, attn)
            x = g.add(x, g.rms_norm(y, "post_attention_layernorm"))
            y = g.rms_norm(x, "pre_feedforward_layernorm")
            gate = g.linear(y, "mlp.gate_proj", f, Role.MLP_UP)  # n f
            up = g.linear(y, "mlp.up_proj", f, Role.MLP_UP)  # n f
            y = g.linear(g.gelu_multiply(gate, up), "mlp.down_proj", d, Role.MLP_DOWN)
            x = g.add(x, g.rms_norm(y, "post_feedforward_layernorm"))
    x = g.rms_norm(g.wanted_rows(x), "model.norm")  # r d
    logits = g.head(x, tied_to="model.embed_tokens")  # r v
    final = config.final_logit_softcapping
    return g.finish(logits if final is None else g.softcap(logits, final))


def _every_second_is_full(values: dict[str, object]) -> None:
    layers = values["num_hidden_layers"]
    assert isinstance(layers, int)
    values.setdefault("layer_types", [FULL if i % 2 else SLIDING for i in range(layers)])


def _what_files_leave_out(config: dict[str, object]) -> None:
    """GGUF files do not keep `query_pre_attn_scalar`: only the 46-layer model's differs from e.

    Source: llama.cpp, src/models/gemma2.cpp (f_attention_scale of LLM_TYPE_27B).
    """
    layers, width = config["num_hidden_layers"], config["hidden_size"]
    heads, head_dim = config["num_attention_heads"], config.get("head_dim")
    if layers == 46 and isinstance(width, int) and isinstance(heads, int) and heads > 0:
        config["query_pre_attn_scalar"] = width // heads
    elif head_dim is not None:
        config["query_pre_attn_scalar"] = head_dim


FAMILY = Family(
    "gemma2",
    spec=ConfigSpec(
        understood=frozenset(
            {
                "attention_bias",
                "attn_logit_softcapping",
                "final_logit_softcapping",
                "query_pre_attn_scalar",
                "sliding_window",
            }
        ),
        defaults={
            "vocab_size": 256_000,
            "hidden_size": 2_304,
            "intermediate_size": 9_216,
            "num_hidden_layers": 26,
            "num_attention_heads": 8,
            "num_key_value_heads": 4,
            "head_dim": 256,
            "max_position_embeddings": 8_192,
            "hidden_act": "gelu_pytorch_tanh",
            "norm_eps": 1e-6,
            "query_pre_attn_scalar": 256,
            "sliding_window": 4_096,
            "attn_logit_softcapping": 50.0,
            "final_logit_softcapping": 30.0,
            "sliding_window_size": 4_096,  # the window again, in the first releases
            "tie_word_embeddings": True,
        },
        accepts={"hidden_act": ("gelu_pytorch_tanh",)},
        derive=_every_second_is_full,
    ),
    build=build,
    transforms={
        f"{name}.weight": Transform.ADD_ONE
        for name in (
            "model.norm",
            "input_layernorm",
            "post_attention_layernorm",
            "pre_feedforward_layernorm",
            "post_feedforward_layernorm",
        )
    },
    # The GGUF converter adds the 1 to the gains, so those are stored as the graph wants them.
    gguf=GgufNames(
        "gemma2",
        tensors={**LLAMA_TENSORS, **FOUR_NORM_TENSORS},
        keys={
            "attention.sliding_window": "sliding_window",
            "attn_logit_softcapping": "attn_logit_softcapping",
        },
        finish=_what_files_leave_out,
    ),
)
