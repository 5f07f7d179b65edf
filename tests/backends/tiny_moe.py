"""Tiny configs of the mixtures of experts, and what their layers see."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

_SIZES: dict[str, object] = {
    "vocab_size": 61,
    "hidden_size": 24,
    "intermediate_size": 40,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 10,
    "max_position_embeddings": 512,
    "rms_norm_eps": 1e-3,
}
_SPARSE: dict[str, object] = {
    "num_hidden_layers": 4,
    "decoder_sparse_step": 2,
    "mlp_only_layers": [3],
    "num_experts": 6,
    "num_experts_per_tok": 3,
    "moe_intermediate_size": 18,
    "use_sliding_window": True,
    "sliding_window": 7,
}

TINY_MOE: dict[str, dict[str, object]] = {
    "mixtral": {
        **_SIZES,
        "model_type": "mixtral",
        "num_local_experts": 5,
        "num_experts_per_tok": 2,
    },
    "qwen2_moe": {
        **_SIZES,
        **_SPARSE,
        "model_type": "qwen2_moe",
        "shared_expert_intermediate_size": 28,
        "max_window_layers": 3,
    },
    "qwen3_moe": {**_SIZES, **_SPARSE, "model_type": "qwen3_moe", "norm_topk_prob": True},
    "olmoe": {
        **{key: value for key, value in _SIZES.items() if key != "head_dim"},
        "model_type": "olmoe",
        "num_experts": 8,
        "num_experts_per_tok": 3,
    },
    "gpt_oss": {
        **_SIZES,
        "model_type": "gpt_oss",
        "num_local_experts": 6,
        "num_experts_per_tok": 3,
        "sliding_window": 7,
        "swiglu_limit": 1.5,
    },
    "deepseek_v3": {
        **{key: value for key, value in _SIZES.items() if "head_dim" not in key},
        "model_type": "deepseek_v3",
        "num_hidden_layers": 3,
        "num_key_value_heads": 4,
        "kv_lora_rank": 14,
        "q_lora_rank": 18,
        "qk_nope_head_dim": 8,
        "qk_rope_head_dim": 6,
        "v_head_dim": 10,
        "first_k_dense_replace": 1,
        "n_routed_experts": 12,
        "n_shared_experts": 2,
        "num_experts_per_tok": 3,
        "moe_intermediate_size": 18,
        "n_group": 4,
        "topk_group": 2,
    },
}

# What a token adds to the cache of each layer, where that is not its keys and values.
CACHED_ROWS: Mapping[str, int] = {"deepseek_v3": 14 + 6}

# How many positions back each of their layers sees.
WINDOWS_MOE: Mapping[str, Sequence[int | None]] = {
    "mixtral": (None, None),
    "qwen2_moe": (7, None, 7, None),
    "qwen3_moe": (7, 7, 7, 7),
    "olmoe": (None, None),
    "gpt_oss": (7, None),
    "deepseek_v3": (None, None, None),
}
