"""Null for every key that a family knows: a load, or an error raised on purpose."""

from __future__ import annotations

from contextlib import suppress

import pytest

from forwardpass.architectures import family, model_types
from forwardpass.config import read_config
from forwardpass.errors import ConfigError


@pytest.mark.parametrize("name", model_types())
def test_null_is_understood_or_refused(name: str) -> None:
    spec = family(name).spec
    for key in sorted(spec.known | set(spec.spellings) | set(spec.defaults)):
        with suppress(ConfigError):
            read_config({"num_hidden_layers": 4, key: None, "model_type": name}, spec)


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("deepseek_v32", "first_k_dense_replace"),
        ("llama4_text", "interleave_moe_layer_step"),
        ("qwen3_next", "linear_num_key_heads"),
        ("gemma4_text", "enable_moe_block"),
        ("mimo_v2_flash", "n_routed_experts"),
    ],
)
def test_null_for_what_a_family_needs_is_refused_by_name(name: str, key: str) -> None:
    with pytest.raises(ConfigError) as error:
        read_config({"model_type": name, key: None}, family(name).spec, "a/config.json")
    assert str(error.value) == f"a/config.json: {key} is null, where this family needs a value"
