"""`run` and `explain` of answers that have a shape: what the options take, what is printed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

import forwardpass as fp
from cli.running import Run
from shaped import CALLING, LEND, NOTE, RENEW
from tiny_model import random_folder

WILD = ("--temperature", 3, "--seed", 2)


@pytest.fixture(scope="module")
def calling(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("models") / "calling"
    return random_folder(path, template=CALLING, max_position_embeddings=4_096)


@pytest.fixture
def schema(tmp_path: Path) -> Path:
    path = tmp_path / "note.json"
    path.write_text(json.dumps(NOTE), "utf-8")
    return path


@pytest.fixture
def tools(tmp_path: Path) -> Path:
    path = tmp_path / "tools.json"
    path.write_text(json.dumps([LEND, RENEW]), "utf-8")
    return path


def test_the_answer_is_valid_under_the_schema_of_a_file_or_of_the_argument(
    run: Run, calling: Path, schema: Path
) -> None:
    file = run.ok("run", calling, "hi", "--schema", schema, *WILD)
    jsonschema.validate(json.loads(file.out), NOTE)
    again = run.ok("run", calling, "hi", "--schema", json.dumps(NOTE), *WILD)
    assert again.out == file.out
    (line,) = [line for line in file.err.splitlines() if line.startswith("in shape · ")]
    assert " of the probability, at most " in line


def test_patterns_choices_and_objects_are_held(run: Run, calling: Path) -> None:
    assert run.ok("run", calling, "hi", "--regex", "(ab){3}", *WILD).out == "ababab\n"
    said = run.ok("run", calling, "hi", "--choice", "one", "--choice", "two", *WILD).out
    assert said in ("one\n", "two\n")
    done = run.ok("run", calling, "hi", "--json-object", "--max-tokens", 20, *WILD)
    assert isinstance(json.loads(done.out), dict)


def test_json_has_the_calls_and_what_the_mask_did(run: Run, calling: Path, tools: Path) -> None:
    asked = ("run", calling, "hi", "--tools", tools, "--json", "--max-tokens", 90, *WILD)
    found = json.loads(run.ok(*asked, "--tool-choice", "renew").out)
    assert {call["name"] for call in found["tool_calls"]} == {"renew"}
    for call in found["tool_calls"]:
        jsonschema.validate(json.loads(call["arguments"]), RENEW["function"]["parameters"])
    assert found["content"] == ""
    shape = found["shape"]
    assert shape["steps"] == found["usage"]["completion_tokens"]
    assert shape["complete"]
    assert 0 < shape["mean_removed"] <= shape["most_removed"] <= 1
    free = json.loads(run.ok(*asked, "--tool-choice", "none").out)
    assert (free["tool_calls"], free["content"]) == ([], free["text"])
    plain = json.loads(run.ok("run", calling, "hi", "--json", "--max-tokens", 3).out)
    assert not {"tool_calls", "content", "shape"} & plain.keys()


def test_one_call_alone_comes_where_parallel_ones_are_off(
    run: Run, calling: Path, tools: Path
) -> None:
    asked = ("--tools", tools, "--tool-choice", "required", "--parallel-tool-calls", "off")
    for seed in range(4):
        done = run.ok(
            "run", calling, "hi", *asked, "--json", "--max-tokens", 120, "--temperature", 3,
            "--seed", seed,
        )  # fmt: skip
        assert len(json.loads(done.out)["tool_calls"]) == 1


def test_a_tool_that_is_not_strict_is_told(run: Run, calling: Path, tools: Path) -> None:
    done = run.ok(
        "run", calling, "hi", "--tools", tools, "--tool-choice", "lend_book", "--strict", "off",
        "--max-tokens", 60, *WILD,
    )  # fmt: skip
    assert "not enforced: tool lend_book is not strict" in done.err


def test_seeds_share_a_shape(run: Run, calling: Path) -> None:
    done = run.ok("run", calling, "hi", "--choice", "aa", "--choice", "bb", "--seeds", "0-5")
    said = {line.split("  ")[1] for line in done.out.splitlines() if line.startswith("seed ")}
    assert said <= {"aa", "bb"}


def test_the_limit_that_closed_an_answer_is_told(run: Run, calling: Path) -> None:
    text = '{"type": "string", "minLength": 4}'
    done = run.ok("run", calling, "hi", "--schema", text, "--max-tokens", 12, *WILD)
    assert isinstance(json.loads(done.out), str)
    assert "closed after 12 tokens, as no more were left (--max-tokens" in done.err


def test_explain_tells_what_was_legal_at_each_token(run: Run, calling: Path) -> None:
    done = run.ok("explain", calling, "hi", "--schema", '{"enum": ["ab"]}', *WILD)
    head, first, *_ = done.out.splitlines()
    assert head.split() == ["#", "written", "schema", "legal", "removed", "best", "refused", "why"]
    assert first.split()[:3] == ["0", '"', "(root)"]
    trace = json.loads(run.ok("explain", calling, "hi", "--regex", "a+", "--json", *WILD).out)
    assert len(trace["masks"]["steps"]) == len(trace["steps"])


def test_all_problems_of_a_schema_are_told_with_their_places(run: Run, calling: Path) -> None:
    bad: dict[str, Any] = {
        "properties": {"a": {"type": "integr"}, "b": {"$ref": "http://example.com"}}
    }
    said = run.refused("run", calling, "hi", "--schema", json.dumps(bad))
    assert said.startswith("the JSON schema cannot be enforced: 2 problems\n")
    assert "  /properties/a: type " in said
    assert "  /properties/b: $ref " in said


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--schema", "{"], "--schema: not JSON"),
        (["--schema", "missing.json"], "--schema missing.json: No such file"),
        (["--tools", "missing.json"], "--tools missing.json: No such file"),
        (["--lark", "missing.lark"], "--lark missing.lark: No such file"),
        (["--regex", "a", "--choice", "b"], "--regex and choice were both given"),
        (["--key-order", "any"], "--key-order needs schema or tools"),
        (["--regex", "a", "--constraint", "x"], "--constraint 'x': wanted own or llguidance"),
        (["--tool-choice", "required"], "--tool-choice needs tools"),
        (["--strict", "maybe"], '--strict maybe: wanted "on" or "off"'),
        (["--schema", "{}", "--max-tokens", "1"], "--max-tokens 1: the shortest complete answer"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_cannot_be_is_refused_by_the_name_that_was_typed(
    run: Run, calling: Path, options: list[str], said: str
) -> None:
    assert run.refused("run", calling, "hi", *options).startswith(said)


def test_a_tool_that_is_not_on_offer_is_refused_by_name(
    run: Run, calling: Path, tools: Path
) -> None:
    said = run.refused("run", calling, "hi", "--tools", tools, "--tool-choice", "renw")
    assert said.startswith("--tool-choice: there is no tool 'renw'  (did you mean renew?)")


def test_commands_that_hold_no_answer_refuse_the_options(run: Run, calling: Path) -> None:
    for command in ("next", "chat"):
        assert "No such option: --schema" in run.refused(command, calling, "--schema", "{}")
    said = run.refused("explain", calling, "hi", "--pass", "--regex", "a")
    assert said == "--pass shows no answer: --regex was given too"


def test_without_a_template_a_shape_holds_and_tools_are_refused(
    run: Run, bare: Path, tools: Path
) -> None:
    assert run.ok("run", bare, "hi", "--regex", "ok", *WILD).out == "ok\n"
    done = run("run", bare, "hi", "--tools", tools)
    assert (done.status, done.out) == (2, "")
    assert "error: --tools needs a chat template, and this prompt is completed as it is" in done.err


def test_the_program_and_the_package_give_the_same_answer(run: Run, calling: Path) -> None:
    with fp.load(calling) as model:
        answer = model.generate("hi", schema=NOTE, temperature=3.0, seed=2)
    assert run.ok("run", calling, "hi", "--schema", json.dumps(NOTE), *WILD).out == (
        answer.text + "\n"
    )
