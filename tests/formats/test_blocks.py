"""Each decoder against a plain loop over elements that follows the published layout."""

from __future__ import annotations

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


ELEMENT: dict[str, Callable[[bytes, int], float]] = {
    "f32": lambda b, i: float(struct.unpack("<f", b)[0]),
    "f16": lambda b, i: half(b, 0),
    "bf16": lambda b, i: float(struct.unpack("<f", b"\0\0" + b)[0]),
    "q4_0": lambda b, i: half(b, 0) * (nibble(b[2:], i) - 8),
    "q4_1": lambda b, i: half(b, 0) * nibble(b[4:], i) + half(b, 2),
    "q5_0": lambda b, i: half(b, 0) * ((nibble(b[6:], i) | (b[2 + i // 8] >> i % 8 & 1) << 4) - 16),
    "q8_0": lambda b, i: half(b, 0) * float(struct.unpack_from("<b", b, 2 + i)[0]),
    "q4_k": lambda b, i: k_element(b, i, k_nibble(b[16:], i), 0),
    "q5_k": lambda b, i: k_element(b, i, k_nibble(b[48:], i), b[16 + i % 32] >> i // 32 & 1),
    "q6_k": q6_k_element,
}

# Where a block's f16 numbers are.
HALVES = {
    **dict.fromkeys(("f32", "bf16"), ()),
    **dict.fromkeys(("f16", "q4_0", "q5_0", "q8_0"), (0,)),
    **dict.fromkeys(("q4_1", "q4_k", "q5_k"), (0, 2)),
    "q6_k": (208,),
}


def random_blocks(name: str, count: int, rng: random.Random) -> bytes:
    """Random bytes with scales that are multiples of 2**-10 below 1, so plain sums are exact."""
    data = bytearray(rng.randbytes(count * DTYPES[name].bytes))
    for block in range(count):
        for at in HALVES[name]:
            scale = rng.randrange(-1023, 1024) / 1024
            struct.pack_into("<e", data, block * DTYPES[name].bytes + at, scale)
    if name in ("f32", "bf16"):  # no NaN, which is unequal to itself
        data[DTYPES[name].bytes - 1 :: DTYPES[name].bytes] = bytes([62]) * count
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
    assert decoded.tolist() == np.array(plain, np.float32).tolist()


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
    assert np.isnan(blocks.decode(DTYPES[name], ones)).all()
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
    assert not blocks.can_decode(DTYPES["iq4_xs"])
