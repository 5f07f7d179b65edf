"""Metadata of tiny GGUF files, one of every architecture, and the shapes that configs come from."""

from __future__ import annotations

_SHARED: dict[str, object] = {
    "block_count": 7,
    "context_length": 512,
    "embedding_length": 24,
    "feed_forward_length": 40,
    "attention.head_count": 4,
    "attention.head_count_kv": 2,
    "attention.key_length": 10,
    "attention.value_length": 10,
    "attention.layer_norm_rms_epsilon": 1e-5,
    "rope.freq_base": 500.0,
}
_OWN: dict[str, dict[str, object]] = {
    "llama": {"vocab_size": 61, "rope.dimension_count": 10},
    "qwen2": {},
    "qwen3": {},
    "gemma3": {"attention.sliding_window": 9, "final_logit_softcapping": 20.0},
    "gemma": {},
    "gemma2": {"attention.sliding_window": 9, "attn_logit_softcapping": 5.0},
    "phi3": {
        "attention.sliding_window": 0,
        "rope.dimension_count": 6,
        "rope.scaling.original_context_length": 256,
    },
    "olmo2": {},
    "granite": {"attention.scale": 0.2, "residual_scale": 0.6, "logit_scale": 4.0},
    "smollm3": {"vocab_size": 61, "rope.dimension_count": 10},
}
# Families with LayerNorm, and those of them whose heads are not grouped.
_CENTERED: dict[str, object] = {
    "block_count": 2,
    "context_length": 64,
    "embedding_length": 24,
    "feed_forward_length": 96,
    "attention.head_count": 4,
    "attention.layer_norm_epsilon": 1e-5,
}
_GPT_LIKE: dict[str, dict[str, object]] = {
    "stablelm": {
        "attention.head_count_kv": 2,
        "rope.dimension_count": 4,
        "use_parallel_residual": True,
    },
    "starcoder2": {"attention.head_count_kv": 2, "rope.freq_base": 500.0},
    "gptneox": {"rope.dimension_count": 2, "use_parallel_residual": False},
    "phi2": {"attention.head_count_kv": 4, "rope.dimension_count": 4},
    "falcon": {"attention.head_count_kv": 1, "tensor_data_layout": "jploski"},
    "bloom": {"attention.head_count_kv": 4},
}
_GPT2: dict[str, object] = {
    "block_count": 2,
    "context_length": 64,
    "embedding_length": 24,
    "feed_forward_length": 96,
    "attention.head_count": 3,
    "attention.layer_norm_epsilon": 1e-5,
}


def _prefixed(architecture: str, keys: dict[str, object]) -> dict[str, object]:
    entries = {f"{architecture}.{key}": value for key, value in keys.items()}
    return {"general.architecture": architecture, "general.name": "tiny", **entries}


METADATA = {
    **{name: _prefixed(name, {**_SHARED, **own}) for name, own in _OWN.items()},
    "gpt2": _prefixed("gpt2", _GPT2),
    "command-r": _prefixed("command-r", {**_CENTERED, "logit_scale": 0.25}),
    **{name: _prefixed(name, {**_CENTERED, **own}) for name, own in _GPT_LIKE.items()},
}
SHAPES_OF: dict[str, dict[str, tuple[int, ...]]] = {
    name: {"token_embd.weight": (61, 24)} for name in METADATA
}
