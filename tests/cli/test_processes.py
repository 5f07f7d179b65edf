"""`run` in a process of its own: Ctrl-C, a reader that goes away, the number of threads."""

from __future__ import annotations

import re
import signal
import subprocess
from pathlib import Path

import pytest

from cli.running import shell, start
from tiny_model import random_folder


def stopped(process: subprocess.Popen[str], seen: str) -> tuple[str, str]:
    """What the program printed when Ctrl-C came after `seen`."""
    assert process.stdout is not None
    before = process.stdout.read(len(seen))
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    return before + out, err


def test_ctrl_c_stops_an_answer_and_accounts_for_what_there_is(endless: Path) -> None:
    process = start(["run", endless, "what?", "--max-tokens", 150_000])
    out, err = stopped(process, "ababab")
    assert process.returncode == 130
    assert re.fullmatch(r"(ab)+a?\n", out)
    passes = re.match(r"([\d,]+) passes · ", err)
    assert passes is not None
    # the pass that was cut off may have run
    assert len(out) - 1 <= int(passes[1].replace(",", "")) <= len(out)
    assert err.endswith("\nstopped\n")
    assert "Traceback" not in err


def test_ctrl_c_between_seeds_keeps_the_answers_that_are_finished(endless: Path) -> None:
    process = start(["run", endless, "what?", "--max-tokens", 40, "--seeds", "0-9999"])
    out, err = stopped(process, "seed    0  " + "ab" * 20)
    assert process.returncode == 130
    finished = out.count("seed ") - 1
    assert 1 <= finished < 10_000
    answers = "1 answer · " if finished == 1 else f"{finished:,} answers, 1 different · "
    assert answers in out
    assert err.endswith("\nstopped\n")
    assert "passes" in err


def test_a_reader_that_goes_away_ends_the_command_quietly(endless: Path) -> None:
    done = shell('forwardpass run "$1" what --max-tokens 100000 | head -c 3\n'
                 "echo .${PIPESTATUS[0]}", endless)  # fmt: skip
    assert done.stdout == "aba.0\n"
    assert done.stderr == ""


def test_the_number_of_threads_can_be_chosen(tiny: Path, backend: str) -> None:
    chosen = "--max-tokens 1 --threads 1 --backend"
    done = shell(f'forwardpass run "$1" hi {chosen} "$2"', tiny, backend)
    assert done.returncode == 0, done.stderr
    assert re.search(rf" · {backend} backend \(.*, 1 thread\n", done.stderr)


@pytest.mark.parametrize(
    ("script", "status", "out"),
    [
        ('forwardpass run "$1" hi --max-tokens 3 2>&-', 0, "aba\n"),
        ('{ forwardpass run "$1" hi --max-tokens 3; } 2> >(true)', 0, "aba\n"),
        ('forwardpass run "$1" hi --max-tokens 3 >&-', 0, ""),
        ("forwardpass count gpt2 >&-", 0, ""),
        ("forwardpass count gpt2 >&- 2>&- <&-", 0, ""),
        ("forwardpass run --help >&-", 0, ""),
        ("{ sleep 1; forwardpass run --help; echo $? >&2; } | true", 0, ""),
        ('forwardpass run "$1" <&-', 2, ""),
        ('forwardpass run "$1" <&- 2>&-', 2, ""),
        ('forwardpass chat "$1" <&-', 2, ""),
        ("forwardpass count gpt2 >/dev/full", 1, ""),
    ],
)
def test_a_closed_stream_is_no_fault(endless: Path, script: str, status: int, out: str) -> None:
    done = shell(script, endless)
    assert (done.returncode, done.stdout) == (status, out)
    assert "fault" not in done.stderr
    assert "Exception ignored" not in done.stderr
    assert ("there is no prompt" in done.stderr) == ("<&-" in script and "2>&-" not in script)
    if "| true" in script:
        assert done.stderr == "0\n"


def test_what_a_template_says_moves_no_terminal(tmp_path: Path) -> None:
    template = "{{ raise_exception('bad \x1b]0;owned\x07') }}"
    folder = random_folder(tmp_path / "m\x1b[31m", template=template)
    done = shell('forwardpass run "$1" hi; forwardpass --debug run "$1" hi', folder)
    assert "refuses the conversation: bad \\x1b]0;owned\\x07" in done.stderr
    assert "\x1b" not in done.stderr
    done = shell('forwardpass count "$1"; forwardpass count "$1/none"', folder)
    assert "m\\x1b[31m" in done.stdout
    assert "\x1b" not in done.stdout + done.stderr
