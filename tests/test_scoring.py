from __future__ import annotations

import math

import numpy as np
import pytest

import forwardpass as fp
from forwardpass import scoring as scoring_module
from forwardpass.errors import ContextError, RequestError
from forwardpass.model import Model
from forwardpass.scoring import Scoring, scoring
from tiny_model import random_folder

IDS = [5, 17, 300, 42, 42, 8, 99, 250, 3, 11, 64, 128]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Model:
    return fp.load(random_folder(tmp_path_factory.mktemp("scoring") / "m"), context=512)


def short(model: Model, context: int) -> Model:
    return Model(
        model.description,
        model.tokenizer,
        model.chat,
        type(model.runner)(model.runner.backend, context),
    )


def done(going: Scoring) -> Scoring:
    for _ in going:
        pass
    return going


def one_by_one(model: Model, before: list[int], token: int) -> float:
    """The log probability of a token, from a prompt of its own."""
    scores = model.runner.prefill(before).scores.astype(np.float64)
    return float(scores[token] - np.logaddexp.reduce(scores))


def test_each_token_is_scored_after_all_before_it(model: Model) -> None:
    found = done(scoring(model.runner, IDS))
    assert found.logprobs[0] is None
    for place in range(1, len(IDS)):
        expected = one_by_one(model, IDS[:place], IDS[place])
        assert found.logprobs[place] == pytest.approx(expected, abs=1e-4)
    assert found.scored == len(IDS) - 1
    assert found.sum == pytest.approx(sum(x for x in found.logprobs if x is not None))
    assert found.perplexity == pytest.approx(math.exp(-found.sum / found.scored))
    assert found.bits_a_byte(100) == pytest.approx(-found.sum / math.log(2) / 100)
    assert found.bits_a_byte(0) is None


def test_behind_a_token_that_begins_texts_every_token_is_scored(model: Model) -> None:
    found = done(scoring(model.runner, IDS, bos=7))
    with_it = done(scoring(model.runner, [7, *IDS]))
    assert found.logprobs == with_it.logprobs[1:]


@pytest.mark.parametrize("rows", [32, 64])
def test_how_many_rows_are_held_at_a_time_changes_nothing(
    model: Model, monkeypatch: pytest.MonkeyPatch, rows: int
) -> None:
    ids = [(7 * i * i + 3) % 400 for i in range(150)]
    whole = done(scoring(model.runner, ids))
    assert len(whole.passes) == 2
    monkeypatch.setattr(scoring_module, "ROWS", rows)
    assert done(scoring(model.runner, ids)).logprobs == whole.logprobs


@pytest.mark.parametrize("bos", [None, 7])
@pytest.mark.parametrize("stride", [1, 2, 3, 4])
def test_windows_score_every_token_once_after_what_the_window_holds(
    model: Model, bos: int | None, stride: int
) -> None:
    going = scoring(short(model, 5 + (bos is not None)).runner, IDS, bos=bos, stride=stride)
    assert going.windows.length == 5
    found = done(going)
    assert found.windows.count == 1 + math.ceil((len(IDS) - 5) / stride)
    begins = [] if bos is None else [bos]
    for place in range(1, len(IDS)):
        number = max(0, math.ceil((place + 1 - 5) / stride))
        before = [*begins, *IDS[number * stride : place]]
        expected = one_by_one(model, before, IDS[place])
        assert found.logprobs[place] == pytest.approx(expected, abs=1e-4)
    assert (found.logprobs[0] is None) == (bos is None)


def test_a_text_beyond_the_context_needs_a_stride(model: Model) -> None:
    runner = short(model, 8).runner
    with pytest.raises(ContextError, match="a text of 12 tokens, the context holds 8") as caught:
        scoring(runner, IDS)
    assert caught.value.advice is not None
    assert "--stride 4" in caught.value.advice
    assert scoring(runner, IDS[:8], stride=3).windows.count == 1
    for bos, most in ((None, 7), (7, 7)):
        for stride in (0, -1, 8):
            with pytest.raises(RequestError, match=rf"stride = {stride}: wanted 1 to {most}"):
                scoring(runner, IDS, bos=bos, stride=stride)


def test_a_text_without_tokens_has_no_score(model: Model) -> None:
    with pytest.raises(ContextError, match="no tokens"):
        scoring(model.runner, [])
    with pytest.raises(ContextError, match="one token, and nothing is before it"):
        scoring(model.runner, [5])
    assert done(scoring(model.runner, [5], bos=7)).scored == 1


@pytest.mark.parametrize("bos", [None, 7])
def test_a_context_needs_room_for_a_token_and_one_before_it(model: Model, bos: int | None) -> None:
    for ids, stride in (([5], None), (IDS, None), (IDS, 1)):
        with pytest.raises(RequestError, match="context = 1: leaves nothing to score"):
            scoring(short(model, 1).runner, ids, bos=bos, stride=stride)
    with pytest.raises(ContextError, match="the context holds") as caught:
        scoring(short(model, 2).runner, IDS, bos=bos)
    assert "--stride 1 reads" in str(caught.value)
    found = done(scoring(short(model, 2).runner, IDS, bos=bos, stride=1))
    assert found.scored == len(IDS) - (bos is None)


def test_the_passes_are_accounted_for_with_the_rows_that_were_wanted(model: Model) -> None:
    found = done(scoring(model.runner, IDS))
    (ran,) = found.passes
    assert (ran.shape.new, ran.shape.cached, ran.shape.wanted) == (12, 0, 11)
    assert model.account(found.passes).passes == 1
