"""Ops on rows, the integers of activations, and decoded tables, at every level."""

from __future__ import annotations

import numpy as np
import pytest

from forwardpass.backends.fusion import KERNELS
from forwardpass.graph.ops import OPS
from kernels import harness
from kernels.inputs import WIDTHS, adversarial, row_inputs
from kernels.stored import BLOCKS, EXTREMES, FLOATS, MLX, TYPES, random_table, widths
from kernels.truths import ACTIVATION, ROWS, Inputs, excess

levels = pytest.mark.parametrize("level", harness.LEVELS)
ON_ROWS = [name for name, (_, held) in harness.held().items() if held.by == "rows"]


def test_every_op_that_the_program_computes_is_held_to_float64() -> None:
    held = {name for name, (_, held) in harness.held().items() if held.levels or held.by == "view"}
    assert held == KERNELS
    assert list(harness.held()) == list(OPS)
    assert set(ON_ROWS) == set(ROWS)


def test_every_type_that_the_program_packs_is_held() -> None:
    assert tuple(harness.native().Tables.types) == TYPES


@pytest.mark.parametrize(
    ("reason", "outcome"),
    [
        ("no C++ compiler when it was installed; see docs/install.md", pytest.skip.Exception),
        ("its C++ part is not built in a source tree; see docs/install.md", pytest.skip.Exception),
        ("its C++ part did not build when it was installed; see docs/install.md", AssertionError),
    ],
)
def test_kernels_are_skipped_without_a_compiler_and_fail_where_one_failed(
    reason: str, outcome: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(harness, "missing_reason", lambda: reason)
    with pytest.raises(outcome, match=reason[:20].replace("+", r"\+")):
        harness.native()


@levels
@pytest.mark.parametrize("op", ON_ROWS)
def test_an_op_on_rows_is_as_near_to_float64_as_its_roundings_allow(op: str, level: str) -> None:
    harness.at_level(level)
    for case in row_inputs(op):
        found = harness.rows(level, op, case)
        share = excess(found, ROWS[op](case))
        assert share <= 1, f"{op}, {case.a.shape[1]} wide: {share:.3g} of what is allowed"


@levels
@pytest.mark.parametrize("op", ON_ROWS)
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_in_a_row_shows_in_that_row_alone(
    op: str, level: str, bad: float
) -> None:
    harness.at_level(level)
    for case in row_inputs(op):
        a = case.a.copy()
        width = a.shape[1]
        a[4, width // 2] = bad
        with np.errstate(invalid="ignore"):
            hurt = Inputs(**{**vars(case), "a": a})
            found, whole = harness.rows(level, op, hurt), harness.rows(level, op, case)
        others = np.arange(len(a)) != 4
        assert np.array_equal(harness.bits(found[others]), harness.bits(whole[others]))
        if np.isnan(bad) or op.endswith("norm"):
            assert np.isnan(found[4]).any(), f"{op}, {width} wide"


@levels
def test_a_value_that_is_not_finite_is_found_wherever_it_is(level: str) -> None:
    harness.at_level(level)
    finite = harness.native().test_finite
    for width in WIDTHS:
        x = np.full(width, np.finfo(np.float32).max, np.float32)
        assert finite(level, x)
        for place in {0, width // 2, width - 1}:
            for bad in (np.nan, np.inf, -np.inf):
                y = x.copy()
                y[place] = bad
                assert not finite(level, y)


@levels
@pytest.mark.parametrize("width", [1, 15, 31, 32, 33, 96, 288, 1000])
def test_a_block_of_activations_is_off_by_half_a_step_of_its_greatest(
    width: int, level: str
) -> None:
    harness.at_level(level)
    blocks = -(-width // 32)
    for row in adversarial(width, np.random.default_rng(width)):
        q, scale, half = harness.native().test_quantize(level, row)
        padded = np.zeros((2, blocks * 32))
        padded[0, :width], padded[1, :width] = q, row
        integers, x = padded.reshape(2, blocks, 32)
        assert np.abs(integers).max() <= 32639
        assert np.array_equal(half, integers.reshape(blocks, 2, 16).sum(axis=-1))
        greatest = np.abs(x).max(axis=-1, keepdims=True)
        off = np.abs(integers * scale.astype(np.float64)[:, None] - x)
        assert np.all(off <= greatest * ACTIVATION + 32640 * 2.0**-150)
        assert np.all(integers[greatest[:, 0] == 0] == 0)
        assert np.all(np.abs(integers).max(axis=-1)[greatest[:, 0] > 0] == 32639)


@levels
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_block_that_is_not_finite_has_no_scale(bad: float, level: str) -> None:
    harness.at_level(level)
    for place in range(0, 100, 7):
        row = np.ones(100, np.float32)
        row[place] = bad
        q, scale, _ = harness.native().test_quantize(level, row)
        assert np.array_equal(np.isnan(scale), np.arange(4) == place // 32)
        assert not q[place // 32 * 32 : place // 32 * 32 + 32].any()


@levels
@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("extreme", [False, True])
def test_a_decoded_row_has_the_bits_that_the_formats_give_it(
    kind: str, extreme: bool, level: str
) -> None:
    harness.at_level(level)
    rng = np.random.default_rng(TYPES.index(kind))
    for rows in (1, 15, 17, 33):
        for cols in widths(kind):
            with np.errstate(all="ignore"):
                table = random_table(kind, rows, cols, rng, extreme=extreme)
            found = harness.decode(level, table)
            assert np.array_equal(harness.bits(found), harness.bits(table.meaning.values)), (
                f"{kind}, {rows} × {cols}"
            )


def test_the_types_and_extremes_are_what_they_are_called() -> None:
    assert set(TYPES) == {*FLOATS, *BLOCKS, *MLX}
    halves = EXTREMES.view(np.float16)
    assert np.isfinite(halves).all()
    assert {float(np.abs(halves)[np.abs(halves) > 0].min()), float(halves.max())} == {
        2.0**-24,
        65504.0,
    }
