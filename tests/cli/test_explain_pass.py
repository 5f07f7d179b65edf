"""`explain --pass`: what is printed, what is written, what is refused."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest

import forwardpass as fp
from backends.tiny import CONFIGS
from cli.conftest import WITHOUT_NATIVE
from cli.running import Run
from cli.test_run import COUNT, NUMBER, closed
from forwardpass.cli.console import WIDTH, cells
from forwardpass.cli.explain_pass import MOST, SHOWN, look_inside, pass_dict, show_pass
from forwardpass.units import exact
from tiny_model import ROWS, random_folder

PROMPT = "the quick brown"
LONG = "the quick brown fox jumps over the lazy dog " * 5
TEXT = {"type": "string"}
CHANCE = {"type": "number", "minimum": 0, "maximum": 1}
COSINE = {"type": ["number", "null"], "minimum": -1.00001, "maximum": 1.00001}
GUESS = closed(id=COUNT, token=TEXT, probability=CHANCE)
SCHEMA = closed(
    model=TEXT,
    position=COUNT,
    tokens={"type": "array", "items": closed(id=COUNT, text=TEXT)},
    best=GUESS,
    adds_up={"type": "boolean"},
    layers={
        "type": "array",
        "items": closed(
            layer=COUNT,
            before=NUMBER,
            attention=NUMBER,
            attention_cosine=COSINE,
            mlp=NUMBER,
            mlp_cosine=COSINE,
            after=NUMBER,
            lens={"type": "array", "items": GUESS, "minItems": 5, "maxItems": 5},
            rank={"type": "integer", "minimum": 1, "maximum": ROWS},
        ),
    },
    attention=closed(
        layer=COUNT,
        head=COUNT,
        weights={"type": "array", "items": CHANCE},
        sink={"anyOf": [CHANCE, {"type": "null"}]},
        sum=NUMBER,
    ),
)


@pytest.fixture(scope="session")
def sinking(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model with attention sinks."""
    config: dict[str, Any] = {**CONFIGS["gpt_oss"], "vocab_size": ROWS}
    return random_folder(tmp_path_factory.mktemp("models") / "sinking", **config)


def written(run: Run, *arguments: object) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(run.ok("explain", *arguments, "--pass", "--json").out)
    return found


@pytest.mark.parametrize("which", ["tiny", "sinking"])
def test_json_has_exactly_the_keys_that_are_documented(
    run: Run, which: str, request: pytest.FixtureRequest
) -> None:
    model = request.getfixturevalue(which)
    found = written(run, model, PROMPT)
    jsonschema.validate(found, SCHEMA)
    assert (found["attention"]["sink"] is None) == (which == "tiny")
    assert found["attention"]["sum"] == pytest.approx(1)
    assert len(found["attention"]["weights"]) == len(found["tokens"])
    assert found["position"] == len(found["tokens"]) - 1
    assert [layer["layer"] for layer in found["layers"]] == [0, 1]
    page = Path(__file__).resolve().parents[2] / "docs" / "pass.md"
    named = set(re.findall(r"\w+", page.read_text("utf-8").partition("`--json`")[2]))
    assert keys_of(SCHEMA) <= named


def keys_of(schema: Any) -> set[str]:
    """All keys of objects in a schema."""
    inner = dict(schema.get("properties", {}))
    parts = [*inner.values(), *([schema["items"]] if "items" in schema else [])]
    return set(inner).union(*map(keys_of, parts))


def test_the_prompt_s_tokens_are_those_that_the_model_reads(run: Run, tiny: Path) -> None:
    found = written(run, tiny, PROMPT)
    with fp.load(tiny, backend="reference") as model:
        ids = model.prepare(PROMPT).ids
        assert [token["id"] for token in found["tokens"]] == list(ids)
        first = model.generate(PROMPT, temperature=0.0, max_tokens=1).steps[0]
    assert found["best"]["id"] == first.id
    assert math.log(found["best"]["probability"]) == pytest.approx(first.logprob, abs=1e-5)
    assert found["layers"][-1]["lens"][0] == found["best"]
    raw = written(run, tiny, PROMPT, "--raw")
    assert "".join(token["text"] for token in raw["tokens"]) == PROMPT


@pytest.mark.parametrize("asked", [[], ["--layer", 0, "--head", 3, "--position", 5]])
def test_the_tables_show_the_figures_of_the_json(run: Run, tiny: Path, asked: list[object]) -> None:
    found = written(run, tiny, PROMPT, *asked)
    lines = run.ok("explain", tiny, PROMPT, "--pass", *asked).out.splitlines()
    assert "reference backend, float32" in lines[0]
    assert f"{len(found['tokens'])} prompt tokens" in lines[0]
    assert f"at token {found['position']} " in lines[1]
    assert f", p {found['best']['probability']:.3f}; rank: " in lines[1]
    for layer, line in zip(found["layers"], lines[4:6], strict=True):
        figures = [layer[key] for key in ("before", "attention", "mlp", "after")]
        cosines = [f"{layer[key]:+.2f}" for key in ("attention_cosine", "mlp_cosine")]
        texts = [f"{figure:,.1f}" for figure in figures]
        shown = [texts[0], texts[1], cosines[0], texts[2], cosines[1], texts[3]]
        assert line.split()[:7] == [str(layer["layer"]), *shown]
        assert line.split()[-2:] == [f"{layer['lens'][0]['probability']:.3f}", exact(layer["rank"])]
    attention = found["attention"]
    title = f"attention of layer {attention['layer']}, head {attention['head']}, from token "
    assert lines[7].startswith(f"{title}{found['position']} ")
    rows = lines[8:]
    assert len(rows) == found["position"] + 2
    for place, (weight, row) in enumerate(zip(attention["weights"], rows[:-1], strict=False)):
        assert row.split()[0] == str(place)
        assert f"  {weight:.3f}" in row
        assert row.count("█") == round(30 * weight)
    assert rows[-1].split() == ["sum", f"{attention['sum']:.3f}"]


def test_of_a_long_prompt_the_heaviest_tokens_and_the_rest(run: Run, tiny: Path) -> None:
    found = written(run, tiny, LONG)
    weights = found["attention"]["weights"]
    assert len(weights) > SHOWN
    lines = run.ok("explain", tiny, LONG, "--pass").out.splitlines()
    *rows, rest, total = lines[8:]
    order = sorted(range(len(weights)), key=lambda place: -weights[place])
    assert [int(row.split()[0]) for row in rows] == order[:MOST]
    others = math.fsum(weights[place] for place in order[MOST:])
    assert rest.split()[:4] == ["the", "other", str(len(weights) - MOST), f"{others:.3f}"]
    assert total.split() == ["sum", "1.000"]
    assert all(cells(line) <= WIDTH for line in lines[1:])  # the first has the path


def test_the_sink_is_a_row_of_its_own(run: Run, sinking: Path) -> None:
    found = written(run, sinking, PROMPT, "--position", 0)
    lines = run.ok("explain", sinking, PROMPT, "--pass", "--position", 0).out.splitlines()
    first, sink, total = lines[8:]
    assert f"{found['attention']['weights'][0]:.3f}" in first
    assert sink.split()[:4] == ["sink,", "no", "token", f"{found['attention']['sink']:.3f}"]
    assert 0.01 < found["attention"]["sink"] < 0.99
    assert total.split() == ["sum", "1.000"]


def test_layers_that_do_not_add_up_are_told(tiny: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with fp.load(tiny, backend="reference") as model:
        look = look_inside(model, [1, 2, 3])
        show_pass(model, look)
        assert "is not after" not in capsys.readouterr().out
        show_pass(model, replace(look, normed=True))
        assert "before + attention + MLP is not after" in capsys.readouterr().out
        assert pass_dict(model, replace(look, normed=True))["adds_up"] is False


@pytest.mark.skipif(WITHOUT_NATIVE is not None, reason=str(WITHOUT_NATIVE))
def test_a_model_that_runs_natively_is_looked_at_on_the_reference(tiny: Path) -> None:
    with fp.load(tiny, backend="native") as native, fp.load(tiny, backend="reference") as plain:
        ids = plain.prepare(PROMPT).ids
        assert pass_dict(native, look_inside(native, ids)) == pass_dict(
            plain, look_inside(plain, ids)
        )


def test_too_little_memory_is_told_before_it_is_taken(
    run: Run, tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("forwardpass.memory.available_memory", lambda: 1000)
    done = run("explain", tiny, PROMPT, "--pass")
    assert (done.status, done.out) == (1, "")
    assert re.match(r"error: \S*tiny: [\d,]+ weights in float32 need ", done.err)


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        (["--layer", 2], "--layer 2: the model has layers 0 to 1"),
        (["--head", 4], "--head 4: layer 1 has heads 0 to 3"),
        (["--position", 500], "--position 500: the prompt has tokens 0 to "),
        (["--backend", "native"], "--backend native: it keeps nothing from inside a pass"),
        (["--context", 3], "a prompt of "),
        (["--kv-type", "f16"], "--kv-type f16: the reference backend keeps its cache in f32"),
    ],
)
def test_what_there_is_not_is_refused(run: Run, tiny: Path, asked: list[object], told: str) -> None:
    assert run.refused("explain", tiny, PROMPT, "--pass", *asked).startswith(told)
