"""Tiny shapes, so that profiling them takes milliseconds."""

from __future__ import annotations

from forwardpass.describe import Description, describe_config

GPT2: dict[str, object] = {
    "model_type": "gpt2",
    "vocab_size": 97,
    "n_embd": 24,
    "n_layer": 3,
    "n_head": 4,
    "n_positions": 48,
}
GEMMA3: dict[str, object] = {
    "model_type": "gemma3_text",
    "vocab_size": 101,
    "hidden_size": 24,
    "intermediate_size": 40,
    "num_hidden_layers": 6,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 64,
    "sliding_window": 8,
}
LLAMA: dict[str, object] = {
    "model_type": "llama",
    "vocab_size": 89,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "tie_word_embeddings": False,
}
TINY = {"gpt2": GPT2, "gemma3_text": GEMMA3, "llama": LLAMA}


def tiny(name: str) -> Description:
    """The description of a tiny shape of that family."""
    return describe_config(name, TINY[name])
