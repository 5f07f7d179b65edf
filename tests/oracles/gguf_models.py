"""Hugging Face models written as GGUF by the official package, with the conversions of llama.cpp.

The conventions are those of llama.cpp's convert_hf_to_gguf.py: names by the package's own map;
the rows of Llama's query and key heads stored as the pairs that turn together; GPT-2's tables
turned outputs × inputs; Gemma's gains stored with their 1; llama3 scaling as a vector of divisors.
One-dimensional tensors stay float32.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import gguf
import numpy as np
import torch
from gguf.quants import dequantize, quantize
from transformers import PreTrainedConfig, PreTrainedModel

from forwardpass.graph.references import F32
from oracles.gguf_llama import LLAMA_LIKE_ARCHITECTURES, PAIRED, write_llama_like, write_yarn
from oracles.gpt_gguf import (
    GPT_ARCHITECTURES,
    groups_of,
    rows_by_group,
    sorted_rows,
    stacked_norms,
    write_gpt_metadata,
)
from oracles.moe_gguf import MOE_ARCHITECTURES, joined_experts, split_experts, write_moe

ARCHITECTURES = {
    "gpt2": gguf.MODEL_ARCH.GPT2,
    "llama": gguf.MODEL_ARCH.LLAMA,
    "qwen2": gguf.MODEL_ARCH.QWEN2,
    "qwen3": gguf.MODEL_ARCH.QWEN3,
    "gemma3_text": gguf.MODEL_ARCH.GEMMA3,
    **LLAMA_LIKE_ARCHITECTURES,
    **GPT_ARCHITECTURES,
    **MOE_ARCHITECTURES,
}
Type: TypeAlias = gguf.GGMLQuantizationType


def write_gguf_model(model: PreTrainedModel, path: Path, kind: Type) -> dict[str, torch.Tensor]:
    """Writes the file; returns the model's state as the stored numbers give it back."""
    config = model.config
    architecture = ARCHITECTURES[config.model_type]
    writer = gguf.GGUFWriter(path, gguf.MODEL_ARCH_NAMES[architecture])
    _write_metadata(writer, config)
    names = gguf.get_tensor_name_map(architecture, config.num_hidden_layers)
    stored: dict[str, torch.Tensor] = {}
    for name, tensor in split_experts(stacked_norms(model.state_dict()), config.model_type).items():
        if name == "lm_head.weight" and config.tie_word_embeddings:
            continue
        convert, restore = conversions(name, config)
        values = np.ascontiguousarray(convert(tensor.numpy()))
        used = kind if values.ndim > 1 and "norm" not in name else Type.F32
        data = quantize(values, used)
        called = name.removeprefix("transformer.") if config.model_type == "bloom" else name
        theirs = names.get_name(called, try_suffixes=(".weight", ".bias"))
        assert theirs is not None, name
        writer.add_tensor(theirs, data, raw_dtype=used)
        stored[name] = torch.from_numpy(restore(dequantize(data, used)).copy())
    factors = rope_factors(config)
    if factors is not None:
        writer.add_tensor("rope_freqs.weight", factors)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return joined_experts(stored, config.model_type)


Turn = Callable[[F32], F32]


def conversions(name: str, config: PreTrainedConfig) -> tuple[Turn, Turn]:
    """What turns a checkpoint's tensor into the stored one, and back."""
    kind, module = config.model_type, name.rpartition(".")[0]
    if kind == "gpt2" and name.endswith(("c_attn.weight", "c_proj.weight", "c_fc.weight")):
        return np.transpose, np.transpose
    if kind.startswith("gemma") and module.endswith("norm"):
        return lambda gain: gain + 1, lambda gain: gain - 1
    if module.endswith("query_key_value"):
        shares = config.num_attention_heads, groups_of(config)
        return lambda rows: sorted_rows(rows, *shares), lambda rows: rows_by_group(rows, *shares)
    if module.endswith("shared_expert_gate"):
        return lambda row: row.reshape(-1), lambda row: row.reshape(1, -1)
    if kind in PAIRED and module.endswith(("q_proj", "k_proj")):
        query = module.endswith("q_proj")
        heads = config.num_attention_heads if query else config.num_key_value_heads
        return lambda rows: paired(rows, heads), lambda rows: unpaired(rows, heads)
    return lambda values: values, lambda values: values


def paired(rows: F32, heads: int) -> F32:
    """Row i and row i + e/2 of each head made neighbors."""
    return rows.reshape(heads, 2, -1, *rows.shape[1:]).swapaxes(1, 2).reshape(rows.shape)


def unpaired(rows: F32, heads: int) -> F32:
    """The inverse of `paired`."""
    return rows.reshape(heads, -1, 2, *rows.shape[1:]).swapaxes(1, 2).reshape(rows.shape)


def rope_factors(config: PreTrainedConfig) -> F32 | None:
    """The divisors of the angles under llama3 scaling; None for other ropes."""
    rope = getattr(config, "rope_parameters", None) or {}
    if rope.get("rope_type") != "llama3":
        return None
    factor, low, high = (rope[key] for key in ("factor", "low_freq_factor", "high_freq_factor"))
    context = rope["original_max_position_embeddings"]
    factors = []
    for i in range(0, config.head_dim, 2):
        wavelength = 2 * math.pi * rope["rope_theta"] ** (i / config.head_dim)
        if wavelength < context / high:
            factors.append(1.0)
        elif wavelength > context / low:
            factors.append(factor)
        else:
            smooth = (context / wavelength - low) / (high - low)
            factors.append(1 / ((1 - smooth) / factor + smooth))
    return np.array(factors, np.float32)


def _write_metadata(writer: gguf.GGUFWriter, config: PreTrainedConfig) -> None:
    if config.model_type in GPT_ARCHITECTURES:
        write_gpt_metadata(writer, config)
        return
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_head_count(config.num_attention_heads)
    if config.model_type == "gpt2":
        writer.add_feed_forward_length(config.n_inner or 4 * config.hidden_size)
        writer.add_layer_norm_eps(config.layer_norm_epsilon)
        return
    if config.model_type in MOE_ARCHITECTURES:
        write_moe(writer, config)
    if config.model_type in (*LLAMA_LIKE_ARCHITECTURES, *MOE_ARCHITECTURES):
        write_llama_like(writer, config)
        return
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_key_length(config.head_dim)
    writer.add_value_length(config.head_dim)
    rope: Mapping[str, Any] = config.rope_parameters
    if config.model_type == "llama":
        writer.add_vocab_size(config.vocab_size)
        writer.add_rope_dimension_count(config.head_dim)
    if config.model_type == "gemma3_text":
        writer.add_sliding_window(config.sliding_window)
        writer.add_rope_freq_base_swa(rope["sliding_attention"]["rope_theta"])
        if config.final_logit_softcapping is not None:
            writer.add_final_logit_softcapping(config.final_logit_softcapping)
        rope = rope["full_attention"]
    writer.add_rope_freq_base(rope["rope_theta"])
    if rope["rope_type"] == "yarn":
        write_yarn(writer, dict(rope))
    if rope["rope_type"] == "linear":
        writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        writer.add_rope_scaling_factor(rope["factor"])
