"""Each value of the sampler comes from the request, the model's file or the engine, and says so."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from fractions import Fraction

import numpy as np
import pytest

from forwardpass.errors import ConfigError, RequestError
from forwardpass.sampling.ranges import ENGINE_DEFAULTS, RANGES
from forwardpass.sampling.settings import SamplingSettings, Setting, resolve

QWEN3 = {"do_sample": True, "temperature": 0.6, "top_k": 20, "top_p": 0.95}


def values(settings: SamplingSettings, *names: str) -> list[object]:
    return [getattr(settings, name).value for name in names]


def test_without_request_and_model_the_engine_is_greedy() -> None:
    settings = resolve({})
    assert settings.greedy
    assert {name: getattr(settings, name) for name in ENGINE_DEFAULTS} == {
        name: Setting(value, "engine default") for name, value in ENGINE_DEFAULTS.items()
    }


def test_a_generation_config_supplies_defaults_and_each_value_names_its_source() -> None:
    settings = resolve({"top_k": 5, "seed": 4}, QWEN3)
    assert settings.temperature == Setting(0.6, "model file")
    assert settings.top_k == Setting(5, "request")
    assert settings.top_p == Setting(0.95, "model file")
    assert settings.min_p == Setting(0.0, "engine default")
    assert settings.seed == Setting(4, "request")
    assert not settings.greedy


def test_ignoring_the_model_leaves_its_file_unread() -> None:
    assert resolve({}, {**QWEN3, "num_beams": 4}, ignore_model=True) == resolve({})


def test_none_in_a_request_means_absent() -> None:
    assert resolve(dict.fromkeys(ENGINE_DEFAULTS), QWEN3) == resolve({}, QWEN3)


def test_settings_print_as_json_with_bias_ids_as_strings() -> None:
    settings = resolve({"logit_bias": {7: 1, "3": -2.5}, "temperature": 1}, QWEN3)
    shown = json.loads(json.dumps(settings.as_dict()))
    assert list(shown) == list(ENGINE_DEFAULTS)
    assert shown["temperature"] == {"value": 1.0, "source": "request"}
    assert shown["top_p"] == {"value": 0.95, "source": "model file"}
    assert shown["logit_bias"] == {"value": {"3": -2.5, "7": 1.0}, "source": "request"}
    assert shown["seed"] == {"value": None, "source": "engine default"}


def test_another_seed_changes_nothing_else() -> None:
    settings = resolve({"temperature": 1})
    assert settings.with_seed(9) == resolve({"temperature": 1, "seed": 9})
    assert settings.with_seed(9, "engine default").seed == Setting(9, "engine default")
    with pytest.raises(RequestError, match="seed"):
        settings.with_seed(2**63)


def test_settings_that_a_greedy_choice_never_looks_at_are_named() -> None:
    asked = {"top_p": 0.9, "xtc_threshold": 0.2, "seed": 1, "frequency_penalty": 1}
    assert resolve(asked).without_effect() == ("top_p", "xtc_threshold", "seed")
    assert resolve(asked, QWEN3).without_effect() == ()
    assert resolve({}, {"do_sample": False, "top_p": 0.9}).without_effect() == ()


def test_settings_whose_switch_is_off_are_named_with_it() -> None:
    asked = {"dry_base": 2, "xtc_threshold": 0.2, "penalty_last_n": 4, "temperature": 1}
    penalties = ("repetition_penalty", "frequency_penalty", "presence_penalty")
    assert resolve(asked).without_switch() == {
        "xtc_threshold": ("xtc_probability",),
        "penalty_last_n": penalties,
        "dry_base": ("dry_multiplier",),
    }
    for name in penalties:
        assert "penalty_last_n" not in resolve({**asked, name: 1.5}).without_switch()
    on = {"dry_multiplier": 1, "xtc_probability": 0.1, "presence_penalty": 1}
    assert resolve({**asked, **on}).without_switch() == {}
    greedy = resolve({**asked, "temperature": 0})
    assert list(greedy.without_switch()) == ["penalty_last_n", "dry_base"]
    assert resolve({"sampler": "llama.cpp"}).without_switch() == {}


# For each setting the ends of its range as they are held, and values just outside or of no use.
ENDS: dict[str, tuple[list[object], list[object]]] = {
    "temperature": ([0.0, 5e-324, 100.0], [-0.001, -5e-324]),
    "top_k": ([0, 1, 2**40], [-1]),
    "top_p": ([1e-9, 1.0], [0, 0.0, 1.0001, -0.1]),
    "min_p": ([0.0, 0.999], [1, -0.1]),
    "typical_p": ([1e-9, 1.0], [0, 1.0001, -0.1]),
    "top_n_sigma": ([0.0, 1e300], [-1, -1e-9]),
    "xtc_probability": ([0.0, 1.0], [-0.1, 1.1]),
    "xtc_threshold": ([1e-9, 0.5], [0, 0.51, -0.1]),
    "repetition_penalty": ([0.01, 5.0], [0, -1]),
    "frequency_penalty": ([-2.0, 2.0], [2.1, -2.1]),
    "presence_penalty": ([-2.0, 2.0], [2.1, -2.1]),
    "penalty_last_n": ([-1, 1, 2**40], [0, -2]),
    "dry_multiplier": ([0.0, 9.0], [-0.1]),
    "dry_base": ([1.0, 9.0], [0.99, -2]),
    "dry_allowed_length": ([1, 99], [0, -1]),
    "dry_penalty_last_n": ([-1, 1], [0, -2]),
    "seed": ([-(2**63), 2**63 - 1], [2**63, -(2**63) - 1]),
}
NO_NUMBERS: list[object] = ["1", [1], {}, True, False, math.nan, math.inf, -math.inf, 10**400, 1j]
WHOLE = [name for name, allowed in RANGES.items() if allowed.whole]


def test_every_setting_with_a_range_is_in_the_table() -> None:
    assert ENDS.keys() == RANGES.keys()
    texts = {"logit_bias", "dry_sequence_breakers", "sampler", "stages"}
    assert RANGES.keys() | texts == ENGINE_DEFAULTS.keys()


@pytest.mark.parametrize("name", ENDS)
def test_the_ends_of_each_range_are_accepted(name: str) -> None:
    for value in ENDS[name][0]:
        (found,) = values(resolve({name: value}), name)
        assert found == value
        assert type(found) is (int if RANGES[name].whole else float)


@pytest.mark.parametrize(
    ("name", "value", "held"),
    [
        ("temperature", Fraction(1, 2), 0.5),
        ("temperature", np.float32(0.5), 0.5),
        ("temperature", 1, 1.0),
        ("top_k", np.int32(3), 3),
        ("logit_bias", {}, ()),
        ("logit_bias", {"50256": -100, 0: 100}, ((0, 100.0), (50256, -100.0))),
        ("dry_sequence_breakers", [], ()),
        ("dry_sequence_breakers", "ab", ("ab",)),
        ("dry_sequence_breakers", ["a", "b", "a"], ("a", "b")),
        ("sampler", "llama.cpp", "llama.cpp"),
    ],
)
def test_a_value_is_held_in_one_form(name: str, value: object, held: object) -> None:
    (found,) = values(resolve({name: value}), name)
    assert found == held
    assert type(found) is type(held)


@pytest.mark.parametrize("name", ENDS)
def test_a_value_out_of_range_is_refused_with_the_range(name: str) -> None:
    fractions = [0.5, 20.0] if name in WHOLE else []
    whole_is_no_problem = [10**400] if name in WHOLE else []
    for value in [*ENDS[name][1], *NO_NUMBERS, *fractions]:
        if value in whole_is_no_problem and name != "seed":
            continue
        with pytest.raises(RequestError) as caught:
            resolve({name: value})
        assert caught.value.fact.startswith(f"{name} = ")
        assert caught.value.fact.endswith(f": wanted {RANGES[name].text}")
        assert len(caught.value.fact) < 200


@pytest.mark.parametrize(
    ("given", "fact"),
    [
        ({"sampler": "lama.cpp"}, "sampler = 'lama.cpp': wanted default or transformers or llama"),
        ({"sampler": 1}, "sampler = 1: wanted default or"),
        ({"dry_sequence_breakers": 5}, "dry_sequence_breakers = 5: wanted a list of texts"),
        ({"dry_sequence_breakers": [1]}, r"dry_sequence_breakers = \[1\]: wanted a list of texts"),
        ({"dry_sequence_breakers": [""]}, "wanted at most 100 texts of 1 to 100 characters"),
        ({"dry_sequence_breakers": ["x" * 101]}, "wanted at most 100 texts of 1 to 100 characters"),
        ({"dry_sequence_breakers": ["a", "\ud800"]}, "a lone surrogate is no text"),
        ({"dry_sequence_breakers": ["x"] * 101}, "wanted at most 100 texts of 1 to 100 characters"),
    ],
)
def test_a_preset_or_breaker_that_is_none_is_refused(given: dict[str, object], fact: str) -> None:
    with pytest.raises(RequestError, match=fact):
        resolve(given)


def test_a_number_too_long_to_print_is_refused_too() -> None:
    with pytest.raises(RequestError, match="seed = a very large number: wanted"):
        resolve({"seed": 10**5000})


@pytest.mark.parametrize(
    ("bias", "fact"),
    [
        ([1, 2], "logit_bias = [1, 2]: wanted a mapping from token ids to numbers"),
        ({"x": 1}, "logit_bias: 'x' is not a token id"),
        ({-1: 1}, "logit_bias: -1 is not a token id"),
        ({"-1": 1}, "logit_bias: '-1' is not a token id"),
        ({"٣": 1}, "logit_bias: '٣' is not a token id"),
        ({"9" * 5000: 1}, f"logit_bias: '{'9' * 56}... is not a token id"),
        ({1.5: 1}, "logit_bias: 1.5 is not a token id"),
        ({True: 1}, "logit_bias: True is not a token id"),
        ({1: 1, "1": 1}, "logit_bias: token id 1 is given twice"),
        ({1: 100.5}, "logit_bias: 100.5 for token id 1: wanted a number from -100 to 100"),
        ({1: None}, "logit_bias: None for token id 1: wanted a number from -100 to 100"),
    ],
)
def test_a_bias_that_is_none_is_refused_by_its_id(bias: object, fact: str) -> None:
    with pytest.raises(RequestError) as caught:
        resolve({"logit_bias": bias})
    assert caught.value.fact == fact


def test_an_unknown_setting_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(RequestError) as caught:
        resolve({"temprature": 1})
    text = str(caught.value)
    assert "'temprature'" in text
    assert "did you mean temperature?" in text
    assert "repetition_penalty" in text


def test_a_request_is_wrong_before_the_models_file_is() -> None:
    with pytest.raises(RequestError):
        resolve({"top_p": 0}, {"num_beams": 4})
    with pytest.raises(ConfigError):
        resolve({}, {"num_beams": 4})


def test_resolving_settings_does_not_import_numpy() -> None:
    program = (
        "import sys; from forwardpass.sampling.settings import resolve; "
        "resolve({'temperature': 1}, {'do_sample': True}); print('numpy' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout == "False\n", done.stderr
