"""The ops that came with the families after GPT, against plain loops over float64 numbers."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from forwardpass.architectures.bloom import slopes
from forwardpass.graph import references
from forwardpass.graph.ops import ACTIVATIONS, OPS
from forwardpass.graph.references import F32, TILE
from forwardpass.rope import Rope
from graph.test_references import SIZES, check, random


@pytest.mark.parametrize("n", SIZES)
def test_activations_without_a_gate(n: int) -> None:
    x = random(n, 8) * 4
    erf = [[v / 2 * (1 + math.erf(v / math.sqrt(2))) for v in map(float, row)] for row in x]
    check("gelu_erf", references.gelu_erf(x), erf)
    check("relu", references.relu(x), [[max(0.0, float(value)) for value in row] for row in x])


def test_gelu_by_the_error_function_is_right_to_the_last_digits_on_the_whole_line() -> None:
    x = np.linspace(-12, 12, 100_001, dtype=np.float32)[None]
    exact = [value / 2 * math.erfc(-value / math.sqrt(2)) for value in map(float, x[0])]
    found = references.gelu_erf(x)[0]
    np.testing.assert_allclose(found, exact, rtol=3e-7, atol=1e-18)


def test_activations_of_very_large_numbers_are_finite() -> None:
    x = np.array([[-3e38, -1e30, -40.0, 0.0, 40.0, 3e38]], np.float32)
    for op in set(ACTIVATIONS.values()) - {"gelu"}:
        found = getattr(references, op)(x)[0].tolist()
        assert found == [0.0, 0.0, 0.0, 0.0, 40.0, float(np.float32(3e38))]


@pytest.mark.parametrize("n", SIZES)
def test_each_head_is_normalised_by_its_own_gain(n: int) -> None:
    x, gain, eps = random(n, 3, 6), random(3, 6, seed=1), 1e-3
    expected = np.zeros(x.shape)
    for i, h in itertools.product(range(n), range(3)):
        row = [float(value) for value in x[i, h]]
        mean = math.fsum(row) / 6
        variance = math.fsum((value - mean) ** 2 for value in row) / 6
        for e, value in enumerate(row):
            expected[i, h, e] = (value - mean) / math.sqrt(variance + eps) * gain[h, e]
    check("head_layer_norm", references.head_layer_norm(x, gain, eps=eps), expected)


def test_positions_may_begin_at_a_later_row() -> None:
    x, table, positions = random(4, 6), random(20, 6, seed=1), np.arange(3, 7)
    expected = [row.astype(float) + table[3 + i + 2] for i, row in enumerate(x)]
    found = references.add_positions(x, positions, table, offset=2)
    check("add_positions", found, expected)


@pytest.mark.parametrize("first", [0, 5, 100_000])
@pytest.mark.parametrize("dims", [2, 6, 8])
def test_interleaved_rope_turns_the_first_neighbors(first: int, dims: int) -> None:
    x, expected = random(4, 3, 8), random(4, 3, 8).astype(float)
    for n, h, i in itertools.product(range(4), range(3), range(dims // 2)):
        turn = (first + n) * 1000.0 ** (-2 * i / dims)
        pair = complex(x[n, h, 2 * i], x[n, h, 2 * i + 1]) * complex(math.cos(turn), math.sin(turn))
        expected[n, h, 2 * i], expected[n, h, 2 * i + 1] = pair.real, pair.imag
    positions = np.arange(first, first + 4)
    found = references.rope(x, positions, rope=Rope(1000.0), dims=dims, interleaved=True)
    check("rope", found, expected)
    np.testing.assert_array_equal(found[..., dims:], x[..., dims:])


@pytest.mark.parametrize("generated", [False, True])
@pytest.mark.parametrize(("n", "cached"), [(1, 0), (1, 37), (3, 6), (33, 0), (34, 9)])
def test_slopes_lower_the_scores_of_what_is_far_away(n: int, cached: int, generated: bool) -> None:
    steep = (0.5, 0.1, 2.0, 0.0)
    q, keys, values = random(n, 4, 6), random(2, 200, 6, seed=1), random(2, 200, 6, seed=2)
    seen = cached + -(-n // TILE) * TILE
    found = references.attention(
        q,
        keys[:, :seen],
        values[:, :seen],
        np.arange(cached, cached + n),
        scale=0.7,
        window=None,
        softcap=None,
        slopes=steep,
        generated=generated,
    )
    expected = np.zeros(q.shape)
    for i, h in itertools.product(range(n), range(4)):
        last = cached + i
        scores = [
            math.fsum(map(float, q[i, h].astype(float) * keys[h // 2, s])) * 0.7
            - steep[h] * (last - s)
            for s in range(last + 1)
        ]
        powers = np.exp(np.array(scores) - max(scores))
        expected[i, h] = powers @ values[h // 2, : last + 1].astype(float) / powers.sum()
    check("attention", found, expected)


def test_slopes_are_those_of_the_paper() -> None:
    assert slopes(8) == tuple(2.0**-i for i in range(1, 9))
    assert slopes(16) == tuple(2.0 ** (-i / 2) for i in range(1, 17))
    assert slopes(1) == (2.0**-8,)
    # The four of the power of two below, then the first, third … of the eight above.
    assert slopes(6) == (*slopes(4), *slopes(8)[0:4:2])
    assert slopes(112)[:64] == slopes(64)
    assert slopes(112)[64:] == slopes(128)[:96:2]


@pytest.mark.parametrize("op", sorted(set(ACTIVATIONS.values())))
def test_rows_of_an_activation_do_not_depend_on_each_other(op: str) -> None:
    x: F32 = random(70, 37)
    whole = getattr(references, op)(x)
    for rows in (1, 2, 31, 33):
        np.testing.assert_array_equal(getattr(references, op)(x[:rows]), whole[:rows])
    assert OPS[op].axes == "n f -> n f"
