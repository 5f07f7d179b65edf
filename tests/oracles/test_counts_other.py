"""Families that are counted before they run: parameters, names, products against transformers."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel
from transformers.models.auto.modeling_auto import MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING

import forwardpass as fp
from forwardpass.describe import describe_config
from forwardpass.graph.graph import Role
from forwardpass.work.count import count_pass
from forwardpass.work.passes import PassShape
from forwardpass.work.summary import count_model
from oracles.families import Case, judge
from oracles.loading import TOLERANCE, distance, loaded

Raw = dict[str, object]

_SIZES: Raw = {
    "vocab_size": 97,
    "hidden_size": 40,
    "intermediate_size": 56,
    "num_hidden_layers": 6,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 16,
    "max_position_embeddings": 128,
    "pad_token_id": 0,
}
_DELTA: Raw = {
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 6,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 12,
    "linear_conv_kernel_dim": 3,
}
_EXPERTS: Raw = {
    "num_experts": 5,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 24,
    "shared_expert_intermediate_size": 20,
}
_LLAMA4: Raw = {**_SIZES, "intermediate_size_mlp": 72, "num_local_experts": 3}
_GEMMA4: Raw = {**_SIZES, "global_head_dim": 24, "hidden_size_per_layer_input": 0}
_KINDS = ["sliding_attention", "full_attention"] * 3
_MIMO: Raw = {
    **_SIZES,
    "num_key_value_heads": 2,
    "v_head_dim": 10,
    "n_routed_experts": 6,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 24,
    "rope_parameters": {
        "full_attention": {"rope_theta": 500.0, "partial_rotary_factor": 0.5},
        "sliding_attention": {"rope_theta": 50.0, "partial_rotary_factor": 0.5},
    },
}
TEXTS: dict[str, tuple[str, Raw]] = {
    "qwen3_next": ("qwen3_next", {**_SIZES, **_DELTA, **_EXPERTS}),
    "qwen3_next-dense": ("qwen3_next", {**_SIZES, **_DELTA, **_EXPERTS, "num_experts": 0}),
    "qwen3_next-some": (
        "qwen3_next",
        {
            **_SIZES,
            **_DELTA,
            **_EXPERTS,
            "mlp_only_layers": [3],
            "decoder_sparse_step": 2,
            "full_attention_interval": 3,
            "attention_bias": True,
            "tie_word_embeddings": True,
        },
    ),
    "qwen3_5": ("qwen3_5_text", {**_SIZES, **_DELTA}),
    "qwen3_5-tied": (
        "qwen3_5_text",
        {
            **_SIZES,
            **_DELTA,
            "layer_types": ["full_attention", *["linear_attention"] * 5],
            "attention_bias": True,
            "tie_word_embeddings": True,
        },
    ),
    "qwen3_5_moe": ("qwen3_5_moe_text", {**_SIZES, **_DELTA, **_EXPERTS}),
    "qwen3_5_moe-grouped": (
        "qwen3_5_moe_text",
        {**_SIZES, **_DELTA, **_EXPERTS, "num_key_value_heads": 1, "linear_num_value_heads": 2},
    ),
    "llama4": ("llama4_text", _LLAMA4),
    "llama4-every-second": (
        "llama4_text",
        {**_LLAMA4, "interleave_moe_layer_step": 2, "use_qk_norm": False, "attention_bias": True},
    ),
    "llama4-listed": (
        "llama4_text",
        {
            **_LLAMA4,
            "moe_layers": [0, 4],
            "no_rope_layers": [1, 0, 0, 1, 1, 1],
            "attention_chunk_size": None,
            "num_experts_per_tok": 2,
            "tie_word_embeddings": True,
        },
    ),
    "gemma4": ("gemma4_text", _GEMMA4),
    "gemma4-experts": (
        "gemma4_text",
        {
            **_GEMMA4,
            "layer_types": _KINDS,
            "enable_moe_block": True,
            "num_experts": 5,
            "top_k_experts": 2,
            "moe_intermediate_size": 24,
            "attention_k_eq_v": True,
            "num_global_key_value_heads": 2,
            "final_logit_softcapping": 30.0,
        },
    ),
    "gemma4-shared": (
        "gemma4_text",
        {
            **_GEMMA4,
            "layer_types": _KINDS,
            "num_kv_shared_layers": 3,
            "use_double_wide_mlp": True,
            "hidden_size_per_layer_input": 6,
            "vocab_size_per_layer_input": 90,
            "attention_bias": True,
        },
    ),
    "gemma4-untied": (
        "gemma4_text",
        {
            **_GEMMA4,
            "num_hidden_layers": 7,
            "tie_word_embeddings": False,
            "attention_k_eq_v": True,
            "hidden_size_per_layer_input": 6,
        },
    ),
    "mimo": ("mimo_v2_flash", _MIMO),
    "mimo-hub": (
        "mimo_v2_flash",
        {
            **_MIMO,
            "hybrid_layer_pattern": [0, 1, 1, 1, 1, 0],
            "moe_layer_freq": [0, 1, 1, 1, 1, 1],
            "swa_num_key_value_heads": 4,
            "sliding_window": 8,
            "sliding_window_size": 8,
            "routed_scaling_factor": None,
            "scoring_func": "sigmoid",
        },
    ),
    "mimo-groups": (
        "mimo_v2_flash",
        {
            **_MIMO,
            "n_group": 3,
            "topk_group": 2,
            "mlp_layer_types": ["sparse", "dense", *["sparse"] * 4],
            "layer_types": _KINDS,
            "attention_bias": True,
            "tie_word_embeddings": True,
        },
    ),
}
FAMILIES = tuple(dict.fromkeys(model_type for model_type, _ in TEXTS.values()))
every_text = pytest.mark.parametrize("name", list(TEXTS))


def made(name: str, device: str) -> PreTrainedModel:
    model_type, raw = TEXTS[name]
    config = AutoConfig.for_model(model_type, **raw)
    config._experts_implementation = "eager"
    with torch.device(device):
        model = AutoModelForCausalLM.from_config(config, attn_implementation="eager")
    assert isinstance(model, PreTrainedModel)
    return model.eval()


def elements(model: torch.nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


@every_text
def test_parameters_are_those_of_transformers(name: str) -> None:
    model_type, raw = TEXTS[name]
    description = describe_config(name, {"model_type": model_type, **raw})
    model = made(name, "meta")
    assert count_model(description).parameters.unique == elements(model)
    stored = model.state_dict()
    if model.config.tie_word_embeddings:
        stored.pop("lm_head.weight")
    assert sum(w.elements for w in description.graph.weights.values()) == sum(
        tensor.numel() for tensor in stored.values()
    )


@every_text
def test_all_tables_but_those_of_experts_have_their_names_and_shapes(name: str) -> None:
    model_type, raw = TEXTS[name]
    graph = describe_config(name, {"model_type": model_type, **raw}).graph
    model = made(name, "meta")
    theirs = {key: tuple(tensor.shape) for key, tensor in model.state_dict().items()}
    if model.config.tie_word_embeddings:
        theirs.pop("lm_head.weight")
    theirs = {key.replace("attn.sinks", "attn.attention_sink_bias"): theirs[key] for key in theirs}
    ours = {name: weight.shape for name, weight in graph.weights.items()}
    assert without_experts(ours) == without_experts(theirs)
    assert by_layer(ours) == by_layer(theirs)


@every_text
def test_files_that_transformers_writes_hold_what_is_counted(name: str, tmp_path: Path) -> None:
    made(name, "cpu").save_pretrained(tmp_path)
    model_type, raw = TEXTS[name]
    plain = count_model(describe_config(name, {"model_type": model_type, **raw})).parameters
    found = fp.count(tmp_path).parameters
    assert (found.unique, found.active) == (plain.unique, plain.active)


def without_experts(shapes: Mapping[str, tuple[int, ...]]) -> dict[str, tuple[int, ...]]:
    return {name: shape for name, shape in shapes.items() if ".experts." not in name}


@pytest.mark.parametrize("family", FAMILIES)
def test_absent_keys_have_the_defaults_of_transformers(family: str) -> None:
    written = AutoConfig.for_model(family).to_dict()
    theirs = describe_config("test", written).config
    assert describe_config("test", {"model_type": family}).config == theirs


@pytest.mark.parametrize("family", [*FAMILIES, "qwen3_5", "qwen3_5_moe", "llama4", "gemma4"])
def test_a_config_that_transformers_writes_is_understood(family: str, tmp_path: Path) -> None:
    AutoConfig.for_model(family).save_pretrained(tmp_path)
    raw = json.loads((tmp_path / "config.json").read_text())
    assert describe_config("test", raw).config.accepted_unknown == ()


@every_text
def test_a_config_means_the_same_when_transformers_has_written_it(name: str) -> None:
    model_type, raw = TEXTS[name]
    again = AutoConfig.for_model(model_type, **raw).to_dict()
    first = describe_config("first", {"model_type": model_type, **raw}).graph
    second = describe_config("second", again).graph
    assert [(n.name, n.reach, n.output) for n in first.nodes] == [
        (n.name, n.reach, n.output) for n in second.nodes
    ]


def by_layer(shapes: Mapping[str, tuple[int, ...]]) -> dict[str, int]:
    """Elements of the experts' tables of each layer, which files cut in several ways."""
    found: dict[str, int] = {}
    for name, shape in shapes.items():
        if match := re.match(r"model\.layers\.(\d+)\..*\bexperts\.", name):
            found[match[1]] = found.get(match[1], 0) + torch.Size(shape).numel()
    return found


@pytest.mark.parametrize("name", [name for name in TEXTS if "qwen" not in name])
def test_products_of_one_token_are_those_that_torch_counts(name: str) -> None:
    # Delta layers are left out: for one token too, transformers computes a chunk of 64.
    model_type, raw = TEXTS[name]
    graph = describe_config(name, {"model_type": model_type, **raw}).graph
    ours = count_pass(graph, PassShape.decode(1), lambda weight: 4 * weight.elements, 4)
    model = made(name, "cpu")
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model(torch.tensor([[11]]), use_cache=False)
    counted = counter.get_total_flops()
    if model_type == "llama4_text":  # whose program gives every token to every expert
        sparse = {node.layer: node.sizes for node in graph.nodes if node.op.name == "expert_linear"}
        for sizes in sparse.values():
            x, k, i, o = (sizes[axis] for axis in ("x", "k", "i", "o"))
            assert isinstance(x, int)
            assert isinstance(k, int)
            assert isinstance(i, int)
            assert isinstance(o, int)
            counted -= (x - k) * 3 * 2 * i * o
    assert ours.total.flop == counted
    assert ours.by_role[Role.MIXER_SCAN].flop == 0


@pytest.mark.parametrize("name", [name for name in TEXTS if name.startswith("mimo")])
def test_a_mimo_computes_what_transformers_computes(name: str, tmp_path: Path) -> None:
    model_type, raw = TEXTS[name]
    window = "sliding_window_size" if "sliding_window_size" in raw else "sliding_window"
    judged = judge(Case(name, model_type, {**raw, "rms_norm_eps": 0.01, window: 8}), tmp_path)
    assert distance(loaded(tmp_path), judged) < TOLERANCE


_VISION: Raw = {"hidden_size": 24, "intermediate_size": 40, "patch_size": 4}
_HEADS: Raw = {"num_hidden_layers": 3, "num_attention_heads": 4}
OUTER: dict[str, tuple[str, str, Raw]] = {
    "gemma4": (
        "gemma4",
        "gemma4-experts",
        {**_VISION, **_HEADS, "num_key_value_heads": 2, "head_dim": 8, "standardize": True},
    ),
    "gemma4-places": (
        "gemma4",
        "gemma4-shared",
        {**_VISION, **_HEADS, "num_key_value_heads": 4, "position_embedding_size": 30},
    ),
    "qwen3_5": (
        "qwen3_5",
        "qwen3_5",
        {**_VISION, "depth": 3, "num_heads": 4, "out_hidden_size": 40},
    ),
    "qwen3_5_moe": (
        "qwen3_5_moe",
        "qwen3_5_moe",
        {
            **_VISION,
            "depth": 2,
            "num_heads": 4,
            "out_hidden_size": 40,
            "spatial_merge_size": 3,
            "temporal_patch_size": 1,
            "num_position_embeddings": 49,
        },
    ),
    "llama4": (
        "llama4",
        "llama4",
        {
            **_VISION,
            **_HEADS,
            "image_size": 20,
            "pixel_shuffle_ratio": 0.5,
            "projector_input_dim": 28,
            "projector_output_dim": 28,
            "vision_output_dim": 36,
        },
    ),
}


_AUDIO: Raw = {
    "num_hidden_layers": 2,
    "conv_kernel_size": 3,
    "subsampling_conv_channels": [16, 6],
    "output_proj_dims": 20,
}


@pytest.mark.parametrize("name", list(OUTER))
def test_towers_hold_what_transformers_gives_them(name: str, tmp_path: Path) -> None:
    outer, text, vision = OUTER[name]
    inner = TEXTS[text][1]
    config = AutoConfig.for_model(outer, text_config={**inner}, vision_config={**vision})
    with torch.device("meta"):
        model = MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING[type(config)](config)
    raw = {"model_type": outer, "text_config": inner, "vision_config": vision}
    description = describe_config(name, raw)
    assert description.tower is not None
    assert description.unique_parameters == elements(made(text, "meta"))
    assert description.unique_parameters + description.tower == elements(model)
    written = MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING[type(config)](config)
    written.save_pretrained(tmp_path)
    assert fp.count(tmp_path).parameters.unique == description.unique_parameters


@pytest.mark.parametrize(
    "audio", [{"hidden_size": 16}, {"hidden_size": 24, "num_attention_heads": 3, **_AUDIO}]
)
def test_a_tower_that_hears_is_counted_too(audio: Raw) -> None:
    outer, text, vision = OUTER["gemma4"]
    parts = {"text_config": TEXTS[text][1], "vision_config": vision}
    config = AutoConfig.for_model(outer, audio_config={**audio}, **parts)
    with torch.device("meta"):
        model = MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING[type(config)](config)
    description = describe_config("hears", {"model_type": outer, "audio_config": audio, **parts})
    assert description.tower is not None
    assert description.unique_parameters + description.tower == elements(model)


def test_what_no_rule_counts_is_not_guessed() -> None:
    outer, text, vision = OUTER["llama4"]
    raw = {"model_type": outer, "text_config": TEXTS[text][1], "vision_config": vision}
    assert describe_config("sees", raw).tower is not None
    unknown: tuple[Raw, ...] = (
        {"vision_config": {"hidden_size": "wide"}},
        {"vision_config": {"patch_size": [2, 2]}},
    )
    for changes in unknown:
        assert describe_config("unknown", {**raw, **changes}).tower is None
