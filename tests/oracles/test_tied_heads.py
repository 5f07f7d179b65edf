"""The three forms of a tied head in files, with transformers as the judge of what they mean."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from forwardpass.errors import WeightsError
from forwardpass.weights import Tie
from oracles.families import BY_NAME, random_model, transformers_logits
from oracles.loading import TOLERANCE, described, logits, relative, runnable

TABLES = {
    "gpt2": "transformer.wte.weight",
    "llama-tied": "model.embed_tokens.weight",
    "qwen2": "model.embed_tokens.weight",
    "qwen3": "model.embed_tokens.weight",
    "gemma3": "model.embed_tokens.weight",
}
Tensors = dict[str, torch.Tensor]
every_tied_case = pytest.mark.parametrize("name", list(TABLES))


def saved(name: str, folder: Path, change: Callable[[Tensors, str], None], **config: Any) -> Path:
    """The case's model, saved, with the tensors as `change` leaves them."""
    random_model(BY_NAME[name]).save_pretrained(folder)
    tensors = load_file(folder / "model.safetensors")
    change(tensors, TABLES[name])
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **config}))
    return folder


def absent(tensors: Tensors, table: str) -> None:
    tensors.pop("lm_head.weight", None)


def stored_equal(tensors: Tensors, table: str) -> None:
    tensors["lm_head.weight"] = tensors[table].clone()


def stored_different(tensors: Tensors, table: str) -> None:
    tensors["lm_head.weight"] = tensors[table] + 0.3 * torch.randn(
        tensors[table].shape, generator=torch.Generator().manual_seed(5)
    )


def difference(folder: Path, compare_tied: bool = True) -> float:
    tokens = [int(token) for token in np.random.default_rng(3).integers(0, 97, 42)]
    judge = AutoModelForCausalLM.from_pretrained(
        folder, attn_implementation="eager", dtype=torch.float32
    )
    ours = logits(runnable(described(folder, compare_tied)), tokens)
    return relative(ours, transformers_logits(judge.eval(), tokens))


@every_tied_case
def test_a_head_that_is_absent_is_the_embedding(name: str, tmp_path: Path) -> None:
    folder = saved(name, tmp_path, absent)
    assert described(folder).tie is Tie.ONE_TABLE
    assert difference(folder) <= TOLERANCE


@every_tied_case
def test_a_head_stored_again_is_the_embedding(name: str, tmp_path: Path) -> None:
    folder = saved(name, tmp_path, stored_equal)
    found = described(folder)
    assert found.tie is Tie.STORED_TWICE
    assert found.stored_parameters is not None
    table = found.graph.weights[found.family.embedding]
    assert found.stored_parameters - found.unique_parameters == table.elements
    assert difference(folder) <= TOLERANCE


@every_tied_case
def test_a_head_stored_different_is_a_table_of_its_own(name: str, tmp_path: Path) -> None:
    folder = saved(name, tmp_path, stored_different)
    found = described(folder)
    assert found.tie is Tie.TWO_TABLES
    assert found.stored_parameters == found.unique_parameters
    assert difference(folder) <= TOLERANCE


@every_tied_case
def test_an_untied_head_may_be_equal_and_is_still_a_table_of_its_own(
    name: str, tmp_path: Path
) -> None:
    folder = saved(name, tmp_path, stored_equal, tie_word_embeddings=False)
    assert described(folder).tie is Tie.TWO_TABLES
    assert difference(folder) <= TOLERANCE


@every_tied_case
def test_an_untied_head_that_is_absent_is_missed(name: str, tmp_path: Path) -> None:
    folder = saved(name, tmp_path, absent, tie_word_embeddings=False)
    with pytest.raises(WeightsError, match="1 tensor is not"):
        described(folder)
