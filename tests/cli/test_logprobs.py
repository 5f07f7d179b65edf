"""Log probabilities that programs ask for: `run --logprobs` and `--logprob-id`, `next --id`."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest

import forwardpass as fp
from cli.running import Run
from cli.test_run import COUNT, NUMBER, PLAIN, TOKEN, WRITTEN, closed
from tiny_model import END, ROWS, TOKENS, byte_ids, scripted_folder

PROMPT = "the quick brown"
SAMPLER = ("--temperature", 1.4, "--top-k", 3, "--seed", 2, "--max-tokens", 4)
LOGPROB = {"type": ["number", "null"]}
WANTED = closed(**WRITTEN, logprob=LOGPROB, sampled_logprob=LOGPROB)


def answered(run: Run, *arguments: object) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(run.ok("run", *arguments, "--json").out)
    return found


def test_both_distributions_are_listed_and_add_up(run: Run, tiny: Path) -> None:
    found = answered(run, tiny, PROMPT, *SAMPLER, "--logprobs", 20)
    for token in found["tokens"]:
        own = [best["logprob"] for best in token["top"]]
        sampled = [best["sampled_logprob"] for best in token["sampled_top"]]
        assert own == sorted(own, reverse=True)
        assert len(own) == 20
        assert len(sampled) == 3  # what top-k kept
        assert math.fsum(map(math.exp, sampled)) == pytest.approx(1, abs=1e-9)
        by_id = {best["id"]: best["logprob"] for best in token["top"]}
        first = token["sampled_top"][0]
        for best in token["sampled_top"]:  # a temperature divides every difference
            gap = best["sampled_logprob"] - first["sampled_logprob"]
            assert gap == pytest.approx((by_id[best["id"]] - by_id[first["id"]]) / 1.4, abs=1e-6)
    found = answered(run, tiny, PROMPT, *SAMPLER, "--logprobs", 2)
    assert [len(token["sampled_top"]) for token in found["tokens"]] == [2] * 4


def test_any_token_can_be_asked_for_with_both_its_log_probabilities(run: Run, tiny: Path) -> None:
    asked = [17, TOKENS, ROWS - 1]
    ids = [part for token in asked for part in ("--logprob-id", token)]
    found = answered(run, tiny, PROMPT, *SAMPLER, *ids)
    token_keys = {**TOKEN, "properties": {**TOKEN["properties"], "wanted": {}}}  # type: ignore[dict-item]
    jsonschema.validate(found, closed(**PLAIN, tokens={"type": "array", "items": token_keys}))
    with fp.load(tiny) as model:
        going = model.runner.prefill(model.prepare(PROMPT).ids)
        for token in found["tokens"]:
            assert token["top"] == token["sampled_top"] == []
            jsonschema.validate(token["wanted"], {"type": "array", "items": WANTED})
            assert [entry["id"] for entry in token["wanted"]] == asked
            scores = going.scores.astype(np.float64)
            own = scores - scores.max() - math.log(np.exp(scores - scores.max()).sum())
            best = np.argsort(-scores, kind="stable")[:3]
            total = math.log(np.exp((scores[best] - scores.max()) / 1.4).sum())
            for entry in token["wanted"]:
                assert entry["logprob"] == pytest.approx(own[entry["id"]], abs=1e-4)
                sampled = (scores[entry["id"]] - scores.max()) / 1.4 - total
                if entry["id"] in best:
                    assert entry["sampled_logprob"] == pytest.approx(sampled, abs=1e-4)
                else:
                    assert entry["sampled_logprob"] is None
            model.runner.decode(going, token["id"])


def test_a_token_is_asked_for_by_its_text_too_and_once_is_enough(run: Run, tiny: Path) -> None:
    with fp.load(tiny) as model:
        text = model.token_text(300)
        assert model.tokenizer.encode(text) == [300]
    both = ("--logprob-id", text, "--logprob-id", 300)
    found = answered(run, tiny, PROMPT, *SAMPLER, *both, "--logprobs", 1)
    for token in found["tokens"]:
        assert [(entry["id"], entry["token"]) for entry in token["wanted"]] == [(300, text)]
        assert len(token["top"]) == 1
    assert "wanted" not in answered(run, tiny, PROMPT, *SAMPLER, "--logprobs", 1)["tokens"][0]
    seeds = answered(run, tiny, PROMPT, "--temperature", 1, "--seeds", "0-1", *both,
                     "--max-tokens", 1)  # fmt: skip
    assert all(answer["tokens"][0]["wanted"] for answer in seeds["answers"])


@pytest.mark.parametrize("says", ["a🎉ß", "文", "e\u0301"])
def test_bytes_are_exact_for_tokens_that_are_parts_of_a_character(
    run: Run, tmp_path: Path, says: str
) -> None:
    path = scripted_folder(tmp_path / "m", says)
    first = byte_ids("🎉")[0]
    found = answered(run, path, "what?", "--logprobs", 3, "--logprob-id", first)
    assert found["text"] == says
    *written, last = found["tokens"]
    assert b"".join(bytes(token["bytes"]) for token in written) == says.encode()
    assert (last["token"], last["bytes"]) == (END, [])
    assert any(not _is_text(bytes(token["bytes"])) for token in written)
    for token in found["tokens"]:
        (asked,) = token["wanted"]
        assert asked["bytes"] == ["🎉".encode()[0]]
        assert asked["token"] == "\\xf0"
        for best in token["top"]:
            assert isinstance(best["bytes"], list)


def _is_text(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--logprob-id", "1"], "--logprob-id 1: wanted together with --json"),
        (["--logprob-id", str(ROWS), "--json"], f"token id {ROWS} is outside the vocabulary"),
        (["--logprob-id", "zqzq", "--json"], "--logprob-id zqzq: no token is exactly this text"),
        (["--logprob-id", "-1", "--json"], "--logprob-id -1: no token is exactly this text"),
    ],
)
def test_a_token_that_there_is_not_is_refused(
    run: Run, tiny: Path, arguments: list[str], says: str
) -> None:
    assert says in run.refused("run", tiny, PROMPT, *arguments)


def test_the_next_token_table_has_a_row_for_every_token_that_was_asked_for(
    run: Run, tiny: Path
) -> None:
    asked = ("--id", 17, "--id", ROWS - 1, "--top", 2, "--draws", 500, "--seed", 1)
    found = json.loads(run.ok("next", tiny, PROMPT, *asked, "--json").out)
    every = json.loads(run.ok("next", tiny, PROMPT, "--top", ROWS, "--json").out)["top"]
    rows = {row["id"]: row for row in every}
    assert found["asked"] == [rows[17], rows[ROWS - 1]]
    assert [row["id"] for row in found["top"]] == [row["id"] for row in every[:2]]
    lines = run.ok("next", tiny, PROMPT, *asked).out.splitlines()
    sums = next(place for place, line in enumerate(lines) if line.startswith("  these 2 "))
    assert lines[sums + 1] == "  asked for"
    counts = {row["id"]: row["count"] for row in found["draws"]}
    for line, token in zip(lines[sums + 2 : sums + 4], (17, ROWS - 1), strict=True):
        row = rows[token]
        chances = [f"{row['probability'][name]:.3f}" for name in ("0.5", "1.0", "1.5")]
        expected = f"{500 * row['probability']['1.0']:.1f}"
        assert line.split()[0] == str(token)
        end = [f"{row['score']:.2f}", *chances, str(counts.get(token, 0)), expected]
        assert line.split()[-6:] == end
    mass = sum(row["probability"]["1.0"] for row in found["top"])
    assert lines[sums].split()[-1] == f"{500 * mass:.1f}"
    jsonschema.validate(found["asked"][0]["id"], COUNT)
    jsonschema.validate(found["asked"][0]["score"], NUMBER)


@pytest.mark.parametrize("token", [str(ROWS), "zqzq"])
def test_the_table_refuses_a_token_that_there_is_not(run: Run, tiny: Path, token: str) -> None:
    assert run.refused("next", tiny, PROMPT, "--id", token).startswith(f"--id {token}: ")
