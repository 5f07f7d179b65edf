from __future__ import annotations

import json
import math
import re
from itertools import combinations
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest

import forwardpass as fp
from cli.running import Run
from cli.test_run import COUNT, NUMBER, closed
from forwardpass.cli.console import WIDTH, cells
from forwardpass.graph.references import F32
from tiny_model import ROWS, random_folder

PROMPT = "the quick brown"


def schema(*temperatures: str) -> dict[str, object]:
    text = {"type": "string"}
    chances = closed(**dict.fromkeys(temperatures, NUMBER))
    row = closed(id=COUNT, token=text, score=NUMBER, probability=chances)
    drawn = closed(id=COUNT, token=text, count=COUNT)
    return closed(
        prompt_tokens=COUNT,
        vocabulary={"const": ROWS},
        top={"type": "array", "items": row},
        draws={"type": "array", "items": drawn},
    )


def table(run: Run, *arguments: object) -> dict[str, Any]:
    done = run.ok("next", *arguments, "--json")
    found: dict[str, Any] = json.loads(done.out)
    return found


@pytest.fixture
def scores(tiny: Path, backend: str) -> F32:
    with fp.load(tiny, backend=backend) as model:
        return model.runner.prefill(model.prepare(PROMPT).ids).scores


def test_json_has_exactly_the_keys_that_are_documented(run: Run, tiny: Path) -> None:
    found = table(run, tiny, PROMPT)
    jsonschema.validate(found, schema("0.5", "1.0", "1.5"))
    assert len(found["top"]) == 6
    assert found["draws"] == []
    found = table(run, tiny, PROMPT, "--temperatures", "0.75,2", "--top", 1, "--draws", 3)
    jsonschema.validate(found, schema("0.75", "2.0"))
    assert len(found["top"]) == 1
    assert sum(row["count"] for row in found["draws"]) == 3


def test_probabilities_are_the_softmax_of_the_scores_at_each_temperature(
    run: Run, tiny: Path, backend: str, scores: F32
) -> None:
    rows = table(run, tiny, PROMPT, "--top", ROWS, "--backend", backend)["top"]
    assert sorted(row["id"] for row in rows) == list(range(ROWS))
    for name in ("0.5", "1.0", "1.5"):
        powers = np.exp(scores.astype(np.float64) / float(name))
        expected = powers / powers.sum()
        for row in rows:
            assert row["probability"][name] == pytest.approx(expected[row["id"]], rel=1e-9)
            assert row["score"] == scores[row["id"]]
    assert [row["score"] for row in rows] == sorted(scores.tolist(), reverse=True)


def test_the_gap_between_any_two_rows_is_the_ratio_of_their_probabilities(
    run: Run, tiny: Path
) -> None:
    rows = table(run, tiny, PROMPT, "--top", 20)["top"]
    for first, second in combinations(rows, 2):
        gap = first["score"] - second["score"]
        for name in ("0.5", "1.0", "1.5"):
            ratio = first["probability"][name] / second["probability"][name]
            assert ratio == pytest.approx(math.exp(gap / float(name)), rel=1e-9)


def test_draws_are_those_of_their_seed_and_near_what_is_expected(
    run: Run, tiny: Path, backend: str
) -> None:
    """Each count lies within 6 standard deviations: a false alarm in 10⁶ seeds; this one is 3."""
    draws = 20_000
    asked = (tiny, PROMPT, "--backend", backend, "--draws", draws, "--top", 20)
    first = table(run, *asked, "--seed", 3)
    again = table(run, *asked, "--seed", 3)
    other = table(run, *asked, "--seed", 4)
    assert first == again
    assert first["draws"] != other["draws"]
    counts = {row["id"]: row["count"] for row in first["draws"]}
    assert sum(counts.values()) == draws
    for row in first["top"]:
        p = row["probability"]["1.0"]
        spread = math.sqrt(draws * p * (1 - p))
        assert abs(counts.get(row["id"], 0) - draws * p) < 6 * spread


def test_the_first_draw_is_the_first_token_of_the_run_with_that_seed(run: Run, tiny: Path) -> None:
    with fp.load(tiny) as model:
        for seed in range(5):
            (drawn,) = table(run, tiny, PROMPT, "--draws", 1, "--seed", seed)["draws"]
            answer = model.generate(PROMPT, temperature=1.0, seed=seed, max_tokens=1)
            assert drawn["id"] == answer.steps[0].id


def test_the_table_stands_in_columns_with_draws_beside_expectation(run: Run, tiny: Path) -> None:
    done = run.ok("next", tiny, PROMPT, "--draws", 100, "--seed", 7, "--top", 3)
    found = table(run, tiny, PROMPT, "--draws", 100, "--seed", 7, "--top", 3)
    title, blank, head, *rows, sums, gap = done.out.splitlines()
    assert title == f"416 scores after {found['prompt_tokens']} tokens, one pass"
    assert blank == ""
    assert re.fullmatch(
        r" +id  token( +)score    p at T 0\.5    T 1\.0    T 1\.5    100 draws at T 1\.0, seed 7",
        head,
    )
    assert len(rows) == 3
    counts = {row["id"]: row["count"] for row in found["draws"]}
    for number, (line, row) in enumerate(zip(rows, found["top"], strict=True)):
        chances = [f"{p:.3f}" for p in row["probability"].values()]
        words = line.split()
        assert words[0] == str(row["id"])
        at = words.index(f"{row['score']:.2f}")
        expected = f"{100 * row['probability']['1.0']:.1f}"
        label = ["expected"] if number == 0 else []
        drawn = str(counts.get(row["id"], 0))
        assert words[at + 1 :] == [*chances, drawn, *label, expected]
        assert cells(line) == cells(sums)
    assert sums.startswith("  these 3 ")
    drawn = sum(counts.get(row["id"], 0) for row in found["top"])
    mass = sum(row["probability"]["1.0"] for row in found["top"])
    assert sums.split()[-2:] == [str(drawn), f"{100 * mass:.1f}"]
    best, second = found["top"][:2]
    points = best["score"] - second["score"]
    assert gap.endswith(
        f": gap {points:.2f}, so {math.exp(points):.1f} times as likely at T 1.0, "
        f"{math.exp(2 * points):.1f} at T 0.5, {math.exp(points / 1.5):.1f} at T 1.5"
    )
    assert all(len(line) <= WIDTH for line in done.out.splitlines())


def test_without_draws_there_is_no_column_for_them(run: Run, tiny: Path) -> None:
    lines = run.ok("next", tiny, PROMPT, "--top", 1, "--temperatures", "1").out.splitlines()
    assert lines[2].endswith("    p at T 1.0")
    assert lines[4].startswith("  these 1")
    assert len(lines) == 5  # one row has no gap to another


def test_a_token_among_the_best_is_not_shown_again_where_it_was_asked_for(
    run: Run, tiny: Path
) -> None:
    found = table(run, tiny, PROMPT, "--top", 4)["top"]
    best, other = found[1]["id"], found[3]["id"]
    asked = (tiny, PROMPT, "--top", 3, "--id", best, "--id", other)
    lines = run.ok("next", *asked).out.splitlines()
    place = lines.index("  asked for")
    assert lines[place - 1].startswith("  these 3 ")
    ids = [line.split()[0] for line in lines if line]
    assert ids.count(str(best)) == 1
    assert lines[place + 1].split()[0] == str(other)
    assert [row["id"] for row in table(run, *asked)["asked"]] == [best, other]
    plain = run.ok("next", tiny, PROMPT, "--top", 3)
    assert run.ok("next", tiny, PROMPT, "--top", 3, "--id", best).out == plain.out


def test_prompts_are_made_as_run_makes_them(run: Run, tiny: Path, bare: Path) -> None:
    with fp.load(tiny) as model:
        told = model.prepare([fp.system("Be brief."), fp.user(PROMPT)], thinking=False)
        plain = model.prepare(fp.raw(PROMPT))
    found = table(run, tiny, PROMPT, "--system", "Be brief.", "--thinking", "off")
    assert found["prompt_tokens"] == len(told.ids)
    assert table(run, tiny, PROMPT, "--raw")["prompt_tokens"] == len(plain.ids)
    done = run.ok("next", bare, typed=PROMPT)
    assert f"after {len(plain.ids)} tokens" in done.out
    assert "the text is completed as it is" in done.err


def test_a_setting_that_was_left_out_is_named(run: Run, tmp_path: Path) -> None:
    path = random_folder(tmp_path / "m", attn_temperature_tuning=4)
    done = run.ok("next", path, PROMPT, "--accept-unknown", "attn_temperature_tuning")
    assert "loaded without attn_temperature_tuning = 4 (--accept-unknown)\n" in done.err


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--top", "0"], "--top 0: wanted at least 1"),
        (["--top", "417"], "--top 417: the vocabulary has 416 tokens"),
        (["--seed", "1"], "--seed 1: without --draws nothing is drawn"),
        (["--seed", "0", "--draws", "0"], "--seed 0: without --draws"),
        (["--temperatures", "1,1.0"], "--temperatures 1,1.0: 1.0 is given twice"),
        (["--raw", "--template", "x"], "--raw and --template were both given"),
        (["--draws", "-1"], "--draws -1: wanted 0 to 1,000,000"),
        (["--draws", "1000001"], "--draws 1000001"),
        (["--draws", "1", "--seed", str(2**63)], "--seed 9223372036854775808: wanted"),
        (["--temperatures", "0"], "'0' is no number above 0"),
        (["--temperatures", "1,inf"], "'inf' is no number above 0"),
        (["--temperatures", "1,,2"], "'' is no number above 0"),
        (["--temperatures", "warm"], "'warm' is no number above 0"),
        (["--temperature", "1"], "--temperatures"),
        (["--kv-type", "f16", "--backend", "reference"], "--kv-type f16: the reference backend"),
    ],
)
def test_a_wrong_request_is_refused_naming_what_is_wrong(
    run: Run, tiny: Path, arguments: list[str], says: str
) -> None:
    assert says in run.refused("next", tiny, PROMPT, *arguments)
