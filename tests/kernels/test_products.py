"""Products of packed tables, at every level: their errors, and that mistakes would be seen."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from kernels import harness
from kernels.inputs import adversarial
from kernels.stored import FLOATS, TYPES, Table, random_table, widths
from kernels.truths import F32, Stored, excess, products

levels = pytest.mark.parametrize("level", harness.LEVELS)
types = pytest.mark.parametrize("kind", TYPES)
BATCHES = (1, 2, 3, 8, 9, 17)


def tables(kind: str, rows: tuple[int, ...] = (1, 15, 17, 33)) -> list[Table]:
    rng = np.random.default_rng([7, TYPES.index(kind)])
    return [random_table(kind, n, cols, rng) for n in rows for cols in widths(kind)]


def activations(n: int, cols: int) -> F32:
    rng = np.random.default_rng([n, cols])
    many = np.concatenate([adversarial(cols, rng) for _ in range(2)])
    many[8] = np.clip(many[8], -1e6, 1e6)
    return np.ascontiguousarray(np.roll(many, -n, axis=0)[:n])


@levels
@types
def test_products_are_as_near_to_float64_as_16_bits_of_activation_allow(
    kind: str, level: str
) -> None:
    harness.at_level(level)
    for table in tables(kind):
        for n in BATCHES:
            x = activations(n, table.cols)
            share = excess(harness.products(level, table, x), products(x, table.meaning))
            assert share <= 1, (
                f"{kind}, {n} × {table.cols} by {table.rows}: {share:.3g} of what is allowed"
            )


@levels
@types
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_row_that_is_not_finite_shows_in_all_its_products_and_in_no_other_row(
    kind: str, level: str, bad: float
) -> None:
    harness.at_level(level)
    for table in tables(kind, rows=(17,)):
        x = activations(9, table.cols)
        whole = harness.products(level, table, x)
        x[4, table.cols // 2] = bad
        found = harness.products(level, table, x)
        assert not np.isfinite(found[4]).any()
        others = np.arange(9) != 4
        assert np.array_equal(harness.bits(found[others]), harness.bits(whole[others]))


def simulated(x: F32, meaning: Stored) -> F32:
    """What a kernel without a fault may give: activations of 16 bits, sums in float64."""
    if not meaning.blocks:
        rounded = x.astype(np.float64)
        exact: F32 = (rounded @ meaning.values.astype(np.float64).T).astype(np.float32)
        return exact
    blocks = x.astype(np.float64).reshape(len(x), -1, 32)
    step = np.abs(blocks).max(axis=-1, keepdims=True) / 32639
    rounded = (np.round(blocks / np.where(step > 0, step, 1)) * step).reshape(x.shape)
    found: F32 = (rounded @ meaning.values.astype(np.float64).T).astype(np.float32)
    return found


def mutations(meaning: Stored) -> dict[str, F32]:
    """Tables as a faulty kernel would read them."""
    values, rows = meaning.values, len(meaning.values)
    flipped = values.copy()
    flipped[:, 0] *= -1
    found = {
        "the sign of the first input": flipped,
        "the last input left out": np.where(
            np.arange(values.shape[1]) == values.shape[1] - 1, 0, values
        ),
        "rows of a panel one off": np.roll(values, 1, axis=0),
    }
    if not meaning.blocks:
        return found
    by_block = values.reshape(rows, -1, 32)
    found["halves of a block swapped"] = np.roll(by_block, 16, axis=-1).reshape(values.shape)
    found["two inputs of a quad swapped"] = by_block.reshape(rows, -1, 2)[..., ::-1].reshape(
        values.shape
    )
    if meaning.least.any():
        found["the minimum left out"] = values - meaning.least
        found["the sign of the minimum"] = values - 2 * meaning.least
    offset = {"q4_0": 8, "q5_0": 16, "q6_k": 32, "q8_0": 128}.get(meaning.kind)
    if offset:  # the scale of a block, by its finest step
        steps = np.abs(np.diff(np.sort(by_block, axis=-1), axis=-1))
        step = np.where(steps > 0, steps, np.inf).min(axis=-1, keepdims=True)
        step = np.where(np.isfinite(step), step, 0)
        found["the offset left out"] = (by_block + offset * step).reshape(values.shape)
        found["the offset one off"] = (by_block + step).reshape(values.shape)
    return found


@types
def test_the_bounds_let_a_right_kernel_pass_and_catch_a_wrong_one(kind: str) -> None:
    for table in tables(kind, rows=(17, 33)):
        x = activations(9, table.cols)
        truth = products(x, table.meaning)
        assert excess(simulated(x, table.meaning), truth) <= 1
        for name, values in mutations(table.meaning).items():
            wrong = dataclasses.replace(table.meaning, values=values.astype(np.float32))
            assert excess(simulated(x, wrong), truth) > 1, f"{kind}, {table.cols}: {name}"


@pytest.mark.parametrize("kind", sorted(set(TYPES) - set(FLOATS)))
def test_a_plane_of_activations_left_out_would_be_caught(kind: str) -> None:
    table = tables(kind, rows=(17,))[0]
    x = activations(9, table.cols)
    blocks = x.astype(np.float64).reshape(len(x), -1, 32)
    step = np.abs(blocks).max(axis=-1, keepdims=True) / 127
    coarse = (np.round(blocks / np.where(step > 0, step, 1)) * step).reshape(x.shape)
    found = (coarse @ table.meaning.values.astype(np.float64).T).astype(np.float32)
    assert excess(found, products(x, table.meaning)) > 10
