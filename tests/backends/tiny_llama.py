"""Tiny configs of the families that are written as differences from Llama, and what they see."""

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
_YARN: dict[str, object] = {
    "rope_type": "yarn",
    "factor": 4.0,
    "original_max_position_embeddings": 64,
}

TINY_LLAMA: dict[str, dict[str, object]] = {
    "llama-yarn": {**_SIZES, "model_type": "llama", "rope_scaling": _YARN},
    "mistral": {**_SIZES, "model_type": "mistral", "sliding_window": 7},
    "gemma": {**_SIZES, "model_type": "gemma", "attention_bias": True},
    "gemma2": {
        **_SIZES,
        "model_type": "gemma2",
        "num_hidden_layers": 3,
        "sliding_window": 9,
        "query_pre_attn_scalar": 12,
        "attn_logit_softcapping": 5.0,
        "final_logit_softcapping": 20.0,
    },
    "phi3": {
        **_SIZES,
        "model_type": "phi3",
        "sliding_window": 7,
        "partial_rotary_factor": 0.6,
        "original_max_position_embeddings": 256,
        "rope_scaling": {
            "rope_type": "longrope",
            "short_factor": [1.0, 1.5, 3.0],
            "long_factor": [2.0, 4.0, 8.0],
        },
    },
    "olmo2": {**_SIZES, "model_type": "olmo2", "attention_bias": True},
    "olmo3": {
        **_SIZES,
        "model_type": "olmo3",
        "num_hidden_layers": 4,
        "sliding_window": 7,
        "rope_scaling": _YARN,
    },
    "granite": {
        **_SIZES,
        "model_type": "granite",
        "attention_bias": True,
        "mlp_bias": True,
        "embedding_multiplier": 1.7,
        "attention_multiplier": 0.2,
        "residual_multiplier": 0.6,
        "logits_scaling": 1.4,
    },
    "smollm3": {
        **_SIZES,
        "model_type": "smollm3",
        "num_hidden_layers": 4,
        "use_sliding_window": True,
        "sliding_window": 7,
    },
    "cohere": {
        **{key: value for key, value in _SIZES.items() if key != "rms_norm_eps"},
        "model_type": "cohere",
        "layer_norm_eps": 1e-3,
        "use_qk_norm": True,
        "attention_bias": True,
    },
}

# How many positions back each of their layers sees.
WINDOWS_LLAMA: Mapping[str, Sequence[int | None]] = {
    "llama-yarn": (None, None),
    "mistral": (7, 7),
    "gemma": (None, None),
    "gemma2": (9, None, 9),
    "phi3": (7, 7),
    "olmo2": (None, None),
    "olmo3": (7, 7, 7, None),
    "granite": (None, None),
    "smollm3": (None, None, None, 7),
    "cohere": (None, None),
}
