"""Gemma 3, text.

Differs from `llama.py`: the embedding is scaled by √d; norms multiply by 1 + gain and there are
four a layer (before and after attention, before and after the MLP); query and key heads are
normalised before rope; five of six layers see a sliding window and turn by a base of their own;
scores are scaled by `query_pre_attn_scalar`; GeGLU instead of SwiGLU; a soft cap on the logits
where the config sets one. A cap on attention scores, `attn_logit_softcapping`, is refused: the
paper replaced it by the head norms, and neither transformers nor llama.cpp applies it.

Source: arXiv:2503.19786 section 2. Weight names as in the checkpoints.
"""

from __future__ import annotations

from forwardpass.architectures.family import LLAMA_TENSORS, Family, GgufNames, Stored, Transform
from forwardpass.architectures.qwen3 import HEAD_NORM_TENSORS
from forwardpass.config import ConfigSpec, ModelConfig
from forwardpass.graph.builder import GraphBuilder
from forwardpass.graph.graph import Graph, Role
from forwardpass.rope import FULL, SLIDING


def build(config: ModelConfig) -> Graph:
    """The graph of a Gemma 3 with these sizes."""
    g = GraphBuilder(config)
    d, f, attn = config.hidden_size, config.intermediate_size, config.attention_bias
    q_width = config.num_attention_heads * config.head_dim
    kv_width = config.num_key_value_heads * config.head_dim
    scale = (config.query_pre_attn_scalar or config.head_dim) ** -0.5
    x = g.scale(g.embed("model.embed_tokens"), d**0.5)  # n d
    for i in range(config.num_hidden_layers):
        with g.layer(f"model.layers.{i}", i):
            y = g.rms_norm(x, "input_layernorm")
            q = g.heads(g.linear(y, "self_attn.q_proj", q_width, Role.QKV, attn))  # n h e
            k = g.heads(g.linear(y, "self_attn.k_proj", kv_width, Role.QKV, attn))  # n g e
            v = g.heads(g.linear(y, "self_attn.v_proj", kv_width, Role.QKV, attn))  # n g e
            q = g.rope(g.rms_norm(q, "self_attn.q_norm"), config.rope(i))
            k = g.rope(g.rms_norm(k, "self_attn.k_norm"), config.rope(i))
            y = g.attention(q, k, v, scale=scale, window=config.window(i))  # n h e
            y = g.linear(g.flat(y), "self_attn.o_proj", d, Role.ATTENTION_OUTPUT, attn)
            x = g.add(x, g.rms_norm(y, "post_attention_layernorm"))
            y = g.rms_norm(x, "pre_feedforward_layernorm")
            gate = g.linear(y, "mlp.gate_proj", f, Role.MLP_UP)  # n f
            up = g.linear(y, "mlp.up_proj", f, Role.MLP_UP)  # n f
            y = g.linear(g.gelu_multiply(gate, up), "mlp.down_proj", d, Role.MLP_DOWN)
            x = g.add(x, g.rms_norm(y, "post_feedforward_layernorm"))
    x = g.rms_norm(g.wanted_rows(x), "model.norm")  # r d
    logits = g.head(x, tied_to="model.embed_tokens")  # r v
    cap = config.final_logit_softcapping
    return g.finish(logits if cap is None else g.softcap(logits, cap))


def _every_sixth_is_full(values: dict[str, object]) -> None:
    layers, pattern = values["num_hidden_layers"], values.pop("sliding_window_pattern")
    assert isinstance(layers, int)
    assert isinstance(pattern, int)
    kinds = [FULL if (i + 1) % pattern == 0 else SLIDING for i in range(layers)]
    values.setdefault("layer_types", kinds)


def _what_files_leave_out(config: dict[str, object]) -> None:
    """GGUF files do not keep `query_pre_attn_scalar`: only the 62-layer model's differs from e.

    One that states no window has none: the converter leaves it out where every layer is full.

    Source: llama.cpp, src/llama-model.cpp (LLM_ARCH_GEMMA3: n_swa, f_attention_scale).
    """
    layers, width = config["num_hidden_layers"], config["hidden_size"]
    heads, head_dim = config["num_attention_heads"], config.get("head_dim")
    if layers == 62 and isinstance(width, int) and isinstance(heads, int) and heads > 0:
        config["query_pre_attn_scalar"] = width // heads
    elif head_dim is not None:
        config["query_pre_attn_scalar"] = head_dim
    if "sliding_window" not in config:
        config["sliding_window_pattern"] = 1


FOUR_NORM_TENSORS: dict[str, Stored] = {
    f"model.layers.{{i}}.{ours}.weight": (f"blk.{{i}}.{theirs}.weight", Transform.AS_STORED)
    for ours, theirs in {
        "post_attention_layernorm": "post_attention_norm",
        "pre_feedforward_layernorm": "ffn_norm",
        "post_feedforward_layernorm": "post_ffw_norm",
    }.items()
}

FAMILY = Family(
    "gemma3_text",
    spec=ConfigSpec(
        understood=frozenset(
            {
                "attention_bias",
                "final_logit_softcapping",
                "query_pre_attn_scalar",
                "rope_local_base_freq",
                "sliding_window",
                "sliding_window_pattern",
            }
        ),
        neutral=frozenset({"_sliding_window_pattern"}),
        defaults={
            "vocab_size": 262_208,
            "hidden_size": 2_304,
            "intermediate_size": 9_216,
            "num_hidden_layers": 26,
            "num_attention_heads": 8,
            "num_key_value_heads": 4,
            "head_dim": 256,
            "max_position_embeddings": 131_072,
            "hidden_act": "gelu_pytorch_tanh",
            "norm_eps": 1e-6,
            "query_pre_attn_scalar": 256,
            "sliding_window": 4_096,
            "sliding_window_pattern": 6,
            "rope_theta": 1_000_000.0,
            "rope_local_base_freq": 10_000.0,
            "tie_word_embeddings": True,
        },
        accepts={"hidden_act": ("gelu_pytorch_tanh",)},
        derive=_every_sixth_is_full,
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
            "self_attn.q_norm",
            "self_attn.k_norm",
        )
    },
    # The GGUF converter adds the 1 to the gains, so those are stored as the graph wants them.
    gguf=GgufNames(
        "gemma3",
        tensors={**LLAMA_TENSORS, **HEAD_NORM_TENSORS, **FOUR_NORM_TENSORS},
        keys={
            "attention.sliding_window": "sliding_window",
            "attention.sliding_window_pattern": "sliding_window_pattern",
            "rope.freq_base_swa": "rope_local_base_freq",
        },
        finish=_what_files_leave_out,
    ),
)
