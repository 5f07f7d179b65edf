"""What the bytes of each block type mean, as float32.

One NumPy layout and one function a type. Products and sums are taken in float32 in the order
that ggml's dequantisation takes them, so results are equal to the last bit. `d` and `m` are
scale and minimum of a block; `q` are its unsigned integers.

Source of all block types: the structs of ggml/src/ggml-common.h and the `dequantize_row_*`
functions of ggml/src/ggml-quants.c in llama.cpp.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from forwardpass.dtypes import DType

Blocks = NDArray[np.void]
Bytes = NDArray[np.uint8]
Floats = NDArray[np.float32]

# Elements decoded together, so that what lies between bytes and floats stays in the L2 cache.
_CHUNK = 1 << 16


def can_decode(dtype: DType) -> bool:
    """Whether `decode` knows the type."""
    return dtype.name in DECODERS


def decode(dtype: DType, data: bytes | memoryview) -> Floats:
    """The elements of whole blocks as float32, in one axis.

    Bytes already stored as float32 are not copied where they are aligned. Infinite or NaN scales
    give infinite or NaN elements, without a warning.
    """
    layout, write = DECODERS[dtype.name]
    blocks = np.frombuffer(data, layout)
    if dtype.name == "f32":
        plain = blocks.astype(np.float32, copy=False)
        return plain if plain.flags.aligned else plain.copy()
    out = np.empty((len(blocks), dtype.block), np.float32)
    step = _CHUNK // dtype.block
    with np.errstate(all="ignore"):
        for start in range(0, len(blocks), step):
            write(blocks[start : start + step], out[start : start + step])
    return out.reshape(-1)


def _f32(blocks: Blocks, out: Floats) -> None:
    out[:, 0] = blocks


def _bf16(blocks: Blocks, out: Floats) -> None:
    """The upper 16 bits of a float32."""
    np.left_shift(blocks, 16, out=out.view(np.uint32)[:, 0], dtype=np.uint32)


def _q4_0(blocks: Blocks, out: Floats) -> None:
    """d f16, 16 bytes: element i in the low nibble of byte i, i + 16 in the high. d·(q - 8)"""
    out[...] = _nibbles(blocks["qs"]).reshape(-1, 32)
    out -= 8
    out *= _column(blocks["d"])


def _q4_1(blocks: Blocks, out: Floats) -> None:
    """d f16, m f16, 16 bytes as in q4_0. d·q + m"""
    out[...] = _nibbles(blocks["qs"]).reshape(-1, 32)
    out *= _column(blocks["d"])
    out += _column(blocks["m"])


def _q5_0(blocks: Blocks, out: Floats) -> None:
    """d f16, 32 fifth bits (bit i for element i), 16 bytes as in q4_0. d·(q - 16)"""
    q = _nibbles(blocks["qs"]).reshape(-1, 32)
    q |= np.unpackbits(blocks["qh"], axis=-1, bitorder="little") << 4
    out[...] = q
    out -= 16
    out *= _column(blocks["d"])


def _q8_0(blocks: Blocks, out: Floats) -> None:
    """d f16, 32 signed bytes. d·q"""
    out[...] = blocks["qs"]
    out *= _column(blocks["d"])


def _q4_k(blocks: Blocks, out: Floats) -> None:
    """d f16, dmin f16, 12 bytes of scales, 128 bytes. (d·scale)·q - dmin·min

    Each run of 32 bytes holds two groups of 32 elements, the first in its low nibbles, the
    second in its high ones. Each of the 8 groups has a scale and a min of 6 bits.
    """
    q = _nibbles(blocks["qs"].reshape(-1, 4, 32))
    _scaled_groups(blocks, q.reshape(-1, 8, 32), out)


def _q5_k(blocks: Blocks, out: Floats) -> None:
    """d f16, dmin f16, 12 bytes of scales, 32 bytes of fifth bits, 128 bytes; else as q4_k.

    Bit g of byte i is the fifth bit of element i in group g.
    """
    q = _nibbles(blocks["qs"].reshape(-1, 4, 32)).reshape(-1, 8, 32)
    q |= _fields(blocks["qh"].reshape(-1, 1, 32), bits=1).reshape(-1, 8, 32) << 4
    _scaled_groups(blocks, q, out)


def _q6_k(blocks: Blocks, out: Floats) -> None:
    """128 bytes of low 4 bits, 64 of high 2, 16 signed scales, d f16. (d·scale)·(q - 32)

    Each half of 128 elements: element i + 64 has the high nibble of the byte whose low nibble
    element i has; elements i, i + 32, i + 64, i + 96 share a byte of high bits, from the lowest
    up. A scale serves 16 elements.
    """
    q = _nibbles(blocks["ql"].reshape(-1, 2, 64)).reshape(-1, 256)
    q |= _fields(blocks["qh"].reshape(-1, 2, 32), bits=2).reshape(-1, 256) << 4
    out[...] = q
    out -= 32
    groups = out.reshape(-1, 16, 16)
    groups *= (_column(blocks["d"]) * blocks["scales"].astype(np.float32))[..., None]


def _column(half: NDArray[np.void]) -> Floats:
    """One float32 a block, as a column: (blocks, 1)."""
    return half.astype(np.float32)[:, None]


def _nibbles(packed: Bytes) -> Bytes:
    """Low nibbles, then high ones: (…, w) to (…, 2, w)."""
    return _fields(packed, bits=4)


def _fields(packed: Bytes, bits: int) -> Bytes:
    """The fields of `bits` bits of each byte, from the lowest up: (…, w) to (…, 8 / bits, w)."""
    shifts = np.arange(0, 8, bits, dtype=np.uint8)[:, None]
    fields: Bytes = packed[..., None, :] >> shifts
    fields &= (1 << bits) - 1
    return fields


def _scaled_groups(blocks: Blocks, q: Bytes, out: Floats) -> None:
    """(d·scale)·q - dmin·min for 8 groups of 32 elements.

    The 12 bytes of scales: the low 6 bits of bytes 0-3 and 4-7 are scales and mins of groups
    0-3. Groups 4-7 have their low 4 bits in the nibbles of bytes 8-11 (scale low, min high),
    their high 2 bits at the top of bytes 0-3 and 4-7.
    """
    first, second, third = np.moveaxis(blocks["scales"].reshape(-1, 3, 4), 1, 0)
    scale = np.concatenate((first & 63, third & 15 | first >> 6 << 4), axis=1)
    least = np.concatenate((second & 63, third >> 4 | second >> 6 << 4), axis=1)
    groups = out.reshape(-1, 8, 32)
    groups[...] = q
    groups *= (_column(blocks["d"]) * scale.astype(np.float32))[..., None]
    groups -= (_column(blocks["dmin"]) * least.astype(np.float32))[..., None]


def _layout(**fields: str) -> np.dtype[Any]:
    return np.dtype(list(fields.items()))


DECODERS: dict[str, tuple[np.dtype[Any], Callable[[Blocks, Floats], None]]] = {
    "f32": (np.dtype("<f4"), _f32),
    "f16": (np.dtype("<f2"), _f32),
    "bf16": (np.dtype("<u2"), _bf16),
    "q4_0": (_layout(d="<f2", qs="16u1"), _q4_0),
    "q4_1": (_layout(d="<f2", m="<f2", qs="16u1"), _q4_1),
    "q5_0": (_layout(d="<f2", qh="4u1", qs="16u1"), _q5_0),
    "q8_0": (_layout(d="<f2", qs="32i1"), _q8_0),
    "q4_k": (_layout(d="<f2", dmin="<f2", scales="12u1", qs="128u1"), _q4_k),
    "q5_k": (_layout(d="<f2", dmin="<f2", scales="12u1", qh="32u1", qs="128u1"), _q5_k),
    "q6_k": (_layout(ql="128u1", qh="64u1", scales="16i1", d="<f2"), _q6_k),
}
