"""Random tables of every packed type, as a file stores them, and what they mean."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from forwardpass.dtypes import DTYPES
from forwardpass.formats import blocks
from kernels.truths import F32, Stored

Bytes = npt.NDArray[np.uint8]
Halves = npt.NDArray[np.uint16]

FLOATS = ("f32", "f16", "bf16")
BLOCKS = ("q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "q4_k", "q5_k", "q6_k")
MLX = ("mlx4_f16", "mlx4_bf16")
TYPES = (*FLOATS, *BLOCKS, *MLX)
MLX_GROUPS = (32, 64, 128)

# Finite f16: both zeros, the least and greatest subnormal and normal of both signs.
EXTREMES = np.array(
    [s | m for s in (0, 0x8000) for m in (0, 1, 0x3FF, 0x400, 0x3C00, 0x7BFF)], np.uint16
)
_WIDE_EXTREMES = np.array(
    [s | m for s in (0, 1 << 31) for m in (0, 1, 0x7FFFFF, 0x800000, 0x3F800000, 0x7F7FFFFF)],
    np.uint32,
)


@dataclass(frozen=True)
class Table:
    """A table of rows × cols: `data` as a file has it; for MLX also its 16-bit halves.

    `data` of MLX are its words; `scales` and `biases` are rows × cols/group.
    """

    kind: str
    rows: int
    cols: int
    data: Bytes
    meaning: Stored
    group: int = 0
    scales: Halves | None = None
    biases: Halves | None = None


def block_of(kind: str) -> int:
    """Inputs that a stored block has: columns come in multiples of it."""
    return 32 if kind in MLX else DTYPES[kind].block


def widths(kind: str) -> tuple[int, ...]:
    """Columns that the tests use: as odd as the type allows."""
    if kind in FLOATS:
        return (1, 7, 32, 33, 96, 288)
    return (256, 512, 768) if block_of(kind) == 256 else (32, 96, 256, 288)


def random_table(
    kind: str, rows: int, cols: int, rng: np.random.Generator, *, extreme: bool = False
) -> Table:
    """Random bytes with scales of a model's size; `extreme`: at the ends of what f16 can hold."""
    if kind in MLX:
        return _mlx(kind, rows, cols, rng, extreme)
    if kind in FLOATS:
        values = _floats(kind, rows * cols, rng, extreme)
        means = decoded(kind, values.view(np.uint8)).reshape(rows, cols)
        meaning = Stored(means, np.zeros_like(means), blocks=False)
        return Table(kind, rows, cols, values.view(np.uint8), meaning)
    layout, _ = blocks.DECODERS[kind]
    count = rows * cols // block_of(kind)
    data = np.frombuffer(rng.bytes(count * layout.itemsize), layout).copy()
    for name in ("d", "m", "dmin"):
        if name in (layout.names or ()):
            data[name] = _halves(count, rng, extreme, 0.3 if name == "m" else 0.02)
    return Table(kind, rows, cols, data.view(np.uint8), meaning_of(kind, data.view(np.uint8), cols))


def meaning_of(kind: str, data: Bytes, cols: int) -> Stored:
    """What stored blocks mean; what is added in each is what stays where the scale is 0."""
    layout, _ = blocks.DECODERS[kind]
    values = decoded(kind, data).reshape(-1, cols)
    without = data.view(layout).copy()
    without["d"] = 0
    least = decoded(kind, without.view(np.uint8)).reshape(-1, cols)
    sums = 2 if kind in ("q4_1", "q5_1", "q4_k", "q5_k", "q6_k") else 1
    return Stored(values, least, sums, kind=kind)


def decoded(kind: str, data: Bytes) -> F32:
    """The elements of stored blocks, in one axis."""
    return blocks.decode(DTYPES[kind], data.tobytes())


def _halves(
    count: int, rng: np.random.Generator, extreme: bool, size: float
) -> npt.NDArray[np.float16]:
    if extreme:
        return rng.choice(EXTREMES, count).view(np.float16)
    return (rng.normal(size=count) * size).astype(np.float16)


def _floats(
    kind: str, count: int, rng: np.random.Generator, extreme: bool
) -> npt.NDArray[np.generic]:
    if kind == "f16":
        return _halves(count, rng, extreme, 0.1)
    if extreme:
        wide = rng.choice(_WIDE_EXTREMES, count)
    else:
        wide = rng.normal(size=count).astype(np.float32).view(np.uint32)
    return wide.view(np.float32) if kind == "f32" else (wide >> 16).astype(np.uint16)


def _mlx(kind: str, rows: int, cols: int, rng: np.random.Generator, extreme: bool) -> Table:
    group = max(g for g in MLX_GROUPS if cols % g == 0)
    words = rng.integers(0, 1 << 32, (rows, cols // 8), np.uint32)
    q = (words[..., None] >> np.arange(0, 32, 4, dtype=np.uint32) & 15).reshape(rows, cols)
    count = rows * cols // group
    if kind == "mlx4_f16":
        halves = [_halves(count, rng, extreme, size).view(np.uint16) for size in (0.02, 0.3)]
        wide = [half.view(np.float16).astype(np.float32) for half in halves]
    else:
        halves = [np.asarray(_floats("bf16", count, rng, extreme), np.uint16) for _ in range(2)]
        halves = [
            np.where(half & 0x7F80 > 0x7800, 0x3F80, half).astype(np.uint16) for half in halves
        ]
        wide = [(half.astype(np.uint32) << 16).view(np.float32) for half in halves]
    scales, biases = (np.repeat(x.reshape(rows, -1), group, axis=-1) for x in wide)
    values = q.astype(np.float32) * scales + biases
    meaning = Stored(values, biases.copy(), 2, kind=kind)
    shape = (rows, cols // group)
    data = words.reshape(-1).view(np.uint8)
    return Table(
        kind, rows, cols, data, meaning, group, halves[0].reshape(shape), halves[1].reshape(shape)
    )
