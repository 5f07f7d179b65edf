"""What llama.cpp's converter writes for the families that are differences from Llama.

Source: conversion/{base,llama,gemma,phi,olmo,granite,command_r}.py of llama.cpp.
"""

from __future__ import annotations

import math
from typing import Any

import gguf
import numpy as np
from transformers import PreTrainedConfig

# The architecture `llama` is also that of Llama, `olmo2` that of OLMo 2 and 3.
LLAMA_LIKE_ARCHITECTURES = {
    "mistral": gguf.MODEL_ARCH.LLAMA,
    "gemma": gguf.MODEL_ARCH.GEMMA,
    "gemma2": gguf.MODEL_ARCH.GEMMA2,
    "phi3": gguf.MODEL_ARCH.PHI3,
    "olmo3": gguf.MODEL_ARCH.OLMO2,
    "olmo2": gguf.MODEL_ARCH.OLMO2,
    "granite": gguf.MODEL_ARCH.GRANITE,
    "smollm3": gguf.MODEL_ARCH.SMOLLM3,
    "cohere": gguf.MODEL_ARCH.COMMAND_R,
}
PAIRED = (
    "llama",
    "mistral",
    "mixtral",
    "granite",
    "smollm3",
)  # rows of query and key heads, as rope turns
_NO_BASE = ("gemma", "gemma2")


def write_llama_like(writer: gguf.GGUFWriter, config: PreTrainedConfig) -> None:
    """The metadata of the config, and the tensors that come from it alone."""
    kind = config.model_type
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count_kv(config.num_key_value_heads)
    head_dim = getattr(config, "head_dim", None)
    head_dim = head_dim or config.hidden_size // config.num_attention_heads
    writer.add_key_length(head_dim)
    writer.add_value_length(head_dim)
    if kind == "cohere":
        writer.add_layer_norm_eps(config.layer_norm_eps)
        writer.add_logit_scale(config.logit_scale)
        writer.add_rope_scaling_type(gguf.RopeScalingType.NONE)
    else:
        writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    rope: dict[str, Any] = config.rope_parameters
    rope = rope.get("full_attention", rope)
    if kind not in _NO_BASE:
        writer.add_rope_freq_base(rope["rope_theta"])
    if kind in PAIRED:
        writer.add_vocab_size(config.vocab_size)
        writer.add_rope_dimension_count(head_dim)
    if kind == "phi3":
        _write_phi3(writer, config, rope, head_dim)
    elif rope["rope_type"] == "yarn":
        write_yarn(writer, rope)
    _write_switches(writer, config)


def write_yarn(writer: gguf.GGUFWriter, rope: dict[str, Any]) -> None:
    writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
    writer.add_rope_scaling_factor(rope["factor"])
    writer.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
    if (factor := rope.get("attention_factor")) is not None:
        writer.add_rope_scaling_yarn_attn_factor(factor)
    writer.add_rope_scaling_yarn_beta_fast(rope["beta_fast"])
    writer.add_rope_scaling_yarn_beta_slow(rope["beta_slow"])


def _write_phi3(
    writer: gguf.GGUFWriter, config: PreTrainedConfig, rope: dict[str, Any], head_dim: int
) -> None:
    original = config.original_max_position_embeddings
    writer.add_rope_scaling_orig_ctx_len(original)
    writer.add_rope_dimension_count(int(head_dim * rope.get("partial_rotary_factor", 1.0)))
    writer.add_sliding_window(config.sliding_window or 0)
    if "long_factor" not in rope:
        return
    scale = config.max_position_embeddings / original
    lengthened = math.sqrt(1 + math.log(scale) / math.log(original)) if scale > 1 else 1.0
    writer.add_rope_scaling_attn_factors(lengthened)
    for name in ("long", "short"):
        factors = np.array(rope[f"{name}_factor"], np.float32)
        writer.add_tensor(f"rope_factors_{name}.weight", factors)


def _write_switches(writer: gguf.GGUFWriter, config: PreTrainedConfig) -> None:
    kind = config.model_type
    if kind == "gemma2":
        writer.add_attn_logit_softcapping(config.attn_logit_softcapping)
        writer.add_final_logit_softcapping(config.final_logit_softcapping)
    if kind in ("gemma2", "olmo3") or (kind == "mistral" and config.sliding_window):
        writer.add_sliding_window(config.sliding_window)
    if kind == "olmo3":
        slides = [layer == "sliding_attention" for layer in config.layer_types]
        writer.add_sliding_window_pattern(slides)
    if kind == "granite":
        writer.add_attention_scale(config.attention_multiplier)
        writer.add_embedding_scale(config.embedding_multiplier)
        writer.add_residual_scale(config.residual_multiplier)
        writer.add_logit_scale(config.logits_scaling)
