"""`explain` of an answer that a grammar held: what was legal, and what was refused."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import forwardpass as fp
from cli.held import held
from cli.running import Run
from forwardpass.cli.explain_masks import removed_words
from forwardpass.cli.explaining import explain_lines
from forwardpass.errors import FormatError
from forwardpass.model import Model
from forwardpass.pages.explain_page import explain_page
from forwardpass.trace.form import as_dict
from forwardpass.trace.reading import from_dict
from forwardpass.trace.trace import Trace
from pages.explained import Page, check_figures

SCHEMA = {
    "type": "object",
    "properties": {"n": {"type": "integer", "minimum": 1}, "unit": {"enum": ["g", "kg", "piece"]}},
    "required": ["n", "unit"],
    "additionalProperties": False,
}


@pytest.fixture(scope="module")
def model(tiny: Path) -> Iterator[Model]:
    with fp.load(tiny) as loaded:
        yield loaded


@pytest.fixture(scope="module")
def trace(model: Model) -> Trace:
    return held(model, SCHEMA, "how much?", 40, temperature=1, seed=3)


def test_every_line_says_where_a_token_stands_and_why_the_best_refused_is_refused(
    trace: Trace,
) -> None:
    assert trace.masks is not None
    json.loads(trace.text)
    places = [note.place for note in trace.masks.steps]
    assert places[0] == "(root)"
    assert {"/n", "/unit"} <= set(places)
    for step, note in zip(trace.steps, trace.masks.steps, strict=True):
        outcome = step.outcome
        scores = dict(zip(outcome.best.ids.tolist(), outcome.best.logprobs(), strict=True))
        assert note.allowed == outcome.left[1].survivors
        assert note.removed == pytest.approx(1 - outcome.left[1].mass)
        assert note.refused is not None
        assert note.refused.logprob == scores[note.refused.id]
        # those before it were allowed: each of them is a likely token after the stages
        better = [token for token, own in scores.items() if own > note.refused.logprob]
        assert set(better) <= {ranked.id for ranked in outcome.after} | {step.id}
    lines = list(explain_lines(trace, []))
    assert lines[0].split() == ["#", "written", "schema", "legal", "removed", "best", "refused",
                                "why"]  # fmt: skip
    assert len(lines) == len(trace.steps) + 5
    assert lines[-2].startswith(f"valid · {len(trace.steps)} tokens, {trace.masks.forced} of them")
    assert max(map(len, lines)) <= 100


def test_forced_bytes_are_counted_and_a_limit_is_a_reason(model: Model) -> None:
    tight = held(model, {"const": True}, "say", 12)
    assert tight.masks is not None
    assert tight.masks.complete
    assert tight.masks.forced == len(tight.steps) - 1
    closed = held(model, {"type": "array", "items": {"const": 7}}, "say", 3)
    assert closed.masks is not None
    assert closed.text == "[]"
    reasons = {note.refused.rule for note in closed.masks.steps if note.refused is not None}
    assert all(reasons)


def test_a_trace_keeps_the_notes_and_reads_back_equal(
    trace: Trace, tmp_path: Path, run: Run
) -> None:
    shown = json.loads(json.dumps(as_dict(trace)))
    assert from_dict(shown) == trace
    assert set(shown["masks"]["steps"][0]) == {
        "place", "schema", "next", "allowed", "removed", "refused"
    }  # fmt: skip
    path = tmp_path / "held.json"
    path.write_text(json.dumps(shown))
    again = run.ok("explain", "--replay", path).out
    assert again.rstrip("\n").split("\n") == list(explain_lines(trace, []))
    assert "stage by stage" in run.ok("explain", "--replay", path, "--token", 1).out


@pytest.mark.parametrize(
    ("change", "where"),
    [
        (lambda masks: masks["steps"][0].update(allowed=9), r"masks\.steps\[0\]\.allowed"),
        (lambda masks: masks["steps"][1].update(removed=0.5), r"masks\.steps\[1\]\.removed"),
        (lambda masks: masks["steps"][0]["refused"].update(id=10**6), r"refused\.id"),
        (lambda masks: masks["steps"][0]["refused"].update(logprob=-9.0), r"refused\.logprob"),
        (lambda masks: masks["steps"][0].update(place=3), r"steps\[0\]\.place"),
        (lambda masks: masks["steps"].extend(masks["steps"]), r"masks\.steps"),
        (lambda masks: masks.update(forced=999), r"masks\.forced"),
        (lambda masks: masks.pop("complete"), "complete is missing"),
    ],
)
def test_notes_that_contradict_the_steps_are_refused(trace: Trace, change: Any, where: str) -> None:
    shown = json.loads(json.dumps(as_dict(trace)))
    change(shown["masks"])
    with pytest.raises(FormatError, match=where):
        from_dict(shown)


def test_the_page_says_the_same(trace: Trace) -> None:
    shown = json.loads(json.dumps(as_dict(trace)))
    page = Page.of(explain_page(shown))
    check_figures(page, shown)
    pointers = {figure.pointer for figure in page.figures}
    assert trace.masks is not None
    for i, note in enumerate(trace.masks.steps):
        assert f"/masks/steps/{i}/allowed" in pointers
        assert f"/masks/steps/{i}/removed" in pointers
        assert note.refused is not None
        assert f"/masks/steps/{i}/refused/rule" in pointers
    assert "grammar" in page.ids()


def test_an_answer_without_a_grammar_has_no_notes_and_no_section(model: Model) -> None:
    free = model.generate("say", max_tokens=2).trace()
    assert free.masks is None
    shown = json.loads(json.dumps(as_dict(free)))
    assert "masks" not in shown
    assert "grammar" not in Page.of(explain_page(shown)).ids()


@pytest.mark.parametrize(
    ("removed", "text"),
    [(0.0, "0.0 %"), (1e-9, "<0.1 %"), (0.014, "1.4 %"), (0.977, "97.7 %"), (1.0, "100.0 %")],
)
def test_only_nothing_is_called_nothing(removed: float, text: str) -> None:
    assert removed_words(removed) == text
    assert math.isfinite(removed)
