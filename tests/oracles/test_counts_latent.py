"""Latent attention, indexers and steered routers, counted, against transformers' own classes.

Each tiny model is saved and described from its files: every tensor's name and shape must be what
the graph asks for, none missing and none left over.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForImageTextToText,
    PreTrainedModel,
)

from forwardpass.computing import Computing
from forwardpass.config import ModelConfig
from forwardpass.describe import describe_config
from forwardpass.errors import RequestError, WeightsError
from forwardpass.graph.graph import State
from forwardpass.work.summary import count_model
from oracles.families import Judged
from oracles.latent_like import LATENT_LIKE
from oracles.loading import TOLERANCE, described, distance, loaded

Judge = Callable[[str], Judged]
Raw = dict[str, object]
_LATENT = LATENT_LIKE["deepseek_v3"][1]
_INDEXED: Raw = {
    **_LATENT,
    "index_n_heads": 3,
    "index_head_dim": 10,
    "index_topk": 8,
    "rope_parameters": {"rope_type": "default", "rope_theta": 50.0},
}
_GLM: Raw = {**_INDEXED, "num_hidden_layers": 6}
CASES: dict[str, tuple[str, Raw]] = {
    **LATENT_LIKE,
    "deepseek_v32": ("deepseek_v32", {**_INDEXED}),
    "deepseek_v32-other": (
        "deepseek_v32",
        {
            **_INDEXED,
            "mlp_layer_types": ["sparse", "dense", "sparse"],
            "n_group": 1,
            "topk_group": 1,
            "n_shared_experts": 2,
            "attention_bias": True,
            "tie_word_embeddings": True,
        },
    ),
    "glm_moe_dsa": ("glm_moe_dsa", {**_GLM, "index_topk_freq": 3, "index_skip_topk_offset": 2}),
    "glm_moe_dsa-pattern": ("glm_moe_dsa", {**_GLM, "index_topk_pattern": "FSSFFS"}),
    "glm_moe_dsa-listed": (
        "glm_moe_dsa",
        {**_GLM, "indexer_types": ["full", "shared"] * 3, "tie_word_embeddings": True},
    ),
}
_INDEXERS = {
    "deepseek_v32": 3,
    "deepseek_v32-other": 3,
    "glm_moe_dsa": 3,
    "glm_moe_dsa-pattern": 3,
    "glm_moe_dsa-listed": 3,
}
every_case = pytest.mark.parametrize("name", list(CASES))


def model_of(name: str) -> PreTrainedModel:
    model_type, config = CASES[name]
    made = AutoModelForCausalLM.from_config(AutoConfig.for_model(model_type, **config))
    assert isinstance(made, PreTrainedModel)
    return made.eval()


def share(model: PreTrainedModel, name: str, parameter: torch.nn.Parameter) -> float:
    """Of a table of all experts the share that a token reads; 1 for all others."""
    routed = ".experts." in name
    return model.config.num_experts_per_tok / parameter.shape[0] if routed else 1.0


@every_case
def test_a_saved_model_has_every_tensor_that_its_graph_asks_for(name: str, tmp_path: Path) -> None:
    model = model_of(name)
    model.save_pretrained(tmp_path)
    found = described(tmp_path, compare_tied=False)
    sizes = {n: p.numel() for n, p in model.named_parameters()}
    assert found.unique_parameters == sum(sizes.values())
    counted = count_model(found).parameters
    active = sum(round(share(model, n, p) * p.numel()) for n, p in model.named_parameters())
    assert counted.active == active
    tied = model.config.tie_word_embeddings
    idle = 0 if tied else model.get_input_embeddings().weight.numel()
    assert counted.active_without_embedding == (active - idle if idle else None)
    buffers = sum(b.numel() for n, b in model.named_buffers() if n.endswith("correction_bias"))
    assert counted.with_buffers == (sum(sizes.values()) + buffers if buffers else None)


@every_case
def test_a_config_alone_counts_as_its_model_does(name: str) -> None:
    model_type, config = CASES[name]
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(AutoConfig.for_model(model_type, **config))
    found = describe_config(name, {"model_type": model_type, **config})
    assert found.unique_parameters == sum(p.numel() for p in model.parameters())
    written = describe_config(name, model.config.to_dict())
    assert _told(written.config) == _told(found.config)


def _told(config: ModelConfig) -> Raw:
    """What a config tells, however: its class writes what of a head turns as a share."""
    ropes = {
        kind: replace(rope, partial_rotary_factor=1)
        for kind, rope in config.rope_parameters.items()
    }
    share = config.rope(0).partial_rotary_factor
    turned = config.rotary_dim or int(share * config.head_dim)
    return {**vars(config), "dtype": "", "rope_parameters": ropes, "rotary_dim": turned}


# Without these their classes make no model that could run.
_NEEDED: dict[str, Raw] = {
    "deepseek_v2": {"num_experts_per_tok": 6},
    "glm4_moe": {"head_dim": 128},
}


@pytest.mark.parametrize("family", sorted({kind for kind, _ in CASES.values()}))
def test_absent_keys_have_the_defaults_of_transformers(family: str) -> None:
    needed = _NEEDED.get(family, {})
    written = AutoConfig.for_model(family, **needed).to_dict()
    absent = describe_config("absent", {"model_type": family, **needed}).config
    stated = describe_config("written", written).config
    assert absent == stated


@pytest.mark.parametrize("name", list(_INDEXERS))
def test_an_indexer_keeps_a_key_and_bounds_what_attention_reads(name: str) -> None:
    model_type, config = CASES[name]
    found = describe_config(name, {"model_type": model_type, **config})
    kept: dict[int, list[State]] = {}
    for state in found.graph.states:
        kept.setdefault(state.layer, []).append(state)
    latent = [state for states in kept.values() for state in states if state.kind == "latent"]
    assert {state.elements_per_token for state in latent} == {16 + 6, 0}
    indexed = [state for states in kept.values() for state in states if "indexer" in state.name]
    assert len(indexed) == _INDEXERS[name]
    assert {state.elements_per_token for state in indexed} == {10}
    window = count_model(found).windows
    layers = found.config.num_hidden_layers
    assert [(w.tokens, w.layers, w.kv_bytes_per_token) for w in window] == [(8, layers, 0)]


def test_what_is_only_counted_is_refused_where_it_is_to_run(tmp_path: Path) -> None:
    model_of("glm_moe_dsa").save_pretrained(tmp_path)
    with pytest.raises(RequestError, match="no backend computes select_tokens, selected_attention"):
        Computing().backend_for(described(tmp_path, compare_tied=False), "tiny")


def test_kimi_k2_is_deepseek_v3_under_another_name(judged: Judge, tmp_path: Path) -> None:
    case = judged("deepseek_v3")
    raw = json.loads((case.folder / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**raw, "model_type": "kimi_k2"}))
    (tmp_path / "model.safetensors").write_bytes((case.folder / "model.safetensors").read_bytes())
    assert described(tmp_path).family.model_type == "kimi_k2"
    assert distance(loaded(tmp_path), case) <= TOLERANCE


@pytest.mark.parametrize("name", ["deepseek_v3", "glm4_moe"])
def test_layers_that_predict_further_tokens_are_kept_apart(
    judged: Judge, name: str, tmp_path: Path
) -> None:
    """As published files hold them: behind the last layer, with embedding and head again."""
    case = judged(name)
    raw = json.loads((case.folder / "config.json").read_text())
    tensors = load_file(case.folder / "model.safetensors")
    layers, d, v = raw["num_hidden_layers"], raw["hidden_size"], raw["vocab_size"]
    last, further = f"model.layers.{layers - 1}.", f"model.layers.{layers}."
    more = {n.replace(last, further): t.clone() for n, t in tensors.items() if n.startswith(last)}
    for norm in ("enorm", "hnorm", "shared_head.norm"):
        more[f"{further}{norm}.weight"] = torch.zeros(d)
    more[f"{further}eh_proj.weight"] = torch.zeros(d, 2 * d)
    for table in ("embed_tokens", "shared_head.head"):
        more[f"{further}{table}.weight"] = torch.zeros(v, d)
    save_file({**tensors, **more}, tmp_path / "model.safetensors", metadata={"format": "pt"})
    stated = {**raw, "num_nextn_predict_layers": 1}
    (tmp_path / "config.json").write_text(json.dumps(stated))
    found = described(tmp_path)
    assert count_model(found).parameters.with_prediction_layers == found.stored_parameters
    assert found.weights is not None
    assert sum(tensor.elements for tensor in found.weights.not_run) == sum(
        tensor.numel() for tensor in more.values()
    )
    assert distance(loaded(tmp_path), case) <= TOLERANCE
    (tmp_path / "config.json").write_text(json.dumps({**raw, "num_nextn_predict_layers": 0}))
    with pytest.raises(WeightsError, match="left over"):
        described(tmp_path)


KIMI: Raw = {
    "text_config": {**_LATENT, "model_type": "deepseek_v3"},
    "vision_config": {
        "hidden_size": 24,
        "intermediate_size": 40,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "patch_size": 3,
        "pos_emb_height": 5,
        "pos_emb_width": 5,
        "merge_kernel_size": [2, 3],
    },
    "projection_hidden_size": 24,
    "tie_word_embeddings": False,
}


def test_a_tower_is_counted_from_its_config_and_kept_apart(tmp_path: Path) -> None:
    model = AutoModelForImageTextToText.from_config(AutoConfig.for_model("kimi_k25", **KIMI))
    found = describe_config("kimi", {"model_type": "kimi_k25", **KIMI})
    whole = sum(p.numel() for p in model.parameters())
    assert count_model(found).parameters.with_towers == whole
    model.save_pretrained(tmp_path)
    # The class writes the tower's name of a layer for the text's, too; the published files do not.
    path = tmp_path / "model.safetensors"
    text, theirs = "language_model.model.layers.", "language_model.model.blocks."
    tensors = {name.replace(theirs, text): tensor for name, tensor in load_file(path).items()}
    save_file(tensors, path, metadata={"format": "pt"})
    saved = described(tmp_path)
    assert saved.weights is not None
    apart = sum(tensor.elements for tensor in saved.weights.not_run)
    assert saved.unique_parameters + apart == whole
    vision = KIMI["vision_config"]
    assert isinstance(vision, dict)
    older = {
        **{
            f"vt_{key}": value for key, value in vision.items() if key.endswith(("_size", "layers"))
        },
        **{f"init_{key}": value for key, value in vision.items() if key.startswith("pos_emb")},
        "patch_size": 3,
        "merge_kernel_size": [2, 3],
    }
    again = describe_config("kimi", {"model_type": "kimi_k25", **KIMI, "vision_config": older})
    assert again.tower == found.tower
