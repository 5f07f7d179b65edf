"""safetensors: one file, or the shards that a `model.safetensors.index.json` lists.

    u64 n, little-endian; n bytes of JSON, padded with spaces; the tensors' data

The JSON maps each name to `dtype`, `shape` and `data_offsets` [begin, end), counted from the end
of the header; `__metadata__` maps strings to strings. The tensors cover the data exactly:
no overlap, no hole, no byte left over.

Source: README of github.com/huggingface/safetensors, "Format" and "Notes"; dtypes and the limit
of 100 MB from safetensors/src/tensor.rs of version 0.8.
"""

from __future__ import annotations

import re
import struct
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

from forwardpass.dtypes import DTYPES
from forwardpass.errors import FormatError
from forwardpass.formats.source import ByteSource, HeaderReader, quoted
from forwardpass.formats.strict_json import parse_object
from forwardpass.formats.tensors import (
    StoredTensor,
    TensorFile,
    name_fault,
    spans_in_order,
    stored_bytes,
)

INDEX_SUFFIX = ".safetensors.index.json"

_LENGTH = struct.Struct("<Q")
_HEADER_LIMIT = 100_000_000
_METADATA = "__metadata__"
_FIELDS = ("dtype", "shape", "data_offsets")
_NAMES_SHOWN = 5

SAFETENSORS_TYPES = {
    name.upper(): DTYPES[name]
    for name in (
        *("bool", "u8", "i8", "i16", "u16", "i32", "u32", "i64", "u64"),
        *("f64", "f32", "f16", "bf16", "c64", "f4", "f6_e2m3", "f6_e3m2"),
        *("f8_e4m3", "f8_e5m2", "f8_e8m0", "f8_e4m3fnuz", "f8_e5m2fnuz"),
    )
}


def read_safetensors(source: ByteSource) -> TensorFile:
    """The tensors of one safetensors file, from its header alone.

    Errors: `FormatError` for anything that the format does not allow, naming the tensor.
    """
    # The first word says how long the rest is: two reads, and no byte too many.
    reader = HeaderReader(source, _LENGTH.size + _HEADER_LIMIT, first=_LENGTH.size)
    (length,) = reader.unpack(_LENGTH, 0, "the length of the header")
    if length > _HEADER_LIMIT and _LENGTH.size + length <= source.size:
        raise FormatError(f"{source.name}: a header of {length} bytes, at most 100 MB are allowed")
    start = _LENGTH.size + length
    reader.need(start, f"a header of {length} bytes")
    text = bytes(reader.data[_LENGTH.size : start])
    if not text.startswith(b"{"):
        raise FormatError(f"{source.name}: the header begins with {text[:4]!r}, JSON with b'{{'")
    entries = parse_object(text, f"{source.name}: the header")
    metadata = _metadata(source.name, entries.pop(_METADATA, {}))
    tensors = {name: _tensor(source, name, entry, start) for name, entry in entries.items()}
    _check_cover(source, tensors.values(), start)
    return TensorFile(
        format="safetensors",
        name=source.name,
        metadata=metadata,
        tensors=tensors,
        header_bytes=start,
        file_bytes=source.size,
        bytes_read=len(reader.data),
        sources=(source,),
    )


def read_sharded(
    index: ByteSource,
    open_shard: Callable[[str], ByteSource],
    beside: Mapping[str, int],
) -> TensorFile:
    """The tensors of all shards that an index lists, in the order of the index.

    `open_shard` turns a shard's file name, which is free of folders, into its bytes. `beside` are
    the files that lie beside the index, with their sizes. The sums leave the index itself out.
    `metadata` is the index's.

    Errors: `FormatError` for an index or shard that is malformed, for shards that are missing or
    that the index does not name, and where index and shards do not name the same tensors.
    """
    if index.size > _HEADER_LIMIT:
        raise FormatError(f"{index.name}: {index.size} bytes, at most 100 MB are allowed")
    content = parse_object(index.read(0, index.size), index.name)
    placement = _weight_map(index.name, content)
    metadata = content.get("metadata", {})
    if not isinstance(metadata, dict):
        raise FormatError(f"{index.name}: metadata must be an object")
    _check_shards(index.name, placement, beside)
    shards = {
        name: read_safetensors(open_shard(name)) for name in dict.fromkeys(placement.values())
    }
    _check_placement(index.name, placement, shards)
    return TensorFile(
        format="safetensors",
        name=index.name,
        metadata=metadata,
        tensors={name: shards[shard].tensors[name] for name, shard in placement.items()},
        header_bytes=sum(shard.header_bytes for shard in shards.values()),
        file_bytes=sum(shard.file_bytes for shard in shards.values()),
        bytes_read=sum(shard.bytes_read for shard in shards.values()),
        sources=tuple(source for shard in shards.values() for source in shard.sources),
    )


def _metadata(file: str, value: object) -> dict[str, object]:
    if not isinstance(value, dict) or not all(isinstance(v, str) for v in value.values()):
        raise FormatError(f"{file}: {_METADATA} must map strings to strings")
    return value


def _tensor(source: ByteSource, name: str, entry: object, data_start: int) -> StoredTensor:
    where = f"{source.name}: tensor {quoted(name)}"
    if fault := name_fault(name):
        raise FormatError(f"{where}: the name {fault}")
    if not isinstance(entry, dict) or set(entry) != set(_FIELDS):
        raise FormatError(f"{where} must have exactly {', '.join(_FIELDS)}")
    label = entry["dtype"]
    if not isinstance(label, str) or label not in SAFETENSORS_TYPES:
        raise FormatError(f"{where} has the unknown dtype {quoted(label)}")
    dtype = SAFETENSORS_TYPES[label]
    shape = _naturals(entry["shape"], f"{where}: shape")
    offsets = _naturals(entry["data_offsets"], f"{where}: data_offsets")
    if len(offsets) != 2 or offsets[0] > offsets[1]:
        raise FormatError(f"{where}: data_offsets {quoted(offsets)} are no begin and end")
    begin, end = offsets
    nbytes = stored_bytes(dtype, shape, where)
    if nbytes != end - begin:
        raise FormatError(
            f"{where}: {label} {quoted(list(shape))} takes {nbytes} bytes, "
            f"data_offsets [{begin}, {end}] hold {end - begin}"
        )
    if data_start + end > source.size:
        raise FormatError(
            f"{where} ends at byte {data_start + end}, the file at byte {source.size}"
        )
    return StoredTensor(name, dtype, shape, nbytes, data_start + begin, source)


def _naturals(value: object, where: str) -> tuple[int, ...]:
    """A JSON list of whole numbers from 0 to 2**64 - 1."""
    if not isinstance(value, list) or not all(type(n) is int and 0 <= n < 1 << 64 for n in value):
        raise FormatError(f"{where} must be a list of whole numbers, found {quoted(value)}")
    return tuple(value)


def _check_cover(source: ByteSource, tensors: Iterable[StoredTensor], data_start: int) -> None:
    reached = data_start
    for tensor in spans_in_order(tensors):
        if tensor.offset != reached:
            raise FormatError(
                f"{source.name}: bytes {reached} to {tensor.offset}, before tensor "
                f"{quoted(tensor.name)}, belong to no tensor"
            )
        reached += tensor.nbytes
    if reached != source.size:
        raise FormatError(
            f"{source.name}: the tensors end at byte {reached}, the file at byte {source.size}"
        )


def _weight_map(file: str, content: Mapping[str, object]) -> dict[str, str]:
    placement = content.get("weight_map")
    if not isinstance(placement, dict) or not placement:
        raise FormatError(f"{file}: weight_map must map tensor names to shards")
    for tensor, shard in placement.items():
        if not isinstance(shard, str) or not _is_plain_shard_name(shard):
            raise FormatError(
                f"{file}: weight_map places {quoted(tensor)} in {quoted(shard)}",
                "a shard is a .safetensors file beside the index, without a folder",
            )
    return placement


def _is_plain_shard_name(shard: str) -> bool:
    return (
        shard.endswith(".safetensors")
        and not shard.startswith(".")
        and not any(letter in "/\\:" or letter < " " for letter in shard)
        and name_fault(shard) is None
    )


def _check_shards(file: str, placement: Mapping[str, str], beside: Mapping[str, int]) -> None:
    """Refuses shards that are missing, and files that are called like shards and not named."""
    counts = Counter(placement.values())
    base = file.replace("\\", "/").rpartition("/")[2].removesuffix(INDEX_SUFFIX)
    shard = re.compile(rf"{re.escape(base)}-\d{{5}}-of-\d{{5}}\.safetensors")
    missing = [
        f"missing: {quoted(n)} with {count} tensors"
        for n, count in counts.items()
        if n not in beside
    ]
    stray = [
        f"not in the index: {quoted(name)}, {size:,} bytes"
        for name, size in sorted(beside.items())
        if shard.fullmatch(name) and name not in counts
    ]
    if faults := missing + stray:
        raise FormatError(
            f"{file}: {len(missing)} of {len(counts)} shards missing, {len(stray)} too many",
            *_cut(faults),
        )


def _cut(faults: Sequence[str]) -> list[str]:
    more = len(faults) - _NAMES_SHOWN
    return [*faults[:_NAMES_SHOWN], *([f"and {more} more"] if more > 0 else [])]


def _check_placement(
    file: str, placement: Mapping[str, str], shards: Mapping[str, TensorFile]
) -> None:
    missing = [
        f"{quoted(name)} is not in {quoted(shard)}"
        for name, shard in placement.items()
        if name not in shards[shard].tensors
    ]
    extra = [
        f"{quoted(name)} of {quoted(shard)} is not in the index"
        for shard, content in shards.items()
        for name in content.tensors
        if placement.get(name) != shard
    ]
    if faults := missing + extra:
        raise FormatError(
            f"{file}: {len(missing)} tensors missing from the shards, {len(extra)} too many",
            *_cut(faults),
        )
