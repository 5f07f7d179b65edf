"""What each kernel should compute, in float64, and how far it may be off: one function an op.

Inputs are float32 and taken as exact. Each function returns the true result and, element for
element, the largest error that the kernel's order of summation allows; it follows from counting
roundings, each `U` of what it rounds. `STATED` says the same in words for docs/ops.md. Nothing
here imports the kernels or the references.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

F32 = npt.NDArray[np.float32]
F64 = npt.NDArray[np.float64]

U = 2.0**-24  # half a unit in the last place of float32: the error of one rounding to nearest
BF16 = 2.0**-8  # the same of bf16
FLOOR = 1e-37  # absolute: what lies below the normal float32 may be flushed
ACTIVATION = 0.5 / 32639 * 1.012  # of a block's greatest |x|: half a step, and two roundings


@dataclass(frozen=True)
class Inputs:
    """What an op on rows reads: `a` and `b` are n × width, `weight` and `bias` width."""

    a: F32
    b: F32 | None = None
    weight: F32 | None = None
    bias: F32 | None = None
    number: float = 0.0
    pairs: int = 0
    interleaved: bool = False
    cos: F32 | None = None
    sin: F32 | None = None


@dataclass(frozen=True)
class Truth:
    """The true result and the largest error allowed; an error of 0 means the same float32."""

    value: F64
    error: F64


RowTruth = Callable[[Inputs], Truth]


def add(i: Inputs) -> Truth:
    return _exact(_wide(i.a) + _wide(i.b))


def scale(i: Inputs) -> Truth:
    return _exact(_wide(i.a) * _single(i.number))


def relu(i: Inputs) -> Truth:
    return _exact(np.maximum(_wide(i.a), 0))


def rms_norm(i: Inputs) -> Truth:
    """Sum of squares: 14 roundings of which the root keeps half; then mean, root, ÷, ×, ×."""
    x = _wide(i.a)
    root = np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + _single(i.number))
    return _relative(x / root * _wide(i.weight), 12)


def layer_norm(i: Inputs) -> Truth:
    """As of `rms_norm`, of |x| + mean |x|: the mean's own error is of that size."""
    x, gain = _wide(i.a), _wide(i.weight)
    bias = 0.0 if i.bias is None else _wide(i.bias)
    mean = x.mean(axis=-1, keepdims=True)
    centered = x - mean
    root = np.sqrt(np.mean(centered * centered, axis=-1, keepdims=True) + _single(i.number))
    size = (np.abs(x) + np.abs(x).mean(axis=-1, keepdims=True)) / root * np.abs(gain)
    return _of(centered / root * gain + bias, 16, size + np.abs(bias))


def gelu(i: Inputs) -> Truth:
    x = _wide(i.a)
    return _of(_gelu(x), 8, np.abs(x))


def gelu_erf(i: Inputs) -> Truth:
    x = _wide(i.a)
    return _of(x * 0.5 * _erfc(-x * math.sqrt(0.5)), 8, np.abs(x))


def silu_multiply(i: Inputs) -> Truth:
    gate, up = _wide(i.a), _wide(i.b)
    return _gated(gate * _logistic(gate), 8, gate, up)


def gelu_multiply(i: Inputs) -> Truth:
    gate, up = _wide(i.a), _wide(i.b)
    return _gated(_gelu(gate), 9, gate, up)


def softcap(i: Inputs) -> Truth:
    cap = _single(i.number)
    return _relative(np.tanh(_wide(i.a) / cap) * cap, 8)


def rope(i: Inputs) -> Truth:
    """One product rounded, the other in an fma: 2 roundings of the sum of both sizes."""
    x, pairs = _wide(i.a), i.pairs
    cos, sin = _wide(i.cos), _wide(i.sin)
    first, second = slice(0, pairs), slice(pairs, 2 * pairs)
    if i.interleaved:
        first, second = slice(0, 2 * pairs, 2), slice(1, 2 * pairs, 2)
    left, right = x[..., first], x[..., second]
    value, error = x.copy(), np.zeros_like(x)
    value[..., first] = left * cos - right * sin
    value[..., second] = right * cos + left * sin
    error[..., first] = np.abs(left * cos) + np.abs(right * sin)
    error[..., second] = np.abs(right * cos) + np.abs(left * sin)
    return Truth(value, error * 2 * U + (error > 0) * FLOOR)


ROWS: dict[str, RowTruth] = {
    "add": add,
    "scale": scale,
    "relu": relu,
    "rms_norm": rms_norm,
    "layer_norm": layer_norm,
    "plain_layer_norm": layer_norm,
    "head_layer_norm": layer_norm,
    "rope": rope,
    "rope_factors": rope,
    "gelu": gelu,
    "gelu_erf": gelu_erf,
    "silu_multiply": silu_multiply,
    "gelu_multiply": gelu_multiply,
    "softcap": softcap,
}


@dataclass(frozen=True)
class Stored:
    """A table: `values` rows × cols as its type decodes, `least` what is added in each block.

    An element is d·q + least; where a type has no minimum `least` is 0. `sums`: roundings that
    each 32 inputs add to a sum.
    """

    values: F32
    least: F32
    sums: int = 1
    blocks: bool = True
    kind: str = field(default="")


def products(x: F32, table: Stored) -> Truth:
    """x tableᵀ, n × rows.

    Block types: each activation is off by `ACTIVATION` of its block's greatest, and each addition
    rounds a sum of no more than Σ (|d·q| + |least|) |x|. Float types: additions alone.
    """
    wide, w = x.astype(np.float64), table.values.astype(np.float64)
    rows, cols = w.shape
    value = wide @ w.T
    if not table.blocks:
        return Truth(value, np.abs(wide) @ np.abs(w).T * (cols / 4 + 4) * U + FLOOR)
    least = table.least.astype(np.float64)
    sizes = np.abs(wide) @ (np.abs(w - least) + np.abs(least)).T
    greatest = np.abs(wide).reshape(len(x), -1, 32).max(axis=-1)
    moved = greatest @ np.abs(w).reshape(rows, -1, 32).sum(axis=-1).T * ACTIVATION
    # Below the normal float32 a block's scale is a multiple of 2^−149: a step of it, times q.
    flushed = (np.abs(w).sum(axis=-1) * 32640 * 2.0**-150)[None]
    return Truth(value, moved + sizes * (table.sums * cols / 32 + 6) * U + flushed + FLOOR)


def tile_products(x: F32, values: F32) -> Truth:
    """x valuesᵀ, n × rows, of inputs and weights that are already bf16.

    In float32, for each step of 32 inputs two sums of 16 terms, their sum, and its addition to what
    was there: (steps + 17) roundings of no more than Σ |x w|, and what is below the normal float32
    is 0 after each.
    """
    wide, w = x.astype(np.float64), values.astype(np.float64)
    steps = -(-x.shape[1] // 32)
    size = np.abs(wide) @ np.abs(w).T
    return Truth(wide @ w.T, size * (steps + 17) * U + (x.shape[1] + 2 * steps) * FLOOR)


@dataclass(frozen=True)
class Attention:
    """One query over a cache: q h × e, keys and values s × g × e as they are stored."""

    q: F32
    keys: F32
    values: F32
    scale: float
    softcap: float = 0.0
    window: int = 0
    slopes: F32 | None = None
    sinks: F32 | None = None


def attention(i: Attention, tiles: bool = False) -> Truth:
    """The mix of the values that the query at the last position sees, h × e.

    A score is off by (e/2 + 4) roundings of scale · Σ |q k| (after a soft cap also 8 of itself,
    after a slope 3 of the bias); a weight by its score's error and 8 roundings. The mix rounds
    once a position of a split and once a split. In `tiles` queries, keys, values and weights are
    rounded to bf16 besides, at most 2⁻⁸ of each.
    """
    h, e = i.q.shape
    s, g, _ = i.keys.shape
    first = max(0, s - i.window) if i.window else 0
    q = i.q.astype(np.float64).reshape(g, h // g, e)
    keys, values = (x[first:].astype(np.float64) for x in (i.keys, i.values))
    by = _single(i.scale)
    scores = np.einsum("gqe,sge->gqs", q, keys) * by
    off = np.einsum("gqe,sge->gqs", np.abs(q), np.abs(keys)) * abs(by) * (e / 2 + 4) * U
    if tiles:
        off *= 1 + 2 * BF16 / ((e / 2 + 4) * U)
    if i.softcap:
        cap = _single(i.softcap)
        scores = np.tanh(scores / cap) * cap
        off += np.abs(scores) * 8 * U
    if i.slopes is not None:
        bias = i.slopes.astype(np.float64).reshape(g, -1, 1) * np.arange(first - s + 1, 1)
        scores = scores + bias
        off += (np.abs(bias) + np.abs(scores)) * 3 * U
    most = scores.max(axis=-1, keepdims=True)
    off += np.abs(scores - most) * 2 * U + 8 * U
    sink = np.zeros((g, h // g, 1))
    if i.sinks is not None:
        sinks = i.sinks.astype(np.float64).reshape(g, -1, 1)
        most = np.maximum(most, sinks)
        sink = np.exp(sinks - most)
    weights = np.exp(scores - most)
    weights /= weights.sum(axis=-1, keepdims=True) + sink
    value = np.einsum("gqs,sge->gqe", weights, values)
    size = np.einsum("gqs,sge->gqe", weights, np.abs(values))
    moved = np.einsum("gqs,sge->gqe", weights * off, np.abs(values))
    moved += size * (weights * off).sum(axis=-1, keepdims=True)
    positions = s - first
    roundings = min(positions, 256) + positions // 256 + 8
    # The errors of weights are of first order only while small: 1.1 for the rest.
    error = 1.1 * moved + size * (roundings * U + (2.1 * BF16 if tiles else 0)) + FLOOR
    return Truth(value.reshape(h, e), error.reshape(h, e))


def excess(found: F32, truth: Truth) -> float:
    """The largest error as a share of what is allowed; infinite where a result is not finite.

    Where no error is allowed, the result must be the truth rounded to float32.
    """
    exact = truth.error == 0
    rounded = truth.value.astype(np.float32)
    if not np.array_equal(found[exact], rounded[exact]):
        return math.inf
    off = np.abs(found[~exact].astype(np.float64) - truth.value[~exact]) / truth.error[~exact]
    if not np.isfinite(off).all():
        return math.inf
    return float(off.max(initial=0.0))


def _wide(x: F32 | None) -> F64:
    assert x is not None
    return x.astype(np.float64)


def _single(number: float) -> float:
    return float(np.float32(number))


def _exact(value: F64) -> Truth:
    return Truth(value, np.zeros_like(value))


def _relative(value: F64, roundings: float) -> Truth:
    return _of(value, roundings, np.abs(value))


def _of(value: F64, roundings: float, size: F64) -> Truth:
    return Truth(value, size * roundings * U + FLOOR)


def _gated(activated: F64, roundings: float, gate: F64, up: F64) -> Truth:
    """activated × up; an activated gate below the normal float32 has steps of 2^−149."""
    error = np.abs(gate * up) * roundings * U + np.abs(up) * 2.0**-149 + FLOOR
    return Truth(activated * up, error)


def _logistic(x: F64) -> F64:
    small = np.exp(-np.abs(x))
    result: F64 = np.where(x < 0, small, 1.0) / (1 + small)
    return result


def _gelu(x: F64) -> F64:
    """½ x (1 + tanh u) = x · logistic(2u)."""
    return x * _logistic(2 * math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))


_erfc = np.vectorize(math.erfc, otypes=[np.float64])
