"""GGUF versions 2 and 3, little-endian: the header of a file as metadata and tensors.

    magic "GGUF", version u32, tensor count u64, metadata count u64
    metadata: key string, value type u32, value            (gguf_metadata.py)
    tensors:  name string, axes u32, ne u64 each, type u32, offset u64
    padding to general.alignment, then the tensors' data, each aligned likewise

A string is a u64 length and that many bytes of UTF-8. `ne` counts from the contiguous axis
outwards, so shapes are its reverse. Version 1 (32-bit lengths) and big-endian files are refused by
name; files split in parts are put together in gguf_split.py.

Source: docs/gguf.md of ggml, "File Structure"; the checks are those of ggml/src/gguf.cpp, and
more: overlapping tensors, names with a NUL, an alignment that is no multiple of 8.
"""

from __future__ import annotations

import struct
from collections.abc import Container
from dataclasses import replace

from forwardpass.dtypes import GGML_TYPES
from forwardpass.errors import FormatError
from forwardpass.formats.gguf_metadata import read_string, read_value
from forwardpass.formats.source import ByteSource, HeaderReader, quoted
from forwardpass.formats.tensors import (
    StoredTensor,
    TensorFile,
    name_fault,
    spans_in_order,
    stored_bytes,
)

MAGIC = b"GGUF"
VERSIONS = (2, 3)
DEFAULT_ALIGNMENT = 32

_HEADER_LIMIT = 1 << 27
_START = struct.Struct("<4sIQQ")
_U32 = struct.Struct("<I")
_TYPE_AND_OFFSET = struct.Struct("<IQ")
_MAX_AXES = 4
_MAX_KEY = 65_535
_MAX_ALIGNMENT = 1 << 20
_SMALLEST_ENTRY = 8 + 4 + 1
_SMALLEST_TENSOR = 8 + 4 + _TYPE_AND_OFFSET.size


def read_gguf_part(source: ByteSource) -> TensorFile:
    """The metadata and tensors of one GGUF file, which may be a part, from its header alone.

    Errors: `FormatError` for anything that the format does not allow, naming the byte, the key
    or the tensor.
    """
    header = HeaderReader(source, _HEADER_LIMIT)
    tensor_count, entry_count = _start(header)
    metadata, position = _read_metadata(header, entry_count)
    alignment = _alignment(source.name, metadata.get("general.alignment", DEFAULT_ALIGNMENT))
    tensors, position = _read_tensors(header, tensor_count, position)
    data_start = -(-position // alignment) * alignment
    placed = {name: _placed(tensor, data_start, alignment) for name, tensor in tensors.items()}
    spans_in_order(placed.values())
    bytes_read = len(header.data)
    header.finish()
    return TensorFile(
        format="gguf",
        name=source.name,
        metadata=metadata,
        tensors=placed,
        header_bytes=min(data_start, source.size),
        file_bytes=source.size,
        bytes_read=bytes_read,
        sources=(source,),
    )


def _start(header: HeaderReader) -> tuple[int, int]:
    name = header.source.name
    header.need(8, "the magic and version")
    if header.data[:4] != MAGIC:
        raise FormatError(f"{name}: begins with {bytes(header.data[:4])!r}, a GGUF with {MAGIC!r}")
    version = int.from_bytes(header.data[4:8], "little")
    if int.from_bytes(header.data[4:8], "big") in (1, *VERSIONS):
        raise FormatError(f"{name}: a big-endian GGUF; only little-endian ones can be read")
    if version not in VERSIONS:
        raise FormatError(f"{name}: GGUF version {version}; versions 2 and 3 can be read")
    _, _, tensor_count, entry_count = header.unpack(_START, 0, "the counts")
    needed = _START.size + tensor_count * _SMALLEST_TENSOR + entry_count * _SMALLEST_ENTRY
    if needed > header.source.size:
        raise FormatError(
            f"{name}: {tensor_count} tensors and {entry_count} metadata entries take "
            f"{needed} bytes or more, the file has {header.source.size}"
        )
    return tensor_count, entry_count


def _read_metadata(header: HeaderReader, count: int) -> tuple[dict[str, object], int]:
    metadata: dict[str, object] = {}
    position = _START.size
    for index in range(count):
        where = f"metadata key {index}"
        key, position = read_string(header, position, _MAX_KEY, where)
        _check_name(header.source.name, where, key, metadata)
        where = f"the value of {quoted(key)}"
        (kind,) = header.unpack(_U32, position, where)
        metadata[key], position = read_value(header, kind, position + _U32.size, where)
    return metadata, position


def _read_tensors(
    header: HeaderReader, count: int, position: int
) -> tuple[dict[str, StoredTensor], int]:
    """The tensors with offsets as stored, relative to where the data begins."""
    tensors: dict[str, StoredTensor] = {}
    for index in range(count):
        where = f"the name of tensor {index}"
        name, position = read_string(header, position, _MAX_KEY, where)
        _check_name(header.source.name, where, name, tensors)
        tensors[name], position = _read_tensor(header, name, position)
    return tensors, position


def _read_tensor(header: HeaderReader, name: str, position: int) -> tuple[StoredTensor, int]:
    where = f"tensor {quoted(name)}"
    (axes,) = header.unpack(_U32, position, where)
    if axes > _MAX_AXES:
        raise FormatError(f"{header.source.name}: {where} has {axes} axes, at most 4 are allowed")
    ne = header.unpack(struct.Struct(f"<{axes}Q"), position + _U32.size, where)
    position += _U32.size + 8 * axes
    number, offset = header.unpack(_TYPE_AND_OFFSET, position, where)
    dtype = GGML_TYPES.get(number)
    if dtype is None:
        raise FormatError(f"{header.source.name}: {where} has the unknown type {number}")
    if 0 in ne:
        raise FormatError(f"{header.source.name}: {where} has an axis of size 0: {ne[::-1]}")
    shape = ne[::-1]
    nbytes = stored_bytes(dtype, shape, f"{header.source.name}: {where}")
    tensor = StoredTensor(name, dtype, shape, nbytes, offset, header.source)
    return tensor, position + _TYPE_AND_OFFSET.size


def _placed(tensor: StoredTensor, data_start: int, alignment: int) -> StoredTensor:
    source = tensor.source
    where = f"{source.name}: tensor {quoted(tensor.name)}"
    if tensor.offset % alignment:
        raise FormatError(f"{where} has offset {tensor.offset}, no multiple of {alignment}")
    offset = data_start + tensor.offset
    if offset + tensor.nbytes > source.size:
        raise FormatError(
            f"{where} takes bytes {offset} to {offset + tensor.nbytes}, the file has {source.size}"
        )
    return replace(tensor, offset=offset)


def _check_name(file: str, where: str, name: str, known: Container[str]) -> None:
    if fault := name_fault(name):
        raise FormatError(f"{file}: {where} {fault}: {quoted(name)}")
    if name in known:
        raise FormatError(f"{file}: {where} is a duplicate: {quoted(name)}")


def _alignment(file: str, value: object) -> int:
    """`general.alignment`, checked to be a power of two from 8 on."""
    if type(value) is not int or not 8 <= value <= _MAX_ALIGNMENT or value & (value - 1):
        raise FormatError(
            f"{file}: general.alignment is {quoted(value)}, "
            f"a power of two from 8 to {_MAX_ALIGNMENT} is allowed"
        )
    return value
