"""Qwen3-MoE: Qwen3-30B-A3B, 235B-A22B and Qwen3-Coder.

Differs from `qwen3.py`: MLPs of experts as in `qwen2_moe.py`, without a shared one; where
`use_sliding_window` is set, every layer slides, so a `max_window_layers` above 0 is refused there.

GGUF files do not say `norm_topk_prob`, which is true, and have experts in all layers.

Source: arXiv:2505.09388 section 2; windows as in transformers 5.24. Weight names as in the
checkpoints, where each expert has tables of its own.
"""

from __future__ import annotations

from forwardpass.architectures.family import LLAMA_TENSORS, Family, GgufNames, expert_tensors
from forwardpass.architectures.mistral import window_every_layer
from forwardpass.architectures.mixtral import ROUTER_TRAINING
from forwardpass.architectures.qwen2 import SLIDING_KEYS
from forwardpass.architectures.qwen2_moe import (
    EXPERT_KEYS,
    EXPERT_ROWS,
    SPARSE_KEYS,
    is_sparse,
    routed,
)
from forwardpass.architectures.qwen3 import HEAD_NORM_TENSORS
from forwardpass.config import ConfigSpec, ModelConfig
from forwardpass.config_kinds import size
from forwardpass.graph.builder import GraphBuilder
from forwardpass.graph.experts import swiglu
from forwardpass.graph.graph import Graph, Role


def build(config: ModelConfig) -> Graph:
    """The graph of a Qwen3-MoE with these sizes."""
    g = GraphBuilder(config)
    d, attn = config.hidden_size, config.attention_bias
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
            if is_sparse(config, i):
                x = g.add(x, routed(g, y))
            else:
                x = g.add(x, swiglu(g, y, "mlp", config.intermediate_size))
    x = g.rms_norm(g.wanted_rows(x), "model.norm")  # r d
    return g.finish(g.head(x, tied_to="model.embed_tokens"))  # r v


def _windows_of_all_layers(values: dict[str, object]) -> list[str]:
    use, first = values.pop("use_sliding_window"), values.pop("max_window_layers", 0)
    if not use:
        # The window's size stays in configs that do not use it.
        values.pop("sliding_window", None)
    elif first:
        return [
            f"max_window_layers = {first} where use_sliding_window is set  (in this family all "
            "layers slide then)"
        ]
    return window_every_layer(values)


FAMILY = Family(
    "qwen3_moe",
    spec=ConfigSpec(
        understood=SLIDING_KEYS | {"attention_bias"},
        neutral=ROUTER_TRAINING,
        keys={**SPARSE_KEYS, "max_window_layers": size(0)},
        spellings={"num_local_experts": "num_experts"},
        defaults={
            "vocab_size": 151_936,
            "hidden_size": 2_048,
            "intermediate_size": 6_144,
            "num_hidden_layers": 24,
            "num_attention_heads": 32,
            "num_key_value_heads": 4,
            "max_position_embeddings": 32_768,
            "hidden_act": "silu",
            "norm_eps": 1e-6,
            "tie_word_embeddings": False,
            "use_sliding_window": False,
            "sliding_window": 4_096,
            "num_experts": 128,
            "num_experts_per_tok": 8,
            "moe_intermediate_size": 768,
            "norm_topk_prob": False,
            "decoder_sparse_step": 1,
            "mlp_only_layers": [],
            # Said by Qwen3-Coder, and always so in this family.
            "use_qk_norm": True,
            "shared_expert_intermediate_size": 0,
        },
        accepts={"hidden_act": ("silu",)},
        derive=_windows_of_all_layers,
    ),
    build=build,
    gguf=GgufNames(
        "qwen3moe",
        tensors={
            **LLAMA_TENSORS,
            **HEAD_NORM_TENSORS,
            **expert_tensors("mlp.gate", "mlp.experts"),
        },
        keys=EXPERT_KEYS,
        fixed={"norm_topk_prob": True},
    ),
    stacks=(EXPERT_ROWS,),
)
