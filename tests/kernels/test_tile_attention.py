"""Attention of prompts in bf16 tiles: its errors, and its bits whatever shares a block of rows."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from kernels import harness
from kernels.inputs import KV_TYPES, attention_inputs
from kernels.test_attention import mutations, named
from kernels.truths import F32, Attention, attention, excess

levels = pytest.mark.parametrize("level", harness.TILE_LEVELS)
kv_types = pytest.mark.parametrize("kv_type", KV_TYPES)


def up_to(i: Attention, position: int, q: F32) -> Attention:
    """The case of a query at an earlier position."""
    stop = position + 1
    return dataclasses.replace(i, q=q, keys=i.keys[:stop], values=i.values[:stop])


def queries(i: Attention, n: int) -> F32:
    """n queries like the case's own, the last of which is that."""
    rng = np.random.default_rng([17, n, *i.q.shape])
    rows = (i.q * rng.uniform(-1, 1, (n, 1, 1))).astype(np.float32)
    rows[-1] = i.q
    return rows


@levels
@kv_types
def test_attention_by_tiles_is_as_near_to_float64_as_its_roundings_allow(
    kv_type: str, level: str
) -> None:
    harness.at_level(level)
    for case in attention_inputs(kv_type):
        s = len(case.keys)
        n = min(s, 5)
        q = queries(case, n)
        found = harness.attend_rows(level, kv_type, case, q)
        for row in range(n):
            one = up_to(case, s - n + row, q[row])
            share = excess(found[row], attention(one, tiles=True))
            assert share <= 1, f"{named(one)}: {share:.3g} of what is allowed"


@levels
def test_a_row_has_the_same_bits_in_any_company_and_on_any_number_of_threads(level: str) -> None:
    harness.at_level(level)
    for case in attention_inputs("f16")[::2]:
        s = len(case.keys)
        n = min(s, 70)
        q = queries(case, n)
        whole = harness.attend_rows(level, "f16", case, q)
        assert np.array_equal(harness.attend_rows(level, "f16", case, q, threads=2), whole)
        for first, stop in ((0, 1), (n - 1, n), (n // 3, n // 2 + 1), (0, min(n, 33))):
            part = up_to(case, s - n + stop - 1, case.q)
            found = harness.attend_rows(level, "f16", part, q[first:stop])
            assert np.array_equal(found, whole[first:stop]), f"{named(case)}: {first} to {stop}"


def test_the_bounds_of_tiles_let_float64_pass_and_catch_a_wrong_kernel() -> None:
    caught: dict[str, int] = {}
    cases = attention_inputs("f16")
    for case in cases:
        truth = attention(case, tiles=True)
        assert excess(truth.value.astype(np.float32), truth) <= 1
        for name, wrong in mutations(case).items():
            share = excess(attention(wrong).value.astype(np.float32), truth)
            caught[name] = caught.get(name, 0) + (share > 1)
    assert all(count >= 5 for count in caught.values()), caught
