"""Packs tables the way AWQ, GPTQ and FP8 checkpoints store them, one number at a time.

Written from the descriptions of the formats, in the other direction than the program: each value
is put where it belongs. Tables are outputs × inputs, `q` and `zeros` whole numbers below 16.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

F32 = NDArray[np.float32]
Ints = NDArray[np.int64]

# AutoAWQ: the i-th field of a word, from the lowest bits up, holds this one of eight outputs.
AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)


class Grouped(NamedTuple):
    """A table of 4-bit numbers: element (o, i) is (q - zero)·scale of group `groups[i]`."""

    q: Ints  # outputs × inputs
    zeros: Ints  # groups × outputs
    scales: NDArray[np.float16]  # groups × outputs
    groups: Ints  # one an input

    def values(self) -> F32:
        """What the table stands for."""
        zeros, scales = self.zeros[self.groups].T, self.scales[self.groups].T
        return ((self.q - zeros) * scales.astype(np.float64)).astype(np.float32)


def grouped(table: F32, groups: Ints) -> Grouped:
    """The table rounded to 16 levels for each group of inputs and each output."""
    count = int(groups.max()) + 1
    shape = (count, len(table))
    zeros, scales = np.zeros(shape, np.int64), np.zeros(shape, np.float16)
    q = np.zeros(table.shape, np.int64)
    for group in range(count):
        inside = groups == group
        low = np.minimum(table[:, inside].min(axis=1), 0)
        high = np.maximum(table[:, inside].max(axis=1), 0)
        scale = ((high - low) / 15).astype(np.float16)
        scales[group] = scale
        zeros[group] = np.clip(np.rint(-low / scale), 1, 15)
        rounded = np.rint(table[:, inside] / scale[:, None]) + zeros[group][:, None]
        q[:, inside] = np.clip(rounded, 0, 15)
    return Grouped(q, zeros, scales, groups)


def as_awq(table: Grouped) -> dict[str, NDArray[np.generic]]:
    """qweight, qzeros and scales as AutoAWQ's gemm version has them."""
    return {
        "qweight": _awq_words(table.q.T),
        "qzeros": _awq_words(table.zeros),
        "scales": table.scales,
    }


def _awq_words(rows: Ints) -> NDArray[np.int32]:
    words = np.zeros((len(rows), rows.shape[1] // 8), np.uint32)
    for row in range(len(rows)):
        for word in range(words.shape[1]):
            for field, output in enumerate(AWQ_ORDER):
                words[row, word] |= np.uint32(int(rows[row, 8 * word + output]) << 4 * field)
    return words.view(np.int32)


def as_gptq(table: Grouped, zero_offset: int = 1) -> dict[str, NDArray[np.generic]]:
    """qweight, qzeros, scales and g_idx; the first format stores zeros less 1."""
    outputs, inputs = table.q.shape
    qweight = np.zeros((inputs // 8, outputs), np.uint32)
    for i in range(inputs):
        for output in range(outputs):
            qweight[i // 8, output] |= np.uint32(int(table.q[output, i]) << 4 * (i % 8))
    qzeros = np.zeros((len(table.zeros), outputs // 8), np.uint32)
    for group in range(len(table.zeros)):
        for output in range(outputs):
            zero = int(table.zeros[group, output]) - zero_offset
            qzeros[group, output // 8] |= np.uint32(zero << 4 * (output % 8))
    return {
        "qweight": qweight.view(np.int32),
        "qzeros": qzeros.view(np.int32),
        "scales": table.scales,
        "g_idx": table.groups.astype(np.int32),
    }
