"""Block decoding, bit for bit against the official `gguf` package."""

from __future__ import annotations

import gguf
import numpy as np
import pytest
from numpy.typing import NDArray

from forwardpass.dtypes import DTYPES
from forwardpass.formats import blocks

SEED = 4
BLOCKS = 4096
QUANTIZED = (
    *("f16", "bf16", "q4_0", "q4_1", "q5_0", "q5_1", "q8_0"),
    *("tq1_0", "tq2_0", "mxfp4"),
)
# What ggml stores in files, and the package reads. The others of our types it cannot: numbers that
# are no weights, the operands of integer products, and what only safetensors files hold.
OFFICIAL = [
    name
    for name in blocks.DECODERS
    if name not in ("f64", "i64", "i32", "i16", "i8", "q8_1", "q8_k") and not name.startswith("f8_")
]


def official(name: str, stored: NDArray[np.uint8]) -> NDArray[np.float32]:
    kind = gguf.GGMLQuantizationType[name.upper()]
    values: NDArray[np.float32] = gguf.quants.dequantize(stored, kind)
    return values


def assert_equal_bits(ours: NDArray[np.float32], theirs: NDArray[np.float32]) -> None:
    assert ours.dtype == theirs.dtype == np.float32
    np.testing.assert_array_equal(ours.reshape(-1).view(np.uint32), theirs.reshape(-1).view("u4"))


def random_blocks(name: str) -> NDArray[np.uint8]:
    """Random bytes; every f16 is finite, from all of its range, as are floats that stand alone."""
    rng = np.random.default_rng(SEED)
    dtype = DTYPES[name]
    stored = rng.integers(0, 256, BLOCKS * dtype.bytes, dtype=np.uint8)
    layout, _ = blocks.DECODERS[name]
    found = stored.view(layout)
    if layout.names is None:
        exponent = {"f32": 0x7F800000, "f16": 0x7C00, "bf16": 0x7F80}[name]
        bits = stored.view(f"<u{dtype.bytes}")
        bits[bits & exponent == exponent] ^= exponent
    for field in layout.names or ():
        if layout[field] == np.dtype("<f2"):
            bits = rng.integers(0, 1 << 16, BLOCKS, dtype=np.uint16)
            found[field] = np.where(bits & 0x7C00 == 0x7C00, bits ^ 0x4000, bits).view("<f2")
    if name == "mxfp4":
        found["e"] = rng.integers(0, 252, BLOCKS)
    return stored


@pytest.mark.parametrize("name", OFFICIAL)
def test_random_blocks_decode_to_the_bits_of_the_official_package(name: str) -> None:
    stored = random_blocks(name)
    theirs = official(name, stored.reshape(16, -1))
    assert np.isfinite(theirs).all()
    assert_equal_bits(blocks.decode(DTYPES[name], stored.tobytes()), theirs)


def test_the_official_package_reads_all_block_types_that_are_decoded_here() -> None:
    readable = {kind.name.lower() for kind in gguf.quants._type_traits} | {"f32", "f16"}
    assert set(OFFICIAL) <= readable
    # Named and refused: tables of grids, and what is not in ggml's enumeration of 2024.
    refused = {name for name in readable if name not in blocks.DECODERS}
    assert all(name.startswith(("iq1", "iq2", "iq3")) or name == "nvfp4" for name in refused)


@pytest.mark.parametrize("name", QUANTIZED)
@pytest.mark.parametrize("scale", [1e-6, 1.0, 300.0])
def test_arrays_that_the_official_package_quantized_decode_to_its_bits(
    name: str, scale: float
) -> None:
    rng = np.random.default_rng(SEED)
    values = rng.normal(0, scale, (33, 512)).astype(np.float32)
    values[0] = 0
    stored = gguf.quants.quantize(values, gguf.GGMLQuantizationType[name.upper()])
    assert_equal_bits(
        blocks.decode(DTYPES[name], stored.tobytes()), official(name, stored.view(np.uint8))
    )


def test_sizes_of_blocks_equal_those_of_the_official_package() -> None:
    theirs = {kind.name.lower(): size for kind, size in gguf.GGML_QUANT_SIZES.items()}
    # The C struct of q8_1 holds two f16 beside its 32 bytes; the Python table says two f32.
    assert theirs.pop("q8_1") == (32, 40)
    assert {name: (DTYPES[name].block, DTYPES[name].bytes) for name in theirs} == theirs
