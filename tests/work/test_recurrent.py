"""Recurrent layers: FLOP by closed formulas, and a state that does not grow.

The formulas are written here by hand from sizes alone: n tokens, d hidden, v vocabulary; c channels
or m heads of p, with z elements of state; w taps; q groups; k the rank of Mamba-1's time step.
"""

from __future__ import annotations

import math

import pytest

from forwardpass.computing import Computing
from forwardpass.describe import Description, describe_config
from forwardpass.errors import ConfigError, GraphError, RequestError
from forwardpass.graph.graph import Role
from forwardpass.graph.mixers import StateSpace
from forwardpass.work.count import count_pass, kv_bytes, kv_bytes_per_token, state_bytes
from forwardpass.work.parameters import parameter_table
from forwardpass.work.passes import PassShape, SequenceShape
from forwardpass.work.report import report
from forwardpass.work.summary import Asked, count_model

Raw = dict[str, object]
MAMBA: Raw = {"model_type": "mamba", "vocab_size": 97, "hidden_size": 24, "num_hidden_layers": 3}
FALCON: Raw = {**MAMBA, "model_type": "falcon_mamba"}
MAMBA2: Raw = {
    **MAMBA,
    "model_type": "mamba2",
    "num_heads": 6,
    "head_dim": 8,
    "n_groups": 2,
    "state_size": 5,
}
LFM2: Raw = {
    "model_type": "lfm2",
    "vocab_size": 97,
    "hidden_size": 24,
    "num_hidden_layers": 5,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 30,
    "block_multiple_of": 8,
    "full_attn_idxs": [1, 3],
}
NEMOTRON: Raw = {
    "model_type": "nemotron_h",
    "vocab_size": 97,
    "hidden_size": 24,
    "hybrid_override_pattern": "M-*EM",
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 10,
    "intermediate_size": 40,
    "mamba_num_heads": 6,
    "mamba_head_dim": 8,
    "ssm_state_size": 5,
    "n_groups": 3,
    "n_routed_experts": 8,
    "num_experts_per_tok": 3,
    "moe_intermediate_size": 12,
    "moe_latent_size": 10,
    "moe_shared_expert_intermediate_size": 14,
}
JAMBA: Raw = {"model_type": "jamba", "num_hidden_layers": 5}
BAMBA: Raw = {"model_type": "bamba"}
GRANITE: Raw = {"model_type": "granitemoehybrid", "num_hidden_layers": 2}
PASSES = [PassShape.decode(1), PassShape.decode(700), PassShape.prompt(37)]
every_pass = pytest.mark.parametrize("shape", PASSES)


def described(raw: Raw) -> Description:
    return describe_config("a model", raw)


def flop(raw: Raw, shape: PassShape) -> dict[Role, int]:
    work = count_pass(described(raw).graph, shape, lambda _: 0, 2)
    return {role: part.flop for role, part in work.by_role.items() if part.flop}


@every_pass
@pytest.mark.parametrize("raw", [MAMBA, FALCON])
def test_a_selective_scan_s_work_is_that_of_its_recurrence(raw: Raw, shape: PassShape) -> None:
    n, r, d, v, layers = shape.tokens, shape.rows, 24, 97, 3
    c, z, w, k = 48, 16, 4, 2
    norms = 3 * (k + 2 * z) if raw is FALCON else 0
    # Of each layer: a norm, SiLU and gate of c, softplus of c, the residual.
    other = 4 * d + 4 * c + 5 * c + 3 * c + d + norms
    assert flop(raw, shape) == {
        Role.MIXER_IN: layers * 2 * n * (d * 2 * c + c * (k + 2 * z) + k * c),
        Role.MIXER_SCAN: layers * n * (2 * c * w + c * (7 * z + 3)),
        Role.MIXER_OUT: layers * 2 * n * c * d,
        Role.HEAD: 2 * r * d * v,
        Role.OTHER: layers * n * other + 4 * r * d,
    }


@every_pass
def test_a_state_space_s_work_is_that_of_its_recurrence(shape: PassShape) -> None:
    n, r, d, v, layers = shape.tokens, shape.rows, 24, 97, 3
    m, p, z, q, w = 6, 8, 5, 2, 4
    c = m * p
    # Of each layer: a norm, SiLU of what was convolved, softplus, gate, norm by group, residual.
    other = 4 * d + 4 * (c + 2 * q * z) + 4 * m + 5 * c + 4 * c + d
    assert flop(MAMBA2, shape) == {
        Role.MIXER_IN: layers * 2 * n * d * (2 * c + 2 * q * z + m),
        Role.MIXER_SCAN: layers * n * (2 * (c + 2 * q * z) * w + m * (p * (5 * z + 3) + 2)),
        Role.MIXER_OUT: layers * 2 * n * c * d,
        Role.HEAD: 2 * r * d * v,
        Role.OTHER: layers * n * other + 4 * r * d,
    }


@every_pass
def test_a_short_convolution_s_work_is_its_taps(shape: PassShape) -> None:
    n, r, d, v = shape.tokens, shape.rows, 24, 97
    h, g, e, f, w = 4, 2, 6, 24, 3  # 2/3 of 30 is 20, brought to a multiple of 8
    found = flop(LFM2, shape)
    other = 5 * n * (8 * d + 2 * d + 5 * f)
    other += 3 * n * 2 * d + 2 * n * (h + g) * e * (4 + 3) + 2 * 3 * h * shape.pairs(None)
    assert found == {
        Role.MIXER_IN: 3 * 2 * n * d * 3 * d,
        Role.MIXER_SCAN: 3 * 2 * n * d * w,
        Role.MIXER_OUT: 3 * 2 * n * d * d,
        Role.QKV: 2 * 2 * n * d * (h + 2 * g) * e,
        Role.READ: 2 * 4 * h * e * shape.pairs(None),
        Role.ATTENTION_OUTPUT: 2 * 2 * n * d * d,
        Role.MLP_UP: 5 * 2 * n * d * 2 * f,
        Role.MLP_DOWN: 5 * 2 * n * d * f,
        Role.HEAD: 2 * r * d * v,
        Role.OTHER: other + 4 * r * d,
    }


@every_pass
def test_experts_in_a_narrower_width_do_their_work_there(shape: PassShape) -> None:
    n, d, f, x, k, wide, narrow, shared = shape.tokens, 24, 40, 8, 3, 12, 10, 14
    found = flop(NEMOTRON, shape)
    assert found[Role.MLP_ROUTER] == 2 * n * d * x
    up = d * f + d * narrow + k * narrow * wide + d * shared
    assert found[Role.MLP_UP] == found[Role.MLP_DOWN] == 2 * n * up
    assert found[Role.QKV] == 2 * n * d * (4 + 2 * 2) * 10
    assert found[Role.MIXER_OUT] == 2 * 2 * n * 48 * d


# One scan and the inputs of its convolution, in elements, times the layers that have them.
STATES = {
    "mamba": (MAMBA, 3 * (48 * 16 + 48 * 3), 0),
    "falcon_mamba": (FALCON, 3 * (48 * 16 + 48 * 3), 0),
    "mamba2": (MAMBA2, 3 * (6 * 8 * 5 + (48 + 2 * 2 * 5) * 3), 0),
    "lfm2": (LFM2, 3 * 24 * 2, 2 * 2 * 2 * 6),
}


@pytest.mark.parametrize("name", list(STATES))
def test_a_state_does_not_grow_and_only_attention_s_cache_does(name: str) -> None:
    raw, elements, row = STATES[name]
    graph = described(raw).graph
    for width, kind in ((2, "bf16"), (4, "f32")):
        assert state_bytes(graph, width) == width * elements
        assert kv_bytes_per_token(graph, width) == width * row
        assert kv_bytes(graph, 1_000, width) == 1_000 * width * row
        count = count_model(described(raw), Asked(kv_type=kind))
        assert (count.state_bytes, count.kv_bytes_per_token) == (width * elements, width * row)
        assert count.as_dict()["state_bytes"] == width * elements


@pytest.mark.parametrize("name", list(STATES))
def test_a_pass_reads_and_writes_the_state_of_each_of_its_sequences(name: str) -> None:
    raw, elements, row = STATES[name]
    graph = described(raw).graph
    for old in (0, 500):
        shape = PassShape((SequenceShape(1, old), SequenceShape(3, old)))
        work = count_pass(graph, shape, lambda _: 0, 2).total
        assert work.cache_written == 2 * (2 * elements + 4 * row)
        assert work.cache_read == 2 * (2 * elements + (2 * old + 4) * row)


def test_a_state_is_in_the_type_that_the_config_names_for_it() -> None:
    scans, inputs = 2 * 6 * 8 * 5, 2 * (48 + 2 * 3 * 5) * 3
    for named, width in (("float32", 4), ("bfloat16", 2)):
        graph = described({**NEMOTRON, "mamba_ssm_cache_dtype": named}).graph
        assert state_bytes(graph, 2) == width * scans + 2 * inputs


def test_models_without_attention_never_come_to_the_weights() -> None:
    for raw in (MAMBA, FALCON, MAMBA2):
        count = count_model(described(raw), Asked(visible=(1, 10_000), prompt=9, answer=4))
        flop = count.flop_per_token
        assert flop is not None
        assert (flop.per_visible_token, count.crossover_tokens) == (0, None)
        assert count.as_dict()["crossover_tokens"] is None
        assert flop.at[0].by_role == flop.at[1].by_role
        assert count.answer is not None
        assert count.answer.flop_total == 4 * flop.weights


def test_matrix_products_leave_the_scan_out() -> None:
    n, d, c, z, k = 1, 24, 48, 16, 2
    found = count_model(described(MAMBA)).flop_per_token
    assert found is not None
    assert found.matmul == 3 * 2 * n * (d * 2 * c + c * (k + 2 * z) + k * c + c * d) + 2 * d * 97


def lines(raw: Raw, **asked: object) -> list[str]:
    wanted = Asked(**asked)  # type: ignore[arg-type]
    found = described(raw)
    return report(count_model(found, wanted), found, wanted, "config.json")


def test_the_report_says_what_grows_and_what_is_kept() -> None:
    text = lines(LFM2)
    assert any(line.split()[-2:] == ["2", "layers"] for line in text if "each visible" in line)
    assert any(line.endswith("bytes a token, 2 layers") for line in text)
    state = " ".join(next(line for line in text if "state of" in line).split())
    assert state == "state of 3 recurrent layers, whatever the length 288 bytes a sequence"
    text = lines(MAMBA, visible=(5,), prompt=9, answer=4)
    assert any(line.endswith("never  no layer reads a cache") for line in text)
    assert any(line.endswith("KV cache and state at the end 5.47 kB") for line in text)
    assert not any("softmax" in line for line in text)


def test_the_parts_of_a_mixer_are_named_and_add_up() -> None:
    for raw in (MAMBA, MAMBA2, LFM2, NEMOTRON):
        found = described(raw)
        table = parameter_table(found.graph)
        assert sum(table.by_role.values()) == found.unique_parameters
        outside = sum(part.elements for part in (*table.embedding, *table.outside))
        head = 0 if table.tied else sum(part.elements for part in table.head)
        assert outside + head + table.in_layers == found.unique_parameters
    (kind,) = parameter_table(described(MAMBA).graph).layers
    assert {part.label: part.shape for part in kind.mixer} == {
        "into the mixer": (24, 96),
        "convolution": (4, 48),
        "convolution, bias": (48,),
        "time step, B and C": (48, 34),
        "time step": (2, 48),
        "decay": (16, 48),
        "skip": (48,),
        "out of the mixer": (48, 24),
        "bias": (48,),
    }


def test_what_is_only_counted_is_refused_by_name_when_it_is_to_run() -> None:
    with pytest.raises(RequestError, match="selective_scan"):
        Computing("reference").backend_of(described(MAMBA).graph, None, "it")  # type: ignore[arg-type]


REFUSED: tuple[tuple[Raw, Raw, str], ...] = (
    (MAMBA, {"state_size": None}, "state_size = null"),
    (MAMBA, {"rms_norm": False}, "rms_norm = false"),
    (MAMBA, {"ssm_cfg": {"layer": "Mamba2"}}, "ssm_cfg"),
    (MAMBA, {"layer_types": ["full_attention"] * 3}, "all layers are linear_attention"),
    (MAMBA, {"hidden_act": "gelu"}, "hidden_act"),
    (FALCON, {"mixer_rms_eps": None}, "mixer_rms_eps is missing or null"),
    (MAMBA2, {"num_heads": 5}, "5 heads of a mixer are not a multiple of 2 groups"),
    (MAMBA2, {"head_dim": 7}, "num_heads 6 of head_dim 7"),
    (MAMBA2, {"expand": None}, "expand = null"),
    (LFM2, {"conv_dim": 30}, "conv_dim = 30 contradicts hidden_size = 24"),
    (LFM2, {"layer_types": ["conv"] * 5}, "layer_types says otherwise"),
    (LFM2, {"block_ffn_dim_multiplier": 1e308}, "the MLP would be"),
    (LFM2, {"block_ffn_dim_multiplier": 1e-9}, "the MLP would be"),
    (JAMBA, {"num_experts_per_tok": 17}, "there are 16 experts"),
    (JAMBA, {"attn_layer_offset": 8}, "wanted one below 8"),
    (JAMBA, {"layers_block_type": ["mamba"] * 5}, "the period says otherwise"),
    (JAMBA, {"mamba_inner_layernorms": False}, "mamba_inner_layernorms"),
    (BAMBA, {"partial_rotary_factor": 1.0}, "partial_rotary_factor"),
    (BAMBA, {"attn_rotary_emb": 32}, "attn_rotary_emb = 32"),
    (GRANITE, {"num_experts_per_tok": 9}, "wanted one to num_local_experts, 8"),
    (GRANITE, {"mamba_d_head": 9}, "are not mamba_expand"),
    (GRANITE, {"position_embedding_type": "alibi"}, "position_embedding_type"),
    (GRANITE, {"normalization_function": "layernorm"}, "normalization_function"),
    (LFM2, {"use_pos_enc": False}, "use_pos_enc"),
    (NEMOTRON, {"hybrid_override_pattern": "M-*X"}, "wanted letters of M"),
    (NEMOTRON, {"layers_block_type": ["mamba"]}, "the layers' list differs"),
    (NEMOTRON, {"num_hidden_layers": 4}, "layer_types is not a list of 4 entries"),
    (NEMOTRON, {"n_group": 3}, "cannot be chosen"),
    (NEMOTRON, {"mlp_hidden_act": "silu"}, "mlp_hidden_act"),
    (NEMOTRON, {"n_shared_experts": 2}, "n_shared_experts = 2"),
    (NEMOTRON, {"mamba_ssm_cache_dtype": "int8"}, "mamba_ssm_cache_dtype"),
    (NEMOTRON, {"tie_word_embeddings": True}, "tie_word_embeddings"),
    (NEMOTRON, {"attention_bias": True}, "attention_bias"),
    (NEMOTRON, {"sliding_window": 64}, "sliding_window = 64"),
)


@pytest.mark.parametrize(("raw", "change", "said"), REFUSED)
def test_what_is_not_understood_is_refused_by_name(raw: Raw, change: Raw, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        described({**raw, **change})


def test_a_nemotron_s_time_step_has_no_rank_and_may_be_without_limit() -> None:
    published = {"time_step_rank": 256, "time_step_limit": [0.0, math.inf]}
    assert described({**NEMOTRON, **published}).config == described(NEMOTRON).config


def test_heads_that_do_not_share_their_groups_are_refused() -> None:
    with pytest.raises(GraphError, match="5 heads of a mixer do not share 2 groups"):
        StateSpace(heads=5, head=8, state=5, groups=2, taps=4)
