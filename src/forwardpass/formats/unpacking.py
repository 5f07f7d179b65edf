"""What the bits of packed tables mean, as float32; see `packings.py` for their parts.

Integers are exact, so each element is rounded at most twice: at its product, and where a bias is
added. Words are little-endian; `q` are unsigned integers of 4 or 8 bits.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from forwardpass.errors import FormatError
from forwardpass.formats.source import quoted
from forwardpass.formats.tensors import StoredTensor

Parts = Mapping[str, StoredTensor]
Floats = NDArray[np.float32]
Words = NDArray[np.uint32]

_SHIFTS = np.arange(0, 32, 4, dtype=np.uint32)
# Where the eight fields of an AWQ word, from the lowest up, belong among eight outputs:
# even outputs first. The inverse says which field an output has.
_AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)
_AWQ_FIELD = np.argsort(_AWQ_ORDER)
# FP4 E2M1: sign, two bits of exponent with bias 1, one of mantissa.
_FP4 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6], np.float32)


def mlx(parts: Parts, bits: int, group: int, start: int, stop: int) -> Floats:
    """q·scale + bias. The first element of a row has the lowest bits of its first word."""
    packed = _words(parts["weight"])[start:stop]
    q = np.ascontiguousarray(packed).view(np.uint8)
    if bits == 4:
        q = np.stack((q & 15, q >> 4), axis=-1)
    values = q.reshape(*packed.shape[:-1], -1, group).astype(np.float32)
    with np.errstate(all="ignore"):
        values *= parts["scales"].rows(start, stop)[..., None]
        values += parts["biases"].rows(start, stop)[..., None]
    return values.reshape(*packed.shape[:-1], -1)


def awq(parts: Parts, group: int, start: int, stop: int) -> Floats:
    """(q - zero)·scale, stored as inputs × outputs."""
    first, last = start // 8, -(-stop // 8)
    columns = slice(8 * first, 8 * last)
    q = _fields(_words(parts["qweight"])[:, first:last])[..., _AWQ_FIELD]
    zeros = _fields(_words(parts["qzeros"])[:, first:last])[..., _AWQ_FIELD]
    inputs = len(q)
    values = q.reshape(inputs, -1).astype(np.float32)
    values -= np.repeat(zeros.reshape(len(zeros), -1), group, axis=0)
    with np.errstate(all="ignore"):
        values *= np.repeat(parts["scales"].numpy()[:, columns], group, axis=0)
    return np.ascontiguousarray(values[:, start - 8 * first : stop - 8 * first].T)


def gptq(
    parts: Parts, group: int, ordered: bool, zero_offset: int, start: int, stop: int
) -> Floats:
    """(q - zero)·scale, each input with zero and scale of its group, stored as inputs × outputs.

    Zeros have 4 bits also after the offset was added: 15 + 1 is 0.
    """
    first, last = start // 8, -(-stop // 8)
    inside = slice(start - 8 * first, stop - 8 * first)
    q = np.moveaxis(_fields(_words(parts["qweight"])[:, start:stop]), -1, 1)
    values = q.reshape(-1, stop - start).astype(np.float32)
    fields = _fields(_words(parts["qzeros"])[:, first:last])
    zeros = (fields.reshape(len(fields), -1)[:, inside] + np.uint8(zero_offset)) & 15
    groups = _groups(parts, len(values), group, ordered)
    values -= zeros[groups]
    with np.errstate(all="ignore"):
        values *= parts["scales"].numpy()[groups, start:stop]
    return np.ascontiguousarray(values.T)


def scaled(
    parts: Parts, shape: tuple[int, ...], tile: tuple[int, int], start: int, stop: int
) -> Floats:
    """w·scale, the scale that of the element's tile."""
    rows, columns = np.arange(start, stop) // tile[0], np.arange(shape[1]) // tile[1]
    scale = parts["scale"].numpy().reshape(-(-shape[0] // tile[0]), -(-shape[1] // tile[1]))
    with np.errstate(all="ignore"):
        product: Floats = parts["weight"].rows(start, stop) * scale[rows][:, columns]
    return product


def mxfp4(parts: Parts, shape: tuple[int, ...], start: int, stop: int) -> Floats:
    """2**(scale - 127)·fp4; a byte holds two neighbors, the first in its low nibble."""
    packed = _bytes(parts["blocks"])[start:stop]
    fields = np.stack((packed & 15, packed >> 4), axis=-1)
    values = _FP4[fields.reshape(*packed.shape[:-1], 32)]
    exponents = _bytes(parts["scales"])[start:stop].astype(np.int32) - 127
    with np.errstate(all="ignore"):
        values = np.ldexp(values, exponents[..., None])
    return values.reshape(stop - start, *shape[1:])


def _groups(parts: Parts, inputs: int, group: int, ordered: bool) -> NDArray[np.int64]:
    """The group of each input."""
    plain = np.arange(inputs) // group
    tensor = parts.get("g_idx")
    if tensor is None:
        return plain
    found = np.frombuffer(tensor.raw(), "<i4").astype(np.int64)
    count = parts["scales"].shape[0]
    where = f"{tensor.source.name}: {quoted(tensor.name)}"
    if found.size and not 0 <= found.min() <= found.max() < count:
        wrong = found[(found < 0) | (found >= count)][0]
        raise FormatError(f"{where} names group {wrong}, there are {count}")
    if not ordered and not np.array_equal(found, plain):
        raise FormatError(
            f"{where} reorders the inputs, and desc_act is false",
            "readers that believe the one and the other give different answers",
        )
    return found


def _words(tensor: StoredTensor) -> Words:
    return np.frombuffer(tensor.raw(), "<u4").reshape(tensor.shape)


def _bytes(tensor: StoredTensor) -> NDArray[np.uint8]:
    return np.frombuffer(tensor.raw(), np.uint8).reshape(tensor.shape)


def _fields(words: Words) -> NDArray[np.uint8]:
    """The eight fields of 4 bits of each word, from the lowest up, as a last axis."""
    return (words[..., None] >> _SHIFTS & 15).astype(np.uint8)
