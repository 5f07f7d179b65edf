"""Mixtures of experts, from the command line: they run on the reference, and say what they read."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from cli.conftest import WITHOUT_NATIVE
from cli.running import Run
from tiny_model import random_folder

EXPERTS = 5
MIXTURES: dict[str, dict[str, Any]] = {
    "mixtral": {"num_local_experts": EXPERTS, "num_experts_per_tok": 2},
    "gpt_oss": {"num_local_experts": EXPERTS, "num_experts_per_tok": 2, "sliding_window": 8},
}
BRIEF = ["--prompt", "8", "--visible", "8", "--batch", "1,2"]
LACKING = {"mixtral": "mixtures of experts", "gpt_oss": "attention sinks"}


@pytest.fixture(scope="module", params=list(MIXTURES))
def mixture(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a random mixture, named after its family."""
    kind = request.param
    folder = tmp_path_factory.mktemp("mixtures") / kind
    return random_folder(folder, model_type=kind, **MIXTURES[kind])


def test_a_mixture_runs_on_the_reference_and_says_so(run: Run, mixture: Path) -> None:
    done = run.ok("run", mixture, "the quick brown fox", "--max-tokens", 4, "--seed", 1)
    account = done.err.splitlines()
    why = WITHOUT_NATIVE or f"there is no kernel for {LACKING[mixture.name]}"
    assert account[-1] == f"reference backend (NumPy): {why}"
    assert re.fullmatch(
        rf"experts read: \d\.\d of {EXPERTS} a layer and pass, \d\.\d expected", account[1]
    )
    said = run.refused("run", mixture, "hi", "--backend", "native")
    assert WITHOUT_NATIVE or f"no kernel for {LACKING[mixture.name]}" in said


def test_what_is_read_of_the_experts_is_the_average_of_the_passes(run: Run, mixture: Path) -> None:
    found = json.loads(
        run.ok("run", mixture, "the quick brown fox", "--max-tokens", 4, "--json").out
    )
    prompt = found["usage"]["prompt_tokens"]
    passes = found["work"]["passes"]
    assert passes == 4
    experts = found["work"]["experts"]
    # A pass of one token reads those that it chose, of which there are two.
    expected = EXPERTS * (1 - (3 / 5) ** prompt) + 2 * (passes - 1)
    assert experts["expected"] == pytest.approx(expected / passes)
    assert experts["of"] == EXPERTS
    in_the_prompt = experts["read"] * passes - 2 * (passes - 1)
    assert 2 <= in_the_prompt <= EXPERTS
    assert in_the_prompt * 2 == pytest.approx(round(in_the_prompt * 2))  # of two layers
    assert in_the_prompt > 3


def test_a_dense_model_reads_no_experts(run: Run, tiny: Path) -> None:
    found = json.loads(
        run.ok("run", tiny, "hi", "--backend", "reference", "--max-tokens", 2, "--json").out
    )
    assert "experts" not in found["work"]


@pytest.mark.parametrize("command", ["count", "bench", "profile", "next", "score"])
def test_other_commands_take_mixtures(command: str, run: Run, mixture: Path) -> None:
    more = {"next": ["the"], "score": ["the quick fox"], "bench": BRIEF}
    assert run.ok(command, mixture, *more.get(command, [])).out
