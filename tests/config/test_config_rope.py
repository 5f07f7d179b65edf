"""Rotary parameters in configs: every spelling, and what cannot be honoured."""

from __future__ import annotations

import math

import pytest

from backends.tiny import CONFIGS
from config.asking import config, refusal
from forwardpass.rope import FULL, SLIDING, Rope

Raw = dict[str, object]
LINEAR: Raw = {"rope_type": "linear", "factor": 4.0}
LLAMA3 = CONFIGS["llama-scaled"]["rope_scaling"]
assert isinstance(LLAMA3, dict)


@pytest.mark.parametrize("spelling", ["rope_scaling", "rope_parameters"])
def test_what_the_default_rope_does_not_read_is_neutral(spelling: str) -> None:
    unread: Raw = {"rope_type": "default", "original_max_position_embeddings": 8_192, "factor": 1.0}
    assert config("llama", **{spelling: unread}) == config("llama")
    wrong: tuple[Raw, ...] = (
        {"factor": 2.0},
        {"factor": True},
        {"original_max_position_embeddings": "8192"},
        {"original_max_position_embeddings": -1},
        {"low_freq_factor": 1.0},
    )
    for change in wrong:
        assert next(iter(change)) in str(refusal("llama", **{spelling: {**unread, **change}}))


def test_only_a_whole_rotary_factor_is_neutral() -> None:
    assert config("llama", partial_rotary_factor=1.0) == config("llama")
    assert "partial_rotary_factor = 0.5" in str(refusal("llama", partial_rotary_factor=0.5))


@pytest.mark.parametrize(
    ("name", "changes", "reason"),
    [
        ("llama", {"rope_scaling": {"type": "longrope", "factor": 2.0}}, '"longrope"'),
        ("llama", {"rope_scaling": {"rope_type": 3}}, "rope_type = 3"),
        ("llama", {"rope_scaling": {"rope_type": "linear"}}, "has no factor"),
        ("llama", {"rope_scaling": {**LINEAR, "factor": None}}, "has no factor"),
        ("llama", {"rope_scaling": {**LINEAR, "factor": True}}, "factor = true"),
        ("llama", {"rope_scaling": {**LINEAR, "factor": -1}}, "factor = -1"),
        ("llama", {"rope_scaling": {**LINEAR, "factor": math.nan}}, "factor = NaN"),
        ("llama", {"rope_scaling": {**LINEAR, "beta_fast": 32}}, "means nothing"),
        ("llama", {"rope_scaling": {**LINEAR, "type": "default"}}, "beside rope_type"),
        ("llama", {"rope_scaling": {**LLAMA3, "low_freq_factor": 4.5}}, "is below"),
        ("llama", {"rope_scaling": {**LLAMA3, "original_max_position_embeddings": "8"}}, "wanted"),
        ("llama", {"rope_scaling": LINEAR, "rope_parameters": {"rope_type": "default"}}, "beside"),
        ("llama", {"rope_theta": 0.5}, "from 1"),
        ("llama", {"rope_theta": 5.0, "rope_parameters": {"rope_theta": 6.0}}, "contradicts 6.0"),
        ("llama", {"rope_parameters": {FULL: {}, "rope_theta": 5.0}}, "for each layer type"),
        ("qwen2", {"rope_parameters": {FULL: {}, "slidng": {}}}, "for each layer type"),
        ("gemma3", {"rope_parameters": {FULL: 3}}, "for each layer type"),
        ("gemma3", {"rope_parameters": {"rope_theta": 5.0}}, "by layer type"),
        ("gemma3", {"rope_parameters": {SLIDING: {"rope_type": "su"}}}, f"{SLIDING}.rope_type"),
    ],
)
def test_a_rope_that_cannot_be_honoured_is_refused_with_its_reason(
    name: str, changes: Raw, reason: str
) -> None:
    error = refusal(name, **changes)
    assert reason in str(error)
    assert len(error.details) == 1


def test_a_rope_is_read_from_every_spelling() -> None:
    linear = Rope(500.0, "linear", 4.0)
    spellings: tuple[Raw, ...] = (
        {"rope_theta": 500, "rope_scaling": {"type": "linear", "factor": 4}},
        {"rope_theta": 500.0, "rope_scaling": LINEAR},
        {"rope_parameters": {**LINEAR, "rope_theta": 500.0, "partial_rotary_factor": 1.0}},
        {"rope_parameters": {FULL: {**LINEAR, "rope_theta": 500.0}}},
        {"rope_theta": 500.0, "rope_parameters": {FULL: LINEAR}},
    )
    for changes in spellings:
        assert config("llama", **changes).rope_parameters == {FULL: linear}


def test_sliding_layers_of_gemma_have_a_base_of_their_own_and_are_never_rescaled() -> None:
    expected = {FULL: Rope(5e5, "linear", 4.0), SLIDING: Rope(200.0)}
    older: Raw = {"rope_theta": 5e5, "rope_local_base_freq": 200, "rope_scaling": LINEAR}
    newer: Raw = {
        "rope_parameters": {FULL: {**LINEAR, "rope_theta": 5e5}, SLIDING: {"rope_theta": 200.0}}
    }
    assert config("gemma3", **older).rope_parameters == expected
    assert config("gemma3", **newer).rope_parameters == expected
    assert config("gemma3").rope_parameters == {FULL: Rope(1e6), SLIDING: Rope(1e4)}
