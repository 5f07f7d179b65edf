"""Writes GGUF files for tests, valid ones and, where asked, ones with a wrong offset or version."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from forwardpass.dtypes import GGML_TYPES

KINDS = {
    name: number
    for number, name in enumerate(
        (
            *("uint8", "int8", "uint16", "int16", "uint32", "int32", "float32"),
            *("bool", "string", "array", "uint64", "int64", "float64"),
        )
    )
}
CODES = dict(zip((0, 1, 2, 3, 4, 5, 6, 7, 10, 11, 12), "BbHhIif?Qqd", strict=True))
TYPE_NUMBERS = {dtype.name: number for number, dtype in GGML_TYPES.items()}


class Typed(NamedTuple):
    """A metadata value of a named kind; a list is an array whose elements are of that kind."""

    kind: str
    value: object


class TensorData(NamedTuple):
    """A tensor's type (its name or its number), row-major shape and bytes as stored.

    `offset` replaces the one that the writer would choose.
    """

    type: str | int
    shape: tuple[int, ...]
    data: bytes
    offset: int | None = None


def write_gguf(
    path: Path,
    metadata: Mapping[str, object],
    tensors: Mapping[str, TensorData],
    version: int = 3,
) -> Path:
    """Writes the file of `gguf_bytes` and gives its path back."""
    path.write_bytes(gguf_bytes(metadata, tensors, version))
    return path


def gguf_bytes(
    metadata: Mapping[str, object], tensors: Mapping[str, TensorData], version: int = 3
) -> bytes:
    """A GGUF file. Plain values become bool, uint32 (int64 where too small), float32, string."""
    align = metadata.get("general.alignment", 32)
    assert isinstance(align, int)
    head = [b"GGUF", struct.pack("<IQQ", version, len(tensors), len(metadata))]
    for key, value in metadata.items():
        kind = kind_of(value)
        head += [string(key), struct.pack("<I", kind), encoded(kind, value)]
    body = b""
    for name, tensor in tensors.items():
        number = tensor.type if isinstance(tensor.type, int) else TYPE_NUMBERS[tensor.type]
        axes = len(tensor.shape)
        offset = len(body) if tensor.offset is None else tensor.offset
        head += [string(name), struct.pack(f"<I{axes}Q", axes, *reversed(tensor.shape))]
        head.append(struct.pack("<IQ", number, offset))
        body += padded(tensor.data, align)
    return padded(b"".join(head), align) + body


def string(text: str | bytes) -> bytes:
    """A length and that many bytes; `bytes` need not be UTF-8."""
    content = text.encode() if isinstance(text, str) else text
    return struct.pack("<Q", len(content)) + content


def padded(data: bytes, align: int) -> bytes:
    return data + bytes(-len(data) % align)


def kind_of(value: object) -> int:
    if isinstance(value, Typed):
        return KINDS["array"] if isinstance(value.value, list) else KINDS[value.kind]
    if isinstance(value, bool):
        return KINDS["bool"]
    if isinstance(value, int):
        return KINDS["uint32" if 0 <= value < 1 << 32 else "int64"]
    if isinstance(value, float):
        return KINDS["float32"]
    return KINDS["array" if isinstance(value, list) else "string"]


def encoded(kind: int, value: object) -> bytes:
    if isinstance(value, Typed) and not isinstance(value.value, list):
        return encoded(kind, value.value)
    if kind == KINDS["array"]:
        return _array(value)
    if kind == KINDS["string"]:
        assert isinstance(value, str | bytes)
        return string(value)
    return struct.pack(f"<{CODES[kind]}", value)


def _array(value: object) -> bytes:
    items = value.value if isinstance(value, Typed) else value
    assert isinstance(items, list)
    if isinstance(value, Typed):
        kind = KINDS[value.kind]
    else:
        kind = kind_of(items[0]) if items else KINDS["uint32"]
    head = struct.pack("<IQ", kind, len(items))
    return head + b"".join(encoded(kind, item) for item in items)
