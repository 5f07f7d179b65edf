"""A row of scores and settings give one token, two distributions and every stage between."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from forwardpass.errors import ComputeError, RequestError
from forwardpass.sampling import stages
from forwardpass.sampling.adjusting import History
from forwardpass.sampling.chain import choose
from forwardpass.sampling.choice import Choice
from forwardpass.sampling.random import uniform
from forwardpass.sampling.settings import resolve

INF = math.inf
Row = npt.NDArray[np.floating[Any]]


def f32(scores: Sequence[float]) -> Row:
    return np.array(scores, dtype=np.float32)


def logs(*probabilities: float) -> Row:
    return f32([math.log(p) for p in probabilities])


def chosen(scores: Row, request: Mapping[str, object], position: int = 0) -> Choice:
    return choose(scores, resolve({"seed": 0, **request}), position=position)


def taken(scores: Row, **request: object) -> Choice:
    return chosen(scores, request)


def left(choice: Choice) -> list[int]:
    """Ids that could be drawn."""
    ids = choice.sampled.ids
    return list(range(choice.sampled.vocabulary)) if ids is None else ids.tolist()


def test_greedy_takes_the_best_score_the_lowest_of_equals_and_draws_nothing() -> None:
    choice = taken(f32([1, 3, 3, -INF]), temperature=0, top_k=3)
    assert (choice.token, choice.random) == (1, None)
    assert choice.sampled_logprob == 0.0
    assert choice.logprob == pytest.approx(math.log(1 / (2 + math.exp(-2))), abs=1e-7)
    assert choice.sampled.top(5) == ((1, 0.0),)
    last = choice.stages[-1]
    assert (last.name, last.value, last.survivors, last.best) == ("temperature", 0.0, 1, 1)


def test_greedy_looks_at_the_scores_after_bias_penalties_and_mask() -> None:
    scores = f32([4, 3, 2, 1])
    history = History(prompt=[0], output=[0, 1])

    def token(request: dict[str, object], allowed: list[bool] | None = None) -> int:
        mask = None if allowed is None else np.array(allowed)
        return choose(scores, resolve(request), history=history, position=0, mask=mask).token

    assert token({}) == 0
    assert token({"logit_bias": {2: 2.5}}) == 2
    assert token({"repetition_penalty": 3}) == 2
    assert token({"frequency_penalty": 1.5}) == 0  # 2.5 and 1.5 against 2: the prompt is no output
    assert token({"frequency_penalty": 1.5, "presence_penalty": 1}) == 2
    assert token({}, [False, False, True, True]) == 2
    assert token({"logit_bias": {3: 2}}, [False, False, True, True]) == 3


@given(
    st.lists(st.integers(-20, 20), min_size=2, max_size=30, unique=True),
    st.integers(0, 2**32),
)
def test_a_falling_temperature_ends_in_the_greedy_choice(scores: list[int], seed: int) -> None:
    row = f32(scores)
    greedy = taken(row, temperature=0).token
    for temperature in (0.02, 1e-3, 1e-300, 5e-324):
        choice = taken(row, temperature=temperature, seed=seed)
        assert choice.token == greedy
        assert choice.sampled.probability(greedy) == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize("temperature", [0, 1])
@pytest.mark.parametrize(
    ("scores", "fact"),
    [
        ([0, math.nan, INF, math.nan], "scores: token id 1 of 4 is NaN"),
        ([0, INF, INF], "scores: token id 1 of 3 is +inf"),
        ([-INF, -INF], "scores: all 2 are -inf, so no token can come"),
    ],
)
def test_scores_without_a_distribution_are_refused_naming_the_first_id(
    scores: list[float], fact: str, temperature: int
) -> None:
    with pytest.raises(ComputeError) as caught:
        taken(f32(scores), temperature=temperature)
    assert caught.value.fact == fact


@pytest.mark.parametrize("temperature", [0, 1])
def test_a_mask_that_leaves_nothing_is_named(temperature: int) -> None:
    settings = resolve({"temperature": temperature, "seed": 0})
    with pytest.raises(ComputeError, match="mask: none of 3 tokens is left"):
        choose(f32([-INF, 1, 2]), settings, position=0, mask=np.array([True, False, False]))


@pytest.mark.parametrize(
    "scores", [np.zeros(0, np.float32), np.zeros((2, 2), np.float32), np.zeros(3, np.float16)]
)
def test_what_is_no_row_of_scores_is_refused_by_type_and_shape(scores: Row) -> None:
    with pytest.raises(ComputeError, match="wanted one row of float32 or float64"):
        taken(scores, temperature=1)


def test_a_draw_without_a_seed_is_refused() -> None:
    with pytest.raises(RequestError, match="no seed is set"):
        choose(f32([1, 2]), resolve({"temperature": 1}), position=0)


def test_a_token_of_score_minus_infinity_is_never_drawn() -> None:
    scores = f32([0, -INF, 0, -INF])
    choices = [chosen(scores, {"temperature": 1e6}, position) for position in range(64)]
    assert {choice.token for choice in choices} == {0, 2}  # else one chance in 2⁶³
    assert choices[0].stages[0].survivors == 2
    assert choices[0].logprob == pytest.approx(math.log(0.5))
    assert choices[0].model.logprob(1) == choices[0].sampled.logprob(3) == -INF


def test_the_row_of_scores_is_never_written_to() -> None:
    scores = f32([1, 2, 3, 4])
    scores.flags.writeable = False
    request = {
        "temperature": 0.7,
        "top_k": 3,
        "top_p": 0.9,
        "min_p": 0.01,
        "repetition_penalty": 1.1,
        "frequency_penalty": 0.1,
        "presence_penalty": 0.1,
        "logit_bias": {0: 1},
        "seed": 0,
    }
    mask = np.array([True, True, True, False])
    choice = choose(scores, resolve(request), history=History([1], [2]), position=0, mask=mask)
    assert choice.stages


def test_the_same_seed_choice_and_position_take_the_same_token_in_any_order() -> None:
    scores = np.zeros(50, np.float32)
    keys = list(itertools.product((1, 2), range(5), range(10)))
    settings = resolve({"temperature": 1})

    def token(key: tuple[int, int, int]) -> int:
        seed, choice, position = key
        drawn = choose(scores, settings.with_seed(seed), choice=choice, position=position)
        assert drawn.random == uniform(seed, choice, position)
        return drawn.token

    forwards = {key: token(key) for key in keys}
    assert {key: token(key) for key in random.Random(1).sample(keys, len(keys))} == forwards
    assert len(set(forwards.values())) > 25


rows = st.lists(
    st.one_of(st.sampled_from([0.0, 1.0, 2.0, -INF]), st.floats(-30, 30, width=32)),
    min_size=1,
    max_size=60,
).filter(lambda scores: max(scores) > -INF)


@given(
    rows,
    st.floats(0.05, 5),
    st.integers(0, 70),
    st.floats(0.01, 1),
    st.floats(0, 0.99),
    st.integers(0, 2**40),
)
@example([0.0, 1.1754943508222875e-38], 1.0, 0, 1.0, 0.0, 0)
def test_each_stage_leaves_no_more_than_the_one_before_and_the_last_adds_up_to_one(
    scores: list[float], t: float, k: int, p: float, m: float, position: int
) -> None:
    request = {"temperature": t, "top_k": k, "top_p": p, "min_p": m}
    choice = chosen(f32(scores), request, position)
    survivors = [stage.survivors for stage in choice.stages]
    assert survivors == sorted(survivors, reverse=True)
    truncations = [s for s in choice.stages if s.name in ("temperature", "top_k", "top_p", "min_p")]
    masses = [stage.mass for stage in truncations]
    assert all(later <= sooner + 1e-12 for sooner, later in itertools.pairwise(masses))
    assert math.fsum(choice.sampled.probabilities()) == pytest.approx(1, abs=1e-12)
    assert math.fsum(choice.model.probabilities()) == pytest.approx(1, abs=1e-12)
    assert choice.token in left(choice)
    # Scores may differ by less than their probabilities can tell; then the lower id is the best.
    assert len({choice.model.logprob(stage.best) for stage in choice.stages[:-1]}) == 1
    rescale = choice.stages[-2]
    assert rescale.value == pytest.approx(1 / masses[-1])
    assert rescale.mass == pytest.approx(1, abs=1e-12)
    kept = [choice.model.logprob(i) / t for i in left(choice)]
    total = math.log(math.fsum(math.exp(x - max(kept)) for x in kept)) + max(kept)
    assert choice.sampled_logprob == pytest.approx(choice.model.logprob(choice.token) / t - total)


def test_stages_are_listed_in_order_with_values_and_sources() -> None:
    settings = resolve(
        {"temperature": 1, "seed": 4, "logit_bias": {0: -1}}, {"top_k": 3, "top_p": 0.9}
    )
    scores = logs(0.5, 0.3, 0.1, 0.06, 0.04)
    mask = np.array([True, True, True, True, False])
    choice = choose(scores, settings, choice=2, position=7, mask=mask)
    off = "engine default"
    shown = [(s.name, s.value, s.source, s.acts, s.survivors, s.best) for s in choice.stages]
    assert shown == [
        ("adjust", None, "request", True, 5, 1),
        ("mask", None, "request", True, 4, 1),
        ("temperature", 1.0, "request", False, 4, 1),
        ("top_n_sigma", 0.0, off, False, 4, 1),
        ("top_k", 3, "model file", True, 3, 1),
        ("typical_p", 1.0, off, False, 3, 1),
        ("top_p", 0.9, "model file", True, 3, 1),
        ("min_p", 0.0, off, False, 3, 1),
        ("xtc", 0.0, off, False, 3, 1),
        ("rescale", pytest.approx(choice.stages[-2].value), off, True, 3, 1),
        ("draw", uniform(4, 2, 7), "request", True, 1, choice.token),
    ]
    biased = 0.5 / math.e
    before, after = biased + 0.5, biased + 0.46
    kept = (after - 0.06) / after
    masses = [1, after / before, 1, 1, *[kept] * 5, 1, choice.sampled.probability(choice.token)]
    assert [s.mass for s in choice.stages] == pytest.approx(masses, abs=1e-7)
    assert choice.stages[1].best_probability == pytest.approx(0.3 / after, abs=1e-7)
    assert choice.stages[-2].best_probability == pytest.approx(0.3 / (after - 0.06), abs=1e-7)


def test_the_listed_stages_follow_the_order_that_is_asked_for() -> None:
    asked = {"temperature": 2, "sampler": "llama.cpp", "top_p": 0.9, "min_p": 0.05}
    names = [stage.name for stage in chosen(logs(0.7, 0.2, 0.1), asked).stages]
    later = ["top_n_sigma", "top_k", "typical_p", "top_p", "min_p", "xtc", "temperature"]
    assert names == ["adjust", "mask", *later, "rescale", "draw"]
    short = {**asked, "stages": "min_p, temperature, top_p"}
    names = [stage.name for stage in chosen(logs(0.7, 0.2, 0.1), short).stages]
    assert names == ["adjust", "mask", "min_p", "temperature", "top_p", "rescale", "draw"]


def test_any_id_has_a_logprob_in_both_distributions() -> None:
    choice = taken(logs(0.5, 0.3, 0.15, 0.05), temperature=1, top_k=2)
    assert choice.model.probability(3) == pytest.approx(0.05, abs=1e-7)
    assert choice.sampled.logprob(3) == -INF
    assert choice.sampled.probability(1) == pytest.approx(0.375, abs=1e-7)
    assert [entry.id for entry in choice.model.top(3)] == [0, 1, 2]
    assert [entry.id for entry in choice.sampled.top(3)] == [0, 1]
    assert choice.model.top(2)[1].probability == pytest.approx(0.3, abs=1e-7)
    assert choice.model.top(0) == ()
    for outside in (-1, 4):
        with pytest.raises(RequestError, match=f"token id {outside} is outside"):
            choice.sampled.logprob(outside)


def test_the_top_of_a_distribution_lists_equals_by_id_and_nothing_impossible() -> None:
    choice = taken(f32([0, 2, -INF, 2, 1, 2]), temperature=1)
    assert [entry.id for entry in choice.model.top(2)] == [1, 3]
    assert [entry.id for entry in choice.model.top(9)] == [1, 3, 5, 4, 0]
    assert [entry.id for entry in choice.sampled.top(9)] == [1, 3, 5, 4, 0]


def test_rank_is_by_score_where_probabilities_are_equal() -> None:
    scores = np.array([1.0, np.nextafter(np.float32(1), np.float32(2)), 1.0], dtype=np.float32)
    choice = taken(scores, temperature=1e30)
    held = choice.kept[-1]
    assert held.probabilities.tolist() == [1 / 3] * 3
    assert held.ids.tolist() == [1, 0, 2]
    assert left(taken(scores, temperature=1e30, top_k=1)) == [1]
    assert left(taken(scores, temperature=1e30, top_k=2)) == [0, 1]


@pytest.mark.parametrize("temperature", [0.01, 0.3, 1.0, 40.0])
def test_a_temperature_changes_nothing_of_what_top_n_sigma_keeps(temperature: float) -> None:
    # At 0.01 most tokens are too faint to come; they count for the deviation all the same.
    scores = np.random.default_rng(5).normal(0, 4, 200).astype(np.float32)
    reached = scores >= scores.max() - 1.5 * scores.std(dtype=np.float64)
    able = (scores - scores.max()) / temperature >= stages.FAINTEST
    assert 10 < np.flatnonzero(reached).size < 100
    choice = taken(scores, temperature=temperature, top_n_sigma=1.5)
    assert left(choice) == np.flatnonzero(reached & able).tolist()


@pytest.mark.parametrize("temperature", [0, 1])
def test_the_stage_that_leaves_no_token_is_named(temperature: int) -> None:
    asked = {"temperature": temperature, "seed": 0, "dry_multiplier": 1e300, "dry_base": 1e300}
    history = History(prompt=[0] * 9)
    with pytest.raises(ComputeError, match="dry: none of 1 tokens is left"):
        choose(f32([1]), resolve(asked), history=history, position=0)


@pytest.mark.parametrize(
    ("request_", "file", "source"),
    [
        ({}, {}, "engine default"),
        ({}, {"repetition_penalty": 1.2}, "model file"),
        ({"logit_bias": {1: 2.0}}, {"repetition_penalty": 1.2}, "request"),
    ],
)
def test_what_adjusts_scores_says_who_asked_for_it(
    request_: dict[str, object], file: dict[str, object], source: str
) -> None:
    settings = resolve(request_, file)
    adjust = choose(f32([1, 2, 3]), settings, history=History([1]), position=0).stages[0]
    assert (adjust.name, adjust.source, adjust.acts) == (
        "adjust",
        source,
        source != "engine default",
    )
