from __future__ import annotations

import re
from pathlib import Path

import pytest

from cli.running import Run
from forwardpass.cli.absent import ABSENT, ELSEWHERE, PAGE

ROOT = Path(__file__).resolve().parents[2]
OPTIONS = [(option, entry.name) for entry in ABSENT for option in entry.options]


@pytest.mark.parametrize(("option", "name"), OPTIONS, ids=[option for option, _ in OPTIONS])
def test_what_other_programs_have_is_refused_by_name(run: Run, option: str, name: str) -> None:
    for written in ([option, "x"], [f"{option}=x"]):
        said = run.refused("run", "smollm2-135m", "hi", *written)
        assert said.startswith(f"{option}: {name}: this version does not have that\n")
        assert said.endswith(f"{PAGE} lists what other programs have and this one has not")


@pytest.mark.parametrize("name", ELSEWHERE)
def test_what_has_another_name_here_is_told_it(run: Run, name: str) -> None:
    for option in ELSEWHERE[name]:
        said = run.refused("chat", "smollm2-135m", option, "x")
        assert said == f"{option} is called {name} here"


@pytest.mark.parametrize(
    ("typed", "name"),
    [
        (("-hf", "x"), "-hf is called the first argument here"),
        (("-fa",), "-fa: choices of kernels"),
        (("-fa", "on"), "-fa: choices of kernels"),
        (("-ngl99",), "-ngl: GPU offload"),
        (("-n64",), "-n is called --max-tokens here"),
        (("-cnv",), "-cnv is called forwardpass chat here"),
        (("-st",), "-st is called forwardpass run here"),
        (("-tb", "2"), "-tb is called --threads here"),
        (("--json", "-hf", "x"), "-hf is called the first argument here"),
    ],
)
def test_short_options_of_several_letters_are_read_as_typed(
    run: Run, typed: tuple[str, ...], name: str
) -> None:
    assert run.refused("run", "smollm2-135m", "hi", *typed).startswith(name)


def test_our_own_short_options_and_values_that_look_like_others_are_left_alone(
    run: Run, tiny: Path, tmp_path: Path
) -> None:
    (tmp_path / "text").write_text("the dog", "utf-8")
    expected = run.ok("tokens", tiny, "the dog").out
    assert run.ok("tokens", tiny, f"-f{tmp_path / 'text'}").out == expected
    assert run.ok("tokens", tiny, "--", "-hf").out
    assert run.ok("run", tiny, "hi", "--system", "-fa", "--max-tokens", 1).out


def test_no_option_is_listed_twice() -> None:
    options = [option for option, _ in OPTIONS]
    options += [option for names in ELSEWHERE.values() for option in names]
    assert len(options) == len(set(options))


def test_the_page_lists_the_same() -> None:
    page = (ROOT / PAGE).read_text("utf-8")
    rows = re.findall(r"^\| (.+?) \| .+? \| (.+?) \|$", page, re.MULTILINE)
    assert rows[1:] == [(entry.name, entry.instead) for entry in ABSENT]
    assert rows[0][0] == "not here"


def test_options_that_are_ours_or_nobodys_are_told_apart(run: Run) -> None:
    assert run.refused("run", "smollm2-135m", "hi", "--lora-x").startswith("No such option")
    # Behind two dashes it is a word like any other.
    said = run.refused("run", "smollm2-135m", "--foo", "--", "--lora")
    assert said.startswith("No such option: --foo")
    # What is absent from one command may be an option of another.
    assert "called the second argument" in run.refused("run", "smollm2-135m", "--prompt", "x")
    assert run.ok("count", "gpt2", "--prompt", 5).out
