"""Configs key by key: understood, neutral, unknown, and values that cannot be honoured."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from backends.tiny import CONFIGS
from backends.tiny_llama import TINY_LLAMA
from backends.tiny_moe import TINY_MOE
from config.asking import accepting, config, refusal
from forwardpass.architectures import family, model_types
from forwardpass.config import ConfigSpec, read_config
from forwardpass.config_keys import NEUTRAL
from forwardpass.config_kinds import MAX_LAYERS
from forwardpass.describe import describe_config, read_json_object
from forwardpass.errors import ConfigError, FormatError
from forwardpass.rope import FULL, SLIDING
from forwardpass.shapes import SHAPES

Raw = dict[str, object]
FAMILIES = ("gpt2", "llama", "qwen2", "qwen3", "gemma3", *TINY_LLAMA, *TINY_MOE)
every_family = pytest.mark.parametrize("name", FAMILIES)


@pytest.mark.parametrize("name", list(SHAPES))
def test_every_bundled_shape_is_understood(name: str) -> None:
    found = describe_config(name, SHAPES[name]).config
    assert found.num_hidden_layers == len(found.layer_types)
    assert found.accepted_unknown == ()


def test_unknown_keys_are_all_named_at_once_with_the_nearest_and_the_way_out() -> None:
    error = refusal("llama", tie_embeddings=True, rope_thta=1.0, compression_config={"bits": 4})
    assert error.fact == "config.json: 3 settings that this version does not understand"
    assert error.details == (
        "tie_embeddings = true  (did you mean tie_word_embeddings?)",
        "rope_thta = 1.0  (did you mean rope_theta?)",
        'compression_config = {"bits": 4}',
    )
    assert error.advice is not None
    assert error.advice.startswith("Ignoring a setting could change the answer")
    for key in ("tie_embeddings", "rope_thta", "compression_config"):
        assert f"--accept-unknown {key}" in error.advice


def test_unknown_keys_and_wrong_values_stand_in_one_error() -> None:
    error = refusal(
        "llama", tie_embeddings=True, rope_scaling={"rope_type": "longrope"}, vocab_size="many"
    )
    assert error.fact == "config.json: 3 settings that this version cannot honour"
    text = str(error)
    assert (
        'rope_scaling.rope_type = "longrope"  '
        "(this version runs default, linear, dynamic, yarn, llama3)" in text
    )
    assert 'vocab_size = "many"  (wanted a whole number from 1 to' in text
    assert "--accept-unknown tie_embeddings " in text


def test_one_unknown_key_is_one_setting() -> None:
    assert refusal("qwen3", new_thing=1).fact.startswith("config.json: 1 setting that")


def test_accepted_keys_are_recorded_and_only_those_are_accepted() -> None:
    found = accepting(["b_new", "a_new"], "llama", b_new=[1], a_new="x")
    assert found.accepted_unknown == (("a_new", "x"), ("b_new", [1]))
    with pytest.raises(ConfigError, match="1 setting that this version does not understand"):
        accepting(["a_new"], "llama", a_new=1, c_new=2)


def test_a_value_that_cannot_be_honoured_is_not_accepted_as_unknown() -> None:
    with pytest.raises(ConfigError, match="hidden_act"):
        accepting(["hidden_act"], "llama", hidden_act="relu")


@every_family
def test_a_neutral_key_may_have_any_value(name: str) -> None:
    plain = config(name)
    for value in (17, "text", [1, 2], {"a": 1}, 0.5, True):
        assert config(name, **dict.fromkeys(NEUTRAL, value)) == plain


@every_family
def test_a_key_that_says_nothing_is_neutral_whatever_its_name(name: str) -> None:
    nothing: tuple[object, ...] = (None, False, "", [], {})
    for value in nothing:
        assert config(name, never_heard_of=value) == config(name)
    something: tuple[object, ...] = (0, 0.0, "no")
    for value in something:
        assert "never_heard_of" in str(refusal(name, never_heard_of=value))


@pytest.mark.parametrize(
    ("name", "key"),
    [("gpt2", "scale_attn_weights"), *((name, "is_causal") for name in FAMILIES)],
)
def test_false_is_not_neutral_where_true_is_what_is_built(name: str, key: str) -> None:
    assert config(name, **{key: True}) == config(name)
    assert f"{key} = false" in str(refusal(name, **{key: False}))


@pytest.mark.parametrize(
    ("name", "key", "same"),
    [
        *((name, key, "max_position_embeddings") for name in FAMILIES
          for key in ("max_sequence_length", "max_seq_len", "seq_length")),
        ("gpt2", "n_vocab", "vocab_size"),
    ],
)  # fmt: skip
def test_a_key_that_repeats_another_is_neutral_where_it_is_equal(
    name: str, key: str, same: str
) -> None:
    value = getattr(config(name), same)
    assert config(name, **{key: value}) == config(name)
    error = refusal(name, **{key: value + 1})
    assert error.details == (f"{key} = {value + 1}  ({same} is another)",)
    assert accepting([key], name, **{key: value + 1}).accepted_unknown == ((key, value + 1),)


def test_a_repeated_key_is_held_against_the_default_of_an_absent_one() -> None:
    plain: Raw = {"model_type": "llama"}
    stated = describe_config("test", {**plain, "max_sequence_length": 2_048})
    assert stated.config == describe_config("test", plain).config
    with pytest.raises(ConfigError, match="max_sequence_length = 4096"):
        describe_config("test", {"model_type": "llama", "max_sequence_length": 4_096})


PUBLISHED: dict[str, Raw] = {
    "gpt2": {
        "_num_labels": 1, "num_labels": 1, "output_past": True, "is_decoder": True,
        "add_cross_attention": False, "cross_attention_hidden_size": None, "pruned_heads": {},
        "use_bfloat16": False, "xla_device": None, "tie_encoder_decoder": False,
        "is_encoder_decoder": False, "eos_token_ids": 0, "torchscript": False,
    },
    "llama": {
        "_flash_attn_2_enabled": True, "_attn_implementation": "sdpa", "tf_legacy_loss": False,
        "neftune_noise_alpha": 5, "pretraining_tp": 1, "unsloth_version": "2024.9", "top_k": 50,
        "_commit_hash": "0123", "name_or_path": "x", "is_decoder": True, "model_name": "x",
        "hidden_dropout": 0.1, "hidden_dropout_prob": 0.1, "unk_token_id": 0,
        "rotary_scaling_factor": 1.0, "rope_pct": 1.0,
    },
}  # fmt: skip


@pytest.mark.parametrize("name", list(PUBLISHED))
def test_what_older_files_state_and_no_family_reads_is_neutral(name: str) -> None:
    assert config(name, **PUBLISHED[name]) == config(name)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("add_cross_attention", True),
        ("is_encoder_decoder", True),
        ("pruned_heads", {"0": [1]}),
        ("cross_attention_hidden_size", 8),
    ],
)
def test_what_would_make_another_model_is_refused(key: str, value: object) -> None:
    for name in FAMILIES:
        assert f"{key} = " in str(refusal(name, **{key: value}))


def test_code_that_a_repository_brings_is_refused_with_a_reason_of_its_own() -> None:
    error = refusal("llama", auto_map={"AutoModel": "modeling.Model"})
    assert "brings its own code, which is never run" in error.details[0]
    assert error.advice is not None
    assert "--accept-unknown auto_map" in error.advice
    assert accepting(["auto_map"], "llama", auto_map={"a": "b"}).accepted_unknown


def test_a_repository_s_copies_of_the_published_code_change_nothing() -> None:
    copies = {
        "AutoConfig": "configuration_phi3.Phi3Config",
        "AutoModelForCausalLM": "org/name--modeling_phi3.Phi3ForCausalLM",
        "AutoTokenizer": "org/another-tokenizer",
    }
    assert config("phi3", auto_map=copies) == config("phi3")
    for own in ("modeling_phi3_fast.Model", "modeling_llama.LlamaForCausalLM", 3, None):
        assert "auto_map" in str(refusal("phi3", auto_map={**copies, "AutoModel": own}))


WRONG: list[tuple[str, object]] = [
    *((key, value) for key in ("vocab_size", "num_hidden_layers", "head_dim")
      for value in (True, False, 0, -1, 2.0, "12", [12], 10**30, 2**31 + 1, math.nan, math.inf)),
    ("num_hidden_layers", MAX_LAYERS + 1),
    *((key, value) for key in ("rms_norm_eps", "rope_theta")
      for value in (True, 0, -1e-6, "1e-5", [1.0], math.nan, math.inf, -math.inf, 10**400)),
    *((key, value) for key in ("tie_word_embeddings", "attention_bias", "mlp_bias")
      for value in (1, 0, "true", [True], 1.0)),
    *((key, value) for key in ("hidden_act", "dtype", "torch_dtype")
      for value in (1, ["silu"], {"a": 1}, True)),
    *((key, value) for key in ("rope_scaling", "rope_parameters")
      for value in (1, "linear", [1], True)),
    *(("layer_types", value) for value in ("full_attention", [], ["full_attention"], 3, [1, 2],
                                           ["full_attention", ["full_attention"]])),
]  # fmt: skip


@pytest.mark.parametrize(("key", "value"), WRONG, ids=lambda value: str(value)[:30])
def test_a_value_of_the_wrong_kind_or_size_is_refused_by_name(key: str, value: object) -> None:
    spelled = {"rms_norm_eps": "norm_eps", "torch_dtype": "dtype"}.get(key, key)
    error = refusal("llama", **{key: value})
    assert len(error.details) == 1
    assert error.details[0].startswith(spelled)


@pytest.mark.parametrize(
    ("name", "key", "value"),
    [
        ("qwen2", "use_sliding_window", 1),
        ("qwen2", "use_sliding_window", "yes"),
        ("qwen2", "max_window_layers", "1"),
        ("qwen2", "max_window_layers", -1),
        ("qwen2", "sliding_window", 0),
        ("qwen3", "sliding_window", 4.0),
        ("gemma3", "sliding_window_pattern", 0),
        ("gemma3", "sliding_window_pattern", True),
        ("gemma3", "rope_local_base_freq", math.inf),
        ("gemma3", "final_logit_softcapping", 0.0),
        ("gemma3", "query_pre_attn_scalar", -1),
    ],
)
def test_a_family_s_own_keys_are_checked_as_well(name: str, key: str, value: object) -> None:
    assert refusal(name, **{key: value}).details[0].startswith(f"{key} = ")


@pytest.mark.parametrize(
    ("name", "changes", "reason"),
    [
        ("llama", {"hidden_act": "gelu"}, "hidden_act"),
        ("gpt2", {"activation_function": "swish"}, "hidden_act"),
        ("gemma3", {"hidden_activation": "gelu"}, "hidden_act"),
        ("gemma3", {"attn_logit_softcapping": 50.0}, "attn_logit_softcapping"),
        ("gemma3", {"use_bidirectional_attention": True}, "use_bidirectional_attention"),
        ("llama", {"num_attention_heads": 3}, "not a multiple of 2 key/value heads"),
        ("llama", {"head_dim": 9}, "head_dim 9 is odd"),
        ("llama", {"head_dim": None, "hidden_size": 25}, "25 is not a multiple of 4"),
        ("llama", {"layer_types": [FULL, SLIDING]}, "which this family does not have"),
        ("llama", {"sliding_window": 16}, "sliding_window = 16"),
        ("qwen2", {"sliding_window": None, "layer_types": [FULL, SLIDING]}, "is not set"),
        ("qwen2", {"use_sliding_window": False, "layer_types": [FULL, SLIDING]}, "is not set"),
        ("gemma3", {"sliding_window": None}, "is not set"),
        ("gpt2", {"num_key_value_heads": 1}, "1 key/value heads"),
        ("gpt2", {"head_dim": 16}, "as wide as hidden_size"),
        ("gpt2", {"rope_theta": 10_000.0}, "rope_theta"),
        ("llama", {"dtype": "float16", "torch_dtype": "bfloat16"}, "contradicts"),
        ("gemma3", {"hidden_act": "gelu", "hidden_activation": "gelu_pytorch_tanh"}, "contradicts"),
    ],
)
def test_what_cannot_be_honoured_is_refused_with_its_reason(
    name: str, changes: Raw, reason: str
) -> None:
    assert reason in str(refusal(name, **changes))


LLAMA3 = CONFIGS["llama-scaled"]["rope_scaling"]
assert isinstance(LLAMA3, dict)


def test_which_layers_slide() -> None:
    assert config("gemma3").layer_types == (SLIDING, SLIDING, FULL)
    assert config("gemma3", num_hidden_layers=8, sliding_window_pattern=6).layer_types == (
        *(SLIDING,) * 5,
        FULL,
        *(SLIDING,) * 2,
    )
    assert config("gemma3", layer_types=[FULL, FULL, SLIDING]).layer_types == (FULL, FULL, SLIDING)
    assert config("qwen2").layer_types == (FULL, SLIDING)
    assert config("qwen2", max_window_layers=0).layer_types == (SLIDING, SLIDING)
    assert config("qwen2", max_window_layers=99).layer_types == (FULL, FULL)
    off = config("qwen2", use_sliding_window=False)
    assert (off.layer_types, off.sliding_window) == ((FULL, FULL), None)
    assert [config("qwen2").window(layer) for layer in (0, 1)] == [None, 7]


def test_null_removes_a_default_where_none_is_a_meaning_and_keeps_it_elsewhere() -> None:
    assert config("qwen2", num_key_value_heads=None).num_key_value_heads == 4
    assert config("qwen3", head_dim=None).head_dim == 6
    assert config("qwen2", sliding_window=None).layer_types == (FULL, FULL)
    assert config("gpt2", n_inner=None).intermediate_size == 96
    assert config("gemma3", rope_theta=None) == config("gemma3")
    assert config("llama", rope_scaling=None, hidden_act=None) == config("llama")


@every_family
def test_either_name_of_a_key_will_do(name: str) -> None:
    own = {"rms_norm_eps": "norm_eps", **family(str(CONFIGS[name]["model_type"])).spec.spellings}
    raw = {own.get(key, key): value for key, value in CONFIGS[name].items()}
    assert raw.keys() != CONFIGS[name].keys()
    assert describe_config(name, raw).config == config(name)


def test_a_thousand_unknown_keys_are_counted_and_the_first_shown() -> None:
    error = refusal("llama", **{f"unknown_{i}": i for i in range(100_000)})
    assert "100000 settings" in error.fact
    assert len(error.details) == 41
    assert error.details[-1] == "… and 99960 more"
    assert len(str(error)) < 5_000


def test_what_is_shown_of_a_config_is_cut_and_safe_to_print() -> None:
    deep: object = 1
    for _ in range(100_000):
        deep = [deep]
    text = str(refusal("llama", **{"red\x1b[31m": "\x1b[0m" * 100, "deep": deep, "k" * 500: 1}))
    assert text.isprintable() or "\x1b" not in text
    assert max(map(len, text.splitlines()[:-1])) < 200


@pytest.mark.parametrize("model_type", ["rwkv", "step3p7", "../llama", "family", "__init__", ""])
def test_an_architecture_that_is_not_built_is_refused_by_name(model_type: str) -> None:
    with pytest.raises(ConfigError, match="is not an architecture of this version") as caught:
        describe_config("test", {"model_type": model_type})
    lines = str(caught.value).splitlines()
    assert f"it knows {', '.join(model_types())}" in " ".join(line.strip() for line in lines)
    assert all(len(line) <= 99 for line in lines)


def test_the_name_of_an_architecture_is_cut_and_safe_to_print() -> None:
    with pytest.raises(ConfigError) as caught:
        describe_config("test", {"model_type": "\x1b[2J" + "x" * 1_000_000})
    assert "\x1b" not in caught.value.fact
    assert len(caught.value.fact) < 150


@pytest.mark.parametrize("model_type", [None, 3, ["llama"]])
def test_a_config_without_a_model_type_is_refused(model_type: object) -> None:
    with pytest.raises(ConfigError, match="model_type is missing"):
        describe_config("test", {"model_type": model_type})


def test_a_family_without_defaults_says_what_is_missing() -> None:
    with pytest.raises(ConfigError, match="without settings that it needs") as caught:
        read_config({"hidden_size": 8}, ConfigSpec())
    assert caught.value.details == (
        *("vocab_size", "num_hidden_layers", "num_attention_heads", "intermediate_size"),
    )


def test_a_config_too_large_for_one_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    with path.open("wb") as file:
        file.truncate(2**30)
    with pytest.raises(ConfigError, match="more than 16,777,216 bytes are no config"):
        read_json_object(path)


def test_a_number_without_end_in_a_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text('{"model_type": "llama", "rope_theta": 1e400}')
    with pytest.raises(FormatError, match="beyond every float64"):
        read_json_object(path)
    path.write_text('{"model_type": "llama", "rope_theta": Infinity}')
    with pytest.raises(ConfigError, match="rope_theta = Infinity"):
        describe_config("llama", read_json_object(path))
    path.write_text('{"num_hidden_layers": 1' + "0" * 30 + "}")
    with pytest.raises(FormatError, match="31 digits"):
        read_json_object(path)
