"""Every family against transformers' own classes, on tiny random models."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from forwardpass.backends.levels import missing_reason
from forwardpass.computing import Computing
from oracles.families import BY_NAME, CASES, Judged
from oracles.gpt_like import GPT_LIKE
from oracles.latent_like import LATENT_LIKE
from oracles.loading import TOLERANCE, described, distance, loaded
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
every_case = pytest.mark.parametrize("name", list(BY_NAME))


@every_case
def test_logits_equal_those_of_transformers(judged: Judge, name: str) -> None:
    case = judged(name)
    found = distance(loaded(case.folder), case)
    print(f"{name}: largest difference {found:.1e} of the largest logit")
    assert found <= TOLERANCE


@pytest.mark.parametrize(
    "name", [name for name in BY_NAME if name not in {**MOE_LIKE, **LATENT_LIKE}]
)
@pytest.mark.skipif(missing_reason() is not None, reason=str(missing_reason()))
def test_the_native_backend_s_logits_equal_those_of_transformers(judged: Judge, name: str) -> None:
    """With a cache of float32: one of f16 moves them by up to 0.003 of the largest."""
    case = judged(name)
    computing = Computing("native", threads=1, kv_type="f32")
    model, notes = computing.backend_for(described(case.folder), name)
    assert (model.name, notes) == ("native", ())
    found = distance(model, case)
    print(f"{name}: largest difference {found:.1e} of the largest logit")
    assert found <= TOLERANCE


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
