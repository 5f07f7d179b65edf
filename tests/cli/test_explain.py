from __future__ import annotations

import json
import math
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import forwardpass as fp
from cli.conftest import SAYS
from cli.running import Run
from forwardpass.cli.console import WIDTH, cells, visible
from forwardpass.cli.explain_words import share
from forwardpass.model import Generation
from forwardpass.trace.step import Step
from tiny_model import END, ROWS, scripted_folder

PROMPT = "the quick brown"
SAMPLER = ("--temperature", 1.3, "--top-p", 0.8, "--seed", 5, "--max-tokens", 6)
NUMBER = r"\d+\.\d{3}"


def traced(run: Run, *arguments: object) -> dict[str, Any]:
    """What `explain --json` prints."""
    found: dict[str, Any] = json.loads(run.ok("explain", *arguments, "--json").out)
    return found


def token_rows(out: str) -> list[list[str]]:
    """The cells of the first table, its head first; they are two blanks apart."""
    table = out.split("\n\n")[0].splitlines()
    return [re.split(r" {2,}", line.strip()) for line in table if re.match(r" *(#|\d+) ", line)]


def stage_rows(out: str, number: int = 0) -> dict[str, str]:
    """The lines of the table of one token, by the name of the stage."""
    (table,) = (part for part in out.split("\n\n") if part.startswith(f"token {number}, stage"))
    lines = [line.strip() for line in table.splitlines()[1:]]
    names = [re.split(r" {2,}", line)[0] for line in lines]
    return {
        re.sub(r" (by|of|off|-?\d).*", "", name): line
        for name, line in zip(names, lines, strict=True)
    }


def softmax(scores: Any) -> Any:
    powers = np.exp(scores - scores.max())
    return powers / powers.sum()


def shown(token: dict[str, Any]) -> str:
    return visible(token["text"], 12)


@pytest.mark.parametrize(
    ("temperature", "top_k", "top_p", "min_p"),
    [(1.0, 0, 0.9, 0.0), (0.7, 30, 1.0, 0.0), (1.6, 60, 0.8, 0.05), (2.0, 0, 1.0, 0.3)],
)
def test_what_is_printed_follows_from_the_raw_scores_by_a_plain_script(
    run: Run, tiny: Path, temperature: float, top_k: int, top_p: float, min_p: float
) -> None:
    """Survivors, masses, rescaling and the place of the draw, from the scores of the full trace."""
    asked = (tiny, PROMPT, "--max-tokens", 4, "--seed", 5, "--temperature", temperature,
             "--top-k", top_k, "--top-p", top_p, "--min-p", min_p)  # fmt: skip
    printed = run.ok("explain", *asked, "--token", 0, "--token", 3).out
    trace = traced(run, *asked, "--full")
    rows = token_rows(printed)[1:]
    assert len(rows) == len(trace["steps"]) == 4
    for step, row in zip(trace["steps"], rows, strict=True):
        ids = np.array(step["best"]["ids"])
        scores = np.array(step["best"]["scores"], np.float64)
        assert ids.size == ROWS
        assert (np.diff(scores) <= 0).all()
        raw, p = softmax(scores), softmax(scores / temperature)
        kept = [top_k or ROWS]
        kept.append(min(kept[-1], 1 + int((np.cumsum(p) < top_p - 1e-12).sum())))
        kept.append(min(kept[-1], int((p >= min_p * p[0]).sum())))
        masses = [p[:count].sum() for count in kept]
        after = p[: kept[-1]] / masses[-1]
        ends = np.cumsum(after)
        place = min(int((ends <= step["random"]).sum()), kept[-1] - 1)
        assert ids[place] == step["id"]
        assert row[0] == str(step["index"])
        assert row[2:9] == [
            f"{scores[place]:.2f}", f"{raw[place]:.3f}", str(kept[-1]), f"{masses[-1]:.3f}",
            f"{after[place]:.3f}", str(place + 1), f"{step['random']:.3f}",
        ]  # fmt: skip
        others = [i for i in range(min(3, kept[-1])) if i != place][:2]
        words = [f"{shown(trace['tokens'][str(ids[i])])} {after[i]:.3f}" for i in others]
        assert row[9] in (", ".join(words), words[0] if words else "none kept")
        if step["index"] not in (0, 3):
            continue
        stages = stage_rows(printed, step["index"])
        for name, count, mass in zip(("top-k", "top-p", "min-p"), kept, masses, strict=True):
            assert re.search(rf"  {count}  {mass:.3f}  .*  {p[0]:.3f}$", stages[name])
        assert re.search(rf"  {ROWS}  1\.000  .*  {p[0]:.3f}$", stages["temperature"])
        assert re.search(rf"  {ROWS}  1\.000  .*  {raw[0]:.3f}$", stages["bias, penalties, mask"])
        rescale = stages["rescale"]
        assert rescale.startswith(f"rescale by 1 / {masses[-1]:.3f} ")
        assert re.search(rf"  {kept[-1]}  1\.000  .*  {after[0]:.3f}$", rescale)
        start, end = re.findall(r"(0\.\d+) to ([01]\.\d+)$", stages["draw"])[0]
        assert float(start) == pytest.approx(ends[place] - after[place], abs=6e-4)
        assert float(end) == pytest.approx(ends[place], abs=6e-4)
        assert f"seed 5, choice 0, position {step['index']}" in stages["draw"]


def test_every_setting_says_where_it_came_from_and_rare_ones_only_where_they_are_set(
    run: Run, tiny: Path
) -> None:
    stages = stage_rows(run.ok("explain", tiny, PROMPT, *SAMPLER).out)
    assert [*stages] == [
        "bias, penalties, mask", "temperature", "top-k", "top-p", "min-p", "rescale", "draw"
    ]  # fmt: skip
    assert re.match(r"temperature 1\.3 +request ", stages["temperature"])
    assert re.match(r"top-k off +engine default ", stages["top-k"])
    assert re.match(r"bias, penalties, mask +none set ", stages["bias, penalties, mask"])
    rare = ("--typical-p", 0.9, "--top-n-sigma", 3, "--xtc-probability", 0.5)
    stages = stage_rows(run.ok("explain", tiny, PROMPT, *SAMPLER, *rare).out)
    assert {"typical-p", "top-n-sigma", "xtc-probability", "xtc-threshold"} <= {*stages}
    assert re.search(
        r"engine default, drew 0\.\d{3}: (acts|does not act)$", stages["xtc-threshold"]
    )


def test_bias_and_penalties_say_what_they_changed(run: Run, tiny: Path) -> None:
    """The scores before and after, from the full trace and the settings' own definitions."""
    plain = traced(run, tiny, PROMPT, "--max-tokens", 3, "--full")["steps"]
    (best, second), bias = plain[0]["best"]["ids"][:2], 6.5
    asked = (tiny, PROMPT, "--max-tokens", 3, "--logit-bias", f"{second}={bias}",
             "--presence-penalty", 1.25)  # fmt: skip
    trace = traced(run, *asked, "--full")
    assert [step["id"] for step in trace["steps"][:2]] == [second, second]
    out = run.ok("explain", *asked, "--token", 0, "--token", 1).out
    for number, penalty in ((0, 0), (1, 1.25)):
        kept = trace["steps"][number]["best"]
        own = dict(zip(kept["ids"], kept["scores"], strict=True))
        stages = stage_rows(out, number)
        assert re.match(r"bias, penalties; no mask ", stages["bias, penalties; no mask"])
        name = shown(trace["tokens"][str(second)])
        biased = own[second] + bias
        assert f"request: {name} {own[second]:.2f} → {biased:.2f}" in stages["logit-bias"]
        line = stages["presence-penalty"]
        changed = f"{name} {biased:.2f} → {biased - penalty:.2f}"
        assert (changed if penalty else "request: no change to ") in line
    assert best != second


def test_a_greedy_answer_says_so_and_draws_nothing(run: Run, scripted: Path) -> None:
    done = run.ok("explain", scripted, "what?")
    head, *rows = token_rows(done.out)
    assert head == ["#", "token", "score", "raw p", "runner-up (raw p)"]
    assert len(rows) == 9
    assert done.out.split("\n\n")[0].splitlines()[-1] == SAYS
    stages = stage_rows(done.out)
    assert [*stages] == ["bias, penalties, mask", "temperature", "greedy"]
    assert "the best score wins, no draw" in stages["greedy"]
    assert re.match(r"temperature 0\.0 +engine default +1  1\.000 ", stages["temperature"])
    assert "greedy (neither the request nor the model file sets sampling) · " in done.err


def test_the_answer_and_its_account_are_those_of_run(run: Run, tiny: Path) -> None:
    explained = run.ok("explain", tiny, PROMPT, *SAMPLER)
    answered = run.ok("run", tiny, PROMPT, *SAMPLER)
    assert answered.out.rstrip("\n") in explained.out
    seconds = re.compile(r" in [\d.]+ s|[\d.]+ a second|\d+ % of what")
    assert seconds.sub("", explained.err) == seconds.sub("", answered.err)


def test_lines_fit_a_terminal_whatever_the_settings(run: Run, tiny: Path) -> None:
    everything = (
        *("--temperature", 1.234567890123, "--seed", 2**63 - 1, "--sampler", "llama.cpp"),
        *("--top-k", 400, "--top-p", 0.987654321, "--min-p", 0.0000123, "--typical-p", 0.99),
        *("--top-n-sigma", 8, "--xtc-probability", 0.5, "--repetition-penalty", 1.0123456789),
        *("--frequency-penalty", 0.1, "--presence-penalty", -0.2, "--dry-multiplier", 0.8),
        *("--logit-bias", f"{ROWS - 1}=5", "--logit-bias", "7=-3", "--max-tokens", 12),
    )
    for arguments in (everything, SAMPLER, ("--max-tokens", 12, "--repetition-penalty", 1.3)):
        done = run.ok("explain", tiny, PROMPT, *arguments, "--token", 11 if arguments is not SAMPLER
                      else 5, "--top", 32)  # fmt: skip
        assert all(cells(line) <= WIDTH for line in done.out.splitlines())


def test_the_best_of_both_distributions_stand_side_by_side(run: Run, tiny: Path) -> None:
    trace = traced(run, tiny, PROMPT, *SAMPLER)
    out = run.ok("explain", tiny, PROMPT, *SAMPLER, "--top", 3, "--token", 1).out
    table = out.split("\n\n")[-1].splitlines()
    assert table[0] == "token 1, the best by the model's own scores, and after the stages"
    step = trace["steps"][1]
    assert len(table) == 5
    for place, line in enumerate(table[2:]):
        own, after = step["best"]["ids"][place], step["after"][place]
        logprob = step["best"]["scores"][place] - step["best"]["scores"][0]
        logprob -= step["best"]["log_sum"]
        words = line.split()
        assert words[0] == str(own)
        assert f"{step['best']['scores'][place]:.2f}  {math.exp(logprob):.3f}" in line
        assert re.search(rf" {after['id']}  .*{math.exp(after['logprob']):.3f}$", line)


def test_a_long_answer_is_cut_and_says_how_to_see_more(run: Run, tiny: Path) -> None:
    asked = ("explain", tiny, PROMPT, *SAMPLER[:-1], 60)
    out = run.ok(*asked).out
    count = len(traced(run, *asked[1:])["steps"])
    assert count > 40
    assert len(token_rows(out)) == 41
    more = f"… and {count - 40} more, which --rows {count} shows"
    assert more in out.splitlines()
    out = run.ok(*asked, "--rows", count).out
    assert len(token_rows(out)) == count + 1
    assert "which --rows" not in out


def test_ctrl_c_shows_what_came(
    run: Run, tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on = Generation.__next__

    def interrupted(self: Generation) -> Step:
        if len(self.steps) == 3:
            raise KeyboardInterrupt
        return go_on(self)

    monkeypatch.setattr(Generation, "__next__", interrupted)
    path = tmp_path / "trace.json"
    done = run("explain", tiny, PROMPT, *SAMPLER, "--trace", path)
    assert done.status == 130
    assert done.err.endswith("stopped\n")
    assert len(token_rows(done.out)) == 4
    assert "token 0, stage by stage" in done.out
    written = json.loads(path.read_text("utf-8"))
    assert (len(written["steps"]), written["finish_reason"]) == (3, None)
    done = run("explain", tiny, PROMPT, *SAMPLER, "--json")
    assert (done.status, len(json.loads(done.out)["steps"])) == (130, 3)


def test_ctrl_c_before_the_first_token_leaves_nothing_to_show(
    run: Run, tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(self: Generation) -> Step:
        raise KeyboardInterrupt

    monkeypatch.setattr(Generation, "__next__", interrupted)
    done = run("explain", tiny, PROMPT)
    assert (done.status, done.out) == (130, "")


def test_a_branch_keeps_what_came_before_and_goes_on_from_the_token_taken(
    run: Run, tiny: Path
) -> None:
    for sampler in (SAMPLER, ("--max-tokens", 6)):
        first = traced(run, tiny, PROMPT, *sampler)["steps"]
        other = first[2]["best"]["ids"][7]
        assert other != first[2]["id"]
        branched = traced(run, tiny, PROMPT, *sampler, "--at", 2, "--take", other)["steps"]
        ids = [step["id"] for step in branched]
        assert ids[:3] == [first[0]["id"], first[1]["id"], other]
        assert branched[2]["drawn"] == first[2]["id"]
        with fp.load(tiny) as model:  # the tokens behind it are a function of those before
            going = model.runner.prefill(model.prepare(PROMPT).ids)
            for token in ids[:3]:
                model.runner.decode(going, token)
            scores = going.scores
            best = branched[3]["best"]
            assert best["ids"][0] == int(scores.argmax())
            assert best["scores"][0] == pytest.approx(float(scores.max()), abs=1e-4)


def test_a_branch_shows_its_token_as_taken_stage_by_stage(run: Run, tiny: Path) -> None:
    first = traced(run, tiny, PROMPT, *SAMPLER)["steps"]
    other = first[2]["best"]["ids"][7]
    done = run.ok("explain", tiny, PROMPT, *SAMPLER, "--at", 2, "--take", other)
    rows = token_rows(done.out)[1:]
    assert [row[8] == "taken" for row in rows] == [False, False, True, False, False, False]
    assert rows[0][8] == f"{first[0]['random']:.3f}"  # the same token as was drawn
    stages = stage_rows(done.out, 2)
    assert re.match(r"taken +whatever the stages gave ", stages["taken"])
    assert "position 2 " in stages["draw"]
    assert "3 tokens as the stages give them: 3 passes · " in done.err
    same = run.ok("explain", tiny, PROMPT, *SAMPLER, "--at", 2, "--take", first[2]["id"])
    assert token_rows(same.out)[1:] == token_rows(run.ok("explain", tiny, PROMPT, *SAMPLER).out)[1:]
    assert "taken" not in stage_rows(same.out, 2)


def test_a_token_is_taken_by_its_exact_text_and_one_that_ends_the_answer_ends_it(
    run: Run, scripted: Path
) -> None:
    with fp.load(scripted) as model:
        third = model.tokenizer.encode(SAYS)[2]
        text = model.tokenizer.token_text(third)
    by_text = traced(run, scripted, "what?", "--at", 0, "--take", text)
    by_id = traced(run, scripted, "what?", "--at", 0, "--take", third)
    assert by_text == by_id
    assert by_text["text"] == SAYS[SAYS.index(text) :] != SAYS
    ended = traced(run, scripted, "what?", "--at", 1, "--take", END)
    assert (ended["finish_reason"], len(ended["steps"])) == ("stop", 2)
    said = run.refused("explain", scripted, "what?", "--at", 0, "--take", "fox zq")
    assert said.startswith("--take fox zq: no token is exactly this text\n  it is ")


def test_tokens_that_are_parts_of_a_character_keep_their_bytes(run: Run, tmp_path: Path) -> None:
    says = "a🎉ß"
    path = scripted_folder(tmp_path / "m", says)
    trace = traced(run, path, "what?")
    parts = [bytes(trace["tokens"][str(step["id"])]["bytes"]) for step in trace["steps"]]
    assert b"".join(parts) == says.encode()
    assert any(0 < len(part) < 4 and not _is_text(part) for part in parts)
    assert r"\xf0" in run.ok("explain", path, "what?").out


def _is_text(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def test_its_help_loads_no_numbers() -> None:
    command = [sys.executable, "-X", "importtime", "-m", "forwardpass", "explain", "--help"]
    done = subprocess.run(command, capture_output=True, encoding="utf-8")
    assert done.returncode == 0
    assert "--replay" in done.stdout
    loaded = set(re.findall(r"^import time: .*\| +(\S+)$", done.stderr, flags=re.MULTILINE))
    assert "forwardpass.cli.explaining" in loaded
    assert not loaded & {"numpy", "tokenizers", "jinja2", "forwardpass._native"}


@pytest.mark.parametrize(
    ("chance", "text"),
    [(0.0, "0.000"), (1e-9, "<.001"), (0.00049, "<.001"), (0.0006, "0.001"), (1.0, "1.000")],
)
def test_no_probability_is_called_nothing_but_nothing(chance: float, text: str) -> None:
    assert share(chance) == text


def test_a_token_that_hardly_could_come_keeps_the_columns_in_line(run: Run, tiny: Path) -> None:
    asked = (tiny, PROMPT, "--temperature", 0.05, "--seed", 1, "--max-tokens", 3)
    worst = traced(run, *asked, "--full")["steps"][1]["best"]["ids"][-1]
    out = run.ok("explain", *asked, "--at", 1, "--take", worst).out
    head, _, row, *_ = out.splitlines()
    assert "<.001" in row
    assert row[: head.index("after p") + 7].endswith(" <.001")
