"""Models with recurrent layers, counted, against transformers' own classes: tables, states, names.

Each tiny model is saved and described from its files: every tensor's name and shape must be what
the graph asks for, none missing and none left over.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

from forwardpass.describe import describe_config
from forwardpass.graph.graph import KV, RECURRENT
from forwardpass.work.summary import count_model
from oracles.loading import described

Raw = dict[str, object]
_PLAIN: Raw = {"vocab_size": 97, "hidden_size": 32, "num_hidden_layers": 2}
_SIZES: Raw = {
    **_PLAIN,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 64,
}
_JAMBA: Raw = {**_SIZES, "num_hidden_layers": 6, "num_experts": 4, "num_experts_per_tok": 2}
_JAMBA_PERIODS: Raw = {"attn_layer_period": 3, "attn_layer_offset": 1, "mamba_dt_rank": 5}
_SCAN: Raw = {"mamba_n_heads": 8, "mamba_d_state": 16, "mamba_n_groups": 2}
_TYPES: Raw = {"layer_types": ["mamba", "attention", "mamba", "mamba"]}
_GRANITE: Raw = {
    **_SIZES,
    **_SCAN,
    **_TYPES,
    "num_local_experts": 6,
    "num_experts_per_tok": 3,
    "shared_intermediate_size": 48,
    "pad_token_id": 0,
}
_NEMOTRON: Raw = {
    **{key: value for key, value in _SIZES.items() if key != "num_hidden_layers"},
    "head_dim": 16,
    "mamba_num_heads": 6,
    "mamba_head_dim": 8,
    "n_groups": 3,
    "ssm_state_size": 16,
    "n_routed_experts": 8,
    "num_experts_per_tok": 3,
    "moe_intermediate_size": 24,
    "moe_shared_expert_intermediate_size": 40,
}
_LFM2_MOE: Raw = {
    **_SIZES,
    "layer_types": ["conv", "full_attention", "conv", "conv"],
    "moe_intermediate_size": 16,
    "num_experts": 6,
    "num_experts_per_tok": 2,
    "num_dense_layers": 1,
}

CASES: dict[str, tuple[str, Raw]] = {
    "mamba": ("mamba", {**_PLAIN}),
    "mamba-other": (
        "mamba",
        {
            **_PLAIN,
            "state_size": 5,
            "conv_kernel": 3,
            "expand": 3,
            "time_step_rank": 7,
            "use_bias": True,
            "use_conv_bias": False,
            "tie_word_embeddings": False,
        },
    ),
    "mamba-width": ("mamba", {**_PLAIN, "expand": 16, "intermediate_size": 72}),
    "falcon_mamba": ("falcon_mamba", {**_PLAIN}),
    "falcon_mamba-other": (
        "falcon_mamba",
        {**_PLAIN, "use_bias": True, "tie_word_embeddings": False, "intermediate_size": 40},
    ),
    "mamba2": ("mamba2", {**_PLAIN, "num_heads": 8, "head_dim": 8, "n_groups": 4}),
    "mamba2-other": (
        "mamba2",
        {
            **_PLAIN,
            "num_heads": 6,
            "head_dim": 16,
            "expand": 3,
            "n_groups": 2,
            "state_size": 12,
            "use_bias": True,
            "use_conv_bias": False,
            "tie_word_embeddings": True,
        },
    ),
    "jamba": ("jamba", {**_JAMBA, **_JAMBA_PERIODS}),
    "jamba-dense": ("jamba", {**_JAMBA, **_JAMBA_PERIODS, "num_experts": 1}),
    "jamba-other": (
        "jamba",
        {
            **_JAMBA,
            "expert_layer_period": 3,
            "expert_layer_offset": 2,
            "mamba_expand": 3,
            "mamba_d_state": 5,
            "mamba_d_conv": 3,
            "mamba_conv_bias": False,
            "mamba_proj_bias": True,
            "num_key_value_heads": 1,
            "tie_word_embeddings": True,
        },
    ),
    "bamba": ("bamba", {**_SIZES, **_SCAN, "attn_layer_indices": [0, 2]}),
    "bamba-other": (
        "bamba",
        {
            **_SIZES,
            **_SCAN,
            "attn_layer_indices": [3],
            "mamba_expand": 3,
            "mamba_d_head": 12,
            "mamba_conv_bias": False,
            "mamba_proj_bias": True,
            "attention_bias": True,
            "mlp_bias": True,
            "tie_word_embeddings": True,
        },
    ),
    "granitemoehybrid": ("granitemoehybrid", {**_GRANITE}),
    "granitemoehybrid-dense": (
        "granitemoehybrid",
        {**_GRANITE, "num_local_experts": 0, "num_experts_per_tok": 0, "tie_word_embeddings": True},
    ),
    "granitemoehybrid-rope": (
        "granitemoehybrid",
        {
            **_GRANITE,
            "position_embedding_type": "rope",
            "layer_types": ["attention"] * 4,
            "attention_bias": True,
        },
    ),
    "granitemoehybrid-scans": (
        "granitemoehybrid",
        {**_GRANITE, "layer_types": None, "mamba_proj_bias": True, "mamba_conv_bias": False},
    ),
    "nemotron_h": ("nemotron_h", {**_NEMOTRON, "hybrid_override_pattern": "ME*-M"}),
    "nemotron_h-latent": (
        "nemotron_h",
        {
            **_NEMOTRON,
            "layers_block_type": ["mamba", "moe", "attention", "moe"],
            "moe_latent_size": 20,
            "mlp_bias": True,
            "n_group": 2,
            "topk_group": 1,
            "routed_scaling_factor": 2.5,
        },
    ),
    "nemotron_h-dense": (
        "nemotron_h",
        {
            **_NEMOTRON,
            "hybrid_override_pattern": "M-M*-",
            "use_bias": True,
            "use_conv_bias": False,
            "conv_kernel": 3,
        },
    ),
    "lfm2": ("lfm2", {**_SIZES, "full_attn_idxs": [1, 3], "block_multiple_of": 8}),
    "lfm2-other": (
        "lfm2",
        {
            **_SIZES,
            "layer_types": ["conv", "full_attention", "conv", "conv"],
            "conv_bias": True,
            "conv_L_cache": 5,
            "block_ffn_dim_multiplier": 1.3,
            "block_multiple_of": 16,
            "intermediate_size": 100,
            "tie_word_embeddings": False,
        },
    ),
    "lfm2-plain": ("lfm2", {**_SIZES, "block_auto_adjust_ff_dim": False}),
    "lfm2_moe": ("lfm2_moe", {**_LFM2_MOE}),
    "lfm2_moe-other": (
        "lfm2_moe",
        {
            **_LFM2_MOE,
            "num_dense_layers": 0,
            "use_expert_bias": False,
            "norm_topk_prob": False,
            "conv_bias": True,
            "tie_word_embeddings": False,
        },
    ),
}
# transformers asks the cache of this family for the length that only attention's has.
_NOT_KEPT = ("granitemoehybrid-scans",)
every_case = pytest.mark.parametrize("name", list(CASES))
every_family = pytest.mark.parametrize("family", sorted({kind for kind, _ in CASES.values()}))


def model_of(name: str) -> PreTrainedModel:
    model_type, config = CASES[name]
    made = AutoModelForCausalLM.from_config(AutoConfig.for_model(model_type, **config))
    assert isinstance(made, PreTrainedModel)
    return made.eval()


def share(model: PreTrainedModel, name: str) -> float:
    """Of a table of all experts the share that a token reads; 1 for all others."""
    if ".experts." not in name:
        return 1.0
    experts = next(p.shape[0] for n, p in model.named_parameters() if n == name)
    return float(model.config.num_experts_per_tok / experts)


@every_case
def test_a_saved_model_has_every_tensor_that_its_graph_asks_for(name: str, tmp_path: Path) -> None:
    model = model_of(name)
    model.save_pretrained(tmp_path)
    found = described(tmp_path, compare_tied=False)
    sizes = {n: p.numel() for n, p in model.named_parameters()}
    assert found.unique_parameters == sum(sizes.values())
    active = sum(round(share(model, n) * size) for n, size in sizes.items())
    assert count_model(found).parameters.active == active
    buffers = sum(b.numel() for n, b in model.named_buffers() if n.endswith("bias"))
    assert sum(w.elements for w in found.graph.weights.values()) == sum(sizes.values()) + buffers


@every_case
def test_a_config_alone_counts_as_its_model_does(name: str) -> None:
    model_type, config = CASES[name]
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(AutoConfig.for_model(model_type, **config))
    found = describe_config(name, {"model_type": model_type, **config})
    assert found.unique_parameters == sum(p.numel() for p in model.parameters())


@every_family
def test_absent_keys_have_the_defaults_of_transformers(family: str) -> None:
    written = AutoConfig.for_model(family).to_dict()
    if family == "lfm2_moe":  # which has no layers without a list of them
        written["layer_types"] = ["conv"] * 32
    raw = {key: written[key] for key in ("layer_types",) if family == "lfm2_moe"}
    assert describe_config("absent", {"model_type": family, **raw}).config == (
        describe_config("written", written).config
    )


@pytest.mark.parametrize("name", [name for name in CASES if name not in _NOT_KEPT])
@pytest.mark.parametrize("tokens", [5, 12])
def test_states_have_the_sizes_of_those_that_transformers_keeps(name: str, tokens: int) -> None:
    """It keeps as many inputs of a convolution as there are taps; the last taps − 1 are needed."""
    model_type, config = CASES[name]
    model = model_of(name)
    with torch.no_grad():
        out = model(torch.arange(tokens)[None], use_cache=True)
    kept = out["cache"] if "cache" in out else out["past_key_values"]
    theirs: dict[tuple[int, str], int] = {}
    for i, layer in enumerate(kept.layers):
        for kind, tensors in _kept(vars(layer)).items():
            theirs[i, kind] = sum(tensor.numel() for tensor in tensors)
    graph = describe_config(name, {"model_type": model_type, **config}).graph
    ours: dict[tuple[int, str], int] = {}
    for state in graph.states:
        assert state.kind in (KV, RECURRENT)
        elements = state.elements_per_token * tokens + state.elements_per_sequence
        kind = "scan" if state.name.endswith(".scan") else state.kind
        if state.name.endswith(".inputs"):
            kind, elements = "conv", elements // state.shape[1] * (state.shape[1] + 1)
        ours[state.layer, kind] = ours.get((state.layer, kind), 0) + elements
    assert ours == theirs


def _kept(layer: Mapping[str, object]) -> dict[str, list[torch.Tensor]]:
    """What one layer of transformers' cache holds, by kind; nothing for layers without a state."""
    both = [layer.get("keys"), layer.get("values")]
    found = {
        KV: [tensor for tensor in both if isinstance(tensor, torch.Tensor)],
        "conv": _tensors(layer.get("conv_states")),
        "scan": _tensors(layer.get("recurrent_states")),
    }
    return {kind: tensors for kind, tensors in found.items() if tensors}


def _tensors(states: object) -> list[torch.Tensor]:
    numbered = states.values() if isinstance(states, dict) else ()
    return [tensor for tensor in numbered if isinstance(tensor, torch.Tensor)]
