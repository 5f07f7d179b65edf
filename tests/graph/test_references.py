"""Every op's NumPy reference against plain loops over float64 numbers, within its tolerance."""

from __future__ import annotations

import inspect
import itertools
import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pytest

from forwardpass.graph import references
from forwardpass.graph.axes import parse
from forwardpass.graph.op import Op
from forwardpass.graph.ops import OPS
from forwardpass.graph.reference_table import REFERENCES
from forwardpass.graph.references import F32, TILE
from forwardpass.rope import Rope, inverse_frequencies

F64 = npt.NDArray[np.float64]
SIZES = [1, 2, 31, 32, 33, 70]


def random(*shape: int, seed: int = 0) -> F32:
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(np.float32)


def check(op: str, found: F32, expected: object) -> None:
    """Within the tolerance of the table, of the largest number; exact where that is 0."""
    plain = np.asarray(expected, np.float64)
    assert found.dtype == np.float32
    assert found.shape == plain.shape
    limit = OPS[op].tolerance * (np.abs(plain).max() if plain.size else 0)
    assert (np.abs(found - plain) <= limit).all()


RUN = [op for op in OPS.values() if not op.counted_only]


@pytest.mark.parametrize("op", RUN, ids=lambda op: op.name)
def test_every_row_of_the_table_has_a_reference_of_its_name_and_attributes(op: Op) -> None:
    parameters = inspect.signature(REFERENCES[op.name]).parameters.values()
    arrays = [p.name for p in parameters if p.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD]
    options = {p.name for p in parameters if p.kind is inspect.Parameter.KEYWORD_ONLY}
    assert len(arrays) == len(parse(op.axes)[0]) + op.state
    extra = {"generated"} if op.phased else {"start"} if op.state else set()
    assert options == set(op.attributes) | extra | ({"e"} if op.name == "heads" else set())
    assert op.source
    assert REFERENCES[op.name].__doc__


def test_ops_without_a_reference_say_so() -> None:
    assert set(REFERENCES) == {op.name for op in RUN}
    assert all(op.source for op in OPS.values())


@pytest.mark.parametrize("n", SIZES)
def test_looking_up_is_exact(n: int) -> None:
    table, ids = random(50, 6), np.arange(n, dtype=np.int64) * 7 % 50
    check("embed", references.embed(ids, table), [table[i] for i in ids])
    x = random(n, 6)
    added = references.add_positions(x, ids, table)
    check("add_positions", added, [x[k].astype(float) + table[i] for k, i in enumerate(ids)])
    rows = np.array([n - 1, 0, n // 2], np.int64)
    check("wanted_rows", references.wanted_rows(x, rows), [x[i] for i in rows])
    assert references.wanted_rows(x, rows[:0]).shape == (0, 6)


@pytest.mark.parametrize("generated", [False, True])
@pytest.mark.parametrize("n", [0, *SIZES])
def test_a_projection_is_a_sum_of_products(n: int, generated: bool) -> None:
    x, table, bias = random(n, 13), random(9, 13), random(9)
    plain = [
        [math.fsum(float(a) * float(b) for a, b in zip(row, column, strict=True))
         for column in table]
        for row in x
    ]  # fmt: skip
    expected = np.array(plain).reshape(n, 9)
    check("linear", references.linear(x, table, generated=generated), expected)
    with_bias = references.linear_bias(x, table, bias, generated=generated)
    check("linear_bias", with_bias, expected + bias)


def test_views_keep_every_number_in_its_place() -> None:
    x = random(5, 12)
    check("heads", references.heads(x, e=4), [[row[i : i + 4] for i in (0, 4, 8)] for row in x])
    check("flat", references.flat(references.heads(x, e=4)), x)
    check("columns", references.columns(x, start=4, stop=9), [row[4:9] for row in x])


@pytest.mark.parametrize("shape", [(1, 1), (3, 7), (4, 3, 6), (0, 5)])
def test_norms(shape: tuple[int, ...]) -> None:
    x, gain, bias, eps = random(*shape) * 3 + 1, random(shape[-1]), random(shape[-1], seed=1), 0.01
    root_mean, centered = np.zeros(shape), np.zeros(shape)
    for index in itertools.product(*map(range, shape[:-1])):
        row = [float(value) for value in x[index]]
        mean = math.fsum(row) / len(row)
        power = math.fsum(value**2 for value in row) / len(row)
        variance = math.fsum((value - mean) ** 2 for value in row) / len(row)
        root_mean[index] = [v / math.sqrt(power + eps) * g for v, g in zip(row, gain, strict=True)]
        centered[index] = [
            (v - mean) / math.sqrt(variance + eps) * g + b
            for v, g, b in zip(row, gain, bias, strict=True)
        ]
    check("rms_norm", references.rms_norm(x, gain, eps=eps), root_mean)
    check("plain_layer_norm", references.plain_layer_norm(x, gain, eps=eps), centered - bias)
    check("layer_norm", references.layer_norm(x, gain, bias, eps=eps), centered)


def turned(x: F32, positions: Sequence[int], angles: Sequence[float]) -> F64:
    """Pair (i, i + e/2) of every head as a complex number, turned."""
    half, out = x.shape[-1] // 2, np.zeros(x.shape)
    for n, h, i in itertools.product(range(x.shape[0]), range(x.shape[1]), range(half)):
        turn = complex(math.cos(positions[n] * angles[i]), math.sin(positions[n] * angles[i]))
        pair = complex(x[n, h, i], x[n, h, i + half]) * turn
        out[n, h, i], out[n, h, i + half] = pair.real, pair.imag
    return out


@pytest.mark.parametrize("first", [0, 5, 100_000])
def test_ropes_turn_pairs_by_position(first: int) -> None:
    x, rope = random(4, 3, 8), Rope(1000.0)
    positions = np.arange(first, first + 4)
    angles = [1000.0 ** (-2 * i / 8) for i in range(4)]
    whole = {"rope": rope, "dims": 8, "interleaved": False}
    found = references.rope(x, positions, **whole)  # type: ignore[arg-type]
    check("rope", found, turned(x, list(positions), angles))
    factors = np.array([1, 2, 4, 8], np.float32)
    divided = [angle / float(factor) for angle, factor in zip(angles, factors, strict=True)]
    found = references.rope_factors(x, positions, factors, **whole)  # type: ignore[arg-type]
    check("rope_factors", found, turned(x, list(positions), divided))


def test_rescaled_angles() -> None:
    plain = [100.0 ** (-2 * i / 12) for i in range(6)]
    assert inverse_frequencies(Rope(100.0), 12) == plain
    quarter = inverse_frequencies(Rope(100.0, "linear", 4.0), 12)
    assert quarter == [angle / 4 for angle in plain]
    # 64 positions: pairs with waves below 16 stay, above 64 are divided, between are blended.
    rope = Rope(100.0, "llama3", 8.0, 1.0, 4.0, 64)
    for angle, found in zip(plain, inverse_frequencies(rope, 12), strict=True):
        wave = 2 * math.pi / angle
        share = min(1.0, max(0.0, (64 / wave - 1) / 3))
        assert found == pytest.approx((1 - share) * angle / 8 + share * angle, rel=1e-12)
        assert (found == angle) == (wave < 16)
    waves = [2 * math.pi / angle for angle in plain]
    assert [sum(low < wave < high for wave in waves) for low, high in ((0, 16), (16, 64))] == [2, 2]


def mixed(
    q: F32, k: F32, v: F32, first: int, scale: float, window: int | None, cap: float | None
) -> F64:
    """Attention by its definition: one query, one head and one key at a time."""
    n, h, e = q.shape
    group, out = h // k.shape[0], np.zeros(q.shape)
    for i, j in itertools.product(range(n), range(h)):
        last = first + i
        low = 0 if window is None else max(0, last - window + 1)
        scores = []
        for s in range(low, last + 1):
            dot = math.fsum(float(q[i, j, x]) * float(k[j // group, s, x]) for x in range(e))
            score = dot * scale
            scores.append(score if cap is None else cap * math.tanh(score / cap))
        powers = [math.exp(score - max(scores)) for score in scores]
        for x in range(e):
            values = v[j // group, low : last + 1, x]
            total = math.fsum(p * float(y) for p, y in zip(powers, values, strict=True))
            out[i, j, x] = total / math.fsum(powers)
    return out


@pytest.mark.parametrize("generated", [False, True])
@pytest.mark.parametrize(("window", "cap"), [(None, None), (1, None), (5, None), (40, 2.0)])
@pytest.mark.parametrize(("n", "cached"), [(1, 0), (1, 37), (3, 6), (33, 0), (34, 9)])
def test_attention_mixes_what_each_query_sees(
    n: int, cached: int, window: int | None, cap: float | None, generated: bool
) -> None:
    q, keys, values = random(n, 4, 6), random(n, 2, 6, seed=1), random(n, 2, 6, seed=2)
    store_k, store_v = (random(2, cached + n + TILE, 6, seed=seed) for seed in (3, 4))
    seen_k = references.cache(keys, store_k, start=cached)
    seen_v = references.cache(values, store_v, start=cached)
    positions = np.arange(cached, cached + n)
    found = references.attention(
        q, seen_k, seen_v, positions, scale=0.7, window=window, softcap=cap, generated=generated
    )
    check("attention", found, mixed(q, seen_k, seen_v, cached, 0.7, window, cap))


def test_a_cache_holds_what_was_written_and_zeros_behind_it() -> None:
    store = np.full((2, 100, 3), np.nan, np.float32)
    first, second = random(5, 2, 3), random(4, 2, 3, seed=1)
    references.cache(first, store, start=0)
    seen = references.cache(second, store, start=5)
    check("cache", seen[:, :9], np.concatenate([first, second]).swapaxes(0, 1))
    assert seen.shape == (2, 5 + TILE, 3)
    assert (seen[:, 9:] == 0).all()


@pytest.mark.parametrize("n", SIZES)
def test_activations(n: int) -> None:
    x, y = random(n, 8) * 4, random(n, 8, seed=1)

    def gelu(value: float) -> float:
        inner = math.sqrt(2 / math.pi) * (value + 0.044715 * value**3)
        return 0.5 * value * (1 + math.tanh(inner))

    plain = [[gelu(float(value)) for value in row] for row in x]
    check("gelu", references.gelu(x), plain)
    check("gelu_multiply", references.gelu_multiply(x, y), np.array(plain) * y)
    silu = [[float(value) / (1 + math.exp(-float(value))) for value in row] for row in x]
    check("silu_multiply", references.silu_multiply(x, y), np.array(silu) * y)
    check("add", references.add(x, y), x.astype(float) + y)
    check("scale", references.scale(x, factor=0.3), x.astype(float) * np.float32(0.3))
    cap = [[5.0 * math.tanh(float(value) / 5.0) for value in row] for row in x]
    check("softcap", references.softcap(x, cap=5.0), cap)


def test_activations_of_very_large_numbers_are_finite() -> None:
    x = np.array([[-1e30, -200.0, -88.8, 0.0, 88.8, 1e4]], np.float32)
    one = np.ones_like(x)
    with np.errstate(over="ignore"):
        assert references.silu_multiply(x, one)[0].tolist()[:2] == [0.0, 0.0]
        assert np.isfinite(references.gelu_multiply(x[:, 1:], one[:, 1:])).all()
    assert references.softcap(x, cap=3.0)[0].tolist()[0] == -3.0


def test_a_scale_is_rounded_to_float32_first() -> None:
    x = np.array([[3.0]], np.float32)
    assert references.scale(x, factor=0.1)[0, 0] == np.float32(3.0) * np.float32(0.1)
