"""`run --seeds`: one answer a seed, and what Ctrl-C leaves of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import forwardpass as fp
from cli.conftest import SAYS
from cli.running import Run
from cli.test_run import answered
from forwardpass.model import Generation
from forwardpass.trace.step import Step


def test_seeds_give_one_answer_each_from_one_reading_of_the_prompt(
    run: Run, tiny: Path, backend: str
) -> None:
    sampler = (
        "--backend",
        backend,
        "--temperature",
        1.5,
        "--max-tokens",
        6,
        "--json",
        "--logprobs",
        1,
    )
    together = json.loads(run.ok("run", tiny, "hello", "--seeds", "0-2,7", *sampler).out)
    answers = together["answers"]
    assert [answer["seed"] for answer in answers] == [0, 1, 2, 7]
    for answer in answers:
        alone = answered(run, tiny, "hello", "--seed", answer["seed"], *sampler[:-3],
                         "--logprobs", 1)  # fmt: skip
        for key in ("text", "tokens", "sampling", "usage", "finish_reason"):
            assert answer[key] == alone[key]
    assert [answer["work"]["seconds_prefill"] > 0 for answer in answers] == [True] + [False] * 3


def test_answers_of_seeds_stand_one_below_the_other(run: Run, scripted: Path) -> None:
    done = run.ok("run", scripted, "what?", "--seeds", "9-10")
    tokens = len(fp.load(scripted).prepare("what?").ids)
    assert done.out == (
        f"seed  9  {SAYS}\nseed 10  {SAYS}\n\n"
        f"2 answers, 1 different · one prefill of {tokens} tokens, shared"
        " · the same seed gives the same answer\n"
    )
    assert done.err.startswith("17 passes · ")  # nine with the prompt's, and eight
    assert "without effect where the choice is greedy: seed\n" in done.err
    assert run.ok("run", scripted, "what?", "--seeds", "3").out.splitlines()[-1].startswith(
        "1 answer · one prefill"
    )  # fmt: skip


def test_ctrl_c_among_seeds_counts_what_the_running_answer_took(
    run: Run, tiny: Path, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on = Generation.__next__

    def interrupted(self: Generation) -> Step:
        if self.settings.seed.value == 2 and len(self.steps) == 3:
            raise KeyboardInterrupt
        return go_on(self)

    monkeypatch.setattr(Generation, "__next__", interrupted)
    sampler = ("--temperature", 1, "--max-tokens", 4, "--backend", backend)
    asked = ("run", tiny, "hello", "--seeds", "0-5", *sampler)
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
