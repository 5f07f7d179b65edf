"""Configs of the families with latent attention or steered routers, by case name.

No two sizes of a head are equal, groups of experts are fewer than all, and the bias that steers a
router moves its choice.
"""

from __future__ import annotations

# As in oracles/families.py, but for the sizes of heads.
_SIZES: dict[str, object] = {
    "vocab_size": 97,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "max_position_embeddings": 128,
    "rms_norm_eps": 0.01,
    "pad_token_id": 0,
    "moe_intermediate_size": 24,
    "n_routed_experts": 12,
    "num_experts_per_tok": 3,
}
_LATENT: dict[str, object] = {
    **_SIZES,
    "num_key_value_heads": 4,
    "kv_lora_rank": 16,
    "q_lora_rank": 20,
    "qk_nope_head_dim": 12,
    "qk_rope_head_dim": 6,
    "v_head_dim": 10,
    "first_k_dense_replace": 1,
}
_GROUPS: dict[str, object] = {"n_group": 4, "topk_group": 2, "routed_scaling_factor": 1.7}
_YARN: dict[str, object] = {
    "rope_type": "yarn",
    "rope_theta": 100.0,
    "factor": 8.0,
    "original_max_position_embeddings": 32,
    "beta_fast": 3.0,
    "beta_slow": 0.4,
    "mscale": 1.5,
    "mscale_all_dim": 0.8,
}
_PLAIN: dict[str, object] = {"rope_type": "default", "rope_theta": 50.0}
_GLM: dict[str, object] = {
    **_SIZES,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "rope_parameters": {**_PLAIN, "partial_rotary_factor": 0.5},
}
_MINIMAX: dict[str, object] = {
    **{key: value for key, value in _SIZES.items() if "moe" not in key and "routed" not in key},
    "num_hidden_layers": 2,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "num_local_experts": 6,
}

# name -> model_type, config
LATENT_LIKE: dict[str, tuple[str, dict[str, object]]] = {
    "deepseek_v2": (
        "deepseek_v2",
        {**_LATENT, "q_lora_rank": None, "n_shared_experts": 2, "rope_parameters": _PLAIN},
    ),
    "deepseek_v2-grouped": (
        "deepseek_v2",
        {
            **_LATENT,
            **_GROUPS,
            "topk_method": "group_limited_greedy",
            "attention_bias": True,
            "tie_word_embeddings": True,
            "rope_parameters": {**_YARN, "truncate": False},
        },
    ),
    "deepseek_v3": (
        "deepseek_v3",
        {**_LATENT, **_GROUPS, "rope_parameters": {**_YARN, "truncate": False}},
    ),
    "deepseek_v3-halves": (
        "deepseek_v3",
        {
            **_LATENT,
            "n_group": 1,
            "topk_group": 1,
            "q_lora_rank": None,
            "norm_topk_prob": False,
            "rope_interleave": False,
            "attention_bias": True,
            "n_shared_experts": 2,
            "tie_word_embeddings": True,
            "rope_parameters": _PLAIN,
        },
    ),
    "glm4_moe": ("glm4_moe", {**_GLM, **_GROUPS, "attention_bias": True, "use_qk_norm": True}),
    "glm4_moe-plain": (
        "glm4_moe",
        {
            **_GLM,
            "norm_topk_prob": False,
            "tie_word_embeddings": True,
            "first_k_dense_replace": 2,
        },
    ),
    "minimax_m2": ("minimax_m2", {**_MINIMAX, "rotary_dim": 8}),
    "minimax_m2-whole": ("minimax_m2", {**_MINIMAX, "tie_word_embeddings": True}),
}
