"""What the configs of mixtures of experts say, in config.json and in GGUF metadata."""

from __future__ import annotations

from typing import Any

import pytest

from backends.tiny import CONFIGS
from config.asking import config, refusal
from forwardpass.architectures import gguf_family
from forwardpass.config import ModelConfig, read_config
from forwardpass.config_gguf import config_from_gguf
from forwardpass.describe import describe_config
from forwardpass.errors import ConfigError, GraphError
from forwardpass.graph.graph import Graph
from forwardpass.rope import FULL, SLIDING, Rope

YARN: dict[str, object] = {
    "rope_type": "yarn",
    "factor": 32.0,
    "beta_fast": 32.0,
    "beta_slow": 1.0,
    "truncate": False,
    "original_max_position_embeddings": 4_096,
}
_SHAPES: dict[str, tuple[int, ...]] = {"token_embd.weight": (61, 24), "output.weight": (61, 24)}
_METADATA: dict[str, object] = {
    "block_count": 4,
    "context_length": 512,
    "embedding_length": 24,
    "feed_forward_length": 40,
    "attention.head_count": 4,
    "attention.head_count_kv": 2,
    "attention.layer_norm_rms_epsilon": 1e-5,
    "rope.freq_base": 500.0,
    "expert_count": 8,
    "expert_used_count": 3,
}


def from_gguf(
    architecture: str, shapes: dict[str, tuple[int, ...]] | None = None, **changes: Any
) -> ModelConfig:
    keys = {key.replace("__", "."): value for key, value in changes.items()}
    metadata = {f"{architecture}.{key}": value for key, value in {**_METADATA, **keys}.items()}
    family = gguf_family(architecture, "tiny.gguf", metadata)
    raw = config_from_gguf(metadata, {**_SHAPES, **(shapes or {})}, family, "tiny.gguf")
    return read_config(raw, family.spec, "tiny.gguf")


def sparse_layers(graph: Graph) -> list[int | None]:
    return [node.layer for node in graph.nodes if node.op.name == "combine"]


@pytest.mark.parametrize("name", ["qwen2_moe", "qwen3_moe"])
def test_which_layers_have_experts(name: str) -> None:
    for step, dense, expected in (
        (1, [], [0, 1, 2, 3]),
        (1, None, [0, 1, 2, 3]),
        (2, [], [1, 3]),
        (2, [3], [1]),
        (3, [], [2]),
        (1, [0, 2], [1, 3]),
        (5, [], []),
    ):
        raw = {**CONFIGS[name], "decoder_sparse_step": step, "mlp_only_layers": dense}
        assert sparse_layers(describe_config(name, raw).graph) == expected


def test_qwen2_s_windows_are_those_of_every_second_early_layer() -> None:
    assert config("qwen2_moe").layer_types == (SLIDING, FULL, SLIDING, FULL)
    assert config("qwen2_moe", max_window_layers=2).layer_types == (SLIDING, FULL, FULL, FULL)
    stated = [FULL, FULL, FULL, SLIDING]
    assert config("qwen2_moe", layer_types=stated).layer_types == tuple(stated)
    # Saved by transformers where windows are not used.
    off = config("qwen2_moe", use_sliding_window=False, sliding_window=0)
    assert (off.sliding_window, off.layer_types) == (None, (FULL,) * 4)
    error = refusal("qwen2_moe", sliding_window=0)
    assert error.details == ("sliding_window = 0 where use_sliding_window is set",)


def test_qwen3_s_windows_are_those_of_all_layers() -> None:
    assert config("qwen3_moe").layer_types == (SLIDING,) * 4
    assert config("qwen3_moe", max_window_layers=0).layer_types == (SLIDING,) * 4
    error = refusal("qwen3_moe", max_window_layers=2)
    assert error.details[0].startswith("max_window_layers = 2 where use_sliding_window is set")
    off = config("qwen3_moe", use_sliding_window=False, max_window_layers=48)
    assert (off.sliding_window, off.layer_types) == (None, (FULL,) * 4)


@pytest.mark.parametrize(
    ("name", "changes", "reason"),
    [
        ("olmoe", {"clip_qkv": 8.0}, "clip_qkv = 8.0"),
        ("olmoe", {"head_dim": 10}, "4 heads of 10"),
        ("olmoe", {"sliding_window": 8}, "sliding_window = 8"),
        ("qwen2_moe", {"hidden_act": "gelu"}, "this version runs"),
        ("qwen3_moe", {"num_experts": 0}, "num_experts = 0"),
        ("qwen3_moe", {"mlp_only_layers": [-1]}, "mlp_only_layers = [-1]"),
        ("qwen3_moe", {"mlp_only_layers": 3}, "mlp_only_layers = 3"),
        ("qwen3_moe", {"decoder_sparse_step": 0}, "decoder_sparse_step = 0"),
        ("qwen3_moe", {"norm_topk_prob": 1}, "norm_topk_prob = 1"),
        ("qwen3_moe", {"num_local_experts": 9}, "num_local_experts = 9 contradicts"),
        ("qwen3_moe", {"shared_expert_intermediate_size": 8}, "shared_expert_intermediate_size"),
        ("qwen3_moe", {"use_qk_norm": False}, "use_qk_norm = false"),
        ("gpt_oss", {"swiglu_limit": 0}, "swiglu_limit = 0"),
        ("gpt_oss", {"swiglu_alpha": float("nan")}, "swiglu_alpha = NaN"),
        ("gpt_oss", {"experts_per_token": 2}, "experts_per_token = 2 contradicts"),
        ("gpt_oss", {"sliding_window": None}, "sliding_window is not set"),
        ("gpt_oss", {"mlp_bias": True}, "mlp_bias = true"),
        ("mixtral", {"layer_types": [FULL, SLIDING]}, "in this family all layers"),
        ("mixtral", {"n_shared_experts": 1}, "n_shared_experts = 1"),
    ],
)
def test_what_cannot_be_honoured_is_refused_by_name(
    name: str, changes: dict[str, object], reason: str
) -> None:
    assert reason in str(refusal(name, **changes))


def test_what_qwen3_coder_says_of_all_its_family_changes_nothing() -> None:
    said = {"use_qk_norm": True, "qkv_bias": False, "shared_expert_intermediate_size": 0}
    assert config("qwen3_moe", **said) == config("qwen3_moe")


def test_more_experts_a_token_than_there_are_end_in_an_error() -> None:
    with pytest.raises(GraphError, match="6 of 5 experts cannot be chosen"):
        describe_config("mixtral", {**CONFIGS["mixtral"], "num_experts_per_tok": 6})


def test_gpt_oss_without_a_rope_has_the_one_that_it_was_trained_with() -> None:
    trained = Rope(150_000.0, "yarn", 32.0, original_max_position_embeddings=4_096)
    for absent in ({}, {"rope_scaling": None}, {"rope_parameters": None}):
        for rope in config("gpt_oss", **absent).rope_parameters.values():
            assert (rope.theta, rope.kind, rope.factor) == (150_000.0, "yarn", 32.0)
            assert (rope.truncate, rope.beta_fast, rope.beta_slow) == (False, 32.0, 1.0)
            assert rope.original_max_position_embeddings == trained.original_max_position_embeddings
            assert rope.attention_factor == pytest.approx(1.3465735902799727)
    stated = config("gpt_oss", rope_scaling=YARN)
    assert stated == config("gpt_oss")
    other = config("gpt_oss", rope_parameters={"rope_type": "default", "rope_theta": 7.0})
    assert set(other.rope_parameters.values()) == {Rope(7.0)}


def test_the_length_that_gpt_oss_was_trained_for_is_said_once() -> None:
    assert config("gpt_oss", initial_context_length=4_096) == config("gpt_oss")
    error = refusal("gpt_oss", initial_context_length=2_048, rope_scaling=YARN)
    assert error.details == (
        "initial_context_length = 2048 contradicts 4096 in the rope's scaling",
    )


def test_a_gguf_with_a_number_of_experts_is_a_mixtral() -> None:
    found = from_gguf("llama")
    assert (found.model_type, found.own) == (
        "mixtral",
        {"num_local_experts": 8, "num_experts_per_tok": 3},
    )


def test_what_ggufs_do_not_say_is_the_family_s() -> None:
    qwen2 = from_gguf("qwen2moe", expert_feed_forward_length=18)
    assert (qwen2.flag("norm_topk_prob"), qwen2.flag("qkv_bias")) == (False, False)
    assert qwen2.whole("moe_intermediate_size") == 18
    biased = from_gguf("qwen2moe", {"blk.0.attn_q.bias": (24,)}, expert_feed_forward_length=18)
    assert biased.flag("qkv_bias")
    qwen3 = from_gguf("qwen3moe", expert_feed_forward_length=18)
    assert qwen3.flag("norm_topk_prob")
    assert not from_gguf("olmoe").flag("norm_topk_prob")
    scaling: dict[str, Any] = {
        "rope__scaling__type": "yarn",
        "rope__scaling__factor": 32.0,
        "rope__scaling__original_context_length": 4_096,
    }
    window: dict[str, Any] = {"attention__sliding_window": 7}
    oss = from_gguf("gpt-oss", None, **window, **scaling)
    assert oss.layer_types == (SLIDING, FULL, SLIDING, FULL)
    assert {rope.truncate for rope in oss.rope_parameters.values()} == {False}
    assert (oss.number("swiglu_limit"), oss.number("swiglu_alpha")) == (7.0, 1.702)


@pytest.mark.parametrize(
    ("architecture", "key"),
    [
        ("llama", "expert_weights_scale"),
        ("qwen2moe", "expert_gating_func"),
        ("qwen3moe", "expert_shared_feed_forward_length"),
        ("gpt-oss", "swiglu_clamp_exp"),
    ],
)
def test_a_gguf_s_other_settings_of_experts_are_refused_by_name(
    architecture: str, key: str
) -> None:
    with pytest.raises(ConfigError, match=f"{architecture}.{key} = 2"):
        from_gguf(architecture, None, **{key: 2})


def test_gpt_oss_without_a_type_is_bf16_as_published() -> None:
    assert describe_config("tiny", {"model_type": "gpt_oss"}).config.dtype == "bfloat16"
    raw: dict[str, object] = {"model_type": "gpt_oss", "torch_dtype": "float16"}
    assert describe_config("tiny", raw).config.dtype == "float16"
