from __future__ import annotations

import json
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from forwardpass.cli.main import main
from forwardpass.cli.progress import LoadingBar, TerminalProgress, loading, shown
from forwardpass.hub import Transfer
from forwardpass.hub.references import HUB, ModelFiles

TINY = Transfer("tiny", "tiny.gguf", 98_362_432, "MIT", "the Hugging Face hub", "sha256")


@pytest.fixture(autouse=True)
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("FORWARDPASS_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("FORWARDPASS_CATALOGUE", raising=False)
    return tmp_path / "home"


def test_pulling_a_local_file_is_a_wrong_request(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(b"GGUF1234")
    (tmp_path / "config.json").write_text("{}", "utf-8")
    for here, kind in ((path, "file"), (tmp_path, "folder")):
        assert main(["pull", str(here)]) == 2
        told = f"error: {here} is a {kind} here already; pull fetches aliases and hub ids\n"
        assert capsys.readouterr() == ("", told)


def test_what_was_pulled_is_described(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "m.gguf"
    files = ModelFiles("gguf", (path,), "tiny", HUB, None, 8, revision="abc")
    monkeypatch.setattr("forwardpass.hub.resolve", lambda *_, **__: files)
    assert main(["pull", "tiny"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"path    {path}",
        "size    8 bytes, 8 B",
        "commit  abc",
        "origin  the Hugging Face hub",
    ]
    assert main(["pull", "tiny", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "model": "tiny",
        "kind": "gguf",
        "path": str(path),
        "bytes": 8,
        "sha256": None,
        "origin": "the Hugging Face hub",
        "license": None,
        "revision": "abc",
    }


def test_pulling_a_shape_is_a_wrong_request(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pull", "gpt2"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("error: gpt2 is a shape, known without weights")


def test_pulling_a_misspelt_name_is_a_wrong_request(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pull", "smolm2-135m"]) == 2
    assert capsys.readouterr().err.splitlines() == [
        'error: there is no model "smolm2-135m"',
        "  not a file, not an alias, and a Hugging Face id looks like org/name",
        "  did you mean smollm2-135m?     forwardpass models lists all",
    ]


def test_a_transfer_is_two_lines_where_nobody_watches(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    progress = TerminalProgress(terminal=False)
    progress.begin(TINY, 0)
    progress.at(1_000)
    progress.end(tmp_path / "tiny.gguf")
    first, second = capsys.readouterr().err.splitlines()
    assert first == "tiny: tiny.gguf, 98.4 MB, MIT, from the Hugging Face hub"
    assert second.startswith("  98.4 MB  ")
    assert second.endswith(f"/s  sha256 ok, in {tmp_path}")


def test_a_transfer_that_goes_on_from_a_start_says_how_much_is_here(
    capsys: pytest.CaptureFixture[str],
) -> None:
    progress = TerminalProgress(terminal=False)
    progress.begin(TINY, 50_000_000)
    progress.end(None)
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith("from the Hugging Face hub, 50.0 MB of it here already")


def test_a_bar_appears_on_a_terminal_and_leaves_a_full_one(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("forwardpass.cli.progress._BAR_AFTER_SECONDS", -1.0)
    progress = TerminalProgress(terminal=True)
    progress.begin(TINY, 0)
    progress.at(50_000_000)
    progress.at(40_000_000)
    progress.at(98_362_432)
    progress.end(tmp_path / "tiny.gguf")
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith(f"  100 % {'█' * 26}  98.4 / 98.4 MB  ")


def test_weights_that_take_long_to_load_have_a_bar_on_a_terminal_which_goes_away(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = threading.Event()
    begin = LoadingBar.begin

    def told(bar: LoadingBar) -> None:
        begin(bar)
        begun.set()

    monkeypatch.setattr(LoadingBar, "begin", told)
    monkeypatch.setattr("forwardpass.cli.progress._BAR_AFTER_SECONDS", 0.0)
    with loading("tiny"):
        pass
    assert capsys.readouterr().err == ""  # not a terminal
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    monkeypatch.setenv("FORCE_COLOR", "1")  # makes a terminal of it for rich, too
    monkeypatch.setenv("TERM", "xterm")
    with loading("ti[b]ny\x1b") as bar:
        bar.at(1_000_000, 4_000_000)
        assert begun.wait(60)
        bar.at(3_000_000, 4_000_000)
    said = capsys.readouterr().err
    assert "loading ti[b]ny\\x1b " in said
    assert "3.0/4.0 MB" in said
    assert said.rstrip("\r").endswith("\x1b[2K")  # the line is erased
    begun.clear()
    monkeypatch.setattr("forwardpass.cli.progress._BAR_AFTER_SECONDS", 60.0)
    with loading("tiny") as bar:
        bar.at(1, 2)
    assert not begun.is_set()
    assert capsys.readouterr().err == ""


def test_a_path_in_the_home_folder_is_shown_with_a_tilde() -> None:
    assert shown(Path.home() / "a" / "b") == "~/a/b"
    assert shown(Path("/elsewhere/a")) == "/elsewhere/a"


def test_the_digest_that_was_checked_is_named(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    progress = TerminalProgress(terminal=False)
    progress.begin(replace(TINY, checked="git id"), 0)
    progress.end(tmp_path / "tiny.gguf")
    assert capsys.readouterr().err.endswith(f"/s  git id ok, in {tmp_path}\n")
