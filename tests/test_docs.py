"""What README and docs show is what happens: every console block is run and compared.

The conventions are those of blocks.py. A page is read from top to bottom by a person who stands
in the checkout: its commands share one fresh folder that holds links to what the checkout holds,
so that files written by one command are there for the next and nothing lands in the checkout.
"""

from __future__ import annotations

import ast
import doctest
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from _pytest.mark import ParameterSet

from blocks import (
    BARE_MACHINE,
    LARGE,
    NATIVE,
    WITHOUT_COMPILER,
    Block,
    bare_machine_commands,
    blocks,
    difference,
)
from forwardpass.backends.levels import missing_reason
from levels import runnable

ROOT = Path(__file__).resolve().parents[1]
README = ROOT / "README.md"
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
LANGUAGES = {"console", "json", "python", "text", "toml"}
KNOWN_COMMENTS = re.compile(rf"{BARE_MACHINE}|{LARGE}|{NATIVE}|{WITHOUT_COMPILER}|exit status \d+")
WITHOUT_NATIVE = missing_reason()
needs_native = pytest.mark.skipif(WITHOUT_NATIVE is not None, reason=str(WITHOUT_NATIVE))
MARKS = {LARGE: [pytest.mark.large], NATIVE: [needs_native]}
COLUMNS = "100"


def _plain_level() -> dict[str, str]:
    """What has pages show the bits of every level but those with tiles, which have their own."""
    plain = runnable(tiles=False)
    return {} if plain is None or runnable(tiles=True) is None else {"FORWARDPASS_ISA": plain}


Shell = Callable[[str], "subprocess.CompletedProcess[str]"]


def _name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def _blocks_of(language: str) -> Iterator[tuple[Path, Block]]:
    for page in PAGES:
        for block in blocks(page.read_text("utf-8")):
            if block.language == language:
                yield page, block


def _parameters(language: str) -> list[ParameterSet]:
    return [
        pytest.param(
            page,
            block,
            id=f"{_name(page)}:{block.line}",
            marks=MARKS.get(block.how or "", []),
        )
        for page, block in _blocks_of(language)
        if block.how != BARE_MACHINE
    ]


@pytest.fixture(scope="module")
def shells(
    tmp_path_factory: pytest.TempPathFactory, model_path: Callable[[str], Path]
) -> Callable[[Path], Shell]:
    """From a page to what runs its commands, all in one folder, with this interpreter.

    The model that pages run is here before: no page shows how it comes.
    """
    model_path("smollm2-135m")
    tools = tmp_path_factory.mktemp("bin")
    program = tools / "forwardpass"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m forwardpass "$@"\n', "utf-8")
    program.chmod(0o755)
    environment = {
        **_plain_level(),
        **{name: text for name, text in os.environ.items() if name != "FORWARDPASS_CATALOGUE"},
        "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}",
        "PYTHONUNBUFFERED": "1",
        "COLUMNS": COLUMNS,
        "TERM": "dumb",
        "LC_ALL": "C.UTF-8",
    }
    folders: dict[Path, Path] = {}

    def shell_of(page: Path) -> Shell:
        if page not in folders:
            folders[page] = tmp_path_factory.mktemp("checkout")
            for entry in ROOT.iterdir():
                (folders[page] / entry.name).symlink_to(entry)

        def run(command: str) -> subprocess.CompletedProcess[str]:
            return subprocess.run(
                ["bash", "-c", command],
                cwd=folders[page],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                encoding="utf-8",
            )

        return run

    return shell_of


@pytest.mark.parametrize(("page", "block"), _parameters("console"))
def test_a_console_block_prints_what_it_shows(
    page: Path, block: Block, shells: Callable[[Path], Shell]
) -> None:
    run = shells(page)
    for command in block.commands():
        done = run(command.text)
        deviation = difference(command.expected, done.stdout)
        where = f"{_name(page)}, line {command.line}: $ {command.text}"
        assert deviation is None, f"{where}\n{deviation}"
        assert done.returncode == block.exit_status, where


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_every_fenced_block_says_what_it_is(page: Path) -> None:
    for block in blocks(page.read_text("utf-8")):
        where = f"{_name(page)}, line {block.line}"
        assert block.language in LANGUAGES, f"{where}: commands go into console blocks, which run"
        if block.how is not None:
            assert KNOWN_COMMENTS.fullmatch(block.how), f"{where}: run: {block.how}"
            wanted = "text" if block.how == WITHOUT_COMPILER else "console"
            assert block.language == wanted, where
    for number, line in enumerate(page.read_text("utf-8").splitlines(), 1):
        assert line.count("<!--") == line.count("<!-- run: "), f"{_name(page)}, line {number}"


def test_only_the_two_commands_of_the_readme_wait_for_a_bare_machine() -> None:
    marked = [page for page, block in _blocks_of("console") if block.how == BARE_MACHINE]
    assert marked == [README, README]
    first, second = bare_machine_commands(README.read_text("utf-8"))
    assert "pip install" in first.text
    assert "forwardpass run" in first.text
    assert "pytest" in second.text
    assert first.otherwise
    assert not second.otherwise


@needs_native
def test_the_first_answer_of_the_readme_is_the_native_backend_s(
    shells: Callable[[Path], Shell],
) -> None:
    first, _ = bare_machine_commands(README.read_text("utf-8"))
    _, program, arguments = first.text.partition("forwardpass run ")
    done = shells(README)(program + arguments)
    assert difference(first.expected, done.stdout) is None, done.stdout


def test_the_readme_is_short_and_starts_with_a_command() -> None:
    page = README.read_text("utf-8")
    assert len(page.splitlines()) <= 150
    assert bare_machine_commands(page)[0].line <= 25


@pytest.mark.parametrize(("page", "block"), _parameters("python"))
def test_a_python_block_is_python_and_its_prompts_answer_as_shown(page: Path, block: Block) -> None:
    source = "\n".join(block.lines) + "\n"
    if ">>>" not in source:
        ast.parse(source)
        return
    name = f"{_name(page)}:{block.line}"
    examples = doctest.DocTestParser().get_doctest(source, {}, name, str(page), block.line)
    runner = doctest.DocTestRunner(verbose=False)
    report: list[str] = []
    runner.run(examples, out=report.append)
    assert not report, "".join(report)


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_a_link_to_a_file_leads_to_one(page: Path) -> None:
    text = re.sub(r"```.*?```", "", page.read_text("utf-8"), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", text):
        if "://" not in target and not target.startswith("mailto:"):
            assert (page.parent / target).exists(), f"{_name(page)}: {target}"
