"""Configs of the mixtures of experts, by case name.

There are more experts than are chosen, and tokens enough that all are hit; YaRN's blend and the
limits of clamped experts fall where they are felt.
"""

from __future__ import annotations

# As in oracles/families.py: hidden_size / num_attention_heads is 8, head_dim 16.
_SIZES: dict[str, object] = {
    "vocab_size": 97,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 128,
    "rms_norm_eps": 0.01,
    "pad_token_id": 0,
}
_WITHOUT_HEAD_DIM = {key: value for key, value in _SIZES.items() if key != "head_dim"}
_QWEN: dict[str, object] = {
    **_SIZES,
    "num_experts": 6,
    "num_experts_per_tok": 3,
    "moe_intermediate_size": 32,
}
_QWEN2: dict[str, object] = {**_QWEN, "shared_expert_intermediate_size": 96}
_SPARSE: dict[str, object] = {
    "num_hidden_layers": 4,
    "decoder_sparse_step": 2,
    "mlp_only_layers": [3],
    "norm_topk_prob": True,
}
_OLMOE: dict[str, object] = {
    **_WITHOUT_HEAD_DIM,
    "eos_token_id": 1,
    "num_experts": 8,
    "num_experts_per_tok": 3,
}
_GPT_OSS: dict[str, object] = {
    **_SIZES,
    "num_hidden_layers": 3,
    "num_local_experts": 6,
    "num_experts_per_tok": 3,
    "sliding_window": 8,
    "swiglu_limit": 1.5,
    "rope_parameters": {
        "rope_type": "yarn",
        "rope_theta": 100.0,
        "factor": 4.0,
        "original_max_position_embeddings": 32,
        "beta_fast": 3.0,
        "beta_slow": 0.4,
        "truncate": False,
    },
}

_GRANITE: dict[str, object] = {
    **_SIZES,
    "num_local_experts": 5,
    "num_experts_per_tok": 2,
    "embedding_multiplier": 3.0,
    "attention_multiplier": 0.2,
    "residual_multiplier": 0.5,
    "logits_scaling": 2.0,
}

# name -> model_type, config
MOE_LIKE: dict[str, tuple[str, dict[str, object]]] = {
    "mixtral": ("mixtral", {**_SIZES, "num_local_experts": 5, "num_experts_per_tok": 2}),
    "mixtral-windows": (
        "mixtral",
        {
            **_SIZES,
            "num_local_experts": 5,
            "num_experts_per_tok": 3,
            "sliding_window": 8,
            "tie_word_embeddings": True,
        },
    ),
    "qwen2_moe": ("qwen2_moe", {**_QWEN2}),
    "qwen2_moe-sparse": (
        "qwen2_moe",
        {
            **_QWEN2,
            **_SPARSE,
            "qkv_bias": False,
            "tie_word_embeddings": True,
            "use_sliding_window": True,
            "sliding_window": 8,
            "max_window_layers": 3,
        },
    ),
    "qwen3_moe": ("qwen3_moe", {**_QWEN, "norm_topk_prob": True}),
    "qwen3_moe-sparse": (
        "qwen3_moe",
        {
            **_QWEN,
            **_SPARSE,
            "norm_topk_prob": False,
            "attention_bias": True,
            "tie_word_embeddings": True,
            "use_sliding_window": True,
            "sliding_window": 8,
        },
    ),
    "olmoe": ("olmoe", {**_OLMOE}),
    "olmoe-biases": (
        "olmoe",
        {**_OLMOE, "attention_bias": True, "norm_topk_prob": True, "tie_word_embeddings": True},
    ),
    "granitemoe": ("granitemoe", {**_GRANITE}),
    "granitemoe-biases": (
        "granitemoe",
        {**_GRANITE, "attention_bias": True, "tie_word_embeddings": True},
    ),
    "granitemoeshared": ("granitemoeshared", {**_GRANITE, "shared_intermediate_size": 48}),
    "gpt_oss": ("gpt_oss", {**_GPT_OSS}),
    "gpt_oss-other": (
        "gpt_oss",
        {
            **_GPT_OSS,
            "attention_bias": False,
            "swiglu_alpha": 1.1,
            "layer_types": ["full_attention", "sliding_attention", "full_attention"],
            # The older spelling cannot say "default": a config without scaling means YaRN here.
            "rope_parameters": {"rope_type": "linear", "factor": 2.0, "rope_theta": 50.0},
            "tie_word_embeddings": True,
        },
    ),
}
# The size of a shard where a model is saved in shards: a layer's experts are in several.
SHARDS = {"mixtral": "20KB", "qwen2_moe": "20KB", "gpt_oss": "40KB"}
