"""Attention through cache blocks, splits and their combination, at every level."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from kernels import harness
from kernels.inputs import CONTEXTS, GROUPS, HEAD_SIZES, KV_TYPES, attention_inputs
from kernels.truths import F32, Attention, attention, excess

levels = pytest.mark.parametrize("level", harness.LEVELS)
kv_types = pytest.mark.parametrize("kv_type", KV_TYPES)


def named(i: Attention) -> str:
    s, g, e = i.keys.shape
    options = f"cap {i.softcap}, window {i.window}"
    return f"{len(i.q)} heads on {g} of {e}, {s} positions, {options}"


def test_the_cases_hold_every_option_with_every_other() -> None:
    cases = attention_inputs("f16")
    assert len(cases) == len(HEAD_SIZES) * len(GROUPS) * len(CONTEXTS)
    for one in ("softcap", "window", "slopes", "sinks"):
        some = [case for case in cases if np.any(getattr(case, one))]
        assert len(some) > 20
        assert {case.keys.shape[2] for case in some} == set(HEAD_SIZES)
        assert {case.keys.shape[0] for case in some} == set(CONTEXTS)


@levels
@kv_types
def test_attention_is_as_near_to_float64_as_its_roundings_allow(kv_type: str, level: str) -> None:
    harness.at_level(level)
    for case in attention_inputs(kv_type):
        share = excess(harness.attend(level, kv_type, case), attention(case))
        assert share <= 1, f"{named(case)}: {share:.3g} of what is allowed"


@levels
@kv_types
def test_the_cache_rounds_to_nearest_with_ties_to_even(kv_type: str, level: str) -> None:
    harness.at_level(level)
    rng = np.random.default_rng(3)
    values = np.concatenate(
        [
            rng.normal(size=(100, 32)) * 10.0 ** rng.uniform(-9, 4, (100, 32)),
            np.arange(2048, 2048 + 4 * 32).reshape(-1, 32),  # ties in f16
            np.arange(256, 256 + 4 * 32).reshape(-1, 32),  # ties in bf16
            np.full((1, 32), 65519.996),  # the last that f16 holds
        ]
    ).astype(np.float32)
    for value in values:  # one position: the mix is the value that the cache has
        one = value[None, None]
        found = harness.attend(level, kv_type, Attention(one[0], one, one, scale=0.0))
        expected = _rounded(value, kv_type)
        assert np.array_equal(found[0], expected)


def _rounded(x: F32, kv_type: str) -> F32:
    """To the nearest of the type, by distance: independent of bits."""
    if kv_type == "f32":
        return x
    exponent = np.floor(np.log2(np.abs(x.astype(np.float64))))
    digits, least = (10, -14) if kv_type == "f16" else (7, -126)
    step = 2.0 ** (np.maximum(exponent, least) - digits)
    nearest: F32 = (np.rint(x / step) * step).astype(np.float32)
    return nearest


@levels
def test_a_value_that_f16_cannot_hold_is_refused(level: str) -> None:
    harness.at_level(level)
    fits = np.full((3, 1, 32), 1.0, np.float32)
    q = fits[0]
    for place in (0, 15, 31):
        large = fits.copy()
        large[1, 0, place] = 65520.0
        for keys, values in ((large, fits), (fits, large)):
            with pytest.raises(ValueError, match="does not fit f16"):
                harness.attend(level, "f16", Attention(q, keys, values, 1.0))
            harness.attend(level, "bf16", Attention(q, keys, values, 1.0))


@levels
@kv_types
def test_a_nan_that_is_seen_shows_and_one_out_of_sight_does_not(kv_type: str, level: str) -> None:
    harness.at_level(level)
    for case in attention_inputs(kv_type)[::3]:
        s = len(case.keys)
        whole = harness.attend(level, kv_type, case)
        first = max(0, s - case.window) if case.window else 0
        for place in sorted({0, first - 1, first, s - 1} & set(range(s))):
            for name in ("keys", "values"):
                hurt = getattr(case, name).copy()
                hurt[place] = np.nan
                found = harness.attend(level, kv_type, dataclasses.replace(case, **{name: hurt}))
                if place < first:
                    assert np.array_equal(found, whole), f"{named(case)}, {name} at {place}"
                else:
                    assert np.isnan(found).all(), f"{named(case)}, {name} at {place}"


def mutations(i: Attention) -> dict[str, Attention]:
    """Cases as a faulty kernel would compute them."""
    groups = i.keys.shape[1]
    found = {
        "keys negated": dataclasses.replace(i, keys=-i.keys),
        "keys one off": dataclasses.replace(i, keys=np.roll(i.keys, 1, axis=0)),
        "values one off": dataclasses.replace(i, values=np.roll(i.values, 1, axis=0)),
        "the scale left out": dataclasses.replace(i, scale=1.0),
        "the soft cap": dataclasses.replace(i, softcap=0.0 if i.softcap else 50.0),
        "the window one wider": dataclasses.replace(i, window=i.window + 1 if i.window else 0),
        "the sinks left out": dataclasses.replace(i, sinks=None),
    }
    if i.slopes is not None:
        found["the slopes' sign"] = dataclasses.replace(i, slopes=-i.slopes)
    if groups > 1:
        found["another group's keys"] = dataclasses.replace(i, keys=i.keys[:, ::-1])
    return found


def test_the_bounds_catch_a_wrong_kernel() -> None:
    caught: dict[str, int] = {}
    cases = attention_inputs("f16")
    for case in cases:
        truth = attention(case)
        assert excess(truth.value.astype(np.float32), truth) <= 1
        for name, wrong in mutations(case).items():
            share = excess(attention(wrong).value.astype(np.float32), truth)
            caught[name] = caught.get(name, 0) + (share > 1)
    # Some cases cannot show some mistakes: one position has all the weight whatever the keys.
    assert all(count > len(cases) / 10 for count in caught.values()), caught
