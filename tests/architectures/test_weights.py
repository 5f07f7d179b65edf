"""Tensors of a file set against the graph: none missing, none misshapen, none left over."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from architectures.experts import as_stored
from backends.tiny import CONFIGS, RandomWeights, random_tokens, random_weight, tiny_graph
from backends.tiny_llama import TINY_LLAMA
from backends.tiny_moe import TINY_MOE
from config.gguf_metadata import METADATA
from formats.gguf_writer import TensorData as GgufTensor
from formats.gguf_writer import write_gguf
from formats.safetensors_writer import TensorData, write_safetensors
from forwardpass.architectures import family as family_of
from forwardpass.architectures.family import Transform
from forwardpass.backends.reference import Reference
from forwardpass.config import ModelConfig
from forwardpass.describe import Description, describe_file
from forwardpass.errors import ConfigError, WeightsError
from forwardpass.formats import open_tensors
from forwardpass.graph.references import F32
from forwardpass.weights import Tie

Arrays = dict[str, F32]
FAMILIES = (
    *("gpt2", "llama", "llama-scaled", "qwen2", "qwen3", "gemma3"),
    *("stablelm", "starcoder2", "gpt_neox", "gptj", "phi", "falcon", "falcon-grouped"),
    *("bloom", "opt", "opt-after"),
    *TINY_LLAMA,
    *TINY_MOE,
)
every_family = pytest.mark.parametrize("name", FAMILIES)
# Files of the others store experts otherwise; what is wrong there is in test_expert_weights.py.
every_plain_family = pytest.mark.parametrize("name", [f for f in FAMILIES if f not in TINY_MOE])


def checkpoint(name: str, **changes: object) -> Arrays:
    """The tiny model's tensors as a Hugging Face checkpoint stores them."""
    graph = tiny_graph(name, **changes)
    family = family_of(graph.config.model_type)
    found: Arrays = {}
    for weight in graph.weights.values():
        array = random_weight(weight)
        for end, transform in family.transforms.items():
            if weight.name.endswith(end) and transform is Transform.TRANSPOSE:
                array = np.ascontiguousarray(array.T)
            if weight.name.endswith(end) and transform is Transform.ADD_ONE:
                array = array - np.float32(1)
            if weight.name.endswith(end) and transform is Transform.SPLIT_GROUPS:
                array = by_group(array, graph.config)
        found[weight.name] = array
    return as_stored(found, graph.config.model_type)


def by_group(rows: F32, config: ModelConfig) -> F32:
    """All queries, keys, values as those of each key/value head."""
    h, g, e = config.num_attention_heads, config.num_key_value_heads, config.head_dim
    queries, keys, values = np.split(rows, [h * e, (h + g) * e])
    share = h // g * e
    parts = [
        part
        for i in range(g)
        for part in (
            queries[i * share : (i + 1) * share],
            keys[i * e : (i + 1) * e],
            values[i * e : (i + 1) * e],
        )
    ]
    return np.concatenate(parts)


def described(
    folder: Path, name: str, arrays: Mapping[str, F32], compare: bool = False, **changes: object
) -> Description:
    tensors = {
        key: TensorData("F32", array.shape, array.tobytes()) for key, array in arrays.items()
    }
    file = open_tensors(write_safetensors(folder / "model.safetensors", tensors))
    return describe_file(name, file, {**CONFIGS[name], **changes}, compare_tied=compare)


def refusal(folder: Path, name: str, arrays: Mapping[str, F32]) -> WeightsError:
    with pytest.raises(WeightsError) as caught:
        described(folder, name, arrays)
    return caught.value


@every_family
def test_a_checkpoint_gives_the_graph_the_weights_that_were_put_in(
    tmp_path: Path, name: str
) -> None:
    found = described(tmp_path, name, checkpoint(name))
    assert found.weights is not None
    for weight in found.graph.weights.values():
        array = found.weights.numpy(weight.name)
        assert array.flags.c_contiguous
        assert array.dtype == np.float32
        np.testing.assert_allclose(array, random_weight(weight), atol=1e-7)
        assert found.weights.stored_bytes(weight) == 4 * weight.elements


@every_family
def test_a_loaded_model_runs_like_the_one_that_was_saved(tmp_path: Path, name: str) -> None:
    found = described(tmp_path, name, checkpoint(name))
    assert found.weights is not None
    loaded = Reference(found.graph, found.weights)
    saved = Reference(found.graph, RandomWeights(found.graph))
    tokens = random_tokens(12)
    ours, theirs = (model.run(model.new_cache(), tokens) for model in (loaded, saved))
    assert np.abs(ours - theirs).max() <= 1e-5 * np.abs(theirs).max()


@every_plain_family
def test_every_missing_tensor_is_named(tmp_path: Path, name: str) -> None:
    arrays = checkpoint(name)
    for key in list(arrays):
        rest = {other: array for other, array in arrays.items() if other != key}
        error = refusal(tmp_path, name, rest)
        assert "1 tensor is not" in error.fact
        assert error.details[0].startswith(f"missing: {key} ")


@every_plain_family
def test_every_misshapen_tensor_is_named_with_both_shapes(tmp_path: Path, name: str) -> None:
    arrays = checkpoint(name)
    for key, array in arrays.items():
        wrong = np.zeros((array.shape[0] + 1, *array.shape[1:]), np.float32)
        error = refusal(tmp_path, name, {**arrays, key: wrong})
        assert "1 tensor is not" in error.fact
        assert f"{key} is {wrong.shape[0]}" in error.details[0]
        assert f"the config asks for {array.shape[0]}" in error.details[0]


def test_a_table_stored_the_wrong_way_round_is_misshapen(tmp_path: Path) -> None:
    arrays = checkpoint("gpt2")
    turned = np.ascontiguousarray(arrays["h.0.mlp.c_fc.weight"].T)
    error = refusal(tmp_path, "gpt2", {**arrays, "h.0.mlp.c_fc.weight": turned})
    assert error.details == ("h.0.mlp.c_fc.weight is 96 × 24, the config asks for 24 × 96",)


@every_family
@pytest.mark.parametrize(
    "extra", ["model.layers.0.self_attn.q_proj.lora_A.weight", "vision.weight", "h.9.ln_1.weight"]
)
def test_a_tensor_left_over_is_named(tmp_path: Path, name: str, extra: str) -> None:
    error = refusal(tmp_path, name, {**checkpoint(name), extra: np.zeros((3, 2), np.float32)})
    assert error.details == (f"left over: {extra} 3 × 2",)


def test_a_bias_that_the_config_does_not_announce_is_left_over(tmp_path: Path) -> None:
    arrays = checkpoint("llama")
    with pytest.raises(WeightsError, match="14 tensors") as caught:
        described(tmp_path, "llama", arrays, attention_bias=False, mlp_bias=False)
    assert "left over: model.layers.0.self_attn.q_proj.bias 40" in caught.value.details


def test_all_that_is_wrong_is_counted_and_the_first_shown(tmp_path: Path) -> None:
    error = refusal(tmp_path, "llama", {})
    count = len(tiny_graph("llama").weights)
    assert f"{count} tensors" in error.fact
    assert len(error.details) == 9
    assert error.details[-1] == f"… and {count - 8} more"


def test_gpt2_s_prefix_and_mask_buffers_are_those_of_published_files(tmp_path: Path) -> None:
    arrays = {f"transformer.{key}": array for key, array in checkpoint("gpt2").items()}
    for layer in range(2):
        arrays[f"h.{layer}.attn.bias"] = np.ones((1, 1, 8, 8), np.float32)
        arrays[f"transformer.h.{layer}.attn.masked_bias"] = np.full((), -1e4, np.float32)
    found = described(tmp_path, "gpt2", arrays)
    assert found.weights is not None
    assert len(found.weights.buffers) == 4
    assert found.stored_parameters == found.unique_parameters + 2 * 65


def test_head_norms_stored_one_by_one_are_the_rows_of_one_table(tmp_path: Path) -> None:
    arrays = checkpoint("stablelm-parallel")
    for name in [name for name in arrays if "k_layernorm" in name or "q_layernorm" in name]:
        for row, gain in enumerate(arrays.pop(name)):
            arrays[f"{name.removesuffix('.weight')}.norms.{row}.weight"] = gain
    found = described(tmp_path, "stablelm-parallel", arrays)
    assert found.weights is not None
    for weight in found.graph.weights.values():
        np.testing.assert_array_equal(found.weights.numpy(weight.name), random_weight(weight))
        assert found.weights.stored_bytes(weight) == 4 * weight.elements
    one = "model.layers.0.self_attn.q_layernorm.norms.2.weight"
    rest = {name: array for name, array in arrays.items() if name != one}
    details = refusal(tmp_path, "stablelm-parallel", rest).details
    assert "missing: model.layers.0.self_attn.q_layernorm.weight 4 × 6" in details
    assert f"left over: {one.replace('norms.2', 'norms.3')} 6" in details


@pytest.mark.parametrize(
    ("name", "prefix", "buffers"),
    [
        ("gpt_neox", "gpt_neox.", ("layers.1.attention.bias", "layers.0.attention.masked_bias")),
        ("gpt_neox", "", ("layers.0.attention.rotary_emb.inv_freq",)),
        ("gptj", "transformer.", ("h.0.attn.bias", "h.1.attn.masked_bias")),
        ("falcon", "transformer.", ("h.0.self_attention.rotary_emb.inv_freq",)),
        ("bloom", "transformer.", ()),
        ("opt", "model.decoder.", ()),
        ("opt", "decoder.", ()),
    ],
)
def test_prefixes_and_buffers_are_those_of_published_files(
    tmp_path: Path, name: str, prefix: str, buffers: tuple[str, ...]
) -> None:
    arrays = {
        key if key.startswith("lm_head.") else prefix + key: array
        for key, array in checkpoint(name).items()
    }
    arrays |= {prefix + buffer: np.ones((2, 2), np.float32) for buffer in buffers}
    if name == "gpt_neox":
        arrays["embed_out.weight"] = arrays.pop("lm_head.weight")
    found = described(tmp_path, name, arrays)
    assert found.weights is not None
    assert len(found.weights.buffers) == len(buffers)


def test_rotary_buffers_of_older_checkpoints_are_no_weights(tmp_path: Path) -> None:
    extra = {"model.layers.0.self_attn.rotary_emb.inv_freq": np.ones(5, np.float32)}
    found = described(tmp_path, "llama", {**checkpoint("llama"), **extra})
    assert found.weights is not None
    assert [buffer.name for buffer in found.weights.buffers] == list(extra)


def test_two_tensors_of_one_name_after_the_prefix_are_refused(tmp_path: Path) -> None:
    arrays = checkpoint("gpt2")
    error = refusal(tmp_path, "gpt2", {**arrays, "transformer.wte.weight": arrays["wte.weight"]})
    assert error.fact.endswith(": wte.weight and transformer.wte.weight are names of one tensor")


def test_a_name_that_could_upset_a_terminal_is_quoted(tmp_path: Path) -> None:
    arrays = {**checkpoint("llama"), "a\x1b[2Jb": np.zeros(2, np.float32)}
    error = refusal(tmp_path, "llama", arrays)
    assert error.details == (r"left over: 'a\x1b[2Jb' 2",)


TIED = ("gpt2", "llama-scaled")


def table_of(name: str) -> str:
    return family_of(str(CONFIGS[name]["model_type"])).embedding


@pytest.mark.parametrize("name", TIED)
def test_a_tied_head_that_is_absent_is_one_table(tmp_path: Path, name: str) -> None:
    found = described(tmp_path, name, checkpoint(name), compare=True)
    assert found.tie is Tie.ONE_TABLE
    assert found.stored_parameters == found.unique_parameters


@pytest.mark.parametrize("compare", [False, True])
@pytest.mark.parametrize("name", TIED)
def test_a_tied_head_stored_again_is_counted_once(tmp_path: Path, name: str, compare: bool) -> None:
    arrays = checkpoint(name)
    table = arrays[table_of(name)]
    found = described(tmp_path, name, {**arrays, "lm_head.weight": table}, compare)
    assert found.tie is Tie.STORED_TWICE
    assert found.stored_parameters == found.unique_parameters + table.size
    assert "lm_head.weight" not in found.graph.weights


@pytest.mark.parametrize("name", TIED)
def test_a_tied_head_stored_different_is_two_tables_once_they_are_compared(
    tmp_path: Path, name: str
) -> None:
    arrays = checkpoint(name)
    other = arrays[table_of(name)].copy()
    other[-1, -1] += 1
    found = described(tmp_path, name, {**arrays, "lm_head.weight": other}, compare=True)
    assert found.tie is Tie.TWO_TABLES
    assert found.stored_parameters == found.unique_parameters
    assert "lm_head.weight" in found.graph.weights
    # A header alone can't tell: the config is believed.
    header = described(tmp_path, name, {**arrays, "lm_head.weight": other})
    assert header.tie is Tie.STORED_TWICE


@pytest.mark.parametrize("name", TIED)
def test_an_untied_head_that_is_absent_is_missing(tmp_path: Path, name: str) -> None:
    with pytest.raises(WeightsError, match="1 tensor is not") as caught:
        described(tmp_path, name, checkpoint(name), tie_word_embeddings=False)
    assert caught.value.details == ("missing: lm_head.weight 61 × 24",)


def test_tensors_alone_are_not_a_model(tmp_path: Path) -> None:
    tensors = {"a": TensorData("F32", (1,), bytes(4))}
    file = open_tensors(write_safetensors(tmp_path / "a.safetensors", tensors))
    with pytest.raises(ConfigError, match="does not say what model it is"):
        describe_file("a", file)


def write_tensors(folder: Path, architecture: str, arrays: Mapping[str, F32]) -> Path:
    tensors = {
        name: GgufTensor("f32", array.shape, array.tobytes()) for name, array in arrays.items()
    }
    return write_gguf(folder / "tiny.gguf", METADATA[architecture], tensors)


def test_a_gguf_s_missing_tensors_are_named_as_the_graph_names_them(tmp_path: Path) -> None:
    table = {"token_embd.weight": np.zeros((61, 24), np.float32)}
    path = write_tensors(tmp_path, "llama", {**table, "blk.0.odd.weight": np.zeros(3, np.float32)})
    with pytest.raises(WeightsError) as caught:
        describe_file("tiny", open_tensors(path))
    error = caught.value
    assert error.details[0] == "missing: model.layers.0.input_layernorm.weight 24"
    assert error.fact.startswith(f"{path}: ")
    assert error.advice is not None


def test_a_gguf_s_tensors_answer_to_their_own_names_alone(tmp_path: Path) -> None:
    table = np.zeros((61, 24), np.float32)
    path = write_tensors(
        tmp_path, "qwen2", {"token_embd.weight": table, "model.norm.weight": table[0]}
    )
    with pytest.raises(WeightsError) as caught:
        describe_file("tiny", open_tensors(path))
    # 7 layers of 12 tensors and the final norm are missing, and one is left over.
    assert caught.value.fact.endswith(": 86 tensors are not what the config asks for")
