"""A GGUF's metadata as the config that its family would have in config.json."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from config.gguf_metadata import METADATA, SHAPES_OF
from forwardpass.architectures import gguf_family
from forwardpass.config import ModelConfig, read_config
from forwardpass.config_gguf import config_from_gguf
from forwardpass.errors import ConfigError
from forwardpass.rope import FULL, SLIDING, Rope

Shapes = dict[str, tuple[int, ...]]
every_architecture = pytest.mark.parametrize("architecture", list(METADATA))


def config(
    architecture: str,
    changes: Mapping[str, object] | None = None,
    without: tuple[str, ...] = (),
    shapes: Shapes | None = None,
) -> ModelConfig:
    metadata = {**METADATA[architecture]}
    for key in without:
        del metadata[f"{architecture}.{key}"]
    metadata |= {f"{architecture}.{key}": value for key, value in (changes or {}).items()}
    found = gguf_family(architecture, "tiny.gguf", metadata)
    raw = config_from_gguf(
        metadata, {**SHAPES_OF[architecture], **(shapes or {})}, found, "tiny.gguf"
    )
    return read_config(raw, found.spec, "tiny.gguf")


def test_every_key_arrives_under_the_name_that_config_json_has() -> None:
    assert config("gemma3") == ModelConfig(
        model_type="gemma3_text",
        vocab_size=61,
        hidden_size=24,
        num_hidden_layers=7,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=10,
        intermediate_size=40,
        max_position_embeddings=512,
        hidden_act="gelu_pytorch_tanh",
        norm_eps=1e-5,
        tie_word_embeddings=True,
        layer_types=(*(SLIDING,) * 5, FULL, SLIDING),
        rope_parameters={FULL: Rope(500.0), SLIDING: Rope(10_000.0)},
        sliding_window=9,
        query_pre_attn_scalar=10.0,
        final_logit_softcapping=20.0,
    )


@every_architecture
@pytest.mark.parametrize(
    "key",
    [
        *("block_count", "context_length", "embedding_length", "feed_forward_length"),
        *("attention.head_count", "norm"),
    ],
)
def test_a_key_that_a_reader_needs_is_missed_and_never_filled_in(
    architecture: str, key: str
) -> None:
    if key == "norm":
        kinds = ("layer_norm_epsilon", "layer_norm_rms_epsilon")
        keys = (f"attention.{kind}" for kind in kinds)
        key = next(key for key in keys if f"{architecture}.{key}" in METADATA[architecture])
    with pytest.raises(ConfigError, match="without metadata that it needs") as caught:
        config(architecture, without=(key,))
    assert caught.value.details == (f"{architecture}.{key}",)


@pytest.mark.parametrize("architecture", ["llama", "qwen2", "qwen3", "gemma3"])
def test_absent_keys_have_the_defaults_of_llama_cpp(architecture: str) -> None:
    found = config(
        architecture,
        {"embedding_length": 48},
        ("attention.head_count_kv", "attention.key_length", "attention.value_length",
         "rope.freq_base", *(("rope.dimension_count",) if architecture == "llama" else ())),
    )  # fmt: skip
    assert (found.num_key_value_heads, found.head_dim) == (4, 12)
    assert found.rope_parameters[FULL] == Rope(10_000.0)


@every_architecture
def test_the_head_is_tied_where_no_table_is_stored_for_it(architecture: str) -> None:
    assert config(architecture).tie_word_embeddings
    stored = config(architecture, shapes={"output.weight": (61, 24)})
    assert not stored.tie_word_embeddings


def test_biases_are_known_by_their_tensors() -> None:
    assert not config("llama").attention_bias
    assert config("llama", shapes={"blk.0.attn_q.bias": (40,)}).attention_bias
    assert config("llama", shapes={"blk.0.ffn_up.bias": (40,)}).mlp_bias


def test_a_rope_scaling_is_linear_unless_it_says_otherwise() -> None:
    linear = Rope(500.0, "linear", 8.0)
    named = {"rope.scaling.type": "linear", "rope.scaling.factor": 8.0}
    assert config("llama", named).rope_parameters == {FULL: linear}
    assert config("llama", {"rope.scaling.factor": 8.0}).rope_parameters == {FULL: linear}
    switched_off = {"rope.scaling.type": "none", "rope.scaling.factor": 8.0}
    assert config("llama", switched_off).rope_parameters == {FULL: Rope(500.0)}
    assert config("llama", {"rope.scaling.finetuned": True}) == config("llama")
    assert config("gemma3", named).rope_parameters == {FULL: linear, SLIDING: Rope(10_000.0)}


def test_a_scaling_stands_beside_stored_divisors() -> None:
    named = {"rope.scaling.type": "linear", "rope.scaling.factor": 8.0}
    found = config("llama", named, shapes={"rope_freqs.weight": (5,)})
    assert found.rope_parameters == {FULL: Rope(500.0, "linear", 8.0)}


@pytest.mark.parametrize(
    ("architecture", "changes", "reason"),
    [
        ("llama", {"rope.scaling.type": "dynamic", "rope.scaling.factor": 4.0}, '"dynamic"'),
        ("llama", {"rope.scale_linear": 4.0}, "llama.rope.scale_linear = 4.0"),
        ("llama", {"attention.causal": False}, "is_causal = false"),
        ("qwen2", {"expert_count": 8}, "qwen2.expert_count = 8"),
        ("qwen2", {"attention.sliding_window": 8}, "qwen2.attention.sliding_window = 8"),
        ("gemma3", {"attn_logit_softcapping": 50.0}, "gemma3.attn_logit_softcapping = 50.0"),
        ("llama", {"rope.dimension_count": 8}, "needs the head size 10"),
        ("qwen3", {"attention.value_length": 12}, "needs the head size 10"),
        ("llama", {"vocab_size": 60}, "token_embd.weight has 61 rows"),
        ("llama", {"attention.head_count_kv": [2, 2, 1, 2, 2, 2, 2]}, "differs between layers"),
        ("llama", {"attention.head_count": []}, "differs between layers"),
        ("llama", {"attention.head_count": 0}, "num_attention_heads = 0"),
        ("llama", {"block_count": "two"}, 'num_hidden_layers = "two"'),
        ("gpt2", {"attention.head_count_kv": 1}, "1 key/value heads"),
        ("gpt2", {"rope.freq_base": 10.0}, "rope_theta = 10.0"),
    ],
)
def test_what_cannot_be_honoured_is_refused_by_name(
    architecture: str, changes: dict[str, object], reason: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        config(architecture, changes)
    assert reason in str(caught.value)


def test_what_says_nothing_is_neutral() -> None:
    for neutral in ({"expert_count": 0}, {"expert_used_count": 0}, {"attention.causal": True}):
        assert config("llama", neutral) == config("llama")


def test_one_value_a_layer_may_repeat_one_value() -> None:
    assert config("llama", {"feed_forward_length": [40] * 7}) == config("llama")


def test_gemma_s_scale_is_that_of_the_head_but_for_the_largest_model() -> None:
    assert config("gemma3").query_pre_attn_scalar == 10
    largest = {"block_count": 62, "embedding_length": 5_376, "attention.head_count": 32}
    found = config("gemma3", largest)
    assert found.query_pre_attn_scalar == 168


def test_the_part_of_a_head_that_turns_is_that_of_the_file() -> None:
    def turned(architecture: str, *without: str) -> int:
        found = config(architecture, without=without)
        return int(found.head_dim * found.rope_parameters[FULL].partial_rotary_factor)

    assert turned("stablelm") == 4
    assert turned("gptneox") == 2
    assert turned("phi2", "rope.dimension_count") == 6  # whole heads, as in llama.cpp
    for dims in (0, 7, -2, "all"):
        with pytest.raises(ConfigError, match="of a head of 6"):
            config("stablelm", {"rope.dimension_count": dims})
    with pytest.raises(ConfigError, match="turns 3 of the 6"):
        config("stablelm", {"rope.dimension_count": 3})


def test_stablelm_s_layout_is_told_by_its_tensors() -> None:
    parallel = config("stablelm")
    assert parallel.use_parallel_residual
    assert not parallel.qk_layernorm
    sequential = config("stablelm", shapes={"blk.0.ffn_norm.weight": (24,)})
    assert not sequential.use_parallel_residual
    assert config("stablelm", shapes={"blk.0.attn_q_norm.weight": (4, 6)}).qk_layernorm
    assert config("stablelm", shapes={"blk.0.attn_q.bias": (24,)}).attention_bias


def test_falcon_s_layout_is_told_by_its_tensors() -> None:
    one = config("falcon")
    assert (one.num_key_value_heads, one.num_ln_in_parallel_attn) == (1, 1)
    second: Shapes = {"blk.0.attn_norm_2.weight": (24,)}
    two = config("falcon", {"attention.head_count_kv": 2}, shapes=second)
    assert (two.num_key_value_heads, two.num_ln_in_parallel_attn) == (2, 2)


def test_gpt_neox_s_order_and_biases_are_those_of_the_file() -> None:
    assert not config("gptneox").use_parallel_residual
    assert config("gptneox", without=("use_parallel_residual",)).use_parallel_residual
    assert not config("gptneox").attention_bias
    assert config("gptneox", shapes={"blk.0.attn_qkv.bias": (72,)}).attention_bias
    assert config("gptneox").hidden_act == "gelu"
    assert config("gptneox", {"block_count": 44}).hidden_act == "gelu_fast"


def test_rope_s_base_is_that_of_the_published_model_where_files_leave_it_out() -> None:
    assert config("falcon").rope_parameters[FULL] == Rope(10_000.0)
    size = {"block_count": 60, "embedding_length": 4_096, "attention.head_count": 32}
    table: Shapes = {"token_embd.weight": (61, 4_096)}
    found = config("falcon", {**size, "attention.head_count_kv": 8}, shapes=table)
    assert found.rope_parameters[FULL] == Rope(500_042.0)
    assert config("stablelm").rope_parameters[FULL].theta == 10_000
    with pytest.raises(ConfigError, match=r"rope\.freq_base is missing, .* 16,384 positions"):
        config("stablelm", {"context_length": 16_384})
    stated = {"context_length": 16_384, "rope.freq_base": 1e6}
    assert config("stablelm", stated).rope_parameters[FULL].theta == 1e6


def test_every_layer_of_starcoder2_has_the_window_that_its_files_leave_out() -> None:
    found = config("starcoder2")
    assert [found.window(layer) for layer in range(2)] == [4_096, 4_096]


def test_gemma_without_a_window_sees_everything_in_every_layer() -> None:
    found = config("gemma3", without=("attention.sliding_window",))
    assert set(found.layer_types) == {FULL}
    assert found.rope_parameters == {FULL: Rope(500.0)}


def test_gemma_s_pattern_and_local_base_may_be_stated() -> None:
    found = config("gemma3", {"attention.sliding_window_pattern": 2, "rope.freq_base_swa": 77.0})
    assert found.layer_types == (SLIDING, FULL, SLIDING, FULL, SLIDING, FULL, SLIDING)
    assert found.rope_parameters[SLIDING] == Rope(77.0)


@pytest.mark.parametrize("shape", [(61,), (61, 24, 1)])
def test_a_file_without_a_table_of_tokens_is_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ConfigError, match="there is no table"):
        config("llama", shapes={"token_embd.weight": shape})


def test_an_architecture_that_is_not_built_is_refused_by_name() -> None:
    with pytest.raises(ConfigError, match=r'general\.architecture "mamba"') as caught:
        gguf_family("mamba", "tiny.gguf")
    for known in METADATA:
        assert known in str(caught.value)
