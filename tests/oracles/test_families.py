"""Every family against transformers' own classes, on tiny random models."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from forwardpass.backends.backend import Backend
from forwardpass.backends.levels import missing_reason
from forwardpass.computing import Computing
from levels import runnable
from oracles.families import BY_NAME, CASES, Judged
from oracles.gpt_like import GPT_LIKE
from oracles.latent_like import LATENT_LIKE
from oracles.loading import TOLERANCE, described, distance, loaded, logits
from oracles.moe_like import MOE_LIKE
from oracles.mutations import mutations

Judge = Callable[[str], Judged]
_QUOTIENTS = {
    *(
        "gpt2",
        "gpt2-gelu",
        "gpt2-untied",
        "llama-ungrouped",
        "phi3-longrope",
        "phi3-longrope-partial",
    ),
    *("olmoe", "olmoe-biases"),
    *GPT_LIKE,
}
TILE_TOLERANCE = 8 * 2.0**-8  # of the logits' root mean square: a few roundings to bf16
every_case = pytest.mark.parametrize("name", list(BY_NAME))


@every_case
def test_logits_equal_those_of_transformers(judged: Judge, name: str) -> None:
    case = judged(name)
    found = distance(loaded(case.folder), case)
    print(f"{name}: largest difference {found:.1e} of the largest logit")
    assert found <= TOLERANCE


def native(case: Judged, name: str, level: str | None, set_level: pytest.MonkeyPatch) -> Backend:
    """With a cache of float32: one of f16 moves logits by up to 0.003 of the largest."""
    assert level is not None
    set_level.setenv("FORWARDPASS_ISA", level)
    computing = Computing("native", threads=1, kv_type="f32")
    model, notes = computing.backend_for(described(case.folder), name)
    assert (model.name, notes) == ("native", ())
    return model


NATIVE = [name for name in BY_NAME if name not in {**MOE_LIKE, **LATENT_LIKE}]


@pytest.mark.parametrize("name", NATIVE)
@pytest.mark.skipif(missing_reason() is not None, reason=str(missing_reason()))
def test_the_native_backend_s_logits_equal_those_of_transformers(
    judged: Judge, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = judged(name)
    found = distance(native(case, name, runnable(tiles=False), monkeypatch), case)
    print(f"{name}: largest difference {found:.1e} of the largest logit")
    assert found <= TOLERANCE


@pytest.mark.parametrize("name", NATIVE)
@pytest.mark.skipif(runnable(tiles=True) is None, reason="no level here has tiles")
def test_prompts_in_tiles_give_the_logits_of_transformers_to_a_few_roundings_of_bf16(
    judged: Judge, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = judged(name)
    ours = logits(native(case, name, runnable(tiles=True), monkeypatch), case.tokens)
    for found, theirs in zip(ours, (case.prompt, case.steps), strict=True):
        off = float(np.sqrt(np.mean((found - theirs) ** 2) / np.mean(theirs**2)))
        print(f"{name}: {off:.1e} of the logits' root mean square")
        assert off <= TILE_TOLERANCE


@pytest.mark.parametrize("name", [*MOE_LIKE, *LATENT_LIKE])
@pytest.mark.skipif(missing_reason() is not None, reason=str(missing_reason()))
def test_the_reference_takes_mixtures_and_says_why(judged: Judge, name: str) -> None:
    lacking = "attention sinks" if name.startswith("gpt_oss") else "mixtures of experts"
    lacking = "latent attention" if name.startswith("deepseek") else lacking
    model, notes = Computing().backend_for(described(judged(name).folder), name)
    assert model.name == "reference"
    assert notes == (f"reference backend (NumPy): there is no kernel for {lacking}",)


@every_case
def test_whatever_is_left_out_or_wrong_shows_in_the_logits(judged: Judge, name: str) -> None:
    case = judged(name)
    model = loaded(case.folder)
    distances = {m.what: distance(m.model, case) for m in mutations(model.graph, model.weights)}
    for what, found in sorted(distances.items(), key=lambda item: item[1]):
        print(f"{name}: {what}: {found:.1e}")
    unnoticed = [what for what, found in distances.items() if not found > TOLERANCE]
    assert not unnoticed
    assert len(distances) > 20


def test_the_cases_cross_windows_shards_and_head_sizes_that_are_no_quotient(judged: Judge) -> None:
    for case in CASES:
        folder = judged(case.name).folder
        config = described(folder).config
        shards = len(list(folder.glob("*.safetensors")))
        assert shards > 1 if case.shard else shards == 1
        quotient = config.head_dim * config.num_attention_heads == config.hidden_size
        assert quotient == (case.name in _QUOTIENTS)
        stated = case.config.get("sliding_window")
        assert config.sliding_window == stated
        assert stated in (None, 8)  # the prompt has 37 tokens
