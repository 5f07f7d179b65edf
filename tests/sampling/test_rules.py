"""Presets keep the sets that their engines keep; an order of stages is checked and obeyed."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from forwardpass.errors import ConfigError, RequestError
from forwardpass.sampling.chain import choose
from forwardpass.sampling.ranges import ENGINE_DEFAULTS
from forwardpass.sampling.rules import ADJUSTING, PRESETS, STAGES, SWITCHES, TRUNCATING
from forwardpass.sampling.settings import SamplingSettings, Setting, resolve

Row = npt.NDArray[np.floating[Any]]


def f32(*scores: float) -> Row:
    return np.array(scores, dtype=np.float32)


def logs(*probabilities: float) -> Row:
    return f32(*(math.log(p) for p in probabilities))


def kept(scores: Row, **request: object) -> list[int]:
    ids = choose(scores, resolve({"seed": 0, **request}), position=0).sampled.ids
    assert ids is not None
    return [int(token) for token in ids]


# Inputs that tell engines apart, and the ids that each keeps: ours, transformers', llama.cpp's.
VECTORS: dict[str, tuple[Row, dict[str, object], list[int], list[int], list[int]]] = {
    "A": (
        logs(0.7, 0.2, 0.06, 0.03, 0.01),
        {"temperature": 2, "top_p": 0.9},
        [0, 1, 2, 3],
        [0, 1, 2, 3],
        [0, 1],  # 0.7 and 0.2 reach 0.9, in llama.cpp's float32 too
    ),
    "A at 0.91": (
        logs(0.7, 0.2, 0.06, 0.03, 0.01),
        {"temperature": 2, "top_p": 0.91},
        [0, 1, 2, 3],
        [0, 1, 2, 3],
        [0, 1, 2],
    ),
    "B": (f32(3, 2, 1), {"temperature": 0.5, "top_p": 0.8}, [0], [0], [0, 1]),
    "C": (
        logs(0.8, 0.1, 0.05, 0.03, 0.02),
        {"temperature": 2, "min_p": 0.1},
        [0, 1, 2, 3, 4],
        [0, 1, 2, 3, 4],
        [0, 1],
    ),
    "D": (logs(0.5, 0.25, 0.15, 0.1), {"top_k": 2, "top_p": 0.6}, [0, 1], [0], [0]),
    "E": (logs(0.5, 0.25, 0.25), {"top_p": 0.5}, [0], [0], [0]),
    "F": (f32(1, 1, 1, 0), {"top_k": 2}, [0, 1], [0, 1, 2], [0, 1]),
    "H": (
        logs(0.4, 0.3, 0.2, 0.06, 0.04),
        {"top_p": 0.75, "min_p": 0.2},
        [0, 1, 2],
        [0, 1, 2],
        [0, 1, 2],
    ),
}


@pytest.mark.parametrize("name", VECTORS)
def test_each_preset_keeps_the_set_that_its_engine_keeps(name: str) -> None:
    scores, asked, *expected = VECTORS[name]
    request = {"temperature": 1, **asked}
    for row in (scores, scores.astype(np.float64)):
        assert [kept(row, sampler=preset, **request) for preset in PRESETS] == expected


def test_top_p_zero_is_refused_by_default_and_keeps_the_best_under_the_engines_rules() -> None:
    scores = logs(0.5, 0.3, 0.2)  # vector G
    for zero in (0, 0.0, -0.0):
        with pytest.raises(RequestError, match=r"top_p = -?0.*: wanted a number above 0, up to 1"):
            kept(scores, temperature=1, top_p=zero)
        for sampler in ("transformers", "llama.cpp"):
            assert kept(scores, temperature=1, top_p=zero, sampler=sampler) == [0]
    with pytest.raises(RequestError, match="top_p = False: wanted"):
        kept(scores, temperature=1, top_p=False, sampler="llama.cpp")


def test_a_top_p_of_zero_does_not_survive_a_change_to_rules_that_refuse_it() -> None:
    settings = resolve({"temperature": 1, "top_p": 0, "sampler": "llama.cpp"})
    assert settings.changed({"sampler": "transformers"}).top_p.value == 0
    with pytest.raises(RequestError, match=r"top_p = 0.0: wanted a number above 0"):
        settings.changed({"sampler": "default"})


@pytest.mark.parametrize("preset", PRESETS)
def test_a_preset_sets_no_value_but_the_window_of_the_penalties(preset: str) -> None:
    settings = resolve({"sampler": preset})
    window = {"default": -1, "transformers": -1, "llama.cpp": 64}[preset]
    assert settings.penalty_last_n == Setting(window, "engine default")
    for name, value in ENGINE_DEFAULTS.items():
        if name not in ("sampler", "penalty_last_n"):
            assert getattr(settings, name) == Setting(value, "engine default")
    stated = resolve({"sampler": preset, "penalty_last_n": 7})
    assert stated.penalty_last_n == Setting(7, "request")


@pytest.mark.parametrize("preset", PRESETS)
def test_every_preset_has_every_stage_once_the_mask_last_of_those_that_adjust(preset: str) -> None:
    order = PRESETS[preset].order
    assert sorted(order) == sorted(STAGES)
    assert order[: len(ADJUSTING)] == ADJUSTING
    assert ADJUSTING[-1] == "mask"


LATER = tuple(stage for stage in STAGES if stage not in ADJUSTING)


@pytest.mark.parametrize(
    ("given", "order"),
    [
        ("temperature", (*ADJUSTING, "temperature")),
        (" top_k , temperature", (*ADJUSTING, "top_k", "temperature")),
        (["min_p", "temperature", "top_p"], (*ADJUSTING, "min_p", "temperature", "top_p")),
        (
            "presence_penalty,logit_bias,temperature",
            ("presence_penalty", "logit_bias", "mask", "temperature"),
        ),
        ("mask,dry,temperature", ("dry", "mask", "temperature")),
        ("mask,temperature", ("mask", "temperature")),
        (LATER[::-1], (*ADJUSTING, *LATER[::-1])),
    ],
)
def test_an_order_is_obeyed_and_the_mask_comes_last_of_what_adjusts_scores(
    given: object, order: tuple[str, ...]
) -> None:
    settings = resolve({"stages": given})
    assert settings.rules.order == order
    assert settings.as_dict()["stages"] == {"value": list(order), "source": "request"}


def test_the_order_decides_what_is_kept() -> None:
    scores = logs(0.7, 0.2, 0.06, 0.03, 0.01)
    request = {"temperature": 2, "top_p": 0.91}
    assert kept(scores, **request, stages="temperature,top_p") == [0, 1, 2, 3]
    assert kept(scores, **request, stages="top_p,temperature") == [0, 1, 2]


def test_no_order_makes_a_forbidden_token_legal_again() -> None:
    mask = np.array([False, True, True])
    asked = {"logit_bias": {0: 100}, "stages": "mask,logit_bias,temperature", "temperature": 1}
    choice = choose(f32(1, 2, 3), resolve({**asked, "seed": 0}), position=0, mask=mask)
    assert choice.sampled.ids is not None
    assert choice.sampled.ids.tolist() == [1, 2]


@pytest.mark.parametrize(
    ("given", "fact"),
    [
        (5, "stages = 5: wanted names of stages"),
        ([1, 2], r"stages = \[1, 2\]: wanted names of stages"),
        ("", "stages: an empty name among the stages"),
        ("temperature,,top_k", "stages: an empty name among the stages"),
        ("a, ,b", "stages: an empty name among the stages"),
        ("TOP_K,temperature", r"stages: no stage is called 'TOP_K'  \(did you mean top_k\?\)"),
        ("temperature,topk", r"stages: no stage is called 'topk'  \(did you mean top_k\?\)"),
        ("x" * 1000, r"stages: no stage is called 'x{1,60}"),
        ("temperature,top_k,temperature", "stages: temperature is given twice"),
        ("mask,mask,temperature", "stages: mask is given twice"),
        ("top_k,top_p", "stages: temperature is missing"),
        ([], "stages: temperature is missing"),
        (
            "temperature,logit_bias",
            "stages: logit_bias stands behind temperature, and scores are adjusted before that",
        ),
        ("top_k,mask,temperature", "stages: mask stands behind top_k"),
    ],
)
def test_an_order_that_is_none_is_refused_with_what_is_wrong(given: object, fact: str) -> None:
    with pytest.raises(RequestError, match=fact) as caught:
        resolve({"stages": given})
    assert len(caught.value.fact) < 200


@pytest.mark.parametrize("given", ["temperature,mask", "dry,temperature,top_k,mask"])
def test_a_stage_too_late_in_an_order_has_two_ways_out_and_both_work(given: str) -> None:
    with pytest.raises(RequestError) as caught:
        resolve({"stages": given})
    assert caught.value.advice == "name it before temperature, or leave it out"
    without = given.removesuffix(",mask")
    for order in (without, without.replace("temperature", "mask,temperature")):
        assert "mask" in resolve({"stages": order}).rules.order


@pytest.mark.parametrize("stage", [name for name in SWITCHES if name != "temperature"])
def test_a_stage_that_is_set_and_left_out_of_the_order_is_refused(stage: str) -> None:
    setting, off = SWITCHES[stage]
    on = {5: 0.5}
    value: object = {"logit_bias": on, "top_k": 3}.get(setting, 0.5)
    others = [name for name in STAGES if name != stage]
    for stated, error, source in (
        ({setting: value, "stages": others}, RequestError, "request"),
        ({"stages": others}, ConfigError, "model file"),
    ):
        model = {setting: value} if error is ConfigError else None
        if model is not None and setting not in ("top_k", "top_p", "min_p", "typical_p"):
            continue
        with pytest.raises(
            error, match=rf"\({source}\), and the stages leave {stage} out"
        ) as caught:
            resolve(stated, model)
        assert str(caught.value).startswith(f"{setting} = ")
    assert resolve({"stages": others}).rules.order
    neutral = {} if setting == "logit_bias" else off
    assert getattr(resolve({setting: neutral, "stages": others}), setting).value == off


def test_settings_come_back_from_json_whoever_set_the_order() -> None:
    for request in (
        {},
        {"sampler": "llama.cpp", "top_p": 0},
        {"stages": "top_k,temperature", "top_k": 4, "logit_bias": {3: 1.5}},
        {"dry_sequence_breakers": ["\n"], "dry_multiplier": 0.8},
    ):
        settings = resolve(request, {"do_sample": True, "top_k": 9})
        again = SamplingSettings.from_dict(json.loads(json.dumps(settings.as_dict())))
        assert again == settings
        assert again.rules == settings.rules


def test_truncating_stages_are_those_behind_the_temperature_by_default() -> None:
    assert PRESETS["default"].order[len(ADJUSTING) :] == ("temperature", *TRUNCATING)
