from __future__ import annotations

import json
import os
import pty
import re
import select
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import forwardpass as fp
from cli.conftest import SAYS
from cli.running import PROGRAM, Run
from forwardpass.cli.chat import HELP, PROMPT
from forwardpass.engine.runner import Runner, Sequence
from forwardpass.model import Generation
from text.call_templates import OWN
from tiny_model import random_folder


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, ...]]:
    """The prompts that were read, one after the other."""
    prompts: list[tuple[int, ...]] = []
    prefill = Runner.prefill

    def spy(self: Runner, tokens: tuple[int, ...]) -> Sequence:
        prompts.append(tuple(tokens))
        return prefill(self, tokens)

    monkeypatch.setattr(Runner, "prefill", spy)
    return prompts


def typed(*lines: str) -> str:
    return "".join(f"{line}\n" for line in lines)


def test_answers_are_on_standard_output_one_after_the_other(run: Run, scripted: Path) -> None:
    done = run.ok("chat", scripted, typed=typed("what?", "", "   ", "and?"))
    assert done.out == f"{SAYS}\n{SAYS}\n"
    assert [line for line in done.err.splitlines() if re.match(r"9 passes · ", line)] == [
        line for line in done.err.splitlines() if "prompt" in line
    ]  # fmt: skip
    assert done.err.count("9 passes · ") == 2


def test_each_question_goes_out_with_all_that_was_said_before(
    run: Run, scripted: Path, read: list[tuple[int, ...]]
) -> None:
    run.ok("chat", scripted, "--system", "Be brief.", typed=typed("what?", "and?"))
    first, second = read
    assert second[: len(first)] == first
    with fp.load(scripted) as model:
        talk = [fp.system("Be brief."), fp.user("what?"), fp.assistant(SAYS), fp.user("and?")]
        assert second == model.prepare(talk).ids


def test_undo_takes_the_last_turn_back(
    run: Run, scripted: Path, read: list[tuple[int, ...]]
) -> None:
    done = run.ok("chat", scripted, typed=typed("what?", "and?", "/undo", "and?", "/undo", "/undo"))
    assert read[1] == read[2] != read[0]
    assert "taken back: and?\n" in done.err
    done = run.ok("chat", scripted, "--system", "x", typed=typed("/undo"))
    assert "error: there is no turn to take back\n" in done.err


def test_a_system_message_can_be_set_and_taken_away(
    run: Run, scripted: Path, read: list[tuple[int, ...]]
) -> None:
    lines = typed("/system Be brief.", "what?", "/undo", "/system", "what?")
    run.ok("chat", scripted, typed=lines)
    with fp.load(scripted) as model:
        assert read[0] == model.prepare([fp.system("Be brief."), fp.user("what?")]).ids
        assert read[1] == model.prepare("what?").ids


def test_settings_are_shown_set_and_taken_back(run: Run, tiny: Path) -> None:
    lines = typed(
        "/set",
        "/set temperature 0.5",
        "/set top-k=3",
        "/set max_tokens 2",
        "what?",
        "/set temperature",
        "/set seed 4",
    )
    done = run.ok("chat", tiny, "--seed", 9, typed=lines)
    said = done.err.splitlines()
    greedy = "greedy (neither the request nor the model file sets sampling)"
    assert said[:4] == [
        greedy,
        "temperature 0.5 (request), seed 9 (request)",
        "temperature 0.5 (request), top-k 3 (request), seed 9 (request)",
        "temperature 0.5 (request), top-k 3 (request), seed 9 (request), max-tokens 2",
    ]
    assert "stopped after 2 tokens, the most allowed (--max-tokens)" in said
    assert said[-2:] == [f"{greedy}, max-tokens 2"] * 2


def test_the_seed_of_an_answer_is_in_its_account_and_gives_it_again(
    run: Run, tiny: Path, read: list[tuple[int, ...]]
) -> None:
    sampler = ("--temperature", 1.5, "--max-tokens", 8)
    done = run.ok("chat", tiny, *sampler, typed=typed("/set", "what?", "/set"))
    first, *_, last = done.err.splitlines()
    assert first == last == "temperature 1.5 (request), a fresh seed each answer, max-tokens 8"
    (seed,) = re.findall(r"^temperature 1\.5 \(request\), seed (\d+) \(engine", done.err, re.M)
    again = run.ok(
        "chat", tiny, *sampler, typed=typed("what?", "/undo", f"/set seed {seed}", "what?")
    )
    assert again.out.endswith(done.out)
    assert read[-1] == read[0]


@pytest.mark.parametrize("name", ["llama.cpp", '"llama.cpp"'])
@pytest.mark.parametrize("order", ["top_k,temperature", '["top_k", "temperature"]'])
def test_names_are_set_with_and_without_quotes(run: Run, tiny: Path, name: str, order: str) -> None:
    lines = typed(
        "/set temperature 1", "/set seed 4", f"/set sampler {name}", f"/set stages {order}"
    )
    last = run.ok("chat", tiny, typed=lines).err.splitlines()[-1]
    assert last.endswith("sampler llama.cpp (request), stages top_k,temperature (request)")


def test_a_setting_whose_switch_is_off_is_told_to_be_without_effect(run: Run, tiny: Path) -> None:
    lines = typed("/set dry_base 2", "/set dry_multiplier 1")
    said = run.ok("chat", tiny, typed=lines).err.splitlines()
    assert said[1] == "without effect: dry-base (dry-multiplier is off)"
    assert len(said) == 3


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("/set temperature -1", "temperature = -1: wanted a number from 0 up"),
        ("/set temperature warm", "/set temperature: warm is no JSON value"),
        ("/set sampler lama.cpp", "sampler = 'lama.cpp': wanted"),
        ("/set stages temprature", "stages: no stage is called 'temprature'"),
        ("/set top_p 0", "top_p = 0: wanted a number above 0"),
        ("/set max_tokens 0", "max_tokens = 0: wanted a whole number from 1"),
        ("/set max_tokens 1.5", "max_tokens = 1.5: wanted a whole number"),
        ("/set temprature 1", "there is no setting temprature  (did you mean temperature?)"),
        ("/set thinking true", "there is no setting thinking"),
        ("/sett", "there is no command /sett  (did you mean /set?)"),
        ("/Quit", "there is no command /Quit  (did you mean /quit?)"),
        ("/ whyy", "there is no command /whyy  (did you mean /why?)"),
        ("/", "there is no command /"),
        ("/save", "/save needs the name of a file"),
        ("/save nothing.json", "there is nothing to save yet"),
        ("/load", "/load needs the name of a file"),
        ("/load /none/such.json", "/none/such.json: No such file"),
        ("/save ~nobody-of-that-name/x", "/save ~nobody-of-that-name/x: "),
        ("/quit now", "/quit takes nothing behind it, not 'now'"),
        ("/undo all", "/undo takes nothing behind it, not 'all'"),
        ("/help me", "/help takes nothing behind it, not 'me'"),
    ],
)
def test_what_cannot_be_done_is_refused_and_the_talk_goes_on(
    run: Run, scripted: Path, line: str, says: str
) -> None:
    done = run.ok("chat", scripted, typed=typed(line, "what?"))
    assert f"error: {says}" in done.err
    assert done.out == f"{SAYS}\n"
    assert "9 passes" in done.err


def test_a_file_that_cannot_be_written_is_named(run: Run, scripted: Path) -> None:
    done = run.ok("chat", scripted, typed=typed("what?", "/save /none/such.json"))
    assert "error: /none/such.json: No such file" in done.err


def test_a_conversation_is_saved_and_gone_on_with(
    run: Run, scripted: Path, tmp_path: Path, read: list[tuple[int, ...]]
) -> None:
    path = tmp_path / "talk.json"
    done = run.ok("chat", scripted, typed=typed("Grüß \\u00e9 🎉", f"/save {path}", "and?"))
    assert f"2 messages in {path}\n" in done.err
    assert json.loads(path.read_text("utf-8")) == {
        "messages": [fp.user("Grüß \\u00e9 🎉"), fp.assistant(SAYS)]
    }  # fmt: skip
    done = run.ok("chat", scripted, typed=typed(f"/load {path}", "and?", f"/save {path}"))
    assert f"2 messages from {path}\n" in done.err
    assert read[1] == read[2]
    assert f"error: {path} exists already\n" in done.err
    assert len(json.loads(path.read_text("utf-8"))["messages"]) == 2


def test_tools_of_a_loaded_conversation_stay_on_offer(
    run: Run, tmp_path: Path, read: list[tuple[int, ...]]
) -> None:
    template, _ = OWN["hermes"]
    folder = random_folder(tmp_path / "m", template=template)
    tools: list[dict[str, Any]] = [
        {"type": "function", "function": {"name": "look", "description": "", "parameters": {}}}
    ]
    path, again = tmp_path / "talk.json", tmp_path / "again.json"
    path.write_text(json.dumps({"messages": [fp.user("a"), fp.assistant("b")], "tools": tools}))
    lines = typed(f"/load {path}", f"/save {again}", "/set max_tokens 1", "c")
    run.ok("chat", folder, typed=lines)
    with fp.load(folder) as model:
        talk = [fp.user("a"), fp.assistant("b"), fp.user("c")]
        assert read[0] == model.prepare(talk, tools=tools).ids
    assert json.loads(again.read_text("utf-8")) == json.loads(path.read_text("utf-8"))


def test_two_slashes_send_a_message_that_begins_with_one(
    run: Run, scripted: Path, read: list[tuple[int, ...]]
) -> None:
    done = run.ok("chat", scripted, typed=typed("//etc is a folder", "/help"))
    with fp.load(scripted) as model:
        assert read == [model.prepare("/etc is a folder").ids]
    assert HELP in done.err
    assert "//text" in HELP
    assert max(map(len, HELP.splitlines())) <= 98


def test_quit_ends_the_talk_before_the_input_does(run: Run, scripted: Path) -> None:
    assert run.ok("chat", scripted, typed=typed("/quit", "what?")).out == ""
    assert run.ok("chat", scripted, typed="what?").out == f"{SAYS}\n"  # no line end at the end


def test_a_message_that_fails_is_not_kept(
    run: Run, scripted: Path, read: list[tuple[int, ...]]
) -> None:
    done = run.ok("chat", scripted, "--context", 40, typed=typed("zq" * 60, "what?"))
    assert re.search(r"error: a prompt of \d+ tokens, the context holds 40\n", done.err)
    with fp.load(scripted) as model:
        assert read[1] == model.prepare("what?").ids


@pytest.mark.parametrize("place", [(Runner, "prefill"), (Generation, "__next__")])
def test_a_message_that_ctrl_c_stopped_before_the_first_token_is_not_kept(
    run: Run,
    scripted: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    place: tuple[type, str],
) -> None:
    go_on = getattr(*place)
    calls = 0

    def interrupted(*arguments: object) -> object:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise KeyboardInterrupt
        return go_on(*arguments)

    monkeypatch.setattr(*place, interrupted)
    path = tmp_path / "talk.json"
    done = run.ok("chat", scripted, typed=typed("what?", "and?", f"/save {path}"))
    assert "stopped; the message is not kept\n" in done.err
    assert json.loads(path.read_text("utf-8")) == {
        "messages": [fp.user("and?"), fp.assistant(SAYS)]
    }  # fmt: skip


def test_input_that_is_no_text_is_refused(run: Run, scripted: Path) -> None:
    assert run.refused("chat", scripted, typed=b"\xff\n").startswith("standard input is not UTF-8")


def test_a_model_without_a_template_is_refused_with_two_ways_out(
    run: Run, bare: Path, tiny: Path
) -> None:
    said = run.refused("chat", bare, typed=typed("hello"))
    assert said.endswith(
        "has no chat template, so it cannot talk in turns\n"
        "  --template FILE brings one; forwardpass run --raw completes a text"
    )
    template = tiny / "chat_template.jinja"
    options = ("--template", template, "--max-tokens", 1)
    assert "1 pass · " in run.ok("chat", bare, *options, typed=typed("hello")).err


def test_options_are_checked_before_the_first_question(run: Run, tiny: Path) -> None:
    assert run.refused("chat", tiny, "--temperature", -1).startswith("--temperature -1")
    assert run.refused("chat", tiny, "--max-tokens", 0).startswith("--max-tokens 0")
    assert run.refused("chat", tiny, "--thinking", "maybe").startswith("--thinking maybe")


class Terminal:
    """A chat in a terminal of its own, seen as a person sees it."""

    def __init__(self, *arguments: object) -> None:
        self.screen, device = pty.openpty()
        environment = {**os.environ, "TERM": "dumb", "COLUMNS": "100", "LC_ALL": "C.UTF-8"}
        self.process = subprocess.Popen(
            [*PROGRAM, "chat", *map(str, arguments)],
            stdin=device,
            stdout=device,
            stderr=device,
            env=environment,
            start_new_session=True,
        )
        os.close(device)
        self.seen = ""

    def type(self, text: str) -> None:
        os.write(self.screen, text.encode())

    def wait_for(self, text: str, *, seconds: float = 60, interrupting: bool = False) -> str:
        """What came up to and with `text`, which is then read.

        `interrupting` sends Ctrl-C after each half second of silence: one that comes just before
        the program waits for a key is seen with the next key only.
        """
        end = time.monotonic() + seconds
        while text not in self.seen:
            assert time.monotonic() < end, f"no {text!r} in {self.seen!r}"
            if not select.select([self.screen], [], [], 0.5)[0]:
                if interrupting:
                    self.interrupt()
            else:
                try:
                    more = os.read(self.screen, 65_536)
                except OSError:  # the other end was closed
                    more = b""
                assert more, f"ended without {text!r}: {self.seen!r}"
                self.seen += more.decode().replace("\r\n", "\n")
        before, _, self.seen = self.seen.partition(text)
        return before + text

    def interrupt(self) -> None:
        self.process.send_signal(signal.SIGINT)


@pytest.fixture
def terminals() -> Iterator[list[Terminal]]:
    """The terminals that a test opens, closed in the end."""
    opened: list[Terminal] = []
    yield opened
    for terminal in opened:
        if terminal.process.poll() is None:
            terminal.process.kill()
        terminal.process.wait()
        os.close(terminal.screen)


def test_in_a_terminal_a_prompt_waits_and_ctrl_d_ends(
    scripted: Path, terminals: list[Terminal]
) -> None:
    terminal = Terminal(scripted)
    terminals.append(terminal)
    assert terminal.wait_for(PROMPT).startswith("/help lists the commands, Ctrl-D ends\n")
    terminal.type("what?\n")
    terminal.wait_for(SAYS)
    terminal.wait_for("9 passes")
    terminal.wait_for(PROMPT)
    terminal.type("\x04")
    assert terminal.process.wait(timeout=30) == 0


def test_ctrl_c_stops_an_answer_keeps_what_there_is_and_the_talk_goes_on(
    endless: Path, terminals: list[Terminal], tmp_path: Path
) -> None:
    terminal = Terminal(endless, "--max-tokens", 150_000)
    terminals.append(terminal)
    terminal.wait_for(PROMPT)
    terminal.type("what?\n")
    terminal.wait_for("ababab")
    terminal.interrupt()
    account = terminal.wait_for("stopped; /undo takes this turn back")
    assert re.search(r"[\d,]+ passes · ", account)
    terminal.wait_for(PROMPT)
    path = tmp_path / "talk.json"
    terminal.type(f"/save {path}\n")
    terminal.wait_for("2 messages in")
    messages = json.loads(path.read_text("utf-8"))["messages"]
    assert re.fullmatch("(ab){3,}a?", messages[1]["content"])
    terminal.type("given up")
    terminal.wait_for("given up")
    terminal.wait_for("Ctrl-D or /quit ends", interrupting=True)
    terminal.wait_for(PROMPT)
    terminal.type("/quit\n")
    assert terminal.process.wait(timeout=30) == 0
