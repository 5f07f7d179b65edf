"""Parameters of mixtures of experts against transformers' classes, built without memory."""

from __future__ import annotations

from fractions import Fraction

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from forwardpass.describe import describe_config
from forwardpass.work.summary import count_model

_SMALL: dict[str, object] = {
    "vocab_size": 1_000,
    "hidden_size": 96,
    "intermediate_size": 200,
    "num_hidden_layers": 5,
    "num_attention_heads": 6,
    "num_key_value_heads": 3,
}
_QWEN: dict[str, object] = {
    **_SMALL,
    "num_experts": 12,
    "num_experts_per_tok": 3,
    "moe_intermediate_size": 40,
}

# Of real models, and with every switch that a family has the other way.
CONFIGS: dict[str, dict[str, object]] = {
    "mixtral-8x22b": {
        "model_type": "mixtral",
        "hidden_size": 6_144,
        "intermediate_size": 16_384,
        "num_hidden_layers": 56,
        "num_attention_heads": 48,
        "num_key_value_heads": 8,
        "vocab_size": 32_768,
    },
    "mixtral-defaults": {"model_type": "mixtral"},
    "mixtral-tied": {
        **_SMALL,
        "model_type": "mixtral",
        "head_dim": 20,
        "num_local_experts": 3,
        "num_experts_per_tok": 3,
        "tie_word_embeddings": True,
    },
    "mixtral-called-otherwise": {**_SMALL, "model_type": "mixtral", "num_experts": 5},
    "qwen2-57b-a14b": {
        "model_type": "qwen2_moe",
        "hidden_size": 3_584,
        "intermediate_size": 18_944,
        "num_hidden_layers": 28,
        "num_attention_heads": 28,
        "num_key_value_heads": 4,
        "moe_intermediate_size": 2_560,
        "shared_expert_intermediate_size": 20_480,
        "num_experts": 64,
        "num_experts_per_tok": 8,
    },
    "qwen2_moe-defaults": {"model_type": "qwen2_moe"},
    "qwen2_moe-sparse": {
        **_QWEN,
        "model_type": "qwen2_moe",
        "decoder_sparse_step": 2,
        "mlp_only_layers": [1],
        "shared_expert_intermediate_size": 72,
        "qkv_bias": False,
        "tie_word_embeddings": True,
        "use_sliding_window": True,
        "sliding_window": 16,
        "max_window_layers": 3,
    },
    "qwen2_moe-dense": {**_QWEN, "model_type": "qwen2_moe", "mlp_only_layers": [0, 1, 2, 3, 4]},
    "qwen3-235b-a22b": {
        "model_type": "qwen3_moe",
        "hidden_size": 4_096,
        "intermediate_size": 12_288,
        "num_hidden_layers": 94,
        "num_attention_heads": 64,
        "num_key_value_heads": 4,
        "head_dim": 128,
        "moe_intermediate_size": 1_536,
        "norm_topk_prob": True,
    },
    "qwen3-coder-480b-a35b": {
        "model_type": "qwen3_moe",
        "hidden_size": 6_144,
        "num_hidden_layers": 62,
        "num_attention_heads": 96,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "moe_intermediate_size": 2_560,
        "num_experts": 160,
    },
    "qwen3_moe-defaults": {"model_type": "qwen3_moe"},
    "qwen3_moe-biased": {
        **_QWEN,
        "model_type": "qwen3_moe",
        "attention_bias": True,
        "decoder_sparse_step": 3,
        "tie_word_embeddings": True,
        "use_sliding_window": True,
        "sliding_window": 16,
    },
    "qwen3_moe-called-otherwise": {
        **{key: value for key, value in _QWEN.items() if key != "num_experts"},
        "model_type": "qwen3_moe",
        "num_local_experts": 7,
        "mlp_only_layers": None,
    },
    "olmoe-defaults": {"model_type": "olmoe"},
    "olmoe-grouped": {
        **_SMALL,
        "model_type": "olmoe",
        "num_experts": 9,
        "num_experts_per_tok": 2,
        "norm_topk_prob": True,
        "attention_bias": True,
        "tie_word_embeddings": True,
    },
    "gpt-oss-120b": {"model_type": "gpt_oss"},
    "gpt_oss-unbiased": {
        **_SMALL,
        "model_type": "gpt_oss",
        "head_dim": 24,
        "num_local_experts": 10,
        "num_experts_per_tok": 4,
        "attention_bias": False,
        "tie_word_embeddings": True,
        "swiglu_alpha": 1.5,
    },
    "gpt_oss-one-kind": {
        **_SMALL,
        "model_type": "gpt_oss",
        "num_experts": 6,
        "layer_types": ["full_attention"] * 5,
        "sliding_window": None,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10_000.0},
    },
}


@pytest.mark.parametrize("name", list(CONFIGS))
def test_parameters_and_those_of_a_token_are_those_of_transformers(name: str) -> None:
    raw = CONFIGS[name]
    given = {key: value for key, value in raw.items() if key != "model_type"}
    config = AutoConfig.for_model(raw["model_type"], **given)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    experts = next(
        getattr(config, key) for key in ("num_experts", "num_local_experts") if hasattr(config, key)
    )
    unique, active = 0, Fraction(0)
    for parameter, weight in model.named_parameters():
        unique += weight.numel()
        chosen = ".experts." in parameter
        share = Fraction(config.num_experts_per_tok, experts) if chosen else Fraction(1)
        active += weight.numel() * share
    for spelled in (raw, config.to_dict()):
        found = count_model(describe_config(name, spelled)).parameters
        assert found.unique == unique
        assert found.active == int(active)
