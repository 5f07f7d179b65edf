"""What llama.cpp's converters do to the families that come from GPT.

Source: llama.cpp, conversion/{bloom,falcon,gpt2,phi,stablelm,starcoder}.py and the writer's general
keys: fused query, key and value rows sorted into all queries, all keys, all values; StableLM's head
norms stacked.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import gguf
import numpy as np
import torch

from forwardpass.graph.references import F32

GPT_ARCHITECTURES = {
    "stablelm": gguf.MODEL_ARCH.STABLELM,
    "starcoder2": gguf.MODEL_ARCH.STARCODER2,
    "gpt_neox": gguf.MODEL_ARCH.GPTNEOX,
    "phi": gguf.MODEL_ARCH.PHI2,
    "falcon": gguf.MODEL_ARCH.FALCON,
    "bloom": gguf.MODEL_ARCH.BLOOM,
}
GPT_CASES = (
    *("stablelm", "stablelm-parallel", "starcoder2", "gpt_neox", "gpt_neox-unbiased", "phi"),
    *("falcon", "falcon-grouped", "falcon-one-norm", "bloom"),
)


def sayable(model_type: str, config: Mapping[str, object]) -> dict[str, object]:
    """The config, less what files cannot say: rope's base and scaling, StarCoder2's window."""
    found = {key: value for key, value in config.items() if key != "rope_parameters"}
    if model_type == "starcoder2":
        found["sliding_window"] = 4_096
    if model_type == "falcon":
        found["max_position_embeddings"] = 2_048
    if model_type == "bloom":
        found["seq_length"] = 2_048
    return found


def stacked_norms(state: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The state, head norms put together as the rows of one tensor."""
    found: dict[str, torch.Tensor] = {}
    for name, tensor in state.items():
        match = re.fullmatch(r"(.*\.[qk]_layernorm)\.norms\.(\d+)\.weight", name)
        if match is None:
            found[name] = tensor
        elif match[2] == "0":
            count = sum(other.startswith(f"{match[1]}.norms.") for other in state)
            rows = [state[f"{match[1]}.norms.{row}.weight"] for row in range(count)]
            found[f"{match[1]}.weight"] = torch.stack(rows)
    return found


def sorted_rows(rows: F32, heads: int, groups: int) -> F32:
    """Rows by group (queries, key, value) as all queries, all keys, all values."""
    by_group = rows.reshape(groups, heads // groups + 2, -1, *rows.shape[1:])
    parts = (by_group[:, :-2], by_group[:, -2:-1], by_group[:, -1:])
    return np.concatenate([part.reshape(-1, *rows.shape[1:]) for part in parts])


def rows_by_group(rows: F32, heads: int, groups: int) -> F32:
    """The inverse of `sorted_rows`."""
    order = np.arange(len(rows)).astype(np.float32)
    back = np.empty_like(rows)
    back[sorted_rows(order, heads, groups).astype(int)] = rows
    return back


def groups_of(config: Any) -> int:
    """Key/value heads of a family with fused rows."""
    if config.model_type != "falcon":
        return int(config.num_attention_heads)
    if config.new_decoder_architecture:
        return int(config.num_kv_heads)
    return 1 if config.multi_query else int(config.num_attention_heads)


def write_gpt_metadata(writer: gguf.GGUFWriter, config: Any) -> None:
    kind, heads = config.model_type, config.num_attention_heads
    head_dim = config.hidden_size // heads
    writer.add_block_count(config.num_hidden_layers)
    positions = getattr(config, "max_position_embeddings", 2_048)
    writer.add_context_length(positions)
    writer.add_embedding_length(config.hidden_size)
    writer.add_head_count(heads)
    wide = getattr(config, "ffn_hidden_size", 4 * config.hidden_size)
    writer.add_feed_forward_length(getattr(config, "intermediate_size", wide))
    names = ("layer_norm_eps", "norm_epsilon", "layer_norm_epsilon")
    writer.add_layer_norm_eps(
        next(getattr(config, name) for name in names if hasattr(config, name))
    )
    if kind in ("stablelm", "gpt_neox", "phi"):
        part = config.rope_parameters["partial_rotary_factor"]
        writer.add_rope_dimension_count(int(part * head_dim))
    if kind in ("stablelm", "gpt_neox"):
        writer.add_parallel_residual(config.use_parallel_residual)
    if kind in ("stablelm", "starcoder2"):
        writer.add_head_count_kv(config.num_key_value_heads)
    if kind in ("falcon", "bloom", "phi"):
        writer.add_head_count_kv(heads if kind == "phi" else groups_of(config))
    if kind == "falcon":
        writer.add_tensor_data_layout("jploski")
    if kind == "starcoder2":
        writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
