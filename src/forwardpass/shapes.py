"""Bundled shapes: config facts of well-known models, for counting and planning without weights.

Each entry is what the published `config.json` says, less what cannot change a count or a logit.
Source: the model cards' `config.json` under the hub id beside each name.
"""

from __future__ import annotations

_LLAMA_31: dict[str, object] = {
    "model_type": "llama",
    "vocab_size": 128_256,
    "max_position_embeddings": 131_072,
    "hidden_act": "silu",
    "rms_norm_eps": 1e-5,
    "rope_theta": 500_000.0,
    "rope_scaling": {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8_192,
    },
    "torch_dtype": "bfloat16",
}

SHAPES: dict[str, dict[str, object]] = {
    "llama-3.1-8b": {  # meta-llama/Llama-3.1-8B
        **_LLAMA_31,
        "hidden_size": 4_096,
        "intermediate_size": 14_336,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "tie_word_embeddings": False,
    },
    "llama-3.1-70b": {  # meta-llama/Llama-3.1-70B
        **_LLAMA_31,
        "hidden_size": 8_192,
        "intermediate_size": 28_672,
        "num_hidden_layers": 80,
        "num_attention_heads": 64,
        "num_key_value_heads": 8,
        "tie_word_embeddings": False,
    },
    "qwen3-0.6b": {  # Qwen/Qwen3-0.6B
        "model_type": "qwen3",
        "vocab_size": 151_936,
        "hidden_size": 1_024,
        "intermediate_size": 3_072,
        "num_hidden_layers": 28,
        "num_attention_heads": 16,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "max_position_embeddings": 40_960,
        "rope_theta": 1_000_000,
        "tie_word_embeddings": True,
        "torch_dtype": "bfloat16",
    },
    "gpt2": {  # openai-community/gpt2
        "model_type": "gpt2",
        "vocab_size": 50_257,
        "n_embd": 768,
        "n_layer": 12,
        "n_head": 12,
        "n_positions": 1_024,
        "torch_dtype": "float32",
    },
}
