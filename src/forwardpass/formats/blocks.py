"""What the bytes of each element and block type mean, as float32.

One NumPy layout and one function a type. Products and sums are taken in float32 in the order
that ggml's dequantisation takes them, so results are equal to the last bit. `d` and `m` are
scale and minimum of a block; `q` are its unsigned integers.

Source of all block types: the structs of ggml/src/ggml-common.h and the `dequantize_row_*`
functions of ggml/src/ggml-quants.c in llama.cpp. FP8: arXiv:2209.05433, table 1. FP4 (E2M1) and
E8M0: the OCP specification of microscaling formats (MX) 1.0, section 5.
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

# The levels of iq4_nl and iq4_xs (`kvalues_iq4nl`).
_LEVELS = np.array(
    [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], np.float32
)
# The 16 values of an FP4 E2M1, doubled; ggml has no negative zero.
_FP4_TWICE = np.array([0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12], np.float32)
_POWERS_OF_3 = np.array([1, 3, 9, 27, 81], np.uint8)[:, None]


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


def _f8_e4m3(blocks: Blocks, out: Floats) -> None:
    """Sign, 4 bits of exponent with bias 7, 3 of mantissa; 127 and 255 are NaN, none is infinite.

    Seven bits further up these are the fields of an f16, whose bias is 8 more.
    """
    bits = blocks.astype(np.uint16)
    half = ((bits & 0x80) << 8 | (bits & 0x7F) << 7).view(np.float16)
    np.multiply(half, np.float32(256), out=out[:, 0])
    out[bits & 0x7F == 0x7F, 0] = np.nan


def _f8_e5m2(blocks: Blocks, out: Floats) -> None:
    """The upper 8 bits of an f16."""
    out[:, 0] = (blocks.astype(np.uint16) << 8).view(np.float16)


def _f8_e8m0(blocks: Blocks, out: Floats) -> None:
    """2**(e - 127); 255 is NaN."""
    out[:, 0] = np.ldexp(np.float32(1), blocks.astype(np.int32) - 127)
    out[blocks == 255, 0] = np.nan


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


def _q5_1(blocks: Blocks, out: Floats) -> None:
    """d f16, m f16, 32 fifth bits and 16 bytes as in q5_0. d·q + m"""
    q = _nibbles(blocks["qs"]).reshape(-1, 32)
    q |= np.unpackbits(blocks["qh"], axis=-1, bitorder="little") << 4
    out[...] = q
    out *= _column(blocks["d"])
    out += _column(blocks["m"])


def _q8_0(blocks: Blocks, out: Floats) -> None:
    """d f16, 32 signed bytes. d·q

    In q8_1 and q8_k sums of the q stand beside them, which only integer products need; the d of
    q8_k is a float32 and serves 256.
    """
    out[...] = blocks["qs"]
    out *= _column(blocks["d"])


def _q2_k(blocks: Blocks, out: Floats) -> None:
    """16 bytes of scale (low nibble) and min (high), 64 bytes, d f16, dmin f16.

    (d·scale)·q - dmin·min. Each run of 32 bytes holds 128 elements: element i + 32·k has bits
    2k and 2k + 1 of byte i. A scale and a min serve 16 elements.
    """
    groups = out.reshape(-1, 16, 16)
    groups[...] = _fields(blocks["qs"].reshape(-1, 2, 32), bits=2).reshape(-1, 16, 16)
    scale, least = np.moveaxis(_nibbles(blocks["scales"]), 1, 0).astype(np.float32)
    groups *= (_column(blocks["d"]) * scale)[..., None]
    groups -= (_column(blocks["dmin"]) * least)[..., None]


def _q3_k(blocks: Blocks, out: Floats) -> None:
    """32 bytes of third bits, 64 bytes as in q2_k, 12 bytes of scales, d f16. (d·(s - 32))·(q - 4)

    Bit k of byte i is the third bit of element i + 32·k. Scales have 6 bits, one for 16 elements:
    the low 4 in the nibbles of bytes 0-7 (all low ones first), the high 2 in bytes 8-11, which
    hold those of scales i, i + 4, i + 8, i + 12 from the lowest bits up.
    """
    q = _fields(blocks["qs"].reshape(-1, 2, 32), bits=2).reshape(-1, 256)
    q |= _fields(blocks["hmask"].reshape(-1, 1, 32), bits=1).reshape(-1, 256) << 2
    scale = _nibbles(blocks["scales"][:, :8]).reshape(-1, 16)
    scale |= _fields(blocks["scales"][:, 8:], bits=2).reshape(-1, 16) << 4
    out[...] = q
    out -= 4
    groups = out.reshape(-1, 16, 16)
    groups *= (_column(blocks["d"]) * (scale.astype(np.float32) - 32))[..., None]


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


def _iq4_nl(blocks: Blocks, out: Floats) -> None:
    """d f16, 16 bytes as in q4_0, whose nibbles are places in a table of levels. d·level"""
    _LEVELS.take(_nibbles(blocks["qs"]).reshape(-1, 32), out=out, mode="clip")
    out *= _column(blocks["d"])


def _iq4_xs(blocks: Blocks, out: Floats) -> None:
    """d f16, 8 × 2 high bits of scales in a u16, 8 × 4 low ones in 4 bytes, 128 bytes.

    (d·(scale - 32))·level, a scale for each 32 elements, which are stored as in iq4_nl.
    """
    high = blocks["scales_h"][:, None] >> np.arange(0, 16, 2, dtype=np.uint16) & 3
    low = _nibbles(blocks["scales_l"][..., None]).reshape(-1, 8)
    scale = (low | high << 4).astype(np.float32) - 32
    groups = out.reshape(-1, 8, 32)
    q = _nibbles(blocks["qs"].reshape(-1, 8, 16)).reshape(-1, 8, 32)
    _LEVELS.take(q, out=groups, mode="clip")
    groups *= (_column(blocks["d"]) * scale)[..., None]


def _tq1_0(blocks: Blocks, out: Floats) -> None:
    """48 bytes of five digits to the base 3, 4 of four, d f16. d·(digit - 1)

    A byte is its digits as a fraction of 256, rounded up: times 3**k modulo 256, digit k is the
    whole part of 3 times what then is left. Byte i of a run of w holds elements i + w·k; the runs
    have 32, 16 and 4 bytes.
    """
    qs, start = blocks["qs"], 0
    for run, digits in ((qs[:, :32], 5), (qs[:, 32:48], 5), (qs[:, 48:], 4)):
        left = (run[:, None] * _POWERS_OF_3[:digits]).astype(np.uint16)
        end = start + digits * run.shape[1]
        out[:, start:end] = (3 * left >> 8).reshape(-1, end - start)
        start = end
    out -= 1
    out *= _column(blocks["d"])


def _tq2_0(blocks: Blocks, out: Floats) -> None:
    """64 bytes as in q2_k, d f16. d·(q - 1)"""
    out[...] = _fields(blocks["qs"].reshape(-1, 2, 32), bits=2).reshape(-1, 256)
    out -= 1
    out *= _column(blocks["d"])


def _mxfp4(blocks: Blocks, out: Floats) -> None:
    """A shared exponent e, 16 bytes of FP4 as in q4_0. 2**(e - 127)·fp4"""
    _FP4_TWICE.take(_nibbles(blocks["qs"]).reshape(-1, 32), out=out, mode="clip")
    out *= np.ldexp(np.float32(1), blocks["e"].astype(np.int32) - 128)[:, None]


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
    "f64": (np.dtype("<f8"), _f32),
    "f32": (np.dtype("<f4"), _f32),
    "f16": (np.dtype("<f2"), _f32),
    "bf16": (np.dtype("<u2"), _bf16),
    "i64": (np.dtype("<i8"), _f32),
    "i32": (np.dtype("<i4"), _f32),
    "i16": (np.dtype("<i2"), _f32),
    "i8": (np.dtype("i1"), _f32),
    "f8_e4m3": (np.dtype("u1"), _f8_e4m3),
    "f8_e5m2": (np.dtype("u1"), _f8_e5m2),
    "f8_e8m0": (np.dtype("u1"), _f8_e8m0),
    "q4_0": (_layout(d="<f2", qs="16u1"), _q4_0),
    "q4_1": (_layout(d="<f2", m="<f2", qs="16u1"), _q4_1),
    "q5_0": (_layout(d="<f2", qh="4u1", qs="16u1"), _q5_0),
    "q5_1": (_layout(d="<f2", m="<f2", qh="4u1", qs="16u1"), _q5_1),
    "q8_0": (_layout(d="<f2", qs="32i1"), _q8_0),
    "q8_1": (_layout(d="<f2", s="<f2", qs="32i1"), _q8_0),
    "q2_k": (_layout(scales="16u1", qs="64u1", d="<f2", dmin="<f2"), _q2_k),
    "q3_k": (_layout(hmask="32u1", qs="64u1", scales="12u1", d="<f2"), _q3_k),
    "q4_k": (_layout(d="<f2", dmin="<f2", scales="12u1", qs="128u1"), _q4_k),
    "q5_k": (_layout(d="<f2", dmin="<f2", scales="12u1", qh="32u1", qs="128u1"), _q5_k),
    "q6_k": (_layout(ql="128u1", qh="64u1", scales="16i1", d="<f2"), _q6_k),
    "q8_k": (_layout(d="<f4", qs="256i1", bsums="16<i2"), _q8_0),
    "iq4_nl": (_layout(d="<f2", qs="16u1"), _iq4_nl),
    "iq4_xs": (_layout(d="<f2", scales_h="<u2", scales_l="4u1", qs="128u1"), _iq4_xs),
    "tq1_0": (_layout(qs="52u1", d="<f2"), _tq1_0),
    "tq2_0": (_layout(qs="64u1", d="<f2"), _tq2_0),
    "mxfp4": (_layout(e="u1", qs="16u1"), _mxfp4),
}
