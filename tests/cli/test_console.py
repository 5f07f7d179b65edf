from __future__ import annotations

import json
import time

import pytest

from forwardpass.cli import console
from forwardpass.cli.console import as_json, cells, columns, data, note, patience, say, visible


@pytest.mark.parametrize(
    ("token", "shown"),
    [
        ("the", "the"),
        (" the ", "␣the␣"),
        ("a  b", "a  b"),
        ("   ", "␣␣␣"),
        ("", ""),
        ("\n", "\\n"),
        (" \t\r", "␣\\t\\r"),
        ("\x1b[31m", "\\x1b[31m"),
        ("\u200b\u202e", "\\u200b\\u202e"),
        ("你好", "你好"),
        ("x" * 30, "x" * 23 + "…"),
    ],
)
def test_a_token_is_shown_in_one_line_with_nothing_hidden(token: str, shown: str) -> None:
    assert visible(token) == shown


def test_columns_are_aligned_by_the_cells_that_a_terminal_uses() -> None:
    assert [cells(text) for text in ("ab", "你好", "e\u0301", "␣")] == [2, 4, 1, 1]
    assert columns([["a", "1"], ["你好", "22"], ["x"]], "<>") == ["a      1", "你好  22", "x"]


def test_what_takes_long_says_so_on_a_terminal_and_takes_it_back(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(console, "PATIENCE_SECONDS", 0.0)
    with patience("loading"):
        time.sleep(0.05)
    assert capsys.readouterr().err == ""  # not a terminal
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    with patience("loading"):
        time.sleep(0.5)
    assert capsys.readouterr().err == "loading …\r" + " " * 9 + "\r"
    monkeypatch.setattr(console, "PATIENCE_SECONDS", 60.0)
    with patience("loading"):
        pass
    assert capsys.readouterr().err == ""


BAD, SHOWN = (
    "a\tb\x1b]0;owned\x07\x9b1m\r\x7f\u202e\nc é",
    ("a\tb\\x1b]0;owned\\x07\\x9b1m\\r\\x7f\\u202e\nc é"),
)


def test_control_characters_reach_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    note(BAD)
    data(BAD)
    assert capsys.readouterr() == (f"{SHOWN}\n", f"{SHOWN}\n")


def test_a_json_object_has_none_and_reads_as_it_was(capsys: pytest.CaptureFixture[str]) -> None:
    as_json({BAD: BAD})
    out = capsys.readouterr().out
    assert out[:-1].isprintable()
    assert json.loads(out) == {BAD: BAD}


def test_an_answer_is_as_the_model_wrote_it_unless_a_terminal_reads_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    say(BAD)
    assert capsys.readouterr().out == f"{BAD}\n"
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    say(BAD)
    assert capsys.readouterr().out == f"{SHOWN}\n"
