"""`run --seeds`: one answer a seed, and what Ctrl-C leaves of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cli.running import Run
from forwardpass.generate import Step
from forwardpass.model import Generation


def test_ctrl_c_among_seeds_counts_what_the_running_answer_took(
    run: Run, tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on = Generation.__next__

    def interrupted(self: Generation) -> Step:
        if self.settings.seed.value == 2 and len(self.steps) == 3:
            raise KeyboardInterrupt
        return go_on(self)

    monkeypatch.setattr(Generation, "__next__", interrupted)
    asked = ("run", tiny, "hello", "--seeds", "0-5", "--temperature", 1, "--max-tokens", 4)
    done = run(*asked, "--json")
    answers = json.loads(done.out)["answers"]
    assert (done.status, [answer["seed"] for answer in answers]) == (130, [0, 1, 2])
    assert [answer["finish_reason"] for answer in answers[1:]] == ["length", None]
    passes = sum(answer["work"]["passes"] for answer in answers)
    assert passes == 4 + 3 + 2
    done = run(*asked)
    assert "2 answers, " in done.out
    assert f"{passes} passes · " in done.err
    assert "seed 2 was stopped after 3 tokens, whose passes are among these\n" in done.err
