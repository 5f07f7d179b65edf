"""Models that see images, asked about text alone: transformers' whole against our text part."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForImageTextToText, PreTrainedModel

from forwardpass.errors import ContextError, WeightsError
from forwardpass.graph.references import F32
from oracles.families import BY_NAME, random_model
from oracles.loading import TOLERANCE, described, loaded, relative, runnable

_SIZES: dict[str, object] = {
    "vocab_size": 97,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 128,
}
_TOWER: dict[str, object] = {
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "image_size": 8,
    "patch_size": 4,
}
OUTER: dict[str, dict[str, object]] = {
    "gemma3": {
        "text_config": {**_SIZES, "model_type": "gemma3_text", "sliding_window": 8},
        "vision_config": {**_TOWER, "model_type": "siglip_vision_model"},
        "mm_tokens_per_image": 4,
        "boi_token_index": 6,
        "eoi_token_index": 7,
    },
    "mistral3": {
        "text_config": {**_SIZES, "model_type": "mistral", "sliding_window": 8},
        "vision_config": {**_TOWER, "model_type": "pixtral", "head_dim": 8},
        "tie_word_embeddings": False,
    },
    "llava": {
        "text_config": {**_SIZES, "model_type": "llama"},
        "vision_config": {**_TOWER, "model_type": "clip_vision_model", "num_hidden_layers": 3},
    },
}
TOKENS = [int(token) for token in np.random.default_rng(3).integers(10, 97, 30)]
every_model = pytest.mark.parametrize("model_type", list(OUTER))


def saved(model_type: str, folder: Path) -> PreTrainedModel:
    config = AutoConfig.for_model(model_type, image_token_index=5, **OUTER[model_type])
    model = AutoModelForImageTextToText.from_config(
        config, attn_implementation="eager", dtype=torch.float32
    )
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for weight in model.parameters():
            weight.copy_(0.3 * torch.randn(weight.shape, generator=generator))
    model.eval().save_pretrained(folder)
    return model


def of_text(model: PreTrainedModel) -> F32:
    with torch.no_grad():
        found: F32 = model(input_ids=torch.tensor([TOKENS])).logits[0].numpy()
    return found


def ours(folder: Path) -> F32:
    model = loaded(folder)
    return model.run(model.new_cache(), TOKENS, wanted=range(len(TOKENS)))


@every_model
def test_the_text_part_gives_the_logits_of_the_whole(model_type: str, tmp_path: Path) -> None:
    model = saved(model_type, tmp_path)
    assert relative((ours(tmp_path),), (of_text(model),)) <= TOLERANCE


@every_model
def test_what_sees_images_is_named_as_not_run_and_counted_apart(
    model_type: str, tmp_path: Path
) -> None:
    model = saved(model_type, tmp_path)
    found = described(tmp_path)
    assert found.weights is not None
    sees = {name: w for name, w in model.state_dict().items() if "language_model" not in name}
    sees = {name: w for name, w in sees.items() if "lm_head" not in name}
    assert len(found.weights.not_run) == len(sees)
    elements = sum(tensor.elements for tensor in found.weights.not_run)
    assert elements == sum(weight.numel() for weight in sees.values())
    assert found.stored_parameters == found.unique_parameters + elements


@every_model
def test_tensors_may_be_placed_as_newer_versions_place_them(
    model_type: str, tmp_path: Path
) -> None:
    model = saved(model_type, tmp_path)
    path = tmp_path / "model.safetensors"
    placed = {
        name.replace("language_model.model.", "model.language_model.")
        .replace("language_model.lm_head", "lm_head")
        .replace("vision_tower.", "model.vision_tower.")
        .replace("multi_modal_projector.", "model.multi_modal_projector."): tensor
        for name, tensor in load_file(path).items()
    }
    save_file(placed, path, metadata={"format": "pt"})
    assert relative((ours(tmp_path),), (of_text(model),)) <= TOLERANCE


def test_a_tower_beside_a_config_of_text_alone_is_left_over(tmp_path: Path) -> None:
    saved("gemma3", tmp_path)
    path = tmp_path / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text())["text_config"]))
    with pytest.raises(WeightsError, match="tensors are not what the config asks for"):
        described(tmp_path)


@pytest.mark.parametrize("name", ["llama-dynamic", "phi3-longrope"])
def test_beyond_its_limit_a_rope_would_turn_earlier_tokens_anew(name: str, tmp_path: Path) -> None:
    """transformers gives the first rows other logits once more tokens follow; we refuse those."""
    model = random_model(BY_NAME[name])
    model.save_pretrained(tmp_path)
    found = described(tmp_path)
    limit = found.config.context
    tokens = [int(token) for token in np.random.default_rng(4).integers(0, 97, limit + 1)]
    with torch.no_grad():
        longer = model(input_ids=torch.tensor([tokens])).logits[0, :limit].numpy()
        whole = random_model(BY_NAME[name])(input_ids=torch.tensor([tokens[:limit]]))
    assert np.abs(longer - whole.logits[0].numpy()).max() > 0.01 * np.abs(longer).max()
    reference = runnable(found)
    rows = reference.run(reference.new_cache(), tokens[:limit], wanted=range(limit))
    assert relative((rows,), (whole.logits[0].numpy(),)) <= TOLERANCE
    with pytest.raises(ContextError, match=f"rope holds for {limit}"):
        reference.run(reference.new_cache(), tokens)
