"""What GGUF metadata say about the families beside Llama, and how their ropes are scaled."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from config.gguf_metadata import METADATA, SHAPES_OF
from forwardpass.architectures import gguf_family
from forwardpass.config import ModelConfig, read_config
from forwardpass.config_gguf import config_from_gguf
from forwardpass.errors import ConfigError
from forwardpass.rope import FULL, SLIDING, Rope

WINDOW = "attention.sliding_window"
YARN: dict[str, object] = {
    "rope.scaling.type": "yarn",
    "rope.scaling.factor": 8.0,
    "rope.scaling.original_context_length": 64,
}
LENGTHENED = 0.1 * 2.0794415416798357 + 1


def config(
    architecture: str, changes: Mapping[str, object] | None = None, **shapes: tuple[int, ...]
) -> ModelConfig:
    metadata = {**METADATA[architecture]}
    metadata |= {f"{architecture}.{key}": value for key, value in (changes or {}).items()}
    family = gguf_family(architecture, "tiny.gguf", metadata)
    tensors = {f"{name}.weight": shape for name, shape in shapes.items()}
    raw = config_from_gguf(metadata, {**SHAPES_OF[architecture], **tensors}, family, "tiny.gguf")
    return read_config(raw, family.spec, "tiny.gguf")


def refusal(architecture: str, changes: Mapping[str, object], **shapes: tuple[int, ...]) -> str:
    with pytest.raises(ConfigError) as caught:
        config(architecture, changes, **shapes)
    return str(caught.value)


def test_a_llama_with_a_window_is_a_mistral() -> None:
    found = config("llama", {WINDOW: 8})
    assert (found.model_type, found.sliding_window) == ("mistral", 8)
    assert set(found.layer_types) == {SLIDING}
    assert config("llama").model_type == "llama"


def test_an_olmo_with_a_window_is_an_olmo_3() -> None:
    assert config("olmo2").model_type == "olmo2"
    third = config("olmo2", {WINDOW: 8})
    assert (third.model_type, third.sliding_window) == ("olmo3", 8)
    assert third.layer_types == (*(SLIDING,) * 3, FULL, *(SLIDING,) * 3)
    assert third.rope_parameters == {FULL: Rope(500.0), SLIDING: Rope(500.0)}
    pattern = f"{WINDOW}_pattern"
    slides = [True, False, True, True, False, True, False]
    listed = config("olmo2", {WINDOW: 8, pattern: slides, **YARN, "rope.freq_base_swa": 7.0})
    assert listed.layer_types == tuple(SLIDING if entry else FULL for entry in slides)
    assert listed.rope_parameters[SLIDING] == Rope(7.0)
    assert listed.rope_parameters[FULL].kind == "yarn"
    assert set(config("olmo2", {WINDOW: 8, pattern: 2}).layer_types[::2]) == {SLIDING}
    for wrong in ("no", [True], [0.5] * 7):
        assert "layer_types" in refusal("olmo2", {WINDOW: 8, pattern: wrong})


def test_yarn_is_read_from_its_keys() -> None:
    expected = Rope(
        500.0,
        "yarn",
        8.0,
        original_max_position_embeddings=64.0,
        beta_fast=16.0,
        beta_slow=2.0,
        attention_factor=pytest.approx(LENGTHENED),  # type: ignore[arg-type]
    )
    betas = {"rope.scaling.yarn_beta_fast": 16.0, "rope.scaling.yarn_beta_slow": 2.0}
    assert config("llama", {**YARN, **betas}).rope_parameters[FULL] == expected
    neutral = {
        "rope.scaling.yarn_attn_factor": 1.2079441,
        "rope.scaling.attn_factor": 1.0,
        "rope.scaling.yarn_ext_factor": 1.0,
        "rope.scaling.yarn_log_multiplier": 0.0,
    }
    assert config("llama", {**YARN, **betas, **neutral}).rope_parameters[FULL] == expected
    trained = {key: value for key, value in YARN.items() if "original" not in key}
    assert config("qwen2", trained).rope_parameters[FULL].original_max_position_embeddings == 512


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("yarn_attn_factor", 1.0),
        ("attn_factor", 1.2079441),
        ("yarn_ext_factor", 0.5),
        ("yarn_log_multiplier", 0.1),
        ("alpha", 1000.0),
    ],
)
def test_a_yarn_that_readers_take_differently_is_refused_by_name(key: str, value: float) -> None:
    full = f"rope.scaling.{key}"
    assert f"llama.{full} = {value}" in refusal("llama", {**YARN, full: value})


def test_a_factor_on_turned_elements_is_refused_where_nothing_scales() -> None:
    assert "rope.scaling.attn_factor" in refusal("llama", {"rope.scaling.attn_factor": 1.5})
    assert config("llama", {"rope.scaling.attn_factor": 1.0}) == config("llama")
    assert config("llama", {"rope.scaling.original_context_length": 9}) == config("llama")


def test_phi_3_s_longrope_is_that_of_its_tensors() -> None:
    factors = {"rope_factors_short": (3,), "rope_factors_long": (3,)}
    found = config("phi3", {"rope.scaling.attn_factor": 1.125}, **factors)
    rope = found.rope_parameters[FULL]
    assert (rope.kind, rope.attention_factor, rope.limit) == ("longrope", 1.125, 256)
    assert rope.short_factor == (1.0, 1.0, 1.0)  # the op that reads the tensor divides
    assert rope.partial_rotary_factor == 0.6
    assert config("phi3").rope_parameters[FULL].kind == "default"
    assert config("phi3").context == 512
    assert "short_factor" in refusal("phi3", {}, **factors)
    assert "longrope" in refusal("phi3", {"rope.scaling.type": "longrope"})
    wrong = {"rope_factors_short": (4,)}
    assert "4 entries" in refusal("phi3", {"rope.scaling.attn_factor": 1.125}, **wrong)


def test_phi_3_s_window_of_0_is_none() -> None:
    assert config("phi3").sliding_window is None
    assert set(config("phi3", {WINDOW: 9}).layer_types) == {SLIDING}


def test_gemma_2_s_scale_is_that_of_the_head_but_for_the_largest_model() -> None:
    found = config("gemma2")
    assert (found.query_pre_attn_scalar, found.sliding_window) == (10, 9)
    assert (found.attn_logit_softcapping, found.final_logit_softcapping) == (5.0, 30.0)
    largest = {"block_count": 46, "embedding_length": 4_608, "attention.head_count": 32}
    table = {"token_embd": (61, 4_608)}
    assert config("gemma2", largest, **table).query_pre_attn_scalar == 144


def test_granite_s_multipliers_go_by_other_names() -> None:
    found = config("granite", {"embedding_scale": 12.0})
    assert (found.embedding_multiplier, found.attention_multiplier) == (12.0, 0.2)
    assert (found.residual_multiplier, found.logits_scaling) == (0.6, 4.0)
    assert "rope_finetuned = false" in str(refusal("granite", {"rope.scaling.finetuned": False}))
    assert config("granite", {"rope.scaling.finetuned": True}) == config("granite")


def test_smollm3_and_command_r() -> None:
    assert config("smollm3").no_rope_layers == (1, 1, 1, 0, 1, 1, 1)
    plain = config("command-r")
    assert (plain.logit_scale, plain.use_qk_norm, plain.num_hidden_layers) == (0.25, False, 2)
    metadata = {"rope.scaling.type": "none"}
    assert config("command-r", metadata) == plain
    family = gguf_family("command-r", "tiny.gguf")
    shapes = {"token_embd.weight": (61, 24), "blk.0.attn_q_norm.weight": (4, 6)}
    raw = config_from_gguf(METADATA["command-r"], shapes, family, "tiny.gguf")
    assert read_config(raw, family.spec).use_qk_norm
