"""What a model's own file says about sampling is honoured or refused by name."""

from __future__ import annotations

import struct

import pytest

from forwardpass.errors import ConfigError
from forwardpass.sampling.model_file import WAY_OUT, read_model_file
from forwardpass.sampling.settings import Setting, resolve

GGUF = "general.sampling."


def float32(x: float) -> float:
    return float(struct.unpack("<f", struct.pack("<f", x))[0])


@pytest.mark.parametrize(
    ("config", "temperature"),
    [
        ({}, None),
        ({"_from_model_config": True, "bos_token_id": 1, "eos_token_id": [2, 3]}, None),
        ({"do_sample": False}, 0.0),
        ({"do_sample": False, "temperature": 0.6}, 0.0),
        ({"do_sample": True}, 1.0),
        ({"do_sample": True, "temperature": 0.6}, 0.6),
        ({"do_sample": True, "temperature": None}, 1.0),
        ({"do_sample": None, "temperature": 0.7}, 0.7),
        ({"temperature": 0.7}, 0.7),
        ({"top_p": 0.9}, None),
    ],
)
def test_do_sample_decides_whether_a_generation_config_is_greedy(
    config: dict[str, object], temperature: float | None
) -> None:
    assert read_model_file(config).get("temperature") == temperature


def test_a_request_with_a_temperature_samples_though_the_file_says_do_not() -> None:
    config = {"do_sample": False, "temperature": 0.6, "top_p": 0.9}
    assert resolve({}, config).temperature == Setting(0.0, "model file")
    settings = resolve({"temperature": 1}, config)
    assert settings.temperature == Setting(1.0, "request")
    assert settings.top_p == Setting(0.9, "model file")


def test_every_sampling_value_of_a_generation_config_is_taken() -> None:
    config = {
        "do_sample": True,
        "temperature": 1,
        "top_k": 64,
        "top_p": 0.95,
        "min_p": 0.05,
        "typical_p": 0.9,
        "repetition_penalty": 1.05,
        "frequency_penalty": 0.25,
        "presence_penalty": 1.5,
        "seed": 7,
    }
    expected = {name: value for name, value in config.items() if name != "do_sample"}
    assert read_model_file(config) == expected


def test_keys_that_change_no_token_pass() -> None:
    config = {
        "_from_model_config": True,
        "bos_token_id": 1,
        "cache_implementation": "hybrid",
        "eos_token_id": [1, 106],
        "length_penalty": 2.0,
        "max_length": 4096,
        "max_new_tokens": 512,
        "pad_token_id": 0,
        "transformers_version": "4.51.0",
        "user_token_id": 195,
        "num_beams": 1,
        "num_beam_groups": None,
        "no_repeat_ngram_size": 0,
        "guidance_scale": None,
        "suppress_tokens": [],
        "forced_eos_token_id": None,
        "token_healing": False,
        "a_key_of_tomorrow": None,
        "trust_remote_code": True,
        "torch_dtype": "bfloat16",
        "model_type": "llama",
        "architectures": ["X"],
        "padding_side": "left",
        "max_tokens": 512,
        "chat_format": "chatml",
        "max_window_size": 6144,
        "max_context_size": 8192,
        "pad_token": "<pad>",
        "use_model_defaults": True,
        "stop_words_ids": [],
        "num_return_sequences": 1,
        "output_scores": True,
        "return_dict_in_generate": True,
        "use_cache": False,
        "_commit_hash": "0123",
        "is_assistant": False,
    }
    assert read_model_file(config) == {}


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("num_beams", 4),
        ("top_h", 0.4),
        ("epsilon_cutoff", 3e-4),
        ("eta_cutoff", 1e-3),
        ("no_repeat_ngram_size", 3),
        ("penalty_alpha", 0.6),
        ("guidance_scale", 1.5),
        ("min_new_tokens", 5),
        ("bad_words_ids", [[1, 2]]),
        ("forced_bos_token_id", 0),
        ("suppress_tokens", [7]),
        ("stop_words_ids", [[7]]),
        ("token_healing", True),
        ("num_beams", True),
        ("watermarking_config", {"bias": 2.0}),
    ],
)
def test_a_rule_that_we_do_not_have_is_refused_by_name_with_the_way_out(
    key: str, value: object
) -> None:
    with pytest.raises(ConfigError) as caught:
        resolve({"temperature": 0}, {"do_sample": True, key: value})
    error = caught.value
    assert (
        error.fact == "generation_config.json: 1 sampling setting that this version cannot honour"
    )
    assert error.details == (f"{key} = {value!r}",)
    assert error.advice == WAY_OUT
    assert "--ignore-model-defaults" in WAY_OUT


def test_an_unknown_key_is_refused_with_the_nearest_name_and_all_are_listed() -> None:
    with pytest.raises(ConfigError) as caught:
        read_model_file({"temperatur": 0.6, "num_beams": 2})
    assert "2 sampling settings" in caught.value.fact
    assert caught.value.details == (
        "temperatur = 0.6  (did you mean temperature?)",
        "num_beams = 2",
    )


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("top_p", 0),
        ("top_p", "0.9"),
        ("top_k", -1),
        ("top_k", 1.5),
        ("temperature", -1),
        ("min_p", [0.1]),
        ("typical_p", 0),
        ("repetition_penalty", 0),
        ("frequency_penalty", 3),
        ("presence_penalty", "1"),
        ("seed", 2**63),
        ("seed", 1.5),
        ("do_sample", "true"),
        ("do_sample", 1),
    ],
)
def test_a_bad_value_in_a_generation_config_names_the_file_and_the_key(
    key: str, value: object
) -> None:
    with pytest.raises(ConfigError) as caught:
        read_model_file({key: value})
    assert caught.value.fact.startswith(f"generation_config.json: {key} = {value!r}: wanted ")
    assert caught.value.advice == WAY_OUT


def test_gguf_metadata_supplies_the_same_defaults() -> None:
    metadata = {
        "general.architecture": "qwen3",
        "qwen3.block_count": 28,
        "tokenizer.ggml.tokens": ["a", "b"],
        GGUF + "temp": float32(0.6),
        GGUF + "top_k": 20,
        GGUF + "top_p": float32(0.95),
        GGUF + "min_p": 0.0,
        GGUF + "penalty_repeat": float32(1.05),
        GGUF + "penalty_last_n": 64,
        GGUF + "xtc_probability": float32(0.5),
        GGUF + "xtc_threshold": float32(0.1),
    }
    assert read_model_file(metadata) == {
        "temperature": 0.6,  # as its author wrote it, not 0.6000000238418579
        "top_k": 20,
        "top_p": 0.95,
        "min_p": 0.0,
        "repetition_penalty": 1.05,
        "penalty_last_n": 64,
        "xtc_probability": 0.5,
        "xtc_threshold": 0.1,
    }


@pytest.mark.parametrize(
    ("stated", "temperature"),
    [
        ({}, None),
        ({"top_k": 64, "top_p": 0.95}, 1.0),
        ({"min_p": 0.05}, 1.0),
        ({"penalty_repeat": 1.5}, None),
        ({"temp": 0.0, "top_k": 40}, 0.0),
        ({"xtc_probability": 0.5}, 1.0),
        ({"xtc_probability": 0.0, "xtc_threshold": 0.1}, None),
        ({"xtc_probability": 0.5, "xtc_threshold": 0.6}, None),
    ],
)
def test_a_gguf_file_that_narrows_the_choice_means_sampling(
    stated: dict[str, object], temperature: float | None
) -> None:
    metadata = {"general.architecture": "gemma3"} | {GGUF + k: v for k, v in stated.items()}
    assert read_model_file(metadata).get("temperature") == temperature


@pytest.mark.parametrize(
    ("stated", "refused"),
    [
        ({"sequence": "kpt"}, "sequence"),
        ({"mirostat": 2, "mirostat_tau": 5.0}, "mirostat"),
        ({"top_n": 3}, "top_n"),
    ],
)
def test_a_gguf_rule_that_we_do_not_have_is_refused_by_name(
    stated: dict[str, object], refused: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        read_model_file({GGUF + key: value for key, value in stated.items()})
    assert caught.value.fact.startswith("the GGUF metadata: 1 sampling setting ")
    assert [line.split(" = ")[0] for line in caught.value.details] == [GGUF + refused]
    assert caught.value.advice == WAY_OUT


def test_gguf_parameters_of_what_is_off_pass() -> None:
    stated = {"mirostat": 0, "mirostat_tau": 5.0, "mirostat_eta": 0.1, "sequence": ""}
    assert read_model_file({GGUF + key: value for key, value in stated.items()}) == {}
    whole = {GGUF + "penalty_repeat": 1.5, GGUF + "penalty_last_n": -1}
    assert read_model_file(whole) == {"repetition_penalty": 1.5, "penalty_last_n": -1}


def test_a_gguf_file_that_penalises_the_last_0_tokens_penalises_none() -> None:
    stated = {GGUF + "penalty_repeat": 1.5, GGUF + "penalty_last_n": 0}
    assert read_model_file(stated) == {}
    settings = resolve({"repetition_penalty": 1.1}, stated)
    assert settings.repetition_penalty == Setting(1.1, "request")
    assert settings.penalty_last_n == Setting(-1, "engine default")


def test_an_xtc_threshold_that_no_two_tokens_can_reach_switches_it_off() -> None:
    stated = {GGUF + "xtc_probability": 0.5, GGUF + "xtc_threshold": 0.51}
    assert read_model_file(stated) == {}
    assert read_model_file({**stated, GGUF + "xtc_threshold": 0.5}) == {
        "temperature": 1.0,
        "xtc_probability": 0.5,
        "xtc_threshold": 0.5,
    }


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("temp", float("nan")),
        ("temp", -1e300),
        ("top_p", 1.5),
        ("top_k", "20"),
        ("top_k", -4),
        ("penalty_last_n", -2),
        ("xtc_probability", 1.5),
        ("xtc_threshold", 0.0),
    ],
)
def test_a_bad_value_in_gguf_metadata_names_its_key(key: str, value: object) -> None:
    with pytest.raises(ConfigError, match=f"the GGUF metadata: {GGUF}{key} = .*: wanted "):
        read_model_file({GGUF + key: value})


def test_a_hostile_file_is_refused_in_a_few_short_lines() -> None:
    config: dict[str, object] = {f"key{i}\x1b[2J": ["x" * 100] * 1000 for i in range(20_000)}
    config["k" * 1_000_000] = "v" * 1_000_000
    with pytest.raises(ConfigError) as caught:
        read_model_file(config)
    assert len(caught.value.details) == 11
    assert caught.value.details[-1] == "and 19991 more"
    assert all(len(line) < 200 and line.isprintable() for line in caught.value.details)
