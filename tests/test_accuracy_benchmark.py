"""benchmarks/accuracy.py: its arithmetic on small arrays, its windows, and one whole run."""

from __future__ import annotations

import importlib.util
import json
import math
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import tiny_model
from forwardpass.graph.references import F32

SCRIPT = Path(__file__).resolve().parents[1] / "benchmarks" / "accuracy.py"


def _script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("accuracy_benchmark", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their own module up
    spec.loader.exec_module(module)
    return module


accuracy = _script()


def _logits(*rows: list[float]) -> F32:
    return np.array(rows, np.float32)


def test_kl_is_the_sum_over_the_vocabulary_of_p_log_p_over_q() -> None:
    p, q = [0.5, 0.25, 0.25], [0.25, 0.5, 0.25]
    wanted = math.fsum(a * math.log(a / b) for a, b in zip(p, q, strict=True))
    # Any constant may be added to a row of logits; a large one must not overflow.
    reference = _logits([math.log(a) for a in p]) + np.float32(1_000)
    found = accuracy.kl_divergence(reference, _logits([math.log(b) for b in q]))
    # A float32 logit near 1,000 is exact to 2⁻¹⁵.
    assert found == pytest.approx([wanted], rel=1e-3)


def test_kl_weighs_by_the_reference_and_not_by_the_other() -> None:
    sure, unsure = _logits([10, 0, 0]), _logits([0, 0, 0])
    assert accuracy.kl_divergence(sure, unsure)[0] == pytest.approx(math.log(3), rel=1e-2)
    assert accuracy.kl_divergence(unsure, sure)[0] > 5


def test_kl_tells_errors_apart_that_float32_would_lose() -> None:
    random = np.random.default_rng(5)
    reference = random.normal(size=(4, 1_000)).astype(np.float32)
    for error in (1e-3, 1e-5):
        noise = error * random.normal(size=reference.shape)
        other = (reference + noise).astype(np.float32)
        moved = other.astype(np.float64) - reference
        p = np.exp(accuracy.log_softmax(reference))
        # To second order, KL is half the variance, under p, of what was added to the logits.
        variance = (p * moved**2).sum(-1) - (p * moved).sum(-1) ** 2
        found = accuracy.kl_divergence(reference, other)
        assert found == pytest.approx(variance / 2, rel=4 * error)


def test_equal_logits_have_no_divergence_and_agree() -> None:
    logits = np.random.default_rng(1).normal(size=(5, 50)).astype(np.float32)
    comparison = accuracy.Comparison()
    comparison.add(logits, logits.copy())
    found = comparison.summary()
    assert found["kl"] == {"mean": 0, "percentile_99_9": 0, "max": 0}
    assert found["top1"] == {"agree": 5, "positions": 5}


def test_the_lead_is_the_best_logit_less_the_second_best_wherever_they_stand() -> None:
    found = accuracy.lead(_logits([1, 4, 2.5], [7, 0, 3], [2, -1, 2]))
    assert found.tolist() == [1.5, 4, 0]


def test_only_positions_whose_lead_exceeds_the_limit_count_as_clear() -> None:
    limit = accuracy.CLEAR
    narrow, wide = [limit / 2, 0.0, -9.0], [2 * limit, 0.0, -9.0]
    flipped = [0.0, 1.0, -9.0]
    comparison = accuracy.Comparison()
    comparison.add(_logits(narrow, wide), _logits(flipped, wide))
    comparison.add(_logits(wide, wide), _logits(flipped, narrow))
    found = comparison.summary()
    assert found["top1"] == {"agree": 2, "positions": 4}
    assert found["top1_clear"] == {"lead_over": limit, "agree": 2, "positions": 3}


def test_the_summary_is_of_all_rows_whatever_the_blocks_they_came_in() -> None:
    random = np.random.default_rng(2)
    reference, other = random.normal(size=(2, 40, 30)).astype(np.float32)
    whole, parts = accuracy.Comparison(), accuracy.Comparison()
    whole.add(reference, other)
    for at in range(0, 40, 7):
        parts.add(reference[at : at + 7], other[at : at + 7])
    assert parts.summary() == whole.summary()
    kl = accuracy.kl_divergence(reference, other)
    assert whole.summary()["kl"]["max"] == kl.max()
    assert kl.mean() < whole.summary()["kl"]["percentile_99_9"] < kl.max()


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_logits_that_are_not_finite_are_refused(bad: float) -> None:
    with pytest.raises(ValueError, match="other's logits are not finite"):
        accuracy.Comparison().add(_logits([0, 1]), _logits([0, bad]))


def test_logits_of_another_vocabulary_are_refused() -> None:
    with pytest.raises(ValueError, match=r"\(1, 3\), the reference's are \(1, 2\)"):
        accuracy.Comparison().add(_logits([0, 1]), _logits([0, 1, 2]))


@pytest.mark.parametrize("bos", [None, 99])
def test_windows_hold_every_token_once_behind_the_first_token(bos: int | None) -> None:
    windows = accuracy.cut(range(23), bos, 10)
    assert all(len(window) <= 10 for window in windows)
    if bos is not None:
        assert all(window[0] == bos for window in windows)
        windows = [window[1:] for window in windows]
    assert [token for window in windows for token in window] == list(range(23))


@pytest.mark.parametrize("phase", accuracy.PHASES)
def test_passes_run_every_token_once_and_the_scored_rows_are_the_phases_own(phase: str) -> None:
    windows = (tuple(range(101)), tuple(range(45)))
    what = accuracy.Reading(Path("model"), windows, "", {})
    ran = [list(accuracy.passes(phase, window, 32)) for window in windows]
    assert [[t for tokens, _ in each for t in tokens] for each in ran] == [*map(list, windows)]
    assert all(
        len(tokens) <= (1 if generated else 32) for each in ran for tokens, generated in each
    )
    generated = sum(len(tokens) for each in ran for tokens, own in each if own)
    blocks = list(accuracy.blocks(what, phase))
    assert [row for rows, _ in blocks for row in range(146)[rows]] == list(range(146))
    scored = sum(rows.stop - rows.start for rows, scored in blocks if scored)
    assert scored == (146 if phase == "prompt" else generated)
    assert generated == {"prompt": 0, "generated": 146, "after-prompt": 51 + 23}[phase]


def _run(model: Path, folder: Path) -> dict[str, Any]:
    command = [sys.executable, str(SCRIPT), str(model), "--cache", str(folder / "cache")]
    command += ["--results", str(folder), "--backend", "reference", "--window", "40"]
    command += ["--limit", "90", "--phase", "prompt", "generated"]
    subprocess.run(command, check=True, capture_output=True, timeout=300)
    found: dict[str, Any] = json.loads((folder / f"accuracy-{model.stem}.json").read_text("utf-8"))
    return found


def test_a_run_finds_the_reference_equal_to_itself_and_its_rounding_near(tmp_path: Path) -> None:
    model = tiny_model.random_gguf(tmp_path / "tiny.gguf")
    found = _run(model, tmp_path)
    assert found["text"]["positions"] >= 90
    rounded, prompt, generated = found["runs"]
    assert all(run["positions"] == found["text"]["positions"] for run in found["runs"])
    assert prompt["kl"]["max"] == 0
    assert generated["kl"]["max"] < 1e-8 < rounded["kl"]["max"] < 1e-3

    # What the cache holds is what the next run is held to: here, the rows in another order.
    (store,) = (tmp_path / "cache").glob("*.npy")
    logits = np.load(store, mmap_mode="r+")
    logits[:] = logits[::-1].copy()
    logits.flush()
    assert _run(model, tmp_path)["runs"][1]["kl"]["mean"] > 1e-3

    # Without the file that is written last, they are computed anew.
    store.with_suffix(".json").unlink()
    assert _run(model, tmp_path)["runs"][1]["kl"]["max"] == 0


def test_the_text_is_long_enough_for_every_vocabulary() -> None:
    size = sum(path.stat().st_size for path in (SCRIPT.parent / "text").glob("*.txt"))
    # The largest vocabularies take about 5 bytes of such text a token; 1,500 are wanted.
    assert 9_000 <= size <= 12_000
