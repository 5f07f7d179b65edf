"""What transformers writes and reads in config.json, and what we make of it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedConfig

from forwardpass.architectures import model_types
from forwardpass.config import ModelConfig
from forwardpass.config_keys import NEUTRAL
from forwardpass.describe import describe_config
from forwardpass.errors import ConfigError
from oracles.families import BY_NAME, CASES, Judged

FAMILIES = tuple(dict.fromkeys(case.model_type for case in CASES))
# What the defaults leave out and no model can do without.
NEEDED: dict[str, dict[str, object]] = {
    "deepseek_v2": {"num_experts_per_tok": 6},
    "glm4_moe": {"head_dim": 128},
}
# The same as another family under a name of its own; test_counts_latent.py holds it to that.
RENAMED = {"kimi_k2"}
Judge = Callable[[str], Judged]
Raw = dict[str, object]


def ours(raw: Raw) -> ModelConfig:
    return describe_config("test", raw).config


@pytest.mark.parametrize("family", FAMILIES)
def test_a_config_that_transformers_writes_loads_as_it_is(family: str, tmp_path: Path) -> None:
    AutoConfig.for_model(family, **NEEDED.get(family, {})).save_pretrained(tmp_path)
    raw = json.loads((tmp_path / "config.json").read_text())
    assert ours(raw).accepted_unknown == ()


@pytest.mark.parametrize("family", FAMILIES)
def test_absent_keys_have_the_defaults_of_transformers(family: str) -> None:
    needed = NEEDED.get(family, {})
    written = AutoConfig.for_model(family, **needed).to_dict()
    assert ours({"model_type": family, **needed}) == ours(written)


@pytest.mark.parametrize("name", list(BY_NAME))
def test_the_spellings_of_transformers_4_and_5_give_one_config(judged: Judge, name: str) -> None:
    path = judged(name).folder / "config.json"
    new = json.loads(path.read_text())
    old = older_spelling(new)
    assert old.keys() != new.keys()
    assert ours(old) == ours(new)
    # The judge reads the older spelling as the same model, too.
    again = AutoConfig.for_model(**old).to_dict()
    assert ours(again) == ours(new)


def older_spelling(config: Raw) -> Raw:
    """The config as transformers 4 wrote it."""
    old = dict(config)
    old["torch_dtype"] = old.pop("dtype")
    rope = old.pop("rope_parameters", None)
    if not isinstance(rope, dict):
        return old
    if config["model_type"] == "olmo3":
        rope = rope["full_attention"]
    elif "full_attention" in rope:
        old["rope_local_base_freq"] = rope["sliding_attention"]["rope_theta"]
        rope = rope["full_attention"]
        del old["layer_types"], old["_sliding_window_pattern"]
        old["sliding_window_pattern"] = 2
    rope = dict(rope)
    if "partial_rotary_factor" in rope:
        neox = config["model_type"] == "gpt_neox"
        part = "rotary_pct" if neox else "partial_rotary_factor"
        old[part] = rope.pop("partial_rotary_factor")
    base = "rotary_emb_base" if config["model_type"] == "gpt_neox" else "rope_theta"
    old[base] = rope.pop("rope_theta")
    if rope["rope_type"] == "linear" and config["model_type"] == "llama":
        rope["type"] = rope.pop("rope_type")
    old["rope_scaling"] = None if rope == {"rope_type": "default"} else rope
    return old


def varied(key: str) -> Iterator[object]:
    """Values of a neutral key, of the types that it has in published configs."""
    if key.endswith(("pdrop", "dropout")) or key in ("temperature", "top_p", "initializer_range"):
        yield 0.37
    elif key.endswith(("_id", "_length", "_size", "num_beams", "top_k", "_tp", "forward")):
        yield 3
    else:
        yield "something"


@pytest.mark.parametrize(
    "name",
    [
        *("gpt2", "llama", "qwen2-windows", "qwen3-windows", "gemma3"),
        *("stablelm", "starcoder2", "gpt_neox", "gptj", "phi", "falcon", "bloom", "opt"),
        *("mistral", "gemma", "gemma2", "phi3-windows", "olmo2", "olmo3", "granite"),
        *("smollm3-windows", "cohere"),
        *("deepseek_v2", "deepseek_v3", "glm4_moe", "minimax_m2"),
    ],
)
def test_no_neutral_key_changes_a_logit_of_transformers(judged: Judge, name: str) -> None:
    """Each neutral key that the judge's class reads is set to something else, all at once."""
    case = judged(name)
    config = AutoConfig.from_pretrained(case.folder)
    family = describe_config("test", config.to_dict()).family
    fields = {key for key in config.to_dict() if key in NEUTRAL | family.spec.neutral}
    # Where to look for what; how the answer is wrapped; classifiers, which have their own classes.
    left = {"architectures", "id2label", "label2id", "problem_type", "return_dict"}
    for key in sorted(fields - left):
        set_otherwise(config, key)
    model = AutoModelForCausalLM.from_pretrained(
        case.folder, config=config, attn_implementation="eager", dtype=torch.float32
    )
    with torch.no_grad():
        answer = model.eval()(torch.tensor([case.tokens[: len(case.prompt)]]))
    # reorder_and_upcast_attn of gpt2 computes the same in another order.
    torch.testing.assert_close(answer.logits[0], torch.from_numpy(case.prompt), rtol=0, atol=1e-5)


def set_otherwise(config: PreTrainedConfig, key: str) -> None:
    old = getattr(config, key)
    if isinstance(old, bool):
        new: object = not old
    elif isinstance(old, float):
        new = old / 2 + 0.1
    elif isinstance(old, int):
        new = old + 2
    else:
        new = next(varied(key))
    setattr(config, key, new)


REFUSED: dict[str, Raw] = {
    "llama": {"is_causal": False},
    "gpt2": {"scale_attn_weights": False},
    "gpt2-untied": {"scale_attn_by_inverse_layer_idx": True},
    "gemma3": {"use_bidirectional_attention": True},
    "bloom": {"apply_residual_connection_post_layernorm": True},
    "falcon": {"alibi": True},
    "opt": {"_remove_final_layer_norm": True},
    "opt-unbiased": {"layer_norm_elementwise_affine": False},
}


@pytest.mark.parametrize("name", list(REFUSED))
def test_a_setting_that_changes_logits_and_is_not_built_is_refused(
    judged: Judge, name: str
) -> None:
    case, setting = judged(name), REFUSED[name]
    config = AutoConfig.from_pretrained(case.folder)
    for key, value in setting.items():
        setattr(config, key, value)
    model = AutoModelForCausalLM.from_pretrained(
        case.folder, config=config, attn_implementation="eager", dtype=torch.float32
    )
    with torch.no_grad():
        answer = model.eval()(torch.tensor([case.tokens[: len(case.prompt)]])).logits[0]
    assert (answer - torch.from_numpy(case.prompt)).abs().max() > 0.01
    raw = json.loads((case.folder / "config.json").read_text())
    with pytest.raises(ConfigError, match=next(iter(setting))):
        ours({**raw, **setting})


@pytest.mark.parametrize("key", ["rope_scaling", "rope_parameters"])
def test_transformers_reads_nothing_else_of_the_default_rope_either(
    judged: Judge, key: str
) -> None:
    case = judged("llama")
    raw = json.loads((case.folder / "config.json").read_text())
    theta = raw.pop("rope_parameters")["rope_theta"]
    unread: Raw = {"rope_type": "default", "original_max_position_embeddings": 16, "factor": 1.0}
    plain = {**raw, "rope_theta": theta}
    stated = {**plain, key: unread}
    assert ours(stated) == ours(plain)
    model = AutoModelForCausalLM.from_pretrained(
        case.folder,
        config=AutoConfig.for_model(**stated),
        attn_implementation="eager",
        dtype=torch.float32,
    )
    with torch.no_grad():
        answer = model.eval()(torch.tensor([case.tokens[: len(case.prompt)]])).logits[0]
    assert torch.equal(answer, torch.from_numpy(case.prompt))


def test_a_cap_on_gemma_3_s_scores_is_refused_because_transformers_ignores_it(
    judged: Judge,
) -> None:
    case = judged("gemma3")
    config = AutoConfig.from_pretrained(case.folder, attn_logit_softcapping=0.5)
    model = AutoModelForCausalLM.from_pretrained(
        case.folder, config=config, attn_implementation="eager", dtype=torch.float32
    )
    with torch.no_grad():
        answer = model.eval()(torch.tensor([case.tokens[: len(case.prompt)]])).logits[0]
    assert torch.equal(answer, torch.from_numpy(case.prompt))
    raw = {**json.loads((case.folder / "config.json").read_text()), "attn_logit_softcapping": 0.5}
    with pytest.raises(ConfigError, match=r"attn_logit_softcapping = 0\.5"):
        ours(raw)
    accepted = describe_config("test", raw, accept_unknown=["attn_logit_softcapping"]).config
    assert accepted.accepted_unknown == (("attn_logit_softcapping", 0.5),)


def test_every_family_of_the_package_has_a_case() -> None:
    for family in set(model_types()) - set(FAMILIES) - RENAMED:
        raw = {"model_type": family, **NEEDED.get(family, {})}
        graph = describe_config(family, raw).graph
        assert graph.counted_only or not graph.proven, family
    assert set(FAMILIES) | RENAMED <= set(model_types())


def test_null_means_what_it_means_to_transformers() -> None:
    sizes: Raw = {"model_type": "qwen2", "hidden_size": 64, "num_attention_heads": 4}
    windows: Raw = {"use_sliding_window": True, "max_window_layers": 2}
    for nulls in (
        {"num_key_value_heads": None},
        {"num_key_value_heads": 2, **windows, "sliding_window": None},
    ):
        raw = {**sizes, **nulls}
        theirs = AutoConfig.for_model(**raw).to_dict()
        assert ours(raw) == ours(theirs)
