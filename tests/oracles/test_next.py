"""The next-token table of real models, held to an independent float32 evaluation."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import forwardpass as fp
from forwardpass.cli.main import main
from oracles.independent import independent_logits

ModelPath = Callable[[str], Path]
PROMPT = "Name one fish that swims in the North Sea. Answer with one word."
TEMPERATURES = ("0.5", "1.0", "1.5")
DRAWS = 2_000


def table(capsys: pytest.CaptureFixture[str], path: Path, backend: str) -> dict[str, Any]:
    capsys.readouterr()
    asked = ["next", str(path), PROMPT, "--top", "40", "--draws", str(DRAWS), "--json"]
    assert main([*asked, "--backend", backend]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


@pytest.mark.parametrize(("backend", "tolerance"), [("reference", 1e-4), ("native", 5e-3)])
@pytest.mark.parametrize("alias", ["smollm2-135m", "gemma3-270m"])
def test_the_table_is_the_softmax_of_an_independent_evaluation(
    model_path: ModelPath,
    capsys: pytest.CaptureFixture[str],
    alias: str,
    backend: str,
    tolerance: float,
) -> None:
    """The native backend keeps keys and values in f16, which moved a probability by 0.002.

    Draws: each count within 6 standard deviations, a false alarm in 10⁶ seeds; this one is 0."""
    path = model_path(alias)
    found = table(capsys, path, backend)
    with fp.load(path) as model:
        ids = model.prepare(PROMPT).ids
    assert found["prompt_tokens"] == len(ids)
    theirs = independent_logits(path, ids)[-1].astype(np.float64)
    assert found["vocabulary"] == theirs.size
    rows = found["top"]
    for name in TEMPERATURES:
        powers = np.exp((theirs - theirs.max()) / float(name))
        expected = powers / powers.sum()
        for row in rows:
            assert abs(row["probability"][name] - expected[row["id"]]) <= tolerance
    best = np.argsort(-theirs)[0]
    assert rows[0]["id"] == best
    for first, second in combinations(rows, 2):
        gap = first["score"] - second["score"]
        for name in TEMPERATURES:
            ratio = first["probability"][name] / second["probability"][name]
            assert ratio == pytest.approx(math.exp(gap / float(name)), rel=1e-9)
    counts = {row["id"]: row["count"] for row in found["draws"]}
    assert sum(counts.values()) == DRAWS
    for row in rows:
        p = row["probability"]["1.0"]
        spread = math.sqrt(DRAWS * p * (1 - p))
        assert abs(counts.get(row["id"], 0) - DRAWS * p) < 6 * max(spread, 1)
