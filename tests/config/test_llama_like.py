"""What the configs of the families beside Llama say that Llama's does not."""

from __future__ import annotations

import pytest

from backends.tiny import CONFIGS
from forwardpass.config import ModelConfig
from forwardpass.describe import describe_config
from forwardpass.errors import ConfigError
from forwardpass.rope import FULL, SLIDING, Rope

Raw = dict[str, object]
YARN: Raw = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}


def config(name: str, **changes: object) -> ModelConfig:
    return describe_config(name, {**CONFIGS[name], **changes}).config


def refusal(name: str, **changes: object) -> str:
    with pytest.raises(ConfigError) as caught:
        config(name, **changes)
    assert len(caught.value.details) == 1
    return caught.value.details[0]


@pytest.mark.parametrize("name", ["mistral", "phi3"])
def test_a_window_is_that_of_every_layer_or_of_none(name: str) -> None:
    assert config(name).layer_types == (SLIDING, SLIDING)
    assert [config(name).window(layer) for layer in range(2)] == [7, 7]
    none = config(name, sliding_window=None)
    assert none.layer_types == (FULL, FULL)
    assert config(name, layer_types=[SLIDING, SLIDING]) == config(name)
    assert "in this family all layers are sliding" in refusal(name, layer_types=[FULL, SLIDING])


def test_windows_alternate_where_the_family_alternates() -> None:
    assert config("gemma2", num_hidden_layers=5).layer_types == (*(SLIDING, FULL) * 2, SLIDING)
    assert config("olmo3", num_hidden_layers=5).layer_types == (*(SLIDING,) * 3, FULL, SLIDING)
    stated = [FULL, SLIDING, SLIDING, FULL]
    assert config("olmo3", layer_types=stated).layer_types == tuple(stated)
    assert "sliding_window is not set" in refusal("gemma2", sliding_window=None)


def test_null_takes_gemma_2_s_caps_away() -> None:
    assert (config("gemma2").attn_logit_softcapping, config("gemma2").final_logit_softcapping) == (
        5.0,
        20.0,
    )
    bare = {key: value for key, value in CONFIGS["gemma2"].items() if "softcapping" not in key}
    assert describe_config("bare", bare).config.attn_logit_softcapping == 50.0
    none = config("gemma2", attn_logit_softcapping=None, final_logit_softcapping=None)
    assert none.attn_logit_softcapping is None
    assert none.final_logit_softcapping is None


def test_gemma_s_gelu_is_the_tanh_form_under_both_names() -> None:
    for act in ("gelu", "gelu_pytorch_tanh"):
        for other in ("gelu", "gelu_pytorch_tanh", None):
            assert config("gemma", hidden_act=act, hidden_activation=other) == config("gemma")
    assert refusal("gemma", hidden_act="relu").startswith('hidden_act = "relu"')
    assert refusal("gemma", hidden_activation="relu").startswith("hidden_activation")
    assert refusal("gemma2", hidden_act="gelu").startswith("hidden_act")


def test_granite_s_multipliers_are_1_where_absent() -> None:
    names = ("embedding", "attention", "residual")
    bare = {key: value for key, value in CONFIGS["granite"].items() if "multiplier" not in key}
    found = describe_config("bare", {**bare, "logits_scaling": None}).config
    assert [getattr(found, f"{name}_multiplier") for name in names] == [1.0, 1.0, 1.0]
    assert found.logits_scaling == 1.0
    assert refusal("granite", residual_multiplier=0).startswith("residual_multiplier = 0")


def test_smollm3_s_layers_without_rope() -> None:
    assert config("smollm3").no_rope_layers == (1, 1, 1, 0)
    assert config("smollm3", no_rope_layer_interval=2).no_rope_layers == (1, 0, 1, 0)
    listed = config("smollm3", no_rope_layers=[0, 1, 1, 1, 0, 0])
    assert listed.no_rope_layers == (0, 1, 1, 1)
    assert listed.layer_types == (SLIDING, FULL, FULL, FULL)
    off = config("smollm3", use_sliding_window=False)
    assert (off.sliding_window, set(off.layer_types)) == (None, {FULL})
    for wrong in ([1, 1], [1, 1, 1, 2], [True] * 4, [1, 1, 1, "0"]):
        assert "wanted a 0 or 1 for each of 4 layers" in refusal("smollm3", no_rope_layers=wrong)


def test_yarn_is_completed_as_its_paper_says() -> None:
    plain = config("llama-yarn").rope_parameters[FULL]
    assert plain == Rope(
        10_000.0,
        "yarn",
        4.0,
        original_max_position_embeddings=64.0,
        attention_factor=0.1 * 1.3862943611198906 + 1,
    )
    said = config("llama-yarn", rope_scaling={**YARN, "attention_factor": 1.25, "truncate": False})
    rope = said.rope_parameters[FULL]
    assert (rope.attention_factor, rope.truncate) == (1.25, False)
    scaled = config("llama-yarn", rope_scaling={**YARN, "mscale": 1.0, "mscale_all_dim": 1.0})
    assert scaled.rope_parameters[FULL].attention_factor == 1.0
    # One of the two alone, or zero, is as if neither were there.
    for none in ({"mscale": 2.0}, {"mscale": 2.0, "mscale_all_dim": 0.0}, {"finetuned": True}):
        assert config("llama-yarn", rope_scaling={**YARN, **none}) == config("llama-yarn")
    bare: Raw = {"type": "yarn", "factor": 4.0}
    trained = config("llama-yarn", rope_scaling=bare).rope_parameters[FULL]
    assert trained.original_max_position_embeddings == 512


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"factor": None}, "has no factor"),
        ({"factor": 0}, "factor = 0"),
        ({"truncate": 1}, "truncate = 1"),
        ({"mscale": -1.0}, "mscale = -1.0"),
        ({"attention_factor": "1"}, "attention_factor"),
        ({"beta_fast": 0}, "beta_fast = 0"),
        ({"beta_slow": 1e300}, "beta_slow = 1e+300"),
        ({"original_max_position_embeddings": 0}, "original_max_position_embeddings = 0"),
        ({"low_freq_factor": 1.0}, "means nothing to rope_type yarn"),
        ({"extrapolation_factor": 1.0}, "means nothing to rope_type yarn"),
        ({"short_factor": [1.0]}, "means nothing to rope_type yarn"),
    ],
)
def test_a_yarn_that_cannot_be_honoured_is_refused_with_its_reason(
    change: Raw, reason: str
) -> None:
    assert reason in refusal("llama-yarn", rope_scaling={**YARN, **change})


def test_yarn_needs_a_base_above_1() -> None:
    assert "rope_theta = 1.0" in refusal("llama-yarn", rope_theta=1)


def test_dynamic_scaling_holds_for_the_trained_length() -> None:
    found = config("llama", rope_scaling={"type": "dynamic", "factor": 2.0})
    assert found.rope_parameters == {FULL: Rope(10_000.0, "dynamic", 2.0, limit=512)}
    assert found.context == 512
    assert "alpha" in refusal("llama", rope_scaling={"type": "dynamic", "factor": 2.0, "alpha": 9})


def test_longrope_holds_for_the_length_of_its_short_factors() -> None:
    found = config("phi3")
    rope = found.rope_parameters[SLIDING]
    assert (rope.kind, rope.short_factor, rope.limit) == ("longrope", (1.0, 1.5, 3.0), 256)
    assert (found.max_position_embeddings, found.context) == (512, 256)
    # √(1 + ln 2 / ln 256)
    assert rope.attention_factor == pytest.approx(1.125**0.5)
    lists: Raw = {"short_factor": [1.0, 1.5, 3.0], "long_factor": [2.0, 4.0, 8.0]}
    for name in ("su", "yarn"):
        assert config("phi3", rope_scaling={"type": name, **lists}) == found
    # The family's key wins over the one among the parameters, as in transformers.
    inside = {"type": "longrope", **lists, "original_max_position_embeddings": 99}
    assert config("phi3", rope_scaling=inside) == found
    plain = config("phi3", rope_scaling=None)
    assert plain.rope_parameters == {SLIDING: Rope(10_000.0, partial_rotary_factor=0.6)}
    assert plain.context == 512


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"short_factor": [1.0, 1.5]}, "2 entries of short_factor, 3 of long"),
        ({"short_factor": [1.0] * 4, "long_factor": [1.0] * 4}, "has 4 entries, for 3 pairs"),
        ({"short_factor": []}, "wanted a list of finite numbers above 0"),
        ({"short_factor": [1.0, 0.0, 1.0]}, "wanted a list of finite numbers above 0"),
        ({"short_factor": "123"}, "wanted a list of finite numbers above 0"),
        ({"long_factor": None}, "has no long_factor"),
        ({"rope_type": "linear"}, "(this version runs default, longrope, su, yarn)"),
    ],
)
def test_a_longrope_that_cannot_be_honoured_is_refused_with_its_reason(
    change: Raw, reason: str
) -> None:
    scaling = CONFIGS["phi3"]["rope_scaling"]
    assert isinstance(scaling, dict)
    assert reason in refusal("phi3", rope_scaling={**scaling, **change})


@pytest.mark.parametrize(
    ("factor", "reason"),
    [
        (0.5, "turns 5 of the 10"),
        (0.05, "turns 0"),
        (1.2, "1.2  (wanted a number above 0, up to 1)"),
        (1e308, "1e+308  (wanted a number above 0, up to 1)"),
    ],
)
def test_the_part_of_a_head_that_turns_is_pairs(factor: float, reason: str) -> None:
    assert reason in refusal("phi3", partial_rotary_factor=factor, rope_scaling=None)


def test_olmo_3_scales_its_full_layers_alone() -> None:
    found = config("olmo3").rope_parameters
    assert found[SLIDING] == Rope(500_000.0)
    assert (found[FULL].kind, found[FULL].theta) == ("yarn", 500_000.0)
    nested = {FULL: {**YARN, "rope_theta": 100.0}, SLIDING: {"rope_theta": 200.0}}
    by_type = config("olmo3", rope_scaling=None, rope_parameters=nested).rope_parameters
    assert (by_type[FULL].theta, by_type[SLIDING].theta) == (100.0, 200.0)


def test_where_readers_disagree_on_olmo_3_s_rope_it_is_refused() -> None:
    assert "readers disagree" in refusal("olmo3", rope_theta=10_000.0)
    flat = {"rope_theta": 500_000.0}
    assert "by layer type" in refusal("olmo3", rope_scaling=None, rope_parameters=flat)
    # transformers reads `truncate` outside of the parameters by layer type, where it is not.
    nested = {FULL: {**YARN, "truncate": False}, SLIDING: {}}
    assert "truncate = false" in refusal("olmo3", rope_scaling=None, rope_parameters=nested)
