"""Each decoder against a plain loop over elements that follows the published layout."""

from __future__ import annotations

import math
import random
import struct
from collections.abc import Callable

import numpy as np
import pytest

from forwardpass.dtypes import DTYPES
from forwardpass.formats import blocks


def half(data: bytes, at: int) -> float:
    return float(struct.unpack_from("<e", data, at)[0])


def nibble(data: bytes, i: int) -> int:
    """Element i of 32 in 16 bytes: the low nibbles come first."""
    return data[i % 16] >> 4 * (i // 16) & 15


def k_scale_and_min(s: bytes, group: int) -> tuple[int, int]:
    if group < 4:
        return s[group] & 63, s[group + 4] & 63
    low = s[group + 4]
    return low & 15 | s[group - 4] >> 6 << 4, low >> 4 | s[group] >> 6 << 4


def k_element(data: bytes, i: int, low: int, fifth: int) -> float:
    scale, least = k_scale_and_min(data[4:16], i // 32)
    q = low | fifth << 4
    return half(data, 0) * scale * q - half(data, 2) * least


def k_nibble(data: bytes, i: int) -> int:
    run, high, byte = i // 64, i // 32 % 2, i % 32
    return data[32 * run + byte] >> 4 * high & 15


def q6_k_element(data: bytes, i: int) -> float:
    part, place = divmod(i, 128)
    low = data[64 * part + place % 64] >> 4 * (place // 64) & 15
    high = data[128 + 32 * part + place % 32] >> 2 * (place // 32) & 3
    scale = int.from_bytes(data[192 + i // 16 :][:1], signed=True)
    return half(data, 208) * scale * ((low | high << 4) - 32)


def f8_e4m3(data: bytes, i: int) -> float:
    exponent, mantissa = data[0] >> 3 & 15, data[0] & 7
    if exponent == 15 and mantissa == 7:
        return math.nan
    size = mantissa / 8 * 2**-6 if not exponent else (1 + mantissa / 8) * 2.0 ** (exponent - 7)
    return math.copysign(size, -1 if data[0] >> 7 else 1)


def f8_e5m2(data: bytes, i: int) -> float:
    exponent, mantissa = data[0] >> 2 & 31, data[0] & 3
    if exponent == 31:
        size = math.nan if mantissa else math.inf
    else:
        size = (
            mantissa / 4 * 2**-14 if not exponent else (1 + mantissa / 4) * 2.0 ** (exponent - 15)
        )
    return math.copysign(size, -1 if data[0] >> 7 else 1)


def two_bits(data: bytes, i: int) -> int:
    """Element i of 256 in 64 bytes, 128 elements in each run of 32."""
    return data[32 * (i // 128) + i % 32] >> 2 * (i % 128 // 32) & 3


def q2_k_element(data: bytes, i: int) -> float:
    both = data[i // 16]
    return half(data, 80) * (both & 15) * two_bits(data[16:80], i) - half(data, 82) * (both >> 4)


def q3_k_element(data: bytes, i: int) -> float:
    q = two_bits(data[32:96], i) | (data[i % 32] >> i // 32 & 1) << 2
    scales, group = data[96:108], i // 16
    low = scales[group % 8] >> 4 * (group // 8) & 15
    high = scales[8 + group % 4] >> 2 * (group // 4) & 3
    return half(data, 108) * ((low | high << 4) - 32) * (q - 4)


def iq4_xs_element(data: bytes, i: int) -> float:
    group = i // 32
    high = int.from_bytes(data[2:4], "little") >> 2 * group & 3
    low = data[4 + group // 2] >> 4 * (group % 2) & 15
    return (
        half(data, 0)
        * ((low | high << 4) - 32)
        * IQ4_LEVELS[nibble(data[8 + 16 * group :], i % 32)]
    )


def tq1_0_element(data: bytes, i: int) -> float:
    if i < 160:
        byte, digit = data[i % 32], i // 32
    elif i < 240:
        byte, digit = data[32 + (i - 160) % 16], (i - 160) // 16
    else:
        byte, digit = data[48 + (i - 240) % 4], (i - 240) // 4
    power = int(3**digit)
    return half(data, 52) * ((byte * power % 256 * 3 >> 8) - 1)


def mxfp4_element(data: bytes, i: int) -> float:
    q = nibble(data[1:], i)
    exponent, mantissa = q >> 1 & 3, q & 1
    size = mantissa / 2 if not exponent else (1 + mantissa / 2) * 2 ** (exponent - 1)
    return (-size if q > 8 else size) * 2.0 ** (data[0] - 127)


# Levels that lie closer together near zero.
IQ4_LEVELS = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)

ELEMENT: dict[str, Callable[[bytes, int], float]] = {
    "f32": lambda b, i: float(struct.unpack("<f", b)[0]),
    "f16": lambda b, i: half(b, 0),
    "bf16": lambda b, i: float(struct.unpack("<f", b"\0\0" + b)[0]),
    "q4_0": lambda b, i: half(b, 0) * (nibble(b[2:], i) - 8),
    "q4_1": lambda b, i: half(b, 0) * nibble(b[4:], i) + half(b, 2),
    "q5_0": lambda b, i: half(b, 0) * ((nibble(b[6:], i) | (b[2 + i // 8] >> i % 8 & 1) << 4) - 16),
    "q5_1": lambda b, i: (
        half(b, 0) * (nibble(b[8:], i) | (b[4 + i // 8] >> i % 8 & 1) << 4) + half(b, 2)
    ),
    "q8_0": lambda b, i: half(b, 0) * float(struct.unpack_from("<b", b, 2 + i)[0]),
    "q8_1": lambda b, i: half(b, 0) * float(struct.unpack_from("<b", b, 4 + i)[0]),
    "q8_k": lambda b, i: (
        float(struct.unpack_from("<f", b)[0]) * float(struct.unpack_from("<b", b, 4 + i)[0])
    ),
    "q2_k": q2_k_element,
    "q3_k": q3_k_element,
    "q4_k": lambda b, i: k_element(b, i, k_nibble(b[16:], i), 0),
    "q5_k": lambda b, i: k_element(b, i, k_nibble(b[48:], i), b[16 + i % 32] >> i // 32 & 1),
    "q6_k": q6_k_element,
    "iq4_nl": lambda b, i: half(b, 0) * IQ4_LEVELS[nibble(b[2:], i)],
    "iq4_xs": iq4_xs_element,
    "tq1_0": tq1_0_element,
    "tq2_0": lambda b, i: half(b, 64) * (two_bits(b, i) - 1),
    "mxfp4": mxfp4_element,
    "f64": lambda b, i: float(struct.unpack("<d", b)[0]),
    "i64": lambda b, i: float(struct.unpack("<q", b)[0]),
    "i32": lambda b, i: float(struct.unpack("<i", b)[0]),
    "i16": lambda b, i: float(struct.unpack("<h", b)[0]),
    "i8": lambda b, i: float(struct.unpack("<b", b)[0]),
    "f8_e4m3": f8_e4m3,
    "f8_e5m2": f8_e5m2,
    "f8_e8m0": lambda b, i: 2.0 ** (b[0] - 127) if b[0] < 255 else math.nan,
}

# Where a block's f16 numbers are.
HALVES = {
    **dict.fromkeys(ELEMENT, ()),
    **dict.fromkeys(("f16", "q4_0", "q5_0", "q8_0", "q8_1", "iq4_nl", "iq4_xs"), (0,)),
    **dict.fromkeys(("q4_1", "q5_1", "q4_k", "q5_k"), (0, 2)),
    "q2_k": (80, 82),
    "q3_k": (108,),
    "q6_k": (208,),
    "tq1_0": (52,),
    "tq2_0": (64,),
}
# Where the numbers of a block are none (NaN) when all its bits are set.
NOT_FINITE = {name for name, at in HALVES.items() if at} | {
    *("f32", "bf16", "f64", "q8_k", "f8_e4m3", "f8_e5m2", "f8_e8m0")
}


def random_blocks(name: str, count: int, rng: random.Random) -> bytes:
    """Random bytes with scales that are multiples of 2**-10 below 1, so plain sums are exact."""
    data = bytearray(rng.randbytes(count * DTYPES[name].bytes))
    for block in range(count):
        for at in HALVES[name]:
            scale = rng.randrange(-1023, 1024) / 1024
            struct.pack_into("<e", data, block * DTYPES[name].bytes + at, scale)
    if name in ("f32", "bf16", "f64"):  # no NaN, which is unequal to itself
        data[DTYPES[name].bytes - 1 :: DTYPES[name].bytes] = bytes([62]) * count
    if name == "q8_k":
        for block in range(count):
            scale = rng.randrange(-1023, 1024) / 1024
            struct.pack_into("<f", data, block * DTYPES[name].bytes, scale)
    if name == "mxfp4":  # neither too small nor too large for a float32
        data[:: DTYPES[name].bytes] = bytes(rng.randrange(2, 250) for _ in range(count))
    return bytes(data)


@pytest.mark.parametrize("name", ELEMENT)
def test_every_element_is_what_a_plain_reading_of_its_block_says(name: str) -> None:
    dtype = DTYPES[name]
    data = random_blocks(name, 20, random.Random(1))
    plain = [
        ELEMENT[name](data[at : at + dtype.bytes], i)
        for at in range(0, len(data), dtype.bytes)
        for i in range(dtype.block)
    ]
    decoded = blocks.decode(dtype, data)
    assert decoded.dtype == np.float32
    np.testing.assert_array_equal(decoded, np.array(plain, np.float32))


def test_every_type_that_can_be_decoded_is_tested_here() -> None:
    assert set(ELEMENT) == set(blocks.DECODERS)


@pytest.mark.parametrize("name", ELEMENT)
def test_decoding_many_blocks_is_decoding_each(name: str) -> None:
    dtype = DTYPES[name]
    count = 70_001 // dtype.block  # more elements than are decoded together
    data = np.frombuffer(random_blocks(name, count, random.Random(2)), np.uint8)
    whole = blocks.decode(dtype, data.tobytes())
    edge = count - 7
    assert whole.size == count * dtype.block
    np.testing.assert_array_equal(
        whole[edge * dtype.block :], blocks.decode(dtype, data[edge * dtype.bytes :].tobytes())
    )


@pytest.mark.parametrize("name", ELEMENT)
def test_no_blocks_decode_to_no_elements(name: str) -> None:
    assert blocks.decode(DTYPES[name], b"").shape == (0,)


@pytest.mark.parametrize("name", ELEMENT)
def test_infinite_and_nan_scales_decode_without_a_warning(name: str) -> None:
    ones = b"\xff" * DTYPES[name].bytes
    decoded = blocks.decode(DTYPES[name], ones)
    if name in NOT_FINITE:
        assert np.isnan(decoded).all()
    elif name == "mxfp4":
        assert (decoded == -np.inf).all()  # 2**128, as ggml reads the exponent
    else:
        assert np.isfinite(decoded).all()
    infinite = bytearray(DTYPES[name].bytes)
    for at in HALVES[name]:
        struct.pack_into("<e", infinite, at, float("inf"))
    assert not np.isfinite(blocks.decode(DTYPES[name], bytes(infinite))).any() or not HALVES[name]


def test_a_bf16_is_the_upper_half_of_a_float32() -> None:
    upper = np.arange(1 << 16, dtype="<u2")
    decoded = blocks.decode(DTYPES["bf16"], upper.tobytes())
    assert (decoded.view(np.uint32) >> 16 == upper).all()
    assert (decoded.view(np.uint32) & 0xFFFF == 0).all()


def test_float32_is_not_copied_unless_it_is_misaligned() -> None:
    data = np.arange(9, dtype=np.float32).tobytes()
    assert blocks.decode(DTYPES["f32"], data).base is not None
    shifted = blocks.decode(DTYPES["f32"], memoryview(b"\0" + data)[1:])
    assert shifted.flags.aligned
    assert shifted.tolist() == list(range(9))


def test_a_type_without_a_decoder_is_known_as_such() -> None:
    assert blocks.can_decode(DTYPES["q6_k"])
    assert not blocks.can_decode(DTYPES["iq2_xs"])
