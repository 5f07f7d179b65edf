"""Same bits: at every level, for a row alone or among others, for every number of threads."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from kernels import harness
from kernels.harness import same
from kernels.inputs import KV_TYPES, adversarial, attention_inputs, row_inputs
from kernels.stored import TYPES, random_table, widths
from kernels.truths import F32, ROWS, Inputs

levels = pytest.mark.parametrize("level", harness.LEVELS)
types = pytest.mark.parametrize("kind", TYPES)
WIDTH = 100


def others() -> list[str]:
    """The levels beside the portable one; skips the test where there is none."""
    found = harness.runnable()[:-1]
    if not found:
        pytest.skip("this machine and this build run the portable level alone")
    return found


@pytest.mark.parametrize("op", sorted(ROWS))
def test_every_level_has_the_same_bits_in_ops_on_rows(op: str) -> None:
    for level in others():
        for case in row_inputs(op, seed=1):
            portable = harness.rows("portable", op, case)
            assert same(harness.rows(level, op, case), portable), (level, case.a.shape)


def test_every_level_has_the_same_integers_of_activations() -> None:
    quantize = harness.native().test_quantize
    for level in others():
        for width in (1, 31, 33, 288, 1000):
            for row in adversarial(width, np.random.default_rng(width)):
                for one, other in zip(quantize(level, row), quantize("portable", row), strict=True):
                    assert np.array_equal(one, other), (level, width)


@types
def test_every_level_has_the_same_bits_in_products(kind: str) -> None:
    rng = np.random.default_rng(5)
    for cols in widths(kind):
        table = random_table(kind, 33, cols, rng)
        x = np.concatenate([adversarial(cols, rng), adversarial(cols, rng)[:7]])
        portable = harness.products("portable", table, x)
        for level in others():
            assert same(harness.products(level, table, x), portable), (level, cols)


@pytest.mark.parametrize("kv_type", KV_TYPES)
def test_every_level_and_number_of_threads_has_the_same_bits_in_attention(kv_type: str) -> None:
    others()
    for case in attention_inputs(kv_type, seed=1):
        portable = harness.attend("portable", kv_type, case)
        for level in others():
            assert same(harness.attend(level, kv_type, case), portable), (level, case.keys.shape)
        if len(case.keys) > 256:
            assert same(harness.attend(others()[0], kv_type, case, threads=2), portable)


@pytest.mark.parametrize("kv_type", KV_TYPES)
def test_a_head_has_the_same_bits_whichever_heads_share_its_keys(kv_type: str) -> None:
    level = harness.runnable()[0]
    for case in attention_inputs(kv_type, seed=2):
        h, groups = len(case.q), case.keys.shape[1]
        if h == groups:
            continue
        together = harness.attend(level, kv_type, case)
        share = h // groups
        for head in (0, h - 1):
            group = slice(head // share, head // share + 1)
            alone = dataclasses.replace(
                case,
                q=case.q[head : head + 1],
                keys=np.ascontiguousarray(case.keys[:, group]),
                values=np.ascontiguousarray(case.values[:, group]),
                slopes=None if case.slopes is None else case.slopes[head : head + 1],
                sinks=None if case.sinks is None else case.sinks[head : head + 1],
            )
            assert same(harness.attend(level, kv_type, alone), together[head : head + 1])


@levels
@types
def test_a_row_alone_has_the_bits_that_it_has_among_8_and_17(kind: str, level: str) -> None:
    harness.at_level(level)
    rng = np.random.default_rng(6)
    for cols in widths(kind):
        table = random_table(kind, 33, cols, rng)
        x = np.concatenate([adversarial(cols, rng), adversarial(cols, rng)])[:17]
        alone = np.concatenate([harness.products(level, table, row[None]) for row in x])
        for batch in (2, 3, 4, 5, 6, 7, 8, 17):
            found = harness.products(level, table, x[:batch])
            assert same(found, alone[:batch]), (cols, batch)
        assert same(harness.products(level, table, x[::-1].copy()), alone[::-1])


def _program(op: str, case: Inputs, level: str, threads: int) -> F32:
    """An op on rows as a step of a program."""
    n, width = case.a.shape
    program = harness.native().Program(
        harness.native().Tables(1), [(width, False)] * 3, [], "f16", n, level, threads
    )
    kind = {"plain_layer_norm": "layer_norm", "rope_factors": "rope"}.get(op, op)
    members = {"kind": kind, "a": (0, 0), "out": (2, 0), "width": width, "number": case.number}
    if case.b is not None:
        members["b"] = (1, 0)
        program.slot(1, n)[:] = case.b
    if case.weight is not None:
        members["weight"] = case.weight
    if case.bias is not None:
        members["bias"] = case.bias
    if case.pairs:
        members |= {"rope": 0, "pairs": case.pairs, "interleaved": case.interleaved}
    program.row_step([members], False)
    if case.cos is not None and case.sin is not None:  # the same angles at every position
        program.set_rope(0, *(np.tile(x, (n, 1)) for x in (case.cos, case.sin)))
    harness.run_program(program, case.a)
    return np.array(program.slot(2, n))


@levels
@pytest.mark.parametrize("op", sorted(ROWS))
def test_a_row_of_a_program_has_the_bits_that_it_has_alone(op: str, level: str) -> None:
    harness.at_level(level)
    for case in row_inputs(op, seed=2)[-3:]:
        for n in (1, 8, 17):
            rows = np.arange(n) % len(case.a)
            b = None if case.b is None else case.b[rows]
            some = dataclasses.replace(case, a=case.a[rows], b=b)
            whole = harness.rows(level, op, case)
            for threads in (1, 2):
                assert same(_program(op, some, level, threads), whole[rows]), (n, threads)
