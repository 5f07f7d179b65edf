"""Tiny Llamas with tables stored in fewer bits, and twins that hold what those stand for."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.torch
import torch
from numpy.typing import NDArray
from transformers import PreTrainedModel

from oracles.families import VOCABULARY, transformers_logits
from oracles.loading import TOLERANCE, described, logits, relative, runnable

TOKENS = [int(token) for token in np.random.default_rng(3).integers(0, VOCABULARY, 42)]
SIZES: dict[str, object] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 128,
    "intermediate_size": 256,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "max_position_embeddings": 128,
    "rms_norm_eps": 0.01,
}
State = dict[str, torch.Tensor]
Packed = tuple[State, State]  # what is stored for a table, and what it stands for


def write(
    folder: Path,
    model: PreTrainedModel,
    pack: Callable[[str, torch.Tensor], Packed | None],
    config: Mapping[str, object],
) -> None:
    """Saves the model, packed as `pack` says, and gives the model what that stands for."""
    stored: State = {}
    twin: State = {}
    for name, tensor in model.state_dict().items():
        packed = pack(name, tensor) or ({name: tensor}, {name: tensor})
        stored |= packed[0]
        twin |= packed[1]
    contiguous = {name: tensor.contiguous() for name, tensor in stored.items()}
    safetensors.torch.save_file(contiguous, folder / "model.safetensors")
    full = {**model.config.to_dict(), "model_type": "llama", **config}
    (folder / "config.json").write_text(json.dumps(full, default=str))
    model.load_state_dict(twin)


def check_logits(folder: Path, model: PreTrainedModel) -> None:
    """The logits of the stored model are those that transformers has for its twin."""
    found = described(folder)
    difference = relative(logits(runnable(found), TOKENS), transformers_logits(model, TOKENS))
    assert difference <= TOLERANCE


def is_linear(name: str) -> bool:
    """Whether the tensor is a table that quantizers pack."""
    return name.endswith("_proj.weight")


def of(arrays: Mapping[str, NDArray[Any]], stem: str) -> State:
    """The parts under the names that they have in a checkpoint."""
    return {f"{stem}.{part}": torch.from_numpy(array) for part, array in arrays.items()}
