"""Tiny configs of the families that come from GPT rather than from Llama."""

from __future__ import annotations

_SIZES: dict[str, object] = {
    "vocab_size": 61,
    "hidden_size": 24,
    "intermediate_size": 40,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 512,
}
_FALCON: dict[str, object] = {
    "model_type": "falcon",
    "vocab_size": 61,
    "hidden_size": 24,
    "ffn_hidden_size": 40,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
}
_OPT: dict[str, object] = {
    "model_type": "opt",
    "vocab_size": 61,
    "hidden_size": 24,
    "ffn_dim": 40,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 160,
}

TINY_GPT: dict[str, dict[str, object]] = {
    "stablelm": {
        **_SIZES,
        "model_type": "stablelm",
        "num_key_value_heads": 2,
        "partial_rotary_factor": 0.7,  # of 6, that is 4
        "use_qkv_bias": True,
    },
    "stablelm-parallel": {
        **_SIZES,
        "model_type": "stablelm",
        "num_key_value_heads": 2,
        "partial_rotary_factor": 0.4,
        "qk_layernorm": True,
        "use_parallel_residual": True,
    },
    "starcoder2": {
        **_SIZES,
        "model_type": "starcoder2",
        "num_key_value_heads": 2,
        "sliding_window": 9,
    },
    "gpt_neox": {**_SIZES, "model_type": "gpt_neox", "rotary_pct": 0.4},
    "gptj": {
        "model_type": "gptj",
        "vocab_size": 61,
        "n_embd": 24,
        "n_layer": 2,
        "n_head": 3,
        "rotary_dim": 4,
    },
    "phi": {**_SIZES, "model_type": "phi", "num_key_value_heads": 2, "partial_rotary_factor": 0.4},
    "falcon": {**_FALCON},
    "falcon-grouped": {**_FALCON, "new_decoder_architecture": True, "num_kv_heads": 2},
    "bloom": {
        "model_type": "bloom",
        "vocab_size": 61,
        "hidden_size": 24,
        "n_layer": 2,
        "n_head": 3,
    },
    "opt": {**_OPT},
    "opt-after": {**_OPT, "do_layer_norm_before": False, "word_embed_proj_dim": 10},
}
