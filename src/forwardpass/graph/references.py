"""The NumPy reference of every op in the table: one function a row, of the row's name.

Each takes the node's inputs, then its weights, as float32 arrays (ids and positions as int64), and
its attributes by name; each returns a new float32 array. They are the plain truth that other
backends are held to. Two rules make a row's result independent of what else is in the pass:

* prompt rows are multiplied in tiles of `TILE` rows, padded with zeros, so that the shape of every
  matrix product, and with it its order of summation, depends on the row's place alone; generated
  rows (`generated=True`) are multiplied one by one.
* a tile of queries sees keys up to the tile's end, masked to weight 0, so that rows appended later
  only ever add exact zeros.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from forwardpass.rope import Rope, inverse_frequencies

F32 = npt.NDArray[np.float32]
Ids = npt.NDArray[np.int64]

TILE = 32
_GELU = math.sqrt(2 / math.pi)
_HALF_ROOT = math.sqrt(0.5)

# The polynomial through values of e^x² erfc(x), over 2 ÷ (2 + x), up to x = 6: highest power first.
_LAST = 6.0
_SCALED = np.vectorize(lambda place: math.exp((2 / place - 2) ** 2) * math.erfc(2 / place - 2))
_CURVE = np.polynomial.Chebyshev.interpolate(_SCALED, 12, domain=[2 / (2 + _LAST), 1])
_ERFC = _CURVE.convert(kind=np.polynomial.Polynomial).coef[::-1]


def embed(tokens: Ids, table: F32) -> F32:
    """Row `tokens[n]` of the table, n d."""
    return np.take(table, tokens, axis=0)


def add_positions(x: F32, positions: Ids, table: F32, *, offset: int = 0) -> F32:
    """x plus row `positions[n]` + offset of the table, n d."""
    return x + np.take(table, positions + offset, axis=0)


def scale(x: F32, *, factor: float) -> F32:
    """x × factor, the factor rounded to float32 first."""
    return x * np.float32(factor)


def linear(x: F32, table: F32, *, generated: bool = False) -> F32:
    """x tableᵀ, n o."""
    if generated:
        out = np.empty((x.shape[0], table.shape[0]), np.float32)
        for row, result in zip(x, out, strict=True):
            np.dot(table, row, out=result)
        return out
    tiles = [tile @ table.T for tile in _tiles(x)]
    return np.concatenate(tiles)[: x.shape[0]] if tiles else np.empty((0, len(table)), np.float32)


def linear_bias(x: F32, table: F32, bias: F32, *, generated: bool = False) -> F32:
    """x tableᵀ + bias, n o."""
    return linear(x, table, generated=generated) + bias


def columns(x: F32, *, start: int, stop: int) -> F32:
    """Columns start to stop of the last axis, … o."""
    return np.ascontiguousarray(x[..., start:stop])


def heads(x: F32, *, e: int) -> F32:
    """x seen by head, n h e."""
    return x.reshape(x.shape[0], -1, e)


def flat(x: F32) -> F32:
    """Heads joined, n (h e)."""
    return x.reshape(x.shape[0], -1)


def rms_norm(x: F32, gain: F32, *, eps: float) -> F32:
    """x ÷ √(mean of x² + eps) × gain, over the last axis."""
    power: F32 = np.mean(np.square(x), axis=-1, keepdims=True, dtype=np.float32)
    root: F32 = np.sqrt(power + np.float32(eps))
    return x / root * gain


def layer_norm(x: F32, gain: F32, bias: F32, *, eps: float) -> F32:
    """(x − mean) ÷ √(variance + eps) × gain + bias, over the last axis."""
    return _centered(x, eps) * gain + bias


def plain_layer_norm(x: F32, gain: F32, *, eps: float) -> F32:
    """(x − mean) ÷ √(variance + eps) × gain, over the last axis."""
    return _centered(x, eps) * gain


def head_layer_norm(x: F32, gain: F32, *, eps: float) -> F32:
    """(x − mean) ÷ √(variance + eps) of each head, times its gain, n h e."""
    return _centered(x, eps) * gain


def rope(x: F32, positions: Ids, *, rope: Rope, dims: int, interleaved: bool) -> F32:
    """The first `dims` elements of each head turned in pairs by position × angle, n h e.

    Pairs are (i, i + dims/2), or (2i, 2i + 1) where `interleaved`. Angles and their cosines are
    computed in float64 and rounded once.
    """
    angles = np.array(inverse_frequencies(rope, dims))
    return _turn(x, positions, angles, rope.attention_factor, interleaved)


def rope_factors(
    x: F32, positions: Ids, factors: F32, *, rope: Rope, dims: int, interleaved: bool
) -> F32:
    """Like `rope`, each angle divided by its stored factor."""
    angles = np.array(inverse_frequencies(rope, dims)) / factors
    return _turn(x, positions, angles, rope.attention_factor, interleaved)


def cache(x: F32, store: F32, *, start: int) -> F32:
    """x written to rows start … of `store` (g capacity e); the store up to the last tile, g s e.

    The view is longer than the visible rows by the padding of the last tile of queries, which
    `attention` masks.
    """
    stop = start + x.shape[0]
    padded = start + -(-x.shape[0] // TILE) * TILE
    store[:, start:stop] = x.swapaxes(0, 1)
    store[:, stop:padded] = 0  # what was there may not be finite, and 0 × inf is not 0
    return store[:, :padded]


def attention(
    q: F32,
    keys: F32,
    values: F32,
    positions: Ids,
    *,
    scale: float,
    window: int | None,
    softcap: float | None,
    slopes: tuple[float, ...] | None = None,
    absorbed: tuple[int, int] | None = None,
    generated: bool = False,
) -> F32:
    """For each query, the softmax-weighted mix of the values that it sees, n h w.

    Query n at `positions[n]` sees keys 0 … positions[n], the last `window` of them where given.
    `slopes` lower each head's scores by slope × distance (ALiBi). `absorbed` concerns counting
    alone.
    """
    shape = _Scores(scale, window, softcap, slopes, None)
    return _attend(q, keys, values, int(positions[0]), shape, generated)


def attention_sinks(
    q: F32,
    keys: F32,
    values: F32,
    positions: Ids,
    sinks: F32,
    *,
    scale: float,
    window: int | None,
    softcap: float | None,
    slopes: tuple[float, ...] | None = None,
    absorbed: tuple[int, int] | None = None,
    generated: bool = False,
) -> F32:
    """Like `attention`, with the head's entry of `sinks` as one more score in each softmax."""
    shape = _Scores(scale, window, softcap, slopes, sinks)
    return _attend(q, keys, values, int(positions[0]), shape, generated)


def gelu(x: F32) -> F32:
    """½ x (1 + tanh(√(2/π) (x + 0.044715 x³)))."""
    inner = (x + x * x * x * np.float32(0.044715)) * np.float32(_GELU)
    curve: F32 = np.tanh(inner)
    return x * np.float32(0.5) * (curve + np.float32(1))


def gelu_erf(x: F32) -> F32:
    """½ x (1 + erf(x ÷ √2)).

    The error function is computed in float64 and the result rounded once.
    """
    out = np.empty_like(x)
    for row, result in zip(x, out, strict=True):
        tail = 0.5 * _erfc(np.abs(row, dtype=np.float64) * _HALF_ROOT)
        result[:] = row * np.where(row < 0, tail, 1 - tail)
    return out


def relu(x: F32) -> F32:
    """max(x, 0)."""
    return np.maximum(x, np.float32(0))


def silu_multiply(gate: F32, up: F32) -> F32:
    """gate ÷ (1 + e^−gate) × up."""
    # e^−gate overflows to infinity for very negative gates, and the quotient is then 0: as it
    # should.
    with np.errstate(over="ignore"):
        inverse: F32 = np.exp(-gate)
        return gate / (inverse + np.float32(1)) * up


def gelu_multiply(gate: F32, up: F32) -> F32:
    """gelu(gate) × up."""
    return gelu(gate) * up


def add(x: F32, y: F32) -> F32:
    """x + y."""
    return x + y


def softcap(x: F32, *, cap: float) -> F32:
    """cap × tanh(x ÷ cap)."""
    capped: F32 = np.tanh(x / np.float32(cap))
    return capped * np.float32(cap)


def wanted_rows(x: F32, rows: Ids) -> F32:
    """Rows of x, r d."""
    return np.take(x, rows, axis=0)


def _centered(x: F32, eps: float) -> F32:
    """(x − mean) ÷ √(variance + eps), over the last axis."""
    mean: F32 = np.mean(x, axis=-1, keepdims=True, dtype=np.float32)
    centered = x - mean
    power: F32 = np.mean(np.square(centered), axis=-1, keepdims=True, dtype=np.float32)
    root: F32 = np.sqrt(power + np.float32(eps))
    return centered / root


def _tiles(x: F32) -> list[F32]:
    padding = -x.shape[0] % TILE
    if padding:
        x = np.concatenate([x, np.zeros((padding, x.shape[1]), np.float32)])
    return [x[start : start + TILE] for start in range(0, x.shape[0], TILE)]


def _turn(
    x: F32,
    positions: Ids,
    frequencies: npt.NDArray[np.float64],
    length: float,
    interleaved: bool,
) -> F32:
    """The first elements of x, two a frequency, turned and made `length` times as long."""
    angles = positions[:, None] * frequencies  # n dims/2
    cos = (np.cos(angles) * length).astype(np.float32)[:, None]
    sin = (np.sin(angles) * length).astype(np.float32)[:, None]
    half = len(frequencies)
    out = x.copy()
    first, second = slice(0, half), slice(half, 2 * half)
    if interleaved:
        first, second = slice(0, 2 * half, 2), slice(1, 2 * half, 2)
    left, right = x[..., first], x[..., second]
    out[..., first] = left * cos - right * sin
    out[..., second] = right * cos + left * sin
    return out


def _biases(slopes: tuple[float, ...], first: int, low: int, shape: tuple[int, ...]) -> F32:
    """slope × (key − query), g h/g queries keys: 0 for a query's own key, less for earlier ones."""
    g, share, rows, seen = shape
    queries, keys = np.arange(first, first + rows), np.arange(low, low + seen)
    behind = (keys[None] - queries[:, None]).astype(np.float32)
    return np.array(slopes, np.float32).reshape(g, share, 1, 1) * behind


def _erfc(x: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """1 − erf(x) for x ≥ 0, to 2e-10 of itself up to 6; beyond, erf(x) is 1 in a float64."""
    place = 2 / (2 + np.minimum(x, _LAST))
    found = np.full_like(place, _ERFC[0])
    for factor in _ERFC[1:]:
        found *= place
        found += factor
    found *= np.exp(-x * x)
    return found


@dataclass(frozen=True)
class _Scores:
    """What attention makes of a query and a key."""

    scale: float
    window: int | None
    softcap: float | None
    slopes: tuple[float, ...] | None
    sinks: F32 | None


def _attend(q: F32, keys: F32, values: F32, first: int, shape: _Scores, generated: bool) -> F32:
    n, h, e = q.shape
    g, window = keys.shape[0], shape.window
    size = 1 if generated else TILE
    outs: list[F32] = []
    for start in range(0, n, size):
        tile = q[start : start + size]
        rows = tile.shape[0]
        seen = first + start + size
        low = max(0, first + start - window + 1) if window is not None else 0
        if rows < size:
            tile = np.concatenate([tile, np.zeros((size - rows, h, e), np.float32)])
        # queries grouped by the key/value head that they share: g (h/g rows) e
        grouped = tile.reshape(-1, g, h // g, e).transpose(1, 2, 0, 3).reshape(g, -1, e)
        scores = grouped @ keys[:, low:seen].swapaxes(1, 2) * np.float32(shape.scale)
        if shape.softcap is not None:
            scores = np.tanh(scores / np.float32(shape.softcap)) * np.float32(shape.softcap)
        scores = scores.reshape(g, h // g, tile.shape[0], seen - low)
        if shape.slopes is not None:
            scores += _biases(shape.slopes, first + start, low, scores.shape)
        scores[:, :, _hidden(first + start, tile.shape[0], low, seen, window)] = -np.inf
        weights = softmax(scores, shape.sinks).reshape(g, -1, seen - low)
        mixed = (weights @ values[:, low:seen]).reshape(g, h // g, tile.shape[0], -1)
        outs.append(mixed.transpose(2, 0, 1, 3).reshape(tile.shape[0], h, -1)[:rows])
    return np.concatenate(outs)


def _hidden(
    first: int, rows: int, low: int, seen: int, window: int | None
) -> npt.NDArray[np.bool_]:
    """Which of the keys low … seen each of the queries first … must not see; rows × keys."""
    queries = np.arange(first, first + rows)[:, None]
    keys = np.arange(low, seen)[None]
    hidden = keys > queries
    if window is not None:
        hidden |= keys <= queries - window
    return hidden


def softmax(scores: F32, sinks: F32 | None = None) -> F32:
    """e^score over the sum of them, along the last axis.

    `sinks`: one more score for each of the first two axes' heads, which no weight is given for.
    """
    highest: F32 = scores.max(axis=-1, keepdims=True)
    if sinks is not None:
        extra = sinks.reshape(*scores.shape[:2], 1, 1)
        highest = np.maximum(highest, extra)
    exponents: F32 = np.exp(scores - highest)
    total: F32 = exponents.sum(axis=-1, keepdims=True, dtype=np.float32)
    if sinks is not None:
        total = total + np.exp(extra - highest)
    return exponents / total


def sigmoid(x: F32) -> F32:
    """1 ÷ (1 + e^−x); e^−x overflows to infinity for very negative x, and the quotient is 0."""
    with np.errstate(over="ignore"):
        return np.float32(1) / (np.float32(1) + np.exp(-x))
