"""The order of operations: a trace's stages, masses, factor, interval and token from its scores."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import forwardpass as fp
from tiny_model import random_folder
from traces import recompute

SETTINGS: tuple[dict[str, Any], ...] = (
    {"temperature": 0},
    {"temperature": 1.0},
    {"temperature": 1.0, "top_p": 0.9},
    {"temperature": 2.0, "top_k": 20, "top_p": 0.6, "min_p": 0.1},
    {"temperature": 2.0, "top_k": 20, "top_p": 0.6, "min_p": 0.1, "sampler": "transformers"},
    {"temperature": 2.0, "top_k": 20, "top_p": 0.6, "min_p": 0.1, "sampler": "llama.cpp"},
    {"temperature": 0.5, "min_p": 0.2, "top_p": 0.8, "stages": "min_p,temperature,top_p"},
    {"temperature": 1.2, "repetition_penalty": 1.3, "top_k": 9},
    {"temperature": 1.2, "frequency_penalty": 1.5, "presence_penalty": 0.5, "top_p": 0.95},
    {"temperature": 1.0, "presence_penalty": 1.5, "sampler": "llama.cpp", "penalty_last_n": 3},
    {"temperature": 0, "repetition_penalty": 2.0, "logit_bias": {5: 1.5, 9: -3.0}},
    {"temperature": 1.0, "logit_bias": {5: 4.0, 9: -100.0}, "top_k": 40, "top_p": 0.5},
)
PROMPT = "Name a vegetable that keeps all winter."


def check(model: fp.Model, asked: dict[str, Any], path: Path, tokens: int) -> None:
    """Writes a full trace and holds it to the script."""
    vocabulary = model.description.config.vocab_size
    asked = {"max_tokens": tokens, "seed": 11, "keep_scores": vocabulary, **asked}
    fp.write_trace(model.generate(PROMPT, **asked).trace(), path)
    trace = json.loads(path.read_text("utf-8"))
    for step, expected in zip(trace["steps"], recompute.recompute(trace), strict=True):
        assert step["id"] == expected["token"]
        assert step["best"]["rest"] == 0
        adjust, mask, *later = step["stages"]
        assert (adjust["name"], mask["name"]) == ("adjust", "mask")
        assert adjust["survivors"] == mask["survivors"] == vocabulary
        if expected["interval"] is None:
            assert step["random"] is step["interval"] is None
        else:
            *later, rescale, draw = later
            assert rescale["value"] == pytest.approx(expected["factor"], rel=1e-6)
            assert draw["value"] == step["random"]
            assert step["interval"] == pytest.approx(expected["interval"], abs=1e-6)
            assert step["interval"][0] <= step["random"] < step["interval"][1]
        assert len(later) == len(expected["stages"])
        for stage, (survivors, mass) in zip(later, expected["stages"], strict=True):
            assert stage["survivors"] == survivors, stage["name"]
            assert stage["mass"] == pytest.approx(mass, rel=1e-6), stage["name"]


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> fp.Model:
    return fp.load(random_folder(tmp_path_factory.mktemp("models") / "tiny"))


@pytest.mark.parametrize("asked", SETTINGS, ids=str)
def test_every_stage_recomputes_from_the_raw_scores(
    tiny: fp.Model, asked: dict[str, Any], tmp_path: Path
) -> None:
    check(tiny, asked, tmp_path / "trace.json", tokens=8)


def test_every_stage_of_a_real_model_recomputes_from_the_raw_scores(
    model_path: Callable[[str], Path], tmp_path: Path
) -> None:
    with fp.load(model_path("smollm2-135m")) as model:
        for number, asked in enumerate(SETTINGS):
            check(model, asked, tmp_path / f"{number}.json", tokens=3)


def test_the_script_shares_no_code_with_the_sampler() -> None:
    source = Path(recompute.__file__ or "").read_text("utf-8")
    assert "forwardpass" not in source
    assert "numpy" not in source
