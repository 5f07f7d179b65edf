from __future__ import annotations

from pathlib import Path

import pytest

from cli.running import Run
from tiny_model import ROWS

PROMPT = "the quick brown"
RECORDED = "the recorded answer: leave the sampler options out"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--token", "-1"], "--token -1: wanted a whole number from 0 up"),
        (["--token", "x"], "Invalid value for '--token'"),
        (["--top", "0"], "--top 0: wanted a whole number from 1 to 32"),
        (["--top", "33"], "--top 33: wanted a whole number from 1 to 32"),
        (["--rows", "0"], "--rows 0: wanted a whole number from 1 up"),
        (["--at", "1"], "--at needs --take ID"),
        (["--take", "1"], "--take needs --at N"),
        (["--at", "-1", "--take", "1"], "--at -1: wanted a place in the answer, from 0 up"),
        (["--at", "3", "--take", "1"], "there is no token 3: the answer has tokens 0 to 2"),
        (["--at", "0", "--take", str(ROWS)], f"--take {ROWS}: token id {ROWS} is outside the"),
        (["--at", "0", "--take", "9" * 5000], "is outside the vocabulary of 416"),
        (["--at", "0", "--take", "zqzqzq"], "--take zqzqzq: no token is exactly this text"),
        (["--at", "0", "--take", ""], "--take '': wanted the id of a token, or its exact text"),
        (["--trace", ""], "--trace '': wanted the name of a file"),
        (["--stages", ""], "--stages: an empty name among the stages"),
        (["--trace", "x", "--html", "./x"], "--trace and --html name one file"),
        (["--token", "0", "--token", "3"], "--token 3: an answer of --max-tokens 3 has tokens 0"),
        (["--full"], "--full needs --trace FILE or --json"),
        (["--json", "--token", "0"], "--json prints the whole trace: --token was given too"),
        (["--json", "--top", "2"], "--json prints the whole trace: --top was given too"),
        (["--json", "--rows", "2"], "--json prints the whole trace: --rows was given too"),
        (["--layer", "0"], "only --pass looks inside a pass: --layer was given too"),
        (["--head", "0"], "only --pass looks inside a pass: --head was given too"),
        (["--trace", "/none/such.json"], "--trace /none/such.json: "),
        (["--trace", "-"], "--trace -: wanted the name of a file"),
        (["--html", "/none/such.html"], "--html /none/such.html: "),
        (["--top-p", "0"], "--top-p 0.0: wanted"),
        (["--seeds", "0-1"], "--seed"),
        (["--replay", "x"], "--replay runs no model: MODEL was given too"),
    ],
)
def test_a_wrong_request_is_refused_naming_what_is_wrong(
    run: Run, tiny: Path, arguments: list[str], says: str
) -> None:
    assert says in run.refused("explain", tiny, PROMPT, "--max-tokens", 3, *arguments)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--token", "0"], "--pass shows no answer: --token was given too"),
        (["--trace", "x"], "--pass shows no answer: --trace was given too"),
        (["--temperature", "1"], "--pass shows no answer: --temperature was given too"),
        (["--full"], "--pass shows no answer: --full was given too"),
        (["--html", "x", "--rows", "3"], "--pass prints no answer's tables: --rows was given too"),
        (["--html", "x", "--full", "--json"], "--full needs --trace FILE: "),
        (["--layer", "2"], "--layer 2: "),
        (["--backend", "native"], "--backend native: "),
        (["--max-tokens", "2", "--json"], "--pass shows no answer: --max-tokens was given too"),
    ],
)
def test_a_pass_refuses_what_is_about_an_answer(
    run: Run, tiny: Path, arguments: list[str], says: str
) -> None:
    assert says in run.refused("explain", tiny, PROMPT, "--pass", *arguments)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--raw"], "--replay runs no model: --raw was given too"),
        (["--system", "x"], "--replay runs no model: --system was given too"),
        (["--thinking", "on"], "--replay runs no model: --thinking was given too"),
        (["--threads", "1"], "--replay runs no model: --threads was given too"),
        (["--backend", "reference"], "--replay runs no model: --backend was given too"),
        (["--max-tokens", "2"], "--replay runs no model: --max-tokens was given too"),
        (["--ignore-model-defaults"], "--replay runs no model: --ignore-model-defaults was given"),
        (["--trace", "x"], "--replay writes and takes nothing: --trace was given too"),
        (["--full"], "--replay writes and takes nothing: --full was given too"),
        (["--at", "0"], "--replay writes and takes nothing: --at was given too"),
        (["--full", "--json"], "--replay writes and takes nothing: --full was given too"),
        (["--at", "0", "--take", "1"], "--replay writes and takes nothing: --at was given too"),
        (["--pass"], "--replay runs no model: --pass was given too"),
        (["--top-k", "2", "--html", "x.html"], f"--html shows {RECORDED}"),
        (["--top-k", "2", "--token", "1"], f"--token and --top show {RECORDED}"),
        (["--top-k", "-2"], "wanted a whole number from 0 up"),
        (["--logit-bias", f"{ROWS}=1"], f"token id {ROWS} is outside the vocabulary"),
    ],
)
def test_a_replay_refuses_what_it_could_not_honour(
    run: Run, tiny: Path, tmp_path: Path, arguments: list[str], says: str
) -> None:
    path = tmp_path / "trace.json"
    run.ok("explain", tiny, PROMPT, "--max-tokens", 2, "--trace", path)
    assert says in run.refused("explain", "--replay", path, *arguments)


def test_without_a_model_or_a_trace_there_is_nothing_to_explain(run: Run) -> None:
    assert run.refused("explain") == (
        "there is no MODEL\n  forwardpass explain MODEL PROMPT, or --replay FILE"
    )


def test_a_file_that_is_no_trace_is_refused_and_never_written_over(
    run: Run, tiny: Path, tmp_path: Path
) -> None:
    path = tmp_path / "notes.json"
    path.write_text('{"notes": 1}', "utf-8")
    said = run.refused("explain", tiny, PROMPT, "--trace", path)
    assert said.startswith(f"--trace {path}: ")
    assert path.read_text("utf-8") == '{"notes": 1}'
    done = run("explain", "--replay", path)
    assert (done.status, done.out) == (1, "")
    assert done.err.startswith(f"error: {path}")
    assert run.refused("explain", "--replay", tmp_path / "none").startswith(
        f"{tmp_path / 'none'}: "
    )


def test_a_token_beyond_the_answer_is_refused_behind_the_answer(
    run: Run, tiny: Path, tmp_path: Path
) -> None:
    path = tmp_path / "trace.json"
    for count, has in ((3, "tokens 0 to 2"), (1, "token 0 only")):
        run.ok("explain", tiny, PROMPT, "--max-tokens", count, "--trace", path)
        done = run("explain", "--replay", path, "--token", 9)
        assert done.status == 2
        assert done.out.count("\n") >= count + 1
        assert done.err == f"error: there is no token 9: the answer has {has}\n"


def test_a_token_that_no_answer_so_short_has_is_refused_before_the_model_is_read(run: Run) -> None:
    said = run.refused("explain", "/none/such", PROMPT, "--max-tokens", 1, "--token", 1)
    assert said == "--token 1: an answer of --max-tokens 1 has token 0 only"
