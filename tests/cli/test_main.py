from __future__ import annotations

import importlib
import os
import re
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from cli.running import PROGRAM, Run, shell
from forwardpass import __version__
from forwardpass.cli import main as main_module
from forwardpass.cli.console import WIDTH
from forwardpass.cli.main import COMMANDS, SHELLS
from forwardpass.errors import ConfigError, RequestError


def test_the_first_page_names_every_command(run: Run) -> None:
    page = run.ok("--help").out
    assert run.ok().out == run.ok("help").out == run.ok("-h").out == page
    for command in COMMANDS.values():
        assert re.search(rf"(^|  ){command.name} +{re.escape(command.about)}", page, re.MULTILINE)
    assert all(len(line) <= WIDTH for line in page.splitlines())


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_a_page_of_its_own(run: Run, name: str) -> None:
    page = run.ok(name, "--help").out
    assert run.ok(name, "-h").out == run.ok("help", name).out == page
    assert page.startswith(f"Usage: forwardpass {name} ")
    assert all(len(line) <= WIDTH for line in page.splitlines())
    module = importlib.import_module(COMMANDS[name].module)
    about = (module.command.__doc__ or "").split()
    assert " ".join(about) in " ".join(page.split())


def test_the_version_names_commit_backend_and_level(run: Run) -> None:
    first, backend, level = run.ok("--version").out.splitlines()
    assert re.fullmatch(rf"forwardpass {re.escape(__version__)} · commit \S+", first)
    assert backend == "native backend" or backend.startswith("reference backend (NumPy): ")
    assert level.startswith("instruction-set level ")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["runn"], 'there is no command "runn"  (did you mean run?)'),
        (["--verison"], 'there is no option "--verison"  (did you mean --version?)'),
        (["--show-completion"], "--show-completion takes one of bash, zsh, fish"),
        (["--show-completion", "csh"], "--show-completion takes one of bash, zsh, fish"),
        (["--version", "extra"], '--version takes nothing behind it, not "extra"'),
        (["--help", "extra"], 'there is no command "extra"'),
        (["help", "chta"], 'there is no command "chta"  (did you mean chat?)'),
        (["help", "run", "chat"], 'help is about one command, not "run chat"'),
        (["count"], "Missing argument 'MODEL'"),
        (["models", "--jsno"], "No such option: --jsno"),
    ],
)
def test_what_there_is_not_is_refused(run: Run, arguments: list[str], says: str) -> None:
    said = run.refused(*arguments)
    assert said.startswith(says)


def failing(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    """Lets the command `models` end with an error."""

    def command() -> None:
        raise error

    module = ModuleType("forwardpass.cli.models")
    module.command = command  # type: ignore[attr-defined]
    real = importlib.import_module
    fake = SimpleNamespace(
        import_module=lambda name: module if name == module.__name__ else real(name)
    )
    monkeypatch.setattr(main_module, "importlib", fake)


@pytest.mark.parametrize(
    ("error", "status", "says"),
    [
        (RequestError("no", advice="yes"), 2, "error: no\n  yes\n"),
        (ConfigError("a", "b", "c"), 1, "error: a\n  b\n  c\n"),
        (
            ZeroDivisionError("by zero"),
            1,
            "error: a fault of forwardpass: ZeroDivisionError: by zero\n"
            "  --debug shows where it happened\n",
        ),
        (
            FileNotFoundError(2, "No such file", "x"),
            1,
            "error: [Errno 2] No such file: 'x'\n  --debug shows where it happened\n",
        ),
        (
            MemoryError(),
            1,
            "error: there is not enough memory\n  --debug shows where it happened\n",
        ),
        (KeyboardInterrupt(), 130, "stopped\n"),
    ],
)
def test_a_failure_is_a_message_and_a_status_and_a_traceback_only_where_asked(
    run: Run, monkeypatch: pytest.MonkeyPatch, error: BaseException, status: int, says: str
) -> None:
    failing(monkeypatch, error)
    assert run("models") == (status, "", says)
    for arguments in (["--debug", "models"], ["models", "--debug"]):
        done = run(*arguments)
        assert (done.status, done.out) == (status, "")
        assert done.err.endswith(says)
        asked = not isinstance(error, KeyboardInterrupt)
        assert ("Traceback (most recent call last)" in done.err) == asked


def test_debug_behind_two_dashes_is_a_word_like_any_other(run: Run, tiny: Path) -> None:
    plain = run.ok("tokens", tiny, "--", "--debug").out
    assert plain.splitlines()[0] == f"{len(plain.splitlines()) - 2} tokens"
    assert run("tokens", tiny, "--debug", "--", "--none").status == 0


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (["ru"], {"run"}),
        (["run", "--temper"], {"--temperature"}),
        (["count", "--vis"], {"--visible"}),
        (["next", "--dra"], {"--draws"}),
    ],
    ids=" ".join,
)
def test_bash_completes_commands_and_options(
    tmp_path: Path, words: list[str], offered: set[str]
) -> None:
    program = tmp_path / "forwardpass"
    program.write_text(f'#!/bin/sh\nexec {" ".join(PROGRAM)} "$@"\n', "utf-8")
    program.chmod(0o755)
    done = shell(
        """
        unset -f forwardpass
        source <(forwardpass --show-completion bash)
        function=$(complete -p forwardpass | sed 's/.*-F //; s/ .*//')
        COMP_WORDS=(forwardpass "$@") COMP_CWORD=$#
        "$function" forwardpass "${@: -1}"
        printf '%s\\n' "${COMPREPLY[@]}"
        """,
        *words,
        environment={"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"},
    )
    assert done.stderr == ""
    assert set(done.stdout.split()) == offered


@pytest.mark.parametrize("name", SHELLS)
def test_each_shell_has_its_script(run: Run, name: str) -> None:
    script = run.ok("--show-completion", name).out
    assert "_FORWARDPASS_COMPLETE" in script
    assert f"complete_{name}" in script


def test_a_narrow_encoding_takes_nothing_down(tiny: Path) -> None:
    done = shell(
        'forwardpass --version; forwardpass tokens "$1" "é🎉"',
        tiny,
        environment={"PYTHONIOENCODING": "ascii", "LC_ALL": "C.UTF-8"},
    )
    assert done.returncode == 0, done.stderr
    assert "\\xb7 commit" in done.stdout


def test_a_reader_that_goes_away_is_no_failure() -> None:
    done = shell('set -o pipefail; forwardpass count gpt2 | head -n 1; echo "$?"')
    assert done.stdout.endswith("\n0\n")
    assert done.stderr == ""
    done = shell("forwardpass --help | true; forwardpass run --help | true")
    assert done.stderr == ""


def test_the_program_and_the_module_are_the_same(run: Run) -> None:
    assert shell("forwardpass --version").stdout == run.ok("--version").out
