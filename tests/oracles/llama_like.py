"""Configs of the families that are written as differences from Llama, by case name.

Each odd feature is large enough to be seen: windows are shorter than the prompt, caps bend the
scores, multipliers are far from 1, a rope's scaling falls between the ends of its blend.
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
}
# Where a rope's factors must be as many as the pairs of hidden_size / num_attention_heads.
_TWO_HEADS: dict[str, object] = {**_SIZES, "num_attention_heads": 2, "num_key_value_heads": 1}
_YARN: dict[str, object] = {
    "rope_type": "yarn",
    "rope_theta": 100.0,
    "factor": 8.0,
    "original_max_position_embeddings": 32,
    "beta_fast": 3.0,
    "beta_slow": 0.4,
}
_SHORT = [1.0, 1.3, 1.1, 2.0, 2.4, 3.0, 4.5, 6.0]
_LONGROPE: dict[str, object] = {
    "rope_type": "longrope",
    "rope_theta": 500.0,
    "short_factor": _SHORT,
    "long_factor": [2 * factor for factor in _SHORT],
}
_OLMO3_ROPES: dict[str, object] = {
    "full_attention": {**_YARN, "rope_theta": 500_000.0, "beta_fast": 0.5, "beta_slow": 0.001},
    "sliding_attention": {"rope_type": "default", "rope_theta": 500_000.0},
}
_GEMMA2: dict[str, object] = {
    **_SIZES,
    "num_hidden_layers": 3,
    "sliding_window": 8,
    "query_pre_attn_scalar": 24,
    "attn_logit_softcapping": 2.0,
    "final_logit_softcapping": 3.0,
}
_GRANITE: dict[str, object] = {
    **_SIZES,
    "embedding_multiplier": 1.7,
    "attention_multiplier": 0.2,
    "residual_multiplier": 0.6,
    "logits_scaling": 1.4,
}
_SMOLLM3: dict[str, object] = {**_SIZES, "num_hidden_layers": 5, "pad_token_id": 0}
_COHERE: dict[str, object] = {
    **{key: value for key, value in _SIZES.items() if key != "rms_norm_eps"},
    "layer_norm_eps": 0.01,
    "logit_scale": 0.7,
}

# name -> model_type, config
LLAMA_LIKE: dict[str, tuple[str, dict[str, object]]] = {
    "llama-yarn": ("llama", {**_SIZES, "rope_parameters": {**_YARN, "truncate": False}}),
    "llama-yarn-truncated": (
        "llama",
        {
            **_SIZES,
            "rope_parameters": {
                **_YARN,
                "attention_factor": 1.3,
                "beta_fast": 1.5,
                "beta_slow": 0.3,
            },
        },
    ),
    "llama-yarn-scaled": (
        "llama",
        {
            **_SIZES,
            "rope_parameters": {**_YARN, "truncate": False, "mscale": 2.0, "mscale_all_dim": 0.5},
        },
    ),
    "llama-dynamic": (
        "llama",
        {**_SIZES, "rope_parameters": {"rope_type": "dynamic", "rope_theta": 500.0, "factor": 4.0}},
    ),
    "mistral": ("mistral", {**_SIZES, "num_hidden_layers": 3, "sliding_window": 8}),
    "mistral-full": ("mistral", {**_SIZES, "sliding_window": None, "tie_word_embeddings": True}),
    "gemma": ("gemma", {**_SIZES}),
    "gemma-biases": (
        "gemma",
        {**_SIZES, "attention_bias": True, "tie_word_embeddings": False, "hidden_act": "gelu"},
    ),
    "gemma2": ("gemma2", {**_GEMMA2}),
    "gemma2-uncapped": (
        "gemma2",
        {
            **_GEMMA2,
            "attn_logit_softcapping": None,
            "final_logit_softcapping": None,
            "attention_bias": True,
            "layer_types": ["full_attention", "sliding_attention", "sliding_attention"],
        },
    ),
    "phi3": ("phi3", {**_SIZES, "pad_token_id": 0}),
    "phi3-windows": ("phi3", {**_SIZES, "pad_token_id": 0, "sliding_window": 8}),
    "phi3-longrope": (
        "phi3",
        {
            **_TWO_HEADS,
            "pad_token_id": 0,
            "original_max_position_embeddings": 48,
            "rope_parameters": _LONGROPE,
        },
    ),
    "phi3-partial": (
        "phi3",
        {
            **_SIZES,
            "pad_token_id": 0,
            "rope_parameters": {
                "rope_type": "default",
                "rope_theta": 500.0,
                "partial_rotary_factor": 0.75,
            },
        },
    ),
    "phi3-longrope-partial": (
        "phi3",
        {
            **_TWO_HEADS,
            "pad_token_id": 0,
            "tie_word_embeddings": True,
            "original_max_position_embeddings": 64,
            "rope_parameters": {
                **_LONGROPE,
                "partial_rotary_factor": 0.75,
                "short_factor": _SHORT[:6],
                "long_factor": _SHORT[:6],
                "attention_factor": 1.5,
            },
        },
    ),
    "olmo2": ("olmo2", {**_SIZES}),
    "olmo2-biases": ("olmo2", {**_SIZES, "attention_bias": True, "tie_word_embeddings": True}),
    "olmo3": ("olmo3", {**_SIZES, "num_hidden_layers": 4, "sliding_window": 8}),
    "olmo3-yarn": (
        "olmo3",
        {
            **_SIZES,
            "num_hidden_layers": 3,
            "sliding_window": 8,
            "layer_types": ["sliding_attention", "full_attention", "full_attention"],
            "rope_parameters": _OLMO3_ROPES,
        },
    ),
    "granite": ("granite", {**_GRANITE, "tie_word_embeddings": True}),
    "granite-biases": ("granite", {**_GRANITE, "attention_bias": True, "mlp_bias": True}),
    "smollm3": ("smollm3", {**_SMOLLM3}),
    "smollm3-windows": (
        "smollm3",
        {
            **_SMOLLM3,
            "no_rope_layers": [1, 0, 1, 0, 0],
            "use_sliding_window": True,
            "sliding_window": 8,
            "attention_bias": True,
            "mlp_bias": True,
            "tie_word_embeddings": False,
        },
    ),
    "cohere": ("cohere", {**_COHERE}),
    "cohere-norms": (
        "cohere",
        {**_COHERE, "use_qk_norm": True, "attention_bias": True, "tie_word_embeddings": False},
    ),
}
