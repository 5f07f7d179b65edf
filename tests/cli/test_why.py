"""`/why` and `/take` of the chat."""

from __future__ import annotations

import json
import re
from itertools import takewhile
from pathlib import Path

import pytest

import forwardpass as fp
from cli.conftest import SAYS
from cli.running import Run
from cli.test_chat import typed
from forwardpass.engine.runner import Runner, Sequence
from forwardpass.model import Generation
from forwardpass.trace.step import Step

SAMPLER = ("--temperature", 1.3, "--top-p", 0.9, "--max-tokens", 6)


def first_cells(out: str) -> list[str]:
    """Number and token of each line of a table that stands in `out`."""
    lines = out.split("#  token", 1)[1].splitlines()[1:]
    rows = takewhile(lambda line: re.match(r" *\d+  ", line), lines)
    return [" ".join(line.split()[:2]) for line in rows]


def test_why_explains_the_last_answer_as_explain_does(run: Run, tiny: Path) -> None:
    explained = run.ok("explain", tiny, "what?", *SAMPLER, "--seed", 3, "--token", 2).out
    out = run.ok("chat", tiny, *SAMPLER, "--seed", 3, typed=typed("what?", "/why", "/why 2")).out
    rows = "\n".join(explained.splitlines()[: 1 + 6])
    stages = explained[explained.index("token 2, stage by stage") :]
    assert out.endswith(f"{rows}\n{stages}")


def test_why_is_about_the_last_answer(run: Run, tiny: Path) -> None:
    asked = ("chat", tiny, *SAMPLER, "--seed", 3)
    last = run.ok(*asked, typed=typed("what?", "/why", "and?", "/why")).out
    with fp.load(tiny) as model:
        options = {"temperature": 1.3, "top_p": 0.9, "max_tokens": 6, "seed": 3}
        first = model.generate("what?", **options)  # type: ignore[arg-type]
        talk = [fp.user("what?"), fp.assistant(first.text), fp.user("and?")]
        second = model.generate(talk, **options)  # type: ignore[arg-type]
    tables = last.split("#  token")[1:]
    for table, answer in zip(tables, (first, second), strict=True):
        randoms = [f"{step.random:.3f}" for step in answer.steps]
        rows = [line for line in table.splitlines()[1:] if re.match(r" *\d+  ", line)]
        assert all(number in row for number, row in zip(randoms, rows, strict=True))


@pytest.mark.parametrize("before", [(), ("/system Be brief.",), ("/undo",), ("LOAD",)])
def test_without_an_answer_in_the_conversation_there_is_nothing_to_explain(
    run: Run, scripted: Path, tmp_path: Path, before: tuple[str, ...]
) -> None:
    path = tmp_path / "talk.json"
    path.write_text(json.dumps({"messages": [fp.user("a"), fp.assistant("b")]}), "utf-8")
    lines = [*(["what?"] if before else []), *before]
    lines = [f"/load {path}" if line == "LOAD" else line for line in lines]
    done = run.ok("chat", scripted, typed=typed(*lines, "/why", "/take 0 1"))
    says = "there is no answer to explain yet\n  ask something first"
    if before and before != ("/undo",):  # an answer still stands in the conversation
        says = "the answer above can no longer be explained: its scores are not kept"
    assert done.err.count(f"error: {says}\n") == 2
    assert "token" not in done.out


@pytest.mark.parametrize("sampler", [SAMPLER, ("--max-tokens", 6)])
def test_take_keeps_the_tokens_before_and_replaces_the_answer(
    run: Run, tiny: Path, tmp_path: Path, sampler: tuple[object, ...]
) -> None:
    path = tmp_path / "talk.json"
    lines = typed("what?", "/why", "/take 3 17", "/why", f"/save {path}")
    done = run.ok("chat", tiny, *sampler, typed=lines)
    first, second = (first_cells(f"#  token{part}") for part in done.out.split("#  token")[1:])
    assert len(first) == len(second) == 6
    assert second[:3] == first[:3]
    with fp.load(tiny) as model:
        token = model.token_text(17)
    assert second[3] == f"3 {token}" != first[3]
    messages = json.loads(path.read_text("utf-8"))["messages"]
    assert [message["role"] for message in messages] == ["user", "assistant"]
    assert "taken" in done.out
    assert token in messages[1]["content"]


def test_take_goes_on_with_the_seed_of_the_answer_and_under_what_is_set_now(
    run: Run, tiny: Path
) -> None:
    drawn = r"^temperature 1\.3 \(request\), top-p 0\.9 \(request\), seed (\d+) \(engine default\)$"
    said = run.ok("chat", tiny, *SAMPLER, typed=typed("what?", "/take 1 17")).err
    first, second = re.findall(drawn, said, re.M)
    assert first == second
    lines = typed("what?", "/set temperature 0", "/take 1 17", "/why 2")
    done = run.ok("chat", tiny, *SAMPLER, typed=lines)
    assert "the best score wins, no draw" in done.out


def test_take_goes_as_far_as_is_set_now(run: Run, tiny: Path) -> None:
    lines = typed("what?", "/set max_tokens 9", "/take 1 17", "/why")
    done = run.ok("chat", tiny, "--max-tokens", 6, typed=lines)
    assert len(first_cells(done.out)) == 9
    lines = typed("what?", "/set max_tokens 3", "/take 3 17", "/take 2 17", "/why")
    done = run.ok("chat", tiny, "--max-tokens", 6, typed=lines)
    says = "error: token 3 is out of reach: max_tokens = 3 ends the answer before it\n"
    assert done.err.count(says) == 1
    assert len(first_cells(done.out)) == 3


def test_why_of_a_long_answer_says_how_the_rest_is_shown(run: Run, tiny: Path) -> None:
    out = run.ok("chat", tiny, "--max-tokens", 45, typed=typed("what?", "/why")).out
    assert out.splitlines()[-1] == "… and 5 more, /why N shows one"


def test_an_answer_can_be_taken_another_way_again_and_gone_on_from(
    run: Run, tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prompts: list[tuple[int, ...]] = []
    prefill = Runner.prefill

    def spy(self: Runner, tokens: tuple[int, ...]) -> Sequence:
        prompts.append(tuple(tokens))
        return prefill(self, tokens)

    monkeypatch.setattr(Runner, "prefill", spy)
    path = tmp_path / "talk.json"
    lines = typed("what?", "/take 2 17", "/take 4 18", "/why", "and?", f"/save {path}")
    done = run.ok("chat", tiny, "--max-tokens", 6, typed=lines)
    rows = first_cells(done.out)
    assert [row.split()[0] for row in rows] == ["0", "1", "2", "3", "4", "5"]
    with fp.load(tiny) as model:
        assert rows[2].endswith(model.token_text(17))
        assert rows[4].endswith(model.token_text(18))
        messages = json.loads(path.read_text("utf-8"))["messages"]
        asked = model.prepare(messages[:3]).ids
    assert prompts == [prompts[0]] * 3 + [asked]
    assert len(messages) == 4


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("/why x", "/why x: wanted the number of a token, from 0 up"),
        ("/why -1", "/why -1: wanted the number of a token, from 0 up"),
        ("/why 9", "there is no token 9: the answer has tokens 0 to 8"),
        ("/take", "/take: wanted the number of a token, and an id or text"),
        ("/take 1", "/take 1: wanted the number of a token, and an id or text"),
        ("/take x 1", "/take x 1: wanted the number of a token, and an id or text"),
        ("/take 9 1", "there is no token 9: the answer has tokens 0 to 8"),
        ("/take 1 99999", "/take 1 99999: token id 99999 is outside the vocabulary of 416"),
        ("/take 1 zqzq", "/take 1 zqzq: no token is exactly this text\n  it is "),
    ],
)
def test_what_cannot_be_explained_is_refused_and_the_answer_stays(
    run: Run, scripted: Path, tmp_path: Path, line: str, says: str
) -> None:
    path = tmp_path / "talk.json"
    done = run.ok("chat", scripted, typed=typed("what?", line, f"/save {path}"))
    assert f"error: {says}" in done.err
    assert json.loads(path.read_text("utf-8"))["messages"][1] == fp.assistant(SAYS)


def test_a_token_is_taken_by_its_text_in_quotes_where_that_has_blanks(
    run: Run, scripted: Path
) -> None:
    with fp.load(scripted) as model:
        ids = model.tokenizer.encode(SAYS)
        texts = [model.token_text(token) for token in ids]
        place, text = next((i, text) for i, text in enumerate(texts) if text.startswith(" "))
        rest = model.tokenizer.decode(ids[place:])
    for named in (f'"{text}"', ids[place]):
        done = run.ok("chat", scripted, typed=typed("what?", f"/take 0 {named}"))
        assert done.out == f"{SAYS}\n{rest}\n"


def test_a_token_that_ends_the_answer_can_be_taken(run: Run, scripted: Path) -> None:
    done = run.ok("chat", scripted, typed=typed("what?", "/take 2 <|im_end|>", "/why"))
    assert len(first_cells(done.out)) == 3


def test_ctrl_c_before_the_first_token_leaves_the_answer_as_it_was(
    run: Run, scripted: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on = Generation.__next__

    def interrupted(self: Generation) -> Step:
        if self.limits.take:
            raise KeyboardInterrupt
        return go_on(self)

    monkeypatch.setattr(Generation, "__next__", interrupted)
    path = tmp_path / "talk.json"
    done = run.ok("chat", scripted, typed=typed("what?", "/take 1 17", f"/save {path}", "/why"))
    assert "stopped; the answer stays as it was\n" in done.err
    assert json.loads(path.read_text("utf-8"))["messages"][1] == fp.assistant(SAYS)
    assert len(first_cells(done.out)) == 9
