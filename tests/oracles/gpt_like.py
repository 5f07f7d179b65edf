"""Configs of the families that come from GPT rather than from Llama, for transformers.

Heads are as wide as the hidden size divided by their number; every axis fills blocks of 32.
"""

from __future__ import annotations

Sizes = dict[str, object]

_SIZES: Sizes = {
    "vocab_size": 97,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 64,
}
_GROUPED: Sizes = {**_SIZES, "num_key_value_heads": 2}
_EPS: Sizes = {"layer_norm_eps": 0.01}
_FALCON: Sizes = {
    "vocab_size": 97,
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "layer_norm_epsilon": 0.01,
}
_OPT: Sizes = {
    "vocab_size": 97,
    "hidden_size": 64,
    "ffn_dim": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 64,
}

# Case name -> model_type, config.
GPT_LIKE: dict[str, tuple[str, Sizes]] = {
    "stablelm": ("stablelm", {**_SIZES, **_EPS, "num_key_value_heads": 4, "use_qkv_bias": True}),
    "stablelm-parallel": (
        "stablelm",
        {
            **_GROUPED,
            **_EPS,
            "qk_layernorm": True,
            "use_parallel_residual": True,
            "tie_word_embeddings": True,
            "rope_parameters": {
                "rope_type": "linear",
                "rope_theta": 500.0,
                "factor": 4.0,
                "partial_rotary_factor": 0.5,
            },
        },
    ),
    "starcoder2": ("starcoder2", {**_GROUPED, "norm_epsilon": 0.01, "sliding_window": 8}),
    "starcoder2-unbiased": (
        "starcoder2",
        {**_GROUPED, "norm_epsilon": 0.01, "use_bias": False, "tie_word_embeddings": False},
    ),
    "gpt_neox": ("gpt_neox", {**_SIZES, **_EPS}),
    "gpt_neox-sequential": (
        "gpt_neox",
        {
            **_SIZES,
            **_EPS,
            "use_parallel_residual": False,
            "hidden_act": "gelu_new",
            "tie_word_embeddings": True,
            "rope_parameters": {
                "rope_type": "default",
                "rope_theta": 500.0,
                "partial_rotary_factor": 1.0,
            },
        },
    ),
    "gpt_neox-unbiased": ("gpt_neox", {**_SIZES, **_EPS, "attention_bias": False}),
    "gptj": (
        "gptj",
        {
            "vocab_size": 97,
            "n_embd": 64,
            "n_layer": 2,
            "n_head": 4,
            "n_positions": 64,
            "rotary_dim": 8,
            "layer_norm_epsilon": 0.01,
        },
    ),
    "phi": ("phi", {**_SIZES, **_EPS}),
    "phi-head-norms": (
        "phi",
        {**_GROUPED, **_EPS, "qk_layernorm": True, "tie_word_embeddings": True},
    ),
    "falcon": ("falcon", {**_FALCON}),
    "falcon-grouped": (
        "falcon",
        {**_FALCON, "new_decoder_architecture": True, "num_kv_heads": 2, "ffn_hidden_size": 96},
    ),
    "falcon-one-norm": (
        "falcon",
        {
            **_FALCON,
            "new_decoder_architecture": True,
            "num_kv_heads": 2,
            "num_ln_in_parallel_attn": 1,
            "tie_word_embeddings": False,
            "rope_parameters": {"rope_type": "default", "rope_theta": 500.0},
        },
    ),
    "falcon-sequential": (
        "falcon",
        {**_FALCON, "multi_query": False, "parallel_attn": False, "bias": True},
    ),
    "bloom": (
        "bloom",
        {
            "vocab_size": 97,
            "hidden_size": 96,
            "n_layer": 2,
            "n_head": 6,
            "layer_norm_epsilon": 0.01,
        },
    ),
    "opt": ("opt", {**_OPT}),
    "opt-after": (
        "opt",
        {**_OPT, "do_layer_norm_before": False, "word_embed_proj_dim": 32},
    ),
    "opt-unbiased": ("opt", {**_OPT, "enable_bias": False, "tie_word_embeddings": False}),
}
