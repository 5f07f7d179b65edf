"""A trace as JSON: what is written reads back equal, and nothing else is read."""

from __future__ import annotations

import base64
import copy
import json
import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import forwardpass as fp
from forwardpass.trace.form import LONGEST_LIST, as_dict
from forwardpass.trace.reading import from_dict
from tiny_model import ROWS, random_folder

ASKED: tuple[dict[str, Any], ...] = (
    {},
    {"temperature": 1.0, "seed": 4, "top_p": 0.9},
    {"temperature": 0.7, "seed": -(2**63), "sampler": "llama.cpp", "top_k": 5, "min_p": 0.1},
    {"temperature": 1.5, "seed": 1, "sampler": "transformers", "typical_p": 0.5, "top_k": 3},
    {"temperature": 1.0, "seed": 2, "stages": "presence_penalty,top_p,temperature", "top_p": 0.5},
    {
        "temperature": 0.9,
        "seed": 3,
        "logit_bias": {5: 3.5, 400: -100.0},
        "presence_penalty": 0.5,
        "dry_multiplier": 0.8,
        "dry_sequence_breakers": ["\n", "the"],
        "xtc_probability": 0.5,
    },
    {"keep_scores": 3, "logprob_ids": [0, 7, 7, ROWS - 1]},
    {"keep_scores": ROWS, "temperature": 1.0, "seed": 9, "take": {1: 77}},
)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> fp.Model:
    return fp.load(random_folder(tmp_path_factory.mktemp("models") / "tiny"))


@pytest.fixture(scope="module")
def written(model: fp.Model) -> dict[str, Any]:
    """A trace as JSON with something in every place."""
    answer = model.generate("hello", temperature=1.0, seed=4, max_tokens=3, logprob_ids=[5])
    return json_of(answer.trace())


def json_of(trace: fp.Trace) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(json.dumps(as_dict(trace), allow_nan=False))
    return found


@pytest.mark.parametrize("asked", ASKED, ids=str)
def test_a_trace_that_was_written_reads_back_equal(
    model: fp.Model, asked: dict[str, Any], tmp_path: Path
) -> None:
    trace = model.generate("hello", max_tokens=6, **asked).trace()
    assert from_dict(json_of(trace)) == trace
    path = tmp_path / "a.json"
    fp.write_trace(trace, path)
    again = fp.read_trace(path)
    assert again == trace
    assert as_dict(again) == as_dict(trace)
    assert again.text == trace.text
    assert again.finish_reason == trace.finish_reason


def test_an_answer_can_be_traced_as_far_as_it_has_come(model: fp.Model) -> None:
    going = model.stream("hello", max_tokens=4)
    empty = going.trace()
    assert (empty.steps, empty.text, empty.finish_reason) == ((), "", None)
    assert from_dict(json_of(empty)) == empty
    next(going)
    begun = going.trace()
    assert begun.steps == tuple(going.steps)
    assert from_dict(json_of(begun)) == begun
    assert begun.finish_reason is None


def test_scores_are_the_shortest_decimals_that_give_the_same_float32(
    written: dict[str, Any], model: fp.Model
) -> None:
    answer = model.generate("hello", temperature=1.0, seed=4, max_tokens=3, logprob_ids=[5])
    for step, shown in zip(answer.steps, written["steps"], strict=True):
        own = step.outcome.best.scores
        read = np.array(shown["best"]["scores"], dtype=np.float64)
        assert (read.astype(np.float32) == own).all()
        assert all(len(repr(score).lstrip("-0.").replace(".", "")) <= 9 for score in read.tolist())


def test_long_rows_are_written_in_base64(model: fp.Model) -> None:
    trace = model.generate("hello", max_tokens=1).trace()
    step = trace.steps[0]
    size = LONGEST_LIST + 1
    rng = np.random.default_rng(5)
    scores = np.sort(rng.standard_normal(size).astype(np.float32))[::-1].copy()
    weights = np.exp(scores.astype(np.float64) - float(scores[0]))
    best = replace(
        step.outcome.best,
        ids=rng.permutation(size).astype(np.int64),
        scores=scores,
        vocabulary=size,
        rest=0,
        log_sum=float(np.log(weights.sum())),
        rest_mass=0.0,
    )
    long = replace(
        trace,
        model=replace(trace.model, vocabulary=size),
        tokens=dict.fromkeys(range(size), trace.tokens[trace.prompt[0]]) | dict(trace.tokens),
        steps=(replace(step, outcome=replace(step.outcome, best=best)),),
    )
    shown = json_of(long)
    kept = shown["steps"][0]["best"]
    assert "ids" not in kept
    data = base64.b64decode(kept["scores_base64"])
    assert (np.frombuffer(data, dtype="<f4") == scores).all()
    assert (np.frombuffer(base64.b64decode(kept["ids_base64"]), dtype="<i4") == best.ids).all()
    assert from_dict(shown) == long


def edited(written: dict[str, Any], path: str, value: object) -> dict[str, Any]:
    """A copy with one value set, or added, or (…) taken out."""
    changed = copy.deepcopy(written)
    *way, last = path.split("/")
    place: Any = changed
    for part in way:
        place = place[key(place, part)]
    if value is ...:
        del place[key(place, last)]
    else:
        place[key(place, last)] = value
    return changed


def key(place: object, part: str) -> str | int:
    return int(part) if isinstance(place, list) else part


@pytest.mark.parametrize(
    ("path", "value", "says"),
    [
        ("format", "a song", "trace: this is no trace"),
        ("version", 2, r"version 2 of the format, and this program reads version 1"),
        ("version", ..., "version is missing"),
        ("version", "1", r"version = '1': wanted a whole number"),
        ("model/colour", "red", r"trace: model: no key is called 'colour'"),
        ("modle", {}, r"no key is called 'modle'  \(did you mean model\?\)"),
        ("steps", ..., "trace: steps is missing"),
        ("steps", {}, "steps = {}: wanted a list"),
        ("model/vocabulary", 2**40, "wanted a whole number from 1 to 16,777,216"),
        ("model/vocabulary", 3, "token id"),
        ("model/label", 3, "wanted a text"),
        ("model/label", "\ud800", "half a surrogate pair"),
        ("prompt/ids", [], "wanted at least one token"),
        ("prompt/ids", [1.0], r"prompt\.ids\[0\] = 1\.0: wanted a token id"),
        ("prompt/ids", [True], "wanted a token id"),
        ("prompt/ids", [-1], "wanted a token id"),
        ("prompt/ids", [ROWS], "wanted a token id"),
        ("ends", [5, 5], "each once"),
        ("max_tokens", 1, "wanted at least the 3 tokens"),
        ("max_tokens", 2**70, "wanted a whole number"),
        ("text", "another", "text = 'another': wanted what steps say"),
        ("finish_reason", "stop", "wanted what steps say"),
        ("choice", -1, "wanted a whole number"),
        ("sampling/top_k/value", -1, r"sampling: top_k = -1: wanted"),
        ("sampling/heat", {"value": 1, "source": "request"}, "no setting is called 'heat'"),
        ("sampling/seed/value", None, "seed is null"),
        ("sampling/seed/value", 5, r"random = 0\.\d+: wanted 0\.\d+, by seed"),
        ("sampling/temperature", ..., "temperature is missing"),
        ("sampling/temperature/value", 0, r"steps\[0\].random = 0\.\d+: wanted null"),
        ("sampling/top_p/value", 0.5, r"stages\[\d+\].value = 1.0: wanted 0.5"),
        ("tokens/07", {"text": "", "bytes": []}, "'07': wanted a token id"),
        ("tokens/" + "9" * 5_000, {"text": "", "bytes": []}, "wanted a token id"),
        ("tokens/5", {"text": "", "bytes": [256]}, r"tokens\.5\.bytes\[0\] = 256"),
        ("tokens/5", ..., "token id 5 is missing"),
        ("steps/1/index", 0, "wanted a whole number from 1 to 1"),
        ("steps/0/id", ROWS, "wanted a whole number from 0 to"),
        ("steps/0/taken", 1, "wanted true or false"),
        ("steps/0/logprob", 0.5, "wanted a number"),
        ("steps/0/logprob", -3.0, "not the token that was drawn"),
        ("steps/0/random", 0.5, r"random = 0\.5: wanted"),
        ("steps/0/random", None, r"random = None: wanted 0\.\d+"),
        ("steps/0/interval", [0.5, 0.25], "the lower one first"),
        ("steps/0/interval", None, "wanted a list"),
        ("steps/0/rank", 0, "wanted a whole number"),
        ("steps/0/interval", [0.0, 0.03], r"rank = 3: wanted 1 where the interval begins at 0"),
        ("steps/1/rank", 2, r"rank = 2: wanted 1 where the interval begins at 0, and only there"),
        ("steps/0/rank", 417, "wanted a whole number"),
        ("steps/0/interval", [0.2685, 0.29], r"interval = .*: wanted one around the number drawn"),
        ("steps/0/interval", [0.26, 0.3004], r"interval = .*: wanted one as wide as the token's"),
        ("steps/0/taken", True, "taken = True: wanted false where id is the token"),
        ("steps/1/finish_reason", "stop", r"steps\[1\].finish_reason = 'stop': wanted null"),
        ("steps/0/finish_reason", "bored", "wanted stop, length or null"),
        ("steps/0/finish_reason", {}, "wanted stop, length or null"),
        ("steps/0/best/ids", [3, 4], r"best: 2 token ids, 256 scores"),
        ("steps/0/best/ids/1", 10**9, r"ids\[1\] = 1000000000: wanted a token id"),
        ("steps/0/best/scores/0", -50.0, "the best scores first"),
        ("steps/0/best/scores/0", 1e300, "beyond every float32"),
        ("steps/0/best/scores/255", None, r"scores\[255\] = None: wanted a number"),
        ("steps/0/best/rest", 10**6, "wanted a whole number from 0 to 160"),
        ("steps/0/best/rest", 0, "rest_mass is more than 0 scores can have"),
        ("steps/0/best/rest_mass", 0.9, "do not add up to log_sum"),
        ("steps/0/best/log_sum", 1.0, "do not add up to log_sum"),
        ("steps/0/stages/2/survivors", 0, "survivors = 0: wanted"),
        ("steps/0/stages/2/mass", 0, "mass = 0: wanted"),
        ("steps/0/stages/1/survivors", 9, r"stages\[1\]\.survivors = 9: wanted 416, as before"),
        ("steps/0/stages/0/survivors", 9, r"stages\[1\]\.survivors = 416: wanted at most 9"),
        ("steps/0/stages/2/mass", 0.5, r"stages\[2\]\.mass = 0\.5: wanted 1\.0, as before a stage"),
        ("steps/0/stages/4/mass", 0.5, r"stages\[4\]\.mass = 0\.5: wanted .*, as before a stage"),
        ("steps/0/stages/5/best", 5, r"stages\[5\]\.best = 5: wanted \d+, as before a stage"),
        ("steps/0/stages/3/best_probability", 0.5, r"stages\[3\]\.best_probability = 0\.5: wanted"),
        ("steps/0/stages/2/name", "heat", "wanted 'temperature'"),
        ("steps/0/stages/2", ..., "stages, and the settings have others"),
        ("steps/0/stages/9/value", 3.0, "by what the trace says elsewhere"),
        ("steps/0/after", [], "0 tokens: wanted 1 to 32"),
        ("steps/0/after/31", ..., r"after = .*: wanted 32 tokens, of 416"),
        ("steps/0/after/9/id", 327, r"after = .*: wanted each token once"),
        ("steps/0/after/9/logprob", -0.5, r"after\[9\]\.logprob = -0\.5: wanted at most -"),
        ("steps/0/after/2/id", 94, r"after\[2\]\.id = 94: wanted \d+, drawn at rank 3"),
        ("steps/0/after/0/id", 5, r"after\[0\]\.id = 5: wanted \d+, the best that the stages left"),
        ("steps/0/after/0/logprob", 900.0, "wanted a number"),
        ("steps/0/wanted/0/id", ROWS, "wanted a whole number"),
    ],
)
def test_what_is_no_trace_is_refused_by_place(
    written: dict[str, Any], path: str, value: object, says: str
) -> None:
    with pytest.raises(fp.FormatError, match=says):
        from_dict(edited(written, path, value))


def places(value: object, way: str = "") -> Iterator[str]:
    """A path to each value inside, of long lists only the first and the last."""
    if isinstance(value, dict):
        inside = list(value.items())
    elif isinstance(value, list):
        inside = list(enumerate(value))
    else:
        return
    for key, inner in inside if len(inside) < 30 else [inside[0], inside[-1]]:
        yield f"{way}{key}"
        yield from places(inner, f"{way}{key}/")


def test_whatever_stands_in_a_place_a_trace_is_read_or_refused(written: dict[str, Any]) -> None:
    rng = random.Random(3)
    odd: tuple[object, ...] = (
        *(None, True, -1, 0, 1, 0.5, 2**63, 1e308, -1e308, "", "\ud800", "x" * 999),
        *([], [[]], {}, {"ids": []}, [None], ["0"], ...),
    )
    refused = 0
    for path in places(written):
        for value in rng.sample(odd, 3):
            try:
                from_dict(edited(written, path, value))
            except fp.FormatError:
                refused += 1
    assert refused > 300


def test_packed_rows_hold_as_many_values_as_they_say(written: dict[str, Any]) -> None:
    def packed(ids: bytes, scores: bytes) -> dict[str, Any]:
        best = {
            "ids_base64": base64.b64encode(ids).decode(),
            "scores_base64": base64.b64encode(scores).decode(),
            **{name: written["steps"][0]["best"][name] for name in ("log_sum", "rest_mass")},
            "rest": 0,
        }
        return edited(written, "steps/0/best", best)

    four = np.arange(4, dtype="<i4").tobytes()
    tries: dict[str, tuple[bytes, bytes]] = {
        "4 token ids, 3 scores": (four, np.zeros(3, "<f4").tobytes()),
        "7 bytes: wanted 4 for each value": (four[:7], four),
        "wanted token ids from 0 to": (np.array([-1, 1, 2, 3], "<i4").tobytes(), four),
        "a score that is not finite": (four, np.array([np.inf, 0, 0, 0], "<f4").tobytes()),
        "a token id is given twice": (bytes(16), bytes(16)),
        "too many for": (bytes(4 * ROWS + 40), four),
        "0 token ids": (b"", b""),
    }
    for says, (ids, scores) in tries.items():
        with pytest.raises(fp.FormatError, match=says):
            from_dict(packed(ids, scores))
    with pytest.raises(fp.FormatError, match="this is not base64"):
        from_dict(edited(packed(four, four), "steps/0/best/ids_base64", "AAAA!AAA"))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (b"", "not valid JSON"),
        (b"[]", "a JSON object was wanted"),
        (b'{"format": "forwardpass trace", "format": 1}', "is given twice"),
        (b'{"format": "forwardpass trace", "version": NaN}', "NaN is not JSON"),
        (b'{"a":' * 100_000, "nested too deep|not valid JSON"),
        (b"{}", "a.json: this is no trace"),
    ],
)
def test_a_file_that_is_no_trace_is_refused_by_name(tmp_path: Path, text: bytes, says: str) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(text)
    with pytest.raises(fp.FormatError, match=says):
        fp.read_trace(path)


def test_a_trace_is_written_over_a_trace_and_over_nothing_else(
    model: fp.Model, tmp_path: Path
) -> None:
    trace = model.generate("hello", max_tokens=2).trace()
    path = tmp_path / "a.json"
    fp.write_trace(trace, path)
    fp.write_trace(model.generate("hello", max_tokens=3).trace(), path)
    assert len(fp.read_trace(path).steps) == 3
    other = tmp_path / "notes.txt"
    other.write_text("mine", "utf-8")
    refused: list[tuple[Path, str]] = [
        (other, "this file is there and is no trace"),
        (tmp_path, "this is a folder"),
        (tmp_path / "no" / "a.json", "there is no folder"),
        (Path("-"), "wanted the name of a file"),
    ]
    for place, says in refused:
        with pytest.raises(fp.RequestError, match=says):
            fp.write_trace(trace, place)
    assert other.read_text("utf-8") == "mine"
    answer: Any = model.generate("hello", max_tokens=1)
    with pytest.raises(fp.RequestError, match=r"wanted a Trace, which answer\.trace\(\) gives"):
        fp.write_trace(answer, path)
    with pytest.raises(fp.RequestError, match="No such file"):
        fp.read_trace(tmp_path / "nowhere.json")
    assert sorted(each.name for each in tmp_path.iterdir()) == ["a.json", "notes.txt"]
