"""Ops that only a program computes: look-ups, biases, norms by head, columns, wanted rows."""

from __future__ import annotations

import numpy as np
import pytest

from kernels import harness
from kernels.inputs import KV_TYPES, adversarial, rounded
from kernels.stored import TYPES, random_table, widths
from kernels.truths import F32, Inputs, Truth, U, excess, layer_norm, products

levels = pytest.mark.parametrize("level", harness.LEVELS)


@levels
@pytest.mark.parametrize("kind", TYPES)
def test_a_looked_up_row_is_the_decoded_one_and_a_position_is_added_to_it(
    kind: str, level: str
) -> None:
    harness.at_level(level)
    rng = np.random.default_rng(8)
    for cols in widths(kind):
        words, places = (random_table(kind, 33, cols, rng) for _ in range(2))
        tables = harness.native().Tables(1)
        numbers = [harness.add_table(tables, table) for table in (words, places)]
        program = harness.native().Program(tables, [(cols, False)] * 2, [], "f16", 17, level, 2)
        look = {"kind": "embed", "table": numbers[0], "out": (0, 0), "width": cols}
        add = {"kind": "add_positions", "table": numbers[1], "a": (0, 0), "out": (1, 0)}
        program.row_step([look, add | {"width": cols, "offset": 2}], False)
        tokens = rng.integers(0, 33, 17)
        harness.run_program(program, rows=17, tokens=tokens)
        found = [np.array(program.slot(slot, 17)) for slot in (0, 1)]
        expected = words.meaning.values[tokens]
        assert np.array_equal(harness.bits(found[0]), harness.bits(expected))
        assert np.array_equal(found[1], expected + places.meaning.values[2:19])


@levels
@pytest.mark.parametrize("kind", TYPES)
def test_a_bias_is_added_to_a_product_with_one_rounding(kind: str, level: str) -> None:
    harness.at_level(level)
    rng = np.random.default_rng(9)
    for cols in widths(kind):
        for rows in (1, 17, 33):
            table = random_table(kind, rows, cols, rng)
            bias = rng.normal(size=rows).astype(np.float32)
            x = adversarial(cols, rng)
            n = len(x)
            tables = harness.native().Tables(1)
            number = harness.add_table(tables, table)
            slots = [(cols, False), (rows, False)]
            program = harness.native().Program(tables, slots, [], "f16", n, level, 2)
            program.row_step([{"kind": "quantize", "a": (0, 0), "width": cols}], False)
            program.linear_step((0, 0), [{"table": number, "out": (1, 0), "bias": bias}], False)
            harness.run_program(program, x)
            found = np.array(program.slot(1, n))
            alone = harness.products(level, table, x)
            assert np.array_equal(harness.bits(found), harness.bits(alone + bias))
            product = products(x, table.meaning)
            value = product.value + bias
            error = product.error + (np.abs(value) + product.error) * U
            assert excess(found, Truth(value, error)) <= 1


@levels
def test_a_norm_by_head_has_a_gain_for_each_head(level: str) -> None:
    harness.at_level(level)
    rng = np.random.default_rng(10)
    for heads, width in ((1, 64), (3, 40), (7, 33)):
        x = adversarial(heads * width, rng)
        gain = rng.normal(size=(heads, width)).astype(np.float32)
        slots = [(heads * width, False)] * 2
        tables = harness.native().Tables(1)
        program = harness.native().Program(tables, slots, [], "f16", len(x), level, 1)
        members = {"kind": "head_layer_norm", "a": (0, 0), "out": (1, 0), "width": width}
        gains = {"heads": heads, "weight": gain.reshape(-1), "number": 1e-5}
        program.row_step([members | gains], False)
        harness.run_program(program, x)
        found = np.array(program.slot(1, len(x))).reshape(len(x), heads, width)
        for head in range(heads):
            part = np.ascontiguousarray(x.reshape(len(x), heads, width)[:, head])
            truth = layer_norm(Inputs(part, weight=gain[head], number=1e-5))
            assert excess(found[:, head], truth) <= 1, (heads, width, head)


@levels
def test_columns_and_wanted_rows_are_copied_as_they_are(level: str) -> None:
    harness.at_level(level)
    x = adversarial(96, np.random.default_rng(11))
    slots = [(96, False), (33, False), (96, True)]
    tables = harness.native().Tables(1)
    program = harness.native().Program(tables, slots, [], "f16", len(x), level, 2)
    program.row_step([{"kind": "copy", "a": (0, 7), "out": (1, 0), "width": 33}], False)
    program.row_step([{"kind": "gather", "a": (0, 0), "out": (2, 0), "width": 96}], True)
    harness.run_program(program, x, wanted=(0, 3, 9))
    assert np.array_equal(program.slot(1, len(x)), x[:, 7:40])
    assert np.array_equal(program.slot(2, 3), x[[0, 3, 9]])


@levels
@pytest.mark.parametrize("kv_type", KV_TYPES)
def test_the_cache_keeps_every_position_and_head_where_it_belongs(kv_type: str, level: str) -> None:
    harness.at_level(level)
    n, heads, width = 70, 3, 40
    x: F32 = np.random.default_rng(12).normal(size=(n, 2 * heads * width)).astype(np.float32)
    tables = harness.native().Tables(1)
    slots = [(2 * heads * width, False)]
    program = harness.native().Program(tables, slots, [(heads, width)], kv_type, n, level, 2)
    members = {"kind": "write_cache", "a": (0, 0), "b": (0, heads * width), "state": 0}
    program.row_step([members | {"width": width, "heads": heads}], False)
    program.slot(0, n)[:] = x
    cache = harness.native().Cache(program)
    every, none = np.arange(n, dtype=np.int64), np.zeros(0, np.int64)
    program.run(every, every, np.zeros(n, np.int32), [cache], none)
    assert cache.length == n
    kept = rounded(x, kv_type).reshape(n, 2, heads, width)
    for which in (0, 1):
        for head in range(heads):
            found = [cache.read(0, which, head, position) for position in range(n)]
            assert np.array_equal(found, kept[:, which, head])
