"""Replays of real answers beside runs of the models: 50 settings each."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import forwardpass as fp
from traces.comparing import beside, run_of
from traces.rows import asked_of

PROMPT = "Say in a few words what a lighthouse is for."
TOKENS = 6
MODELS = ("smollm2-135m", pytest.param("qwen2.5-coder-0.5b", marks=pytest.mark.large))


@pytest.mark.parametrize("alias", MODELS)
def test_a_replay_of_a_real_answer_equals_a_run_under_50_settings(
    model_path: Callable[[str], Path], alias: str, tmp_path: Path
) -> None:
    rng = random.Random(50)
    full: Counter[str] = Counter()
    short: Counter[str] = Counter()
    with fp.load(model_path(alias)) as model:
        vocabulary = model.description.config.vocab_size
        kept: dict[str, Any] = {"temperature": 0.4, "seed": 7, "max_tokens": TOKENS}
        whole = model.generate(PROMPT, **kept, keep_scores=vocabulary)
        best = model.generate(PROMPT, **kept)
        for number in range(50):
            asked = asked_of(vocabulary, rng, number)
            if number % 2:  # near the recorded answer's, so that the replay follows it further
                near = {"seed": 7, "temperature": rng.choice((0.3, 0.5))}
                asked = near | {name: asked[name] for name in ("top_k", "top_p", "min_p")}
            run = run_of(model, PROMPT, whole, asked)
            replayed = whole.resample(**asked)
            full[beside(replayed, run)] += 1
            full["tokens"] += len(replayed.steps)
            short[beside(best.resample(**asked), run)] += 1
    print(f"\n{alias}: all scores kept {dict(full)}, 256 kept {dict(short)}")
    assert full["undecided"] == 0
    assert full["differs"] > 10
    assert full["tokens"] > 100
    assert min(short["undecided"], short["differs"] + short["same"]) > 5


def test_a_full_trace_of_a_real_model_reads_back_equal(
    model_path: Callable[[str], Path], tmp_path: Path
) -> None:
    with fp.load(model_path("smollm2-135m")) as model:
        vocabulary = model.description.config.vocab_size
        answer = model.generate(PROMPT, max_tokens=2, keep_scores=vocabulary, temperature=1, seed=1)
    fp.write_trace(answer.trace(), tmp_path / "a.json")
    again = fp.read_trace(tmp_path / "a.json")
    assert again == answer.trace()
    assert len(again.tokens) == vocabulary
    asked: dict[str, Any] = {"temperature": 1.3, "top_p": 0.7}
    assert again.resample(**asked).steps == answer.resample(**asked).steps
