"""`explain`: traces, replay, pages."""

from __future__ import annotations

import json
import math
from pathlib import Path

from cli.running import Run
from cli.test_explain import PROMPT, SAMPLER, token_rows, traced
from tiny_model import ROWS


def test_a_trace_that_is_written_is_the_one_that_json_prints_and_is_looked_at_again(
    run: Run, tiny: Path, tmp_path: Path
) -> None:
    path = tmp_path / "trace.json"
    done = run.ok("explain", tiny, PROMPT, *SAMPLER, "--trace", path)
    assert f"trace written to {path}\n" in done.err
    assert json.loads(path.read_text("utf-8")) == traced(run, tiny, PROMPT, *SAMPLER)
    again = run.ok("explain", "--replay", path)
    assert again.out == done.out
    assert json.loads(run.ok("explain", "--replay", path, "--json").out) == json.loads(
        path.read_text("utf-8")
    )
    shown = run.ok("explain", "--replay", path, "--token", 2, "--rows", 1).out
    assert "token 2, stage by stage" in shown
    assert "… and 5 more, which --rows 6 shows" in shown


def test_full_keeps_every_score_and_the_tables_stay_as_they_are(
    run: Run, tiny: Path, tmp_path: Path
) -> None:
    path = tmp_path / "trace.json"
    full = run.ok("explain", tiny, PROMPT, *SAMPLER, "--full", "--trace", path)
    assert full.out == run.ok("explain", tiny, PROMPT, *SAMPLER).out
    kept = json.loads(path.read_text("utf-8"))["steps"][0]["best"]
    assert (len(kept["ids"]), kept["rest"], kept["rest_mass"]) == (ROWS, 0, 0)
    assert len(traced(run, tiny, PROMPT, *SAMPLER)["steps"][0]["best"]["ids"]) == 256


def test_a_replay_is_a_run_under_the_new_settings_up_to_the_first_difference(
    run: Run, tiny: Path, tmp_path: Path
) -> None:
    path = tmp_path / "trace.json"
    run.ok("explain", tiny, PROMPT, *SAMPLER, "--full", "--trace", path)
    recorded = json.loads(path.read_text("utf-8"))
    differing = 0
    for options in (("--top-k", 2), ("--min-p", 0.5), ("--temperature", 0.2), ("--seed", 6),
                    ("--top-p", 0.79), ("--temperature", 0)):  # fmt: skip
        replayed = json.loads(run.ok("explain", "--replay", path, *options, "--json").out)
        fresh = traced(run, tiny, PROMPT, *SAMPLER, *options)["steps"]
        ids = [step["id"] for step in fresh]
        place = replayed["differs_at"]
        differing += place is not None
        known = len(ids) if place is None else place + 1
        assert [step["id"] for step in replayed["steps"]] == ids[:known]
        assert replayed["undecided"] is None
        was = [step["id"] for step in recorded["steps"]]
        assert replayed["recorded"] == was
        assert was[: known - 1] == ids[: known - 1]
        table = token_rows(run.ok("explain", "--replay", path, *options).out)
        assert table[0] == ["#", "recorded", "replayed", "raw p", "after p", "random"]
        assert len(table) == known + 1
        assert (table[-1][-1] == "differs") == (place is not None)
        sampled = [f"{math.exp(step['sampled_logprob']):.3f}" for step in fresh[:known]]
        assert [row[4] for row in table[1:]] == sampled
    assert differing >= 3


def test_a_replay_of_the_best_scores_says_where_they_do_not_suffice(
    run: Run, tiny: Path, tmp_path: Path
) -> None:
    path = tmp_path / "trace.json"
    run.ok("explain", tiny, PROMPT, *SAMPLER, "--trace", path)
    unknown = ("--temperature", 100, "--top-p", 1)
    replayed = json.loads(run.ok("explain", "--replay", path, *unknown, "--json").out)
    place = replayed["undecided"]["index"]
    assert len(replayed["steps"]) == place
    said = run.ok("explain", "--replay", path, *unknown).out
    reason = replayed["undecided"]["reason"]
    assert "--" not in reason
    assert f"unknown from token {place} on:\n  {reason} (--full keeps all)\n" in said


def test_a_branch_keeps_only_the_token_that_was_asked_for_when_it_is_replayed(
    run: Run, tiny: Path, tmp_path: Path
) -> None:
    path = tmp_path / "trace.json"
    branched = traced(run, tiny, PROMPT, *SAMPLER, "--full", "--at", 2, "--take", 17)
    assert [step["taken"] for step in branched["steps"]] == [False, False, True] + [False] * 3
    path.write_text(json.dumps(branched), "utf-8")
    barred = branched["steps"][0]["id"]
    replayed = run.ok("explain", "--replay", path, "--logit-bias", f"{barred}=-100", "--json").out
    assert json.loads(replayed)["differs_at"] == 0


def test_the_page_is_written_for_an_answer_and_for_a_recorded_one(
    run: Run, tiny: Path, tmp_path: Path
) -> None:
    page, path, again = (tmp_path / name for name in ("a.html", "trace.json", "b.html"))
    done = run.ok("explain", tiny, PROMPT, *SAMPLER, "--html", page, "--trace", path)
    assert f"page written to {page}\n" in done.err
    assert "forwardpass explain" in page.read_text("utf-8")
    run.ok("explain", "--replay", path, "--html", again)
    assert again.read_text("utf-8").startswith("<!doctype html")


def test_a_pass_is_shown_alone_or_beside_the_answer_on_a_page(
    run: Run, tiny: Path, tmp_path: Path
) -> None:
    done = run.ok("explain", tiny, PROMPT, "--pass", "--layer", 1, "--head", 2)
    assert "attention of layer 1, head 2" in done.out
    assert "stage by stage" not in done.out
    page = tmp_path / "pass.html"
    run.ok("explain", tiny, PROMPT, "--pass", "--html", page, *SAMPLER)
    assert page.read_text("utf-8").startswith("<!doctype html")
    path = tmp_path / "trace.json"
    other = ("--at", 1, "--take", 65)
    run.ok("explain", tiny, PROMPT, "--pass", "--html", page, *SAMPLER, *other, "--trace", path)
    assert json.loads(path.read_text("utf-8"))["steps"][1]["id"] == 65
    assert "taken as asked" in page.read_text("utf-8")
    run.ok("explain", tiny, PROMPT, "--pass", "--html", page, "--full", "--trace", path)
    assert len(json.loads(path.read_text("utf-8"))["steps"][0]["best"]["ids"]) == ROWS
    found = json.loads(run.ok("explain", tiny, PROMPT, "--pass", "--json").out)
    assert "layers" in found
