"""Answers that llguidance holds, asked for as any other shape is."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest

import forwardpass as fp
from shaped import NOTE, PLAIN, SEEDS, WILD
from tiny_model import random_folder


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> fp.Model:
    path = tmp_path_factory.mktemp("models") / "plain"
    return fp.load(random_folder(path, template=PLAIN, max_position_embeddings=4_096))


@pytest.mark.parametrize("seed", SEEDS)
def test_a_grammar_a_pattern_and_a_schema_are_held(model: fp.Model, seed: int) -> None:
    asked: dict[str, Any] = {"seed": seed, "max_tokens": 400, **WILD}
    lark = model.generate("hello", lark='start: "left" | "right"', **asked)
    assert lark.text in ("left", "right")
    pattern = model.generate("hello", regex="[ab]{3}", constraint="llguidance", **asked)
    assert len(pattern.text) == 3
    assert set(pattern.text) <= {"a", "b"}
    value = model.generate("hello", schema=NOTE, constraint="llguidance", **asked)
    assert value.shape is not None
    assert value.shape.complete == (value.finish_reason == "stop")
    if value.shape.complete:
        jsonschema.validate(json.loads(value.text), NOTE)


def test_what_it_does_not_do_is_told(model: fp.Model) -> None:
    cut = model.generate("hello", schema=NOTE, constraint="llguidance", max_tokens=3)
    assert cut.shape is not None
    assert (cut.finish_reason, cut.shape.complete) == ("length", False)
    assert "cannot close in time" in cut.shape.warnings[-1]
    with pytest.raises(fp.RequestError, match="llguidance refuses the Lark grammar"):
        model.generate("hello", lark="start: x")
