"""Gated delta layers, and what else is only counted, against formulas and published figures.

Symbols: d hidden, f width of an MLP, v vocabulary; of a delta layer G key heads of K elements, M
value heads of V, w taps.
"""

from __future__ import annotations

from typing import Any

import pytest

from forwardpass.describe import describe_config
from forwardpass.errors import ConfigError, GraphError
from forwardpass.graph.delta import DeltaSizes
from forwardpass.graph.graph import LATENT, Graph, Role
from forwardpass.work.count import count_pass, kv_bytes_per_token, state_bytes
from forwardpass.work.passes import PassShape
from forwardpass.work.summary import count_model

Raw = dict[str, Any]

D, F, V_ALL, LAYERS, H, GROUPS, E = 48, 80, 101, 5, 6, 2, 16
KEY_HEADS, HEADS, K, V, W = 2, 6, 8, 12, 4
TINY: Raw = {
    "model_type": "qwen3_5_text",
    "vocab_size": V_ALL,
    "hidden_size": D,
    "intermediate_size": F,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": H,
    "num_key_value_heads": GROUPS,
    "head_dim": E,
    "linear_num_key_heads": KEY_HEADS,
    "linear_num_value_heads": HEADS,
    "linear_key_head_dim": K,
    "linear_value_head_dim": V,
    "linear_conv_kernel_dim": W,
}
CHANNELS = 2 * KEY_HEADS * K + HEADS * V


def graph(**changes: object) -> Graph:
    return describe_config("tiny", {**TINY, **changes}).graph


@pytest.mark.parametrize("changes", [{}, {"model_type": "qwen3_next", "num_experts": 0}])
@pytest.mark.parametrize(("tokens", "cached"), [(1, 0), (1, 900), (7, 30)])
def test_a_delta_layer_costs_what_the_formula_says(changes: Raw, tokens: int, cached: int) -> None:
    work = count_pass(
        graph(**changes),
        PassShape.prompt(tokens, cached),
        lambda weight: weight.elements,
        1,
    )
    delta = 4 * tokens  # tokens of all four layers
    a_head = K * V + 2 * K * V + 2 * V + 2 * K * V + 2 * K * V
    into = CHANNELS + HEADS * V + 2 * HEADS
    assert work.by_role[Role.MIXER_IN].flop == delta * 2 * D * into
    assert work.by_role[Role.MIXER_SCAN].flop == delta * (2 * CHANNELS * W + HEADS * a_head)
    assert work.by_role[Role.MIXER_OUT].flop == delta * 2 * HEADS * V * D
    visible = sum(cached + i for i in range(1, tokens + 1))
    assert work.by_role[Role.QKV].flop == tokens * 2 * D * (2 * H + 2 * GROUPS) * E
    assert work.by_role[Role.READ].flop == 4 * H * E * visible
    assert work.by_role[Role.ATTENTION_OUTPUT].flop == tokens * 2 * H * E * D
    inside = (
        4 * CHANNELS  # SiLU behind the convolution
        + 2 * 4 * KEY_HEADS * K  # lengths of queries and keys
        + KEY_HEADS * K  # queries ÷ √K
        + 6 * HEADS  # decay
        + 4 * HEADS  # β
        + 9 * HEADS * V  # norm and gate
    )
    turned = 3 * (H + GROUPS) * E // 4
    attending = 4 * (H + GROUPS) * E + turned + 5 * H * E
    every = 2 * 4 * D + 5 * F + 2 * D  # norms, activation, adds
    other = tokens * (4 * inside + LAYERS * every + attending) + 3 * H * visible + 4 * D
    assert work.other.flop == other


def test_the_state_of_a_sequence_does_not_grow() -> None:
    found = graph()
    kept = CHANNELS * (W - 1) + HEADS * K * V
    assert state_bytes(found, 2) == 4 * kept * 2
    assert kv_bytes_per_token(found, 2) == 2 * GROUPS * E * 2
    shapes = [PassShape.decode(visible) for visible in (10, 900)]
    row = 2 * GROUPS * E * 2
    for shape, visible in zip(shapes, (10, 900), strict=True):
        work = count_pass(found, shape, lambda weight: weight.elements, 2).total
        assert work.cache_read == 4 * kept * 2 + visible * row
        assert work.cache_written == 4 * kept * 2 + row


def test_a_config_says_in_what_the_state_is_kept() -> None:
    inputs, memory = CHANNELS * (W - 1), HEADS * K * V
    assert state_bytes(graph(mamba_ssm_dtype="float32"), 2) == 4 * (inputs * 2 + memory * 4)
    assert state_bytes(graph(mamba_ssm_dtype="bfloat16"), 4) == 4 * (inputs * 4 + memory * 2)


def test_layers_are_where_the_config_says() -> None:
    def attending(**changes: object) -> set[int | None]:
        nodes = graph(**changes).nodes
        return {node.layer for node in nodes if node.op.name == "attention"}

    assert attending() == {3}
    assert attending(full_attention_interval=2) == {1, 3}
    kinds = ["full_attention"] + 4 * ["linear_attention"]
    assert attending(layer_types=kinds) == {0}


def test_value_heads_share_key_heads_evenly() -> None:
    with pytest.raises(ConfigError, match="linear_num_value_heads = 5"):
        graph(linear_num_value_heads=5)
    with pytest.raises(GraphError, match="5 value heads are not a multiple of 2 key heads"):
        DeltaSizes(2, 5, 8, 8, 4)


# Figures of published models: sizes from their configs, elements as transformers 5.24 counts them.
_QWEN3_5: Raw = {"rope_parameters": {"mrope_section": [11, 11, 10], "rope_theta": 10_000_000}}
_GEMMA4: Raw = {
    "final_logit_softcapping": 30.0,
    "use_bidirectional_attention": "vision",
    "sliding_window": 1_024,
}
PUBLISHED: dict[str, tuple[Raw, int, int]] = {
    "Qwen3-Next-80B-A3B": (
        {"model_type": "qwen3_next", "rope_theta": 10_000_000},
        79_674_391_296,
        3_874_929_408,
    ),
    "Qwen3.5-27B": (
        {
            **_QWEN3_5,
            "model_type": "qwen3_5_text",
            "hidden_size": 5_120,
            "intermediate_size": 17_408,
            "num_hidden_layers": 64,
            "num_attention_heads": 24,
            "linear_num_value_heads": 48,
        },
        26_895_998_464,
        26_895_998_464,
    ),
    "Qwen3.5-35B-A3B": (
        {**_QWEN3_5, "model_type": "qwen3_5_moe_text"},
        34_660_610_688,
        3_454_988_928,
    ),
    "Llama-4-Scout": ({"model_type": "llama4_text"}, 107_769_861_120, 17_172_894_720),
    "Llama-4-Maverick": (
        {"model_type": "llama4_text", "interleave_moe_layer_step": 2, "num_local_experts": 128},
        400_711_848_960,
        17_184_691_200,
    ),
    "MiMo-V2-Flash": ({"model_type": "mimo_v2_flash"}, 308_778_768_832, 15_445_924_288),
    "gemma-4-26B-A4B": (
        {
            **_GEMMA4,
            "model_type": "gemma4_text",
            "hidden_size": 2_816,
            "intermediate_size": 2_112,
            "num_attention_heads": 16,
            "num_key_value_heads": 8,
            "num_global_key_value_heads": 2,
            "attention_k_eq_v": True,
            "hidden_size_per_layer_input": 0,
            "enable_moe_block": True,
            "num_experts": 128,
            "top_k_experts": 8,
            "moe_intermediate_size": 704,
        },
        25_233_141_760,
        3_822_530_560,
    ),
    "gemma-4-E2B": (
        {
            "model_type": "gemma4_text",
            "hidden_size": 1_536,
            "intermediate_size": 6_144,
            "num_hidden_layers": 35,
            "num_key_value_heads": 1,
            "num_kv_shared_layers": 20,
            "use_double_wide_mlp": True,
            "layer_types": 7 * [*4 * ["sliding_attention"], "full_attention"],
        },
        4_628_569_344,
        4_628_569_344,
    ),
}


@pytest.mark.parametrize("name", list(PUBLISHED))
def test_published_models_have_their_parameters(name: str) -> None:
    raw, unique, active = PUBLISHED[name]
    found = count_model(describe_config(name, raw)).parameters
    assert (found.unique, found.active) == (unique, active)


def test_qwen3_next_does_the_published_work() -> None:
    found = count_model(describe_config("qwen3-next", PUBLISHED["Qwen3-Next-80B-A3B"][0]))
    assert found.flop_per_token is not None
    assert found.flop_per_token.matmul == 7_124_746_240
    assert found.flop_per_token.per_visible_token == 196_608
    assert found.kv_bytes_per_token == 2 * 12_288


def test_the_tower_of_a_model_that_sees_is_beside_its_text() -> None:
    vision: Raw = {
        "hidden_size": 1_152,
        "intermediate_size": 4_304,
        "num_hidden_layers": 27,
        "num_attention_heads": 16,
        "num_key_value_heads": 16,
        "head_dim": 72,
    }
    text = PUBLISHED["gemma-4-26B-A4B"][0]
    raw: Raw = {"model_type": "gemma4", "text_config": text, "vision_config": vision}
    found = count_model(describe_config("gemma-4", raw)).parameters
    assert (found.unique, found.with_towers) == (25_233_141_760, 25_805_933_872)


@pytest.mark.parametrize("visible", [100, 3_000])
def test_a_shared_cache_is_kept_once_and_read_by_each_layer(visible: int) -> None:
    raw = PUBLISHED["gemma-4-E2B"][0]
    found = describe_config("gemma-4-e2b", raw).graph
    # Of 15 layers that keep a cache 12 slide; 16 of all 28 that slide share one, 4 of 7 full ones.
    sliding, full = 2 * 256, 2 * 512
    assert kv_bytes_per_token(found, 1) == 12 * sliding + 3 * full
    assert not any(state.kind == LATENT for state in found.states)
    work = count_pass(found, PassShape.decode(visible), lambda weight: weight.elements, 1)
    assert work.total.cache_read == 28 * sliding * min(visible, 512) + 7 * full * visible
    assert work.total.cache_written == 12 * sliding + 3 * full
    read = 4 * 8 * (28 * 256 * min(visible, 512) + 7 * 512 * visible)
    assert work.by_role[Role.READ].flop == read


@pytest.mark.parametrize("name", [name for name in PUBLISHED if name != "MiMo-V2-Flash"])
def test_what_no_backend_computes_is_known_as_counted_only(name: str) -> None:
    assert describe_config(name, PUBLISHED[name][0]).graph.counted_only


def test_a_llama_4_with_nothing_else_of_its_own_is_still_counted_only() -> None:
    plain = {"moe_layers": [], "attn_temperature_tuning": False, "use_qk_norm": False}
    raw = {"model_type": "llama4_text", "num_hidden_layers": 4, **plain}
    found = describe_config("plain", raw).graph
    assert found.counted_only == ("chunked_attention",)
    assert {state.window for state in found.states} == {8_192, None}
    work = count_pass(found, PassShape.decode(10_000), lambda weight: weight.elements, 1)
    assert work.by_role[Role.READ].flop == 4 * 40 * 128 * (3 * 8_192 + 10_000)


@pytest.mark.parametrize(
    ("name", "changes", "reason"),
    [
        ("Qwen3-Next-80B-A3B", {"attn_output_gate": False}, "attn_output_gate"),
        ("Qwen3-Next-80B-A3B", {"mamba_ssm_dtype": "int8"}, "mamba_ssm_dtype"),
        ("Qwen3-Next-80B-A3B", {"layer_types": 48 * ["mamba"]}, "layer_types"),
        ("Qwen3-Next-80B-A3B", {"sliding_window": 512}, "sliding_window"),
        ("Qwen3.5-27B", {"num_experts": 8}, "num_experts"),
        ("Qwen3.5-35B-A3B", {"norm_topk_prob": False}, "norm_topk_prob"),
        ("Llama-4-Scout", {"moe_layers": [48]}, "moe_layers"),
        ("Llama-4-Scout", {"no_rope_layers": [1]}, "no_rope_layers"),
        (
            "Llama-4-Scout",
            {"attention_chunk_size": None, "layer_types": 48 * ["chunked_attention"]},
            "attention_chunk_size is null",
        ),
        ("MiMo-V2-Flash", {"swa_head_dim": 128}, "swa_head_dim"),
        ("MiMo-V2-Flash", {"add_full_attention_sink_bias": True}, "add_full_attention_sink_bias"),
        ("MiMo-V2-Flash", {"add_swa_attention_sink_bias": False}, "add_swa_attention_sink_bias"),
        ("MiMo-V2-Flash", {"n_shared_experts": 1}, "n_shared_experts"),
        ("MiMo-V2-Flash", {"scoring_func": "softmax"}, "scoring_func"),
        ("MiMo-V2-Flash", {"attention_chunk_size": 64}, "attention_chunk_size"),
        ("MiMo-V2-Flash", {"moe_layer_freq": [0, 1]}, "mlp_layer_types"),
        ("MiMo-V2-Flash", {"n_group": 3}, "n_group = 3"),
        (
            "MiMo-V2-Flash",
            {"hybrid_layer_pattern": 48 * [0], "layer_types": 48 * ["sliding_attention"]},
            "hybrid_layer_pattern contradicts layer_types",
        ),
        ("gemma-4-26B-A4B", {"use_bidirectional_attention": "all"}, "bidirectional"),
        ("gemma-4-26B-A4B", {"rope_theta": 10_000.0}, "rope_parameters say it"),
        ("gemma-4-26B-A4B", {"layer_types": 30 * ["sliding_attention"]}, "the last of layer"),
        ("gemma-4-26B-A4B", {"top_k_experts": None}, "top_k_experts is not set"),
        ("gemma-4-26B-A4B", {"num_global_key_value_heads": 3}, "does not divide 16"),
        ("gemma-4-26B-A4B", {"per_layer_config": {"0": {}}}, "per_layer_config"),
        ("gemma-4-26B-A4B", {"per_layer_config": {"5": 3}}, "per_layer_config"),
        ("gemma-4-E2B", {"per_layer_config": {"4": {"head_dim": 9}}}, "per_layer_config"),
        ("gemma-4-E2B", {"num_kv_shared_layers": 35}, "num_kv_shared_layers = 35"),
        ("gemma-4-E2B", {"num_kv_shared_layers": 31}, "num_kv_shared_layers = 31"),
    ],
)
def test_what_cannot_be_counted_is_refused_by_name(name: str, changes: Raw, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        describe_config(name, {**PUBLISHED[name][0], **changes})


def test_published_spellings_of_mimo_say_the_same() -> None:
    hub: Raw = {
        "hybrid_layer_pattern": [int(i != 0 and i % 6 != 5) for i in range(48)],
        "moe_layer_freq": [0] + 47 * [1],
        "sliding_window": 128,
        "sliding_window_size": 128,
        "attention_chunk_size": 128,
        "layernorm_epsilon": 1e-5,
        "swa_rope_theta": 10_000,
        "rope_theta": 5_000_000,
        "routed_scaling_factor": None,
    }
    plain = PUBLISHED["MiMo-V2-Flash"][0]
    ours = (describe_config("mimo", raw).graph for raw in (plain, {**plain, **hub}))
    first, second = ([(node.name, node.reach) for node in found.nodes] for found in ours)
    assert first == second
    assert {reach for _, reach in first} == {None, 129}
