"""Configs that nest a text model's: that part is read, others are named, and none is guessed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from backends.tiny import CONFIGS, random_weight
from formats.safetensors_writer import TensorData, write_safetensors
from forwardpass.describe import Description, describe_config, describe_file
from forwardpass.errors import ConfigError, WeightsError
from forwardpass.formats import open_tensors

Raw = dict[str, object]
OUTER = {"gemma3": "gemma3", "mistral3": "mistral", "llava": "llama"}
every_outer = pytest.mark.parametrize("outer", list(OUTER))


def nested(outer: str, **changes: object) -> Raw:
    vision: Raw = {"model_type": "siglip_vision_model", "hidden_size": 7}
    return {
        "model_type": outer,
        "text_config": CONFIGS[OUTER[outer]],
        "vision_config": vision,
        "image_token_index": 5,
        **changes,
    }


@every_outer
def test_the_text_part_is_the_text_model_s_config(outer: str) -> None:
    found = describe_config("outer", nested(outer))
    assert found.config == describe_config("text", CONFIGS[OUTER[outer]]).config
    assert found.family.model_type == found.config.model_type


@every_outer
def test_what_the_outer_config_repeats_of_the_text_s_is_said_twice(outer: str) -> None:
    rows = CONFIGS[OUTER[outer]]["vocab_size"]
    assert isinstance(rows, int)
    found = describe_config("outer", nested(outer, vocab_size=rows))
    assert found.config == describe_config("outer", nested(outer)).config
    with pytest.raises(ConfigError, match=rf"{outer}\.vocab_size = {rows + 1}"):
        describe_config("outer", nested(outer, vocab_size=rows + 1))


def test_a_text_part_without_a_type_has_that_of_the_outer_model() -> None:
    text = {key: value for key, value in CONFIGS["gemma3"].items() if key != "model_type"}
    assert describe_config("outer", nested("gemma3", text_config=text)).config.model_type == (
        "gemma3_text"
    )


def test_the_outer_config_has_the_last_word_on_tying_and_type() -> None:
    text = {**CONFIGS["mistral"], "tie_word_embeddings": True, "torch_dtype": "float16"}
    plain = describe_config("outer", nested("mistral3", text_config=text)).config
    assert (plain.tie_word_embeddings, plain.dtype) == (True, "float16")
    outer: Raw = {"tie_word_embeddings": False, "dtype": "bfloat16"}
    found = describe_config("outer", nested("mistral3", text_config=text, **outer)).config
    assert (found.tie_word_embeddings, found.dtype) == (False, "bfloat16")


def test_keys_that_are_not_understood_are_named_with_their_place() -> None:
    with pytest.raises(ConfigError, match=r"config\.json, text_config: 1 setting") as caught:
        describe_config("outer", nested("llava", text_config={**CONFIGS["llama"], "odd": 3}))
    assert caught.value.details == ("odd = 3",)
    with pytest.raises(ConfigError) as caught:
        describe_config("outer", nested("llava", vocab_size=9, audio_config={"a": 1}))
    assert [detail.partition("  (")[0] for detail in caught.value.details] == [
        "llava.vocab_size = 9",
        'llava.audio_config = {"a": 1}',
    ]


@pytest.mark.parametrize("text", [None, 3, [], "llama"])
def test_a_config_without_its_text_part_is_refused(text: object) -> None:
    with pytest.raises(ConfigError, match="text_config, is missing"):
        describe_config("outer", nested("gemma3", text_config=text))


@pytest.mark.parametrize("raw", [{"model_type": "kimi_k3"}, {"model_type": "llava", "x": 1}])
def test_other_wrappers_and_texts_of_other_families_are_refused_by_name(raw: Raw) -> None:
    text: Raw = {**CONFIGS["llama"], "model_type": "deepseek_v4"}
    with pytest.raises(ConfigError, match=r"is not an architecture|deepseek_v4"):
        describe_config("outer", {**raw, "text_config": text})


def described(folder: Path, raw: Raw, prefix: str, *towers: str) -> Description:
    graph = describe_config("outer", raw).graph
    arrays = {prefix + name: random_weight(weight) for name, weight in graph.weights.items()}
    arrays |= {f"{tower}.layers.0.weight": np.zeros((3, 2), np.float32) for tower in towers}
    tensors = {name: TensorData("F32", a.shape, a.tobytes()) for name, a in arrays.items()}
    file = open_tensors(write_safetensors(folder / "model.safetensors", tensors))
    return describe_file("outer", file, raw)


def test_a_tower_s_tensors_are_kept_apart_and_no_others(tmp_path: Path) -> None:
    towers = ("vision_tower", "multi_modal_projector", "model.vision_tower")
    found = described(tmp_path, nested("llava"), "language_model.", *towers)
    assert found.weights is not None
    assert [tensor.name.removesuffix(".layers.0.weight") for tensor in found.weights.not_run] == (
        list(towers)
    )
    assert found.stored_parameters == found.unique_parameters + 18
    for odd in ("audio_tower", "language_model.vision_tower2"):
        with pytest.raises(WeightsError, match="1 tensor is not"):
            described(tmp_path, nested("llava"), "language_model.", odd)
