"""Scores of real models, held to an independent float32 evaluation."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import forwardpass as fp
from forwardpass.cli.main import main
from levels import runnable
from oracles.independent import IndependentModel

TEXT = "Basil, thyme and oregano go well with tomatoes.\nZürich liegt am See. 12,345 😀"


@pytest.mark.parametrize(
    ("backend", "tiles", "tolerance"),
    [("reference", False, 1e-3), ("native", False, 2e-2), ("native", True, 0.15)],
)
@pytest.mark.parametrize("alias", ["smollm2-135m", "gemma3-270m"])
def test_log_probabilities_are_those_of_an_independent_evaluation(
    model_path: Callable[[str], Path],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    alias: str,
    backend: str,
    tiles: bool,
    tolerance: float,
) -> None:
    """The native backend keeps keys and values in f16, which moved a log probability by 0.006;
    tiles of bf16 moved one by 0.06."""
    level = runnable(tiles)
    if tiles and level is None:
        pytest.skip("no level here has tiles")
    if level is not None:
        monkeypatch.setenv("FORWARDPASS_ISA", level)
    path = model_path(alias)
    with fp.load(path) as model:
        ids = model.tokenizer.encode_prompt(TEXT)
    judge = IndependentModel(path)

    def expected(ids: list[int]) -> list[float]:
        logits = judge.logits(ids)[:-1].astype(np.float64)
        chosen = logits[np.arange(len(ids) - 1), ids[1:]]
        found: list[float] = (chosen - np.logaddexp.reduce(logits, axis=1)).tolist()
        return found

    capsys.readouterr()
    assert main(["score", str(path), TEXT, "--json", "--backend", backend]) == 0
    found = json.loads(capsys.readouterr().out)
    known = [row["logprob"] for row in found["tokens"] if row["logprob"] is not None]
    theirs = expected(ids)
    assert known == pytest.approx(theirs, abs=tolerance)
    assert found["sum"] == pytest.approx(math.fsum(theirs), abs=10 * tolerance)
    assert found["perplexity"] == pytest.approx(math.exp(-np.mean(theirs)), rel=tolerance)

    length = 12
    asked = ["score", str(path), TEXT, "--context", str(length), "--stride", "5", "--json"]
    assert main([*asked, "--backend", backend]) == 0
    found = json.loads(capsys.readouterr().out)
    begins = [] if found["bos"] is None else [found["bos"]]
    own = ids[len(begins) :]
    window = length - len(begins)
    windows: list[float] = []
    for start in range(0, len(own), 5):
        part = own[start : start + window]
        new = len(part) - (0 if start == 0 else max(0, window - 5))
        windows += expected([*begins, *part])[-new + (start == 0 and not begins) :]
        if start + window >= len(own):
            break
    known = [row["logprob"] for row in found["tokens"] if row["logprob"] is not None]
    assert known == pytest.approx(windows, abs=tolerance)
