"""A second opinion on a GGUF file: the official reader and decoder, and transformers' classes.

Nothing here uses the package under test. Configs are built from the metadata as the official
reader gives them, weights decoded by `gguf.quants`, un-permuted by llama.cpp's conventions and run
in float32, eagerly, on the CPU.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from gguf.quants import dequantize
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedConfig, PreTrainedModel

from forwardpass.graph.references import F32
from oracles.gguf_models import ARCHITECTURES, conversions

MODEL_TYPES = {gguf.MODEL_ARCH_NAMES[arch]: name for name, arch in reversed(ARCHITECTURES.items())}
_ROWS = 4096  # decoded at a time


def independent_logits(path: Path, ids: Sequence[int]) -> F32:
    """The logits of every position, n v; the model is loaded and given up again."""
    return IndependentModel(path).logits(ids)


class IndependentModel:
    """transformers' model with the weights of a GGUF file in float32."""

    def __init__(self, path: Path) -> None:
        reader = gguf.GGUFReader(path)
        self.metadata = {key: field.contents() for key, field in reader.fields.items()}
        tensors = {tensor.name: tensor for tensor in reader.tensors}
        config = _config(self.metadata, tensors)
        self.model = AutoModelForCausalLM.from_config(
            config, attn_implementation="eager", dtype=torch.float32
        ).eval()
        _fill(self.model, tensors)

    def logits(self, ids: Sequence[int]) -> F32:
        """The logits of every position, n v."""
        with torch.no_grad():
            found = self.model(input_ids=torch.tensor([list(ids)]), use_cache=False).logits
        array: F32 = found[0].numpy()
        return array


def _config(metadata: dict[str, Any], tensors: dict[str, gguf.ReaderTensor]) -> PreTrainedConfig:
    architecture = metadata["general.architecture"]
    theirs = {
        key.removeprefix(f"{architecture}."): value
        for key, value in metadata.items()
        if key.startswith(f"{architecture}.")
    }
    heads = theirs["attention.head_count"]
    head_dim = theirs.get("attention.key_length", theirs["embedding_length"] // heads)
    config: dict[str, Any] = {
        "vocab_size": int(tensors["token_embd.weight"].shape[1]),
        "hidden_size": theirs["embedding_length"],
        "intermediate_size": theirs["feed_forward_length"],
        "num_hidden_layers": theirs["block_count"],
        "num_attention_heads": heads,
        "num_key_value_heads": theirs["attention.head_count_kv"],
        "head_dim": head_dim,
        "max_position_embeddings": theirs["context_length"],
        "rms_norm_eps": theirs["attention.layer_norm_rms_epsilon"],
        "tie_word_embeddings": "output.weight" not in tensors,
        "rope_parameters": {"rope_type": "default", "rope_theta": theirs["rope.freq_base"]},
    }
    if architecture == "gemma3":
        config |= {
            "sliding_window": theirs["attention.sliding_window"],
            "query_pre_attn_scalar": head_dim,
            "rope_parameters": {
                "full_attention": config["rope_parameters"],
                "sliding_attention": {"rope_type": "default", "rope_theta": 10_000.0},
            },
        }
    return AutoConfig.for_model(MODEL_TYPES[architecture], **config)


def _fill(model: PreTrainedModel, tensors: dict[str, gguf.ReaderTensor]) -> None:
    """Every weight of the model from the file; every tensor of the file used."""
    config = model.config
    names = gguf.get_tensor_name_map(ARCHITECTURES[config.model_type], config.num_hidden_layers)
    left = set(tensors)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            theirs = names.get_name(name, try_suffixes=(".weight", ".bias"))
            assert theirs is not None, name
            _, restore = conversions(name, config)
            weight.copy_(torch.from_numpy(restore(_decoded(tensors[theirs])).copy()))
            left.remove(theirs)
    assert not left


def _decoded(tensor: gguf.ReaderTensor) -> F32:
    shape = tuple(map(int, reversed(tensor.shape)))
    if len(shape) == 1:
        vector: F32 = dequantize(tensor.data, tensor.tensor_type)
        return vector
    whole = np.empty(shape, np.float32)
    for start in range(0, shape[0], _ROWS):
        rows = slice(start, start + _ROWS)
        whole[rows] = dequantize(tensor.data[rows], tensor.tensor_type)
    return whole


def longest_match(metadata: dict[str, Any], text: str) -> list[int]:
    """Ids of an ASCII text, taking the longest token each time, behind BOS where the file adds one.

    Not how a tokenizer splits, but tokens that spell the text: all that a comparison needs.
    """
    vocabulary = {token: i for i, token in enumerate(metadata["tokenizer.ggml.tokens"])}
    sentencepiece = metadata["tokenizer.ggml.model"] == "llama"
    marked = text.replace(" ", "▁" if sentencepiece else "Ġ")
    ids = [metadata["tokenizer.ggml.bos_token_id"]] if sentencepiece else []
    while marked:
        length = next(n for n in range(min(24, len(marked)), 0, -1) if marked[:n] in vocabulary)
        ids.append(vocabulary[marked[:length]])
        marked = marked[length:]
    return ids
