"""Files made to hurt: each ends in a clear error, or loads as what it then says."""

from __future__ import annotations

import math
import random
import struct
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from formats import safetensors_writer
from formats.gguf_writer import TensorData, Typed, gguf_bytes, string
from forwardpass.dtypes import DTYPES, GGML_TYPES
from forwardpass.errors import FormatError
from forwardpass.formats import StoredTensor, TensorFile, open_tensors
from forwardpass.formats.blocks import DECODERS

GGUF_TYPES = [dtype.name for dtype in GGML_TYPES.values() if dtype.name in DECODERS]
SEED = 20_240_229
MUTATIONS = 300
SECONDS = 0.050
BYTES = 50_000_000


def small_gguf() -> bytes:
    """Every metadata type, every type that can be decoded and one that cannot."""
    rng = random.Random(SEED)
    metadata: dict[str, object] = {
        "general.architecture": "llama",
        "general.alignment": 32,
        "tokens": ["a", "bc", "", "déf"],
        "nested": [[1, 2], ["x"]],
        **{kind: Typed(kind, 1) for kind in ("uint8", "int8", "uint16", "int16", "int32")},
        **{kind: Typed(kind, 1) for kind in ("bool", "uint64", "int64", "float32", "float64")},
        "scores": Typed("float32", [0.5, -1.0]),
        "flags": [True, False],
    }
    tensors = {
        name: TensorData(name, (2, 256), rng.randbytes(DTYPES[name].nbytes(512)))
        for name in [*GGUF_TYPES, "iq2_s"]
    }
    return gguf_bytes(metadata, tensors)


def small_safetensors(path: Path) -> bytes:
    rng = random.Random(SEED)
    tensors = {
        f"layer.{label}": safetensors_writer.TensorData(label, (3, 8), rng.randbytes(24 * size))
        for label, size in [
            *(("F32", 4), ("F16", 2), ("BF16", 2), ("U8", 1), ("I64", 8), ("F64", 8)),
            *(("F8_E4M3", 1), ("F8_E5M2", 1), ("F8_E8M0", 1)),
        ]
    }
    return safetensors_writer.write_safetensors(path, tensors, {"format": "pt"}).read_bytes()


def use_all(file: TensorFile) -> None:
    """Decodes all that a file holds; a refusal is an answer."""

    def walk(value: object) -> None:
        if not isinstance(value, str | int | float):
            for item in value:  # type: ignore[attr-defined]
                walk(item)

    for value in file.metadata.values():
        try:
            walk(value)
        except FormatError as error:
            assert "UTF-8" in error.fact  # noqa: PT017
    for tensor in file.tensors.values():
        assert isinstance(tensor, StoredTensor)
        assert tensor.offset + tensor.nbytes <= file.file_bytes
        assert len(tensor.raw()) == tensor.nbytes
        assert tensor.elements == math.prod(tensor.shape)
        if tensor.dtype.name in DECODERS:
            values = tensor.numpy()
            assert values.shape == tensor.shape
            assert values.dtype == np.float32
        else:
            with pytest.raises(FormatError, match="cannot be decoded yet"):
                tensor.numpy()


def opens(path: Path, content: bytes) -> bool:
    """Whether a file of these bytes is loaded, and then holds together; False where refused."""
    path.write_bytes(content)
    try:
        file = open_tensors(path)
    except FormatError as error:
        assert str(path) in error.fact  # noqa: PT017
        return False
    with file:
        use_all(file)
    return True


def mutated(content: bytes, first: int, last: int, rng: random.Random) -> bytes:
    """One to three changes between two places: a bit, a byte, a number, a cut, an insertion."""
    changed = bytearray(content)
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(first, min(last, len(changed)))
        match rng.randrange(6):
            case 0:
                changed[at] ^= 1 << rng.randrange(8)
            case 1:
                changed[at] = rng.randrange(256)
            case 2:
                width = rng.choice([1, 2, 4, 8])
                extreme = rng.choice([0, 1, 2 ** (8 * width - 1), 2 ** (8 * width) - 1])
                changed[at : at + width] = extreme.to_bytes(width, "little")
            case 3:
                del changed[at : at + rng.randint(1, 16)]
            case 4:
                changed[at:at] = rng.randbytes(rng.randint(1, 16))
            case _:
                other = rng.randrange(first, last)
                changed[at : at + 8] = content[other : other + 8]
    return bytes(changed)


@pytest.mark.parametrize("kind", ["gguf", "safetensors"])
def test_mutated_files_are_refused_clearly_or_load(tmp_path: Path, kind: str) -> None:
    path = tmp_path / f"model.{kind}"
    content = small_gguf() if kind == "gguf" else small_safetensors(path)
    assert opens(path, content)
    header = open_tensors(path).header_bytes
    rng = random.Random(SEED)
    in_header = [opens(path, mutated(content, 0, header, rng)) for _ in range(MUTATIONS // 2)]
    in_data = [
        opens(path, mutated(content, header, len(content), rng)) for _ in range(MUTATIONS // 2)
    ]
    assert in_header.count(False) > MUTATIONS // 4
    assert in_data.count(True) > MUTATIONS // 8


@pytest.mark.parametrize("kind", ["gguf", "safetensors"])
def test_a_file_cut_at_any_byte_is_refused(tmp_path: Path, kind: str) -> None:
    path = tmp_path / f"model.{kind}"
    if kind == "gguf":
        content = gguf_bytes(
            {"tokens": ["a", "b"], "n": 3, "flags": [[True]]},
            {"q": TensorData("q4_0", (1, 32), bytes(18)), "t": TensorData("f32", (8,), bytes(32))},
        )
    else:
        content = small_safetensors(path)
    assert opens(path, content)
    assert [size for size in range(len(content)) if opens(path, content[:size])] == []


def one_entry(kind: int, value: bytes) -> bytes:
    return b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + string("k") + struct.pack("<I", kind) + value


def sparse(path: Path, content: bytes, size: int) -> None:
    with path.open("wb") as file:
        file.write(content)
        file.truncate(size)


def bytes_of(content: bytes) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        path.write_bytes(content)

    return write


def header_of(length: int, size: int) -> Callable[[Path], None]:
    return lambda path: sparse(path, struct.pack("<Q", length), size)


OVERLAPPING = gguf_bytes(
    {},
    {
        "a": TensorData("f32", (1024,), bytes(4096)),
        "b": TensorData("f32", (1024,), bytes(4096), offset=32),
    },
)


def endless(element: int) -> bytes:
    """A GGUF that ends where an array of 2**63 elements should begin."""
    return one_entry(9, struct.pack("<IQ", element, 2**63))


# Where the count of an array is cut off, or where the file itself claims as many entries.
FORTY_THREE_BYTES = {
    "array": endless(8)[:43],
    "metadata": b"GGUF" + struct.pack("<IQQ", 3, 0, 2**63) + bytes(19),
    "tensors": b"GGUF" + struct.pack("<IQQ", 3, 2**63, 0) + bytes(19),
}

HOSTILE: dict[str, tuple[str, Callable[[Path], None]]] = {
    **{f"43 bytes, {what}": ("gguf", bytes_of(b)) for what, b in FORTY_THREE_BYTES.items()},
    **{
        f"2**63 {what}": ("gguf", bytes_of(endless(element)))
        for what, element in {
            "bytes": 0,
            "bools": 7,
            "strings": 8,
            "arrays": 9,
            "doubles": 12,
        }.items()
    },
    "a string of 1 GiB": ("gguf", bytes_of(one_entry(8, struct.pack("<Q", 1 << 30)))),
    "a string of 1 GiB that is there": (
        "gguf",
        lambda path: sparse(path, one_entry(8, struct.pack("<Q", 1 << 30)), 1 << 31),
    ),
    "a key of 1 GiB": (
        "gguf",
        lambda path: sparse(path, one_entry(8, b"")[:24] + struct.pack("<Q", 1 << 30), 1 << 31),
    ),
    "bytes that fill 1 GiB": (
        "gguf",
        lambda path: sparse(path, one_entry(9, struct.pack("<IQ", 0, 1 << 30)), 1 << 31),
    ),
    "overlapping tensors": ("gguf", bytes_of(OVERLAPPING)),
    "a header of 2**63 bytes": ("safetensors", header_of(2**63, 64)),
    "a header of 2**64 - 1 bytes": ("safetensors", header_of(2**64 - 1, 64)),
    "a header of 1 GiB that is there": ("safetensors", header_of(1 << 30, 1 << 31)),
    "JSON nested 100,000 deep": (
        "safetensors",
        bytes_of(safetensors_writer.with_header(b'{"a":' + b"[" * 100_000)),
    ),
    "a number of a million digits": (
        "safetensors",
        bytes_of(safetensors_writer.with_header(b'{"a":' + b"9" * 1_000_000 + b"}")),
    ),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_file_is_refused_within_50_ms_and_50_mb(tmp_path: Path, name: str) -> None:
    kind, write = HOSTILE[name]
    path = tmp_path / f"model.{kind}"
    write(path)

    def refused() -> float:
        start = time.perf_counter()
        with pytest.raises(FormatError):
            open_tensors(path)
        return time.perf_counter() - start

    # The best of a few: what another process takes away is not the reader's doing.
    assert min(refused() for _ in range(5)) < SECONDS
    tracemalloc.start()
    try:
        refused()
        assert tracemalloc.get_traced_memory()[1] < BYTES
    finally:
        tracemalloc.stop()
