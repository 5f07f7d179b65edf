"""Products of prompts in bf16 tiles: their errors, their bits, and what is done to their sums."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from kernels import harness
from kernels.inputs import rounded
from kernels.stored import BLOCKS, FLOATS, TYPES, random_table, widths
from kernels.test_products import activations, mutations, tables
from kernels.truths import F32, Inputs, Truth, excess, products, tile_products

levels = pytest.mark.parametrize("level", harness.TILE_LEVELS)
types = pytest.mark.parametrize("kind", TYPES)
ROWS = (1, 2, 15, 16, 17, 31, 32, 33, 65)
THREADS = (1, 2)


def many(n: int, cols: int) -> F32:
    """Hard rows as other products have them, n × cols."""
    return np.concatenate([activations(20, cols)] * 4)[:n]


def flushed(x: F32) -> F32:
    """x as tiles hold it: 0 below the normal float32, else the nearest bf16."""
    return rounded(np.where(np.abs(x) < 2.0**-126, np.float32(0), x), "bf16")


@levels
@types
@pytest.mark.parametrize("extreme", [False, True])
def test_a_weight_in_a_tile_is_the_decoded_one_rounded_once(
    kind: str, extreme: bool, level: str
) -> None:
    harness.at_level(level)
    rng = np.random.default_rng([13, TYPES.index(kind)])
    for rows in (1, 15, 17, 33, 70):
        for cols in widths(kind):
            with np.errstate(all="ignore"):
                table = random_table(kind, rows, cols, rng, extreme=extreme)
                expected = flushed(table.meaning.values).T
            # A row of the identity leaves one weight of each output, and exact zeros.
            found = harness.tile_products(level, table, np.eye(cols, dtype=np.float32))
            finite = np.isfinite(expected).all(axis=0)
            assert finite.any() or extreme
            assert np.array_equal(found[:, finite], expected[:, finite]), (kind, rows, cols)
            assert not np.isfinite(found[:, ~finite]).all(axis=0).any()


@levels
@types
def test_products_of_tiles_are_as_near_to_float64_as_their_order_allows(
    kind: str, level: str
) -> None:
    harness.at_level(level)
    for table in tables(kind, rows=(1, 15, 17, 33, 300)):
        for n in ROWS:
            x = many(n, table.cols)
            found = harness.tile_products(level, table, x)
            values = flushed(table.meaning.values)
            truth = tile_products(flushed(x), values)
            share = excess(found, truth)
            assert share <= 1, f"{kind}, {n} × {table.cols} by {table.rows}: {share:.3g}"
            # And what the two roundings to bf16 do, each of at most 2^-8 of what it rounds.
            size = np.abs(x).astype(np.float64) @ np.abs(table.meaning.values).T
            whole = Truth(products(x, table.meaning).value, truth.error + size * 2.0**-6.99)
            assert excess(found, whole) <= 1, f"{kind}, {n} × {table.cols} by {table.rows}"


@types
def test_the_bounds_of_tiles_let_a_right_kernel_pass_and_catch_a_wrong_one(kind: str) -> None:
    for table in tables(kind, rows=(17, 33)):
        x, values = flushed(activations(9, table.cols)), flushed(table.meaning.values)
        truth = tile_products(x, values)
        assert excess(truth.value.astype(np.float32), truth) <= 1
        cut = (table.meaning.values.view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32)
        wrong = mutations(table.meaning) | {"weights cut, not rounded": cut}
        if kind == "bf16":
            del wrong["weights cut, not rounded"]
        for name, other in wrong.items():
            found = tile_products(x, flushed(other.astype(np.float32))).value.astype(np.float32)
            assert excess(found, truth) > 1, f"{kind}, {table.cols}: {name}"


@levels
@types
def test_a_prompt_s_row_alone_has_the_bits_that_it_has_among_others(kind: str, level: str) -> None:
    harness.at_level(level)
    rng = np.random.default_rng(6)
    for cols in widths(kind):
        table = random_table(kind, 70, cols, rng)
        x = many(65, cols)
        alone = np.concatenate([harness.tile_products(level, table, row[None]) for row in x])
        for n in ROWS:
            for threads in THREADS:
                found = harness.tile_products(level, table, x[:n], threads)
                assert harness.same(found, alone[:n]), (cols, n, threads)
        turned = harness.tile_products(level, table, x[::-1].copy())
        assert harness.same(turned, alone[::-1])


@levels
@types
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_prompt_s_row_that_is_not_finite_shows_in_no_other(
    kind: str, level: str, bad: float
) -> None:
    harness.at_level(level)
    for table in tables(kind, rows=(17,)):
        x = many(33, table.cols)
        whole = harness.tile_products(level, table, x)
        x[20, table.cols // 2] = bad
        found = harness.tile_products(level, table, x)
        assert not np.isfinite(found[20]).any()
        others = np.arange(33) != 20
        assert harness.same(found[others], whole[others])


def chain(level: str, kind: str, threads: int, segment: dict[str, object]) -> dict[str, F32]:
    """A product with something done to its sums, and one more behind it.

    `sums` and `ups` of the bare tables, `residual`, the `result`, and what comes `behind` it.
    """
    rng = np.random.default_rng(TYPES.index(kind))
    cols, rows, n = 256, 256, 45
    gate, up, last = (random_table(kind, rows, cols, rng) for _ in range(3))
    x, residual = rng.normal(size=(2, n, cols)).astype(np.float32)
    tables = harness.native().Tables(1)
    numbers = [harness.add_table(tables, table) for table in (gate, up, last)]
    slots = [(cols, False)] + [(rows, False)] * 3
    program = harness.native().Program(tables, slots, [], "f16", n, level, threads)
    program.row_step([{"kind": "quantize", "a": (0, 0), "width": cols}], False)
    made: dict[str, object] = {"table": numbers[0], "out": (1, 0), "quantize": True}
    if "gate" in segment:
        made["up"] = numbers[1]
    program.linear_step((0, 0), [made | segment], False)
    program.linear_step((1, 0), [{"table": numbers[2], "out": (2, 0)}], False)
    program.slot(3, n)[:] = residual
    harness.run_program(program, x, prompt=True)
    result, behind = (np.array(program.slot(slot, n)) for slot in (1, 2))
    return {
        "sums": harness.tile_products(level, gate, x),
        "ups": harness.tile_products(level, up, x),
        "residual": residual,
        "result": result,
        "behind": behind,
        "expected_behind": harness.tile_products(level, last, result),
    }


@levels
@pytest.mark.parametrize("threads", THREADS)
@pytest.mark.parametrize("kind", ["q4_k", "q8_0", "bf16"])
@pytest.mark.parametrize("what", ["plain", "bias", "silu", "gelu", "relu", "residual", "softcap"])
def test_what_is_done_to_sums_of_tiles_is_what_the_kernels_of_rows_do(
    what: str, kind: str, threads: int, level: str
) -> None:
    harness.at_level(level)
    bias = np.random.default_rng(1).normal(size=256).astype(np.float32)
    segments: dict[str, dict[str, object]] = {
        "plain": {},
        "bias": {"bias": bias},
        "silu": {"gate": "silu"},
        "gelu": {"gate": "gelu"},
        "relu": {"act": "relu"},
        "residual": {"residual": (3, 0)},
        "softcap": {"cap": 30.0},
    }
    found = chain(level, kind, threads, segments[what])
    sums, ups = found["sums"], found["ups"]
    op = {"silu": "silu_multiply", "gelu": "gelu_multiply"}.get(what, what)
    of = Inputs(sums, b=ups if op.endswith("multiply") else None, number=30.0)
    if what in ("plain", "bias"):
        expected = sums + bias if what == "bias" else sums
    elif what == "residual":
        expected = found["residual"] + sums
    else:
        expected = harness.rows(level, op, of)
    assert harness.same(found["result"], expected)
    assert harness.same(found["behind"], found["expected_behind"])


@levels
def test_results_that_only_products_read_need_not_be_stored_as_floats(level: str) -> None:
    harness.at_level(level)
    whole = chain(level, "q4_k", 2, {"gate": "silu"})
    bare = chain(level, "q4_k", 2, {"gate": "silu", "floats": False})
    assert harness.same(bare["behind"], whole["behind"])
    assert not bare["result"].any()


@pytest.mark.parametrize("level", harness.LEVELS)
@pytest.mark.parametrize("kind", [*BLOCKS[:2], *FLOATS])
def test_a_prompt_is_multiplied_as_other_rows_where_there_are_no_tiles(
    kind: str, level: str
) -> None:
    harness.at_level(level)
    table = random_table(kind, 33, 96, np.random.default_rng(2))
    x = activations(9, 96)
    same = harness.same(harness.tile_products(level, table, x), harness.products(level, table, x))
    assert same == (level not in harness.TILE_LEVELS)


@levels
def test_products_of_an_input_that_is_not_in_tiles_are_refused(level: str) -> None:
    harness.at_level(level)
    tables = harness.native().Tables(1)
    table = random_table("bf16", 16, 32, np.random.default_rng(0))
    number = harness.add_table(tables, table)
    slots = [(32, False), (16, False)]
    program = harness.native().Program(tables, slots, [], "f16", 1, level, 1)
    with pytest.raises(ValueError, match="take tiles, but no step before leaves those of slot 0"):
        program.linear_step((0, 0), [{"table": number, "out": (1, 0)}], False)


@levels
def test_the_rate_of_tiles_is_measured_where_there_are_any(level: str) -> None:
    harness.at_level(level)
    rate = harness.native().tile_rate
    assert all(rate(level, threads, 0.001) > 1e9 for threads in THREADS)
    with pytest.raises(ValueError, match="the level has no tiles"):
        rate("portable", 1, 0.001)
    with pytest.raises(ValueError, match="threads must be from 1 to 1024, seconds at most 10"):
        rate(level, 1, 11.0)


# The kernel refuses the tile registers to a process one of whose stacks for signals could not hold
# them: a refusal as real as any other, and without a privilege.
_REFUSED = """
import ctypes
class Stack(ctypes.Structure):
    _fields_ = [("at", ctypes.c_void_p), ("flags", ctypes.c_int), ("size", ctypes.c_size_t)]
memory = ctypes.create_string_buffer(1 << 16)
libc = ctypes.CDLL(None, use_errno=True)
small = Stack(ctypes.addressof(memory), 0, 4096)
if libc.sigaltstack(ctypes.byref(small), None):
    raise SystemExit("no small stack")
from forwardpass import _native
from kernels import harness
import numpy as np
from kernels.stored import random_table
assert "amx" not in _native.levels(), _native.levels()
table = random_table("q4_0", 17, 64, np.random.default_rng(0))
level = _native.levels()[0]
assert not _native.has_tiles(level)
found = harness.tile_products("", table, np.ones((3, 64), np.float32))
assert np.array_equal(found, harness.products(level, table, np.ones((3, 64), np.float32)))
try:
    _native.has_tiles("amx")
except ValueError as error:
    print(level, error)
"""


@levels
def test_without_the_kernel_s_consent_the_level_below_runs(level: str) -> None:
    harness.at_level(level)
    environment = {k: v for k, v in os.environ.items() if k != "FORWARDPASS_ISA"}
    tests = str(Path(__file__).resolve().parents[1])
    # benchmarks/, which another test may have put there, has a module of this folder's name
    others = [path for path in sys.path if Path(path).name != "benchmarks"]
    environment["PYTHONPATH"] = os.pathsep.join([tests, *others])
    done = subprocess.run(
        [sys.executable, "-c", _REFUSED],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert 'level "amx": this machine and this build run avx512-vnni' in done.stdout
