"""Writes safetensors files for tests: whole, sharded, sparse, or with any header at all."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from forwardpass.formats.safetensors import SAFETENSORS_TYPES


class TensorData(NamedTuple):
    """A tensor's dtype as the format spells it, shape and bytes; None leaves a hole of zeros."""

    dtype: str
    shape: tuple[int, ...]
    data: bytes | None


def write_safetensors(
    path: Path, tensors: Mapping[str, TensorData], metadata: Mapping[str, str] | None = None
) -> Path:
    """Writes a file with the tensors in the order given; tensors without bytes take no disk."""
    header: dict[str, object] = {"__metadata__": dict(metadata)} if metadata else {}
    end = 0
    for name, (dtype, shape, _) in tensors.items():
        begin, end = end, end + SAFETENSORS_TYPES[dtype].nbytes(math.prod(shape))
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [begin, end]}
    with path.open("wb") as file:
        file.write(with_header(header))
        start = file.tell()
        for tensor in tensors.values():
            nbytes = SAFETENSORS_TYPES[tensor.dtype].nbytes(math.prod(tensor.shape))
            if tensor.data is None:
                file.seek(nbytes, 1)
            else:
                file.write(tensor.data)
        file.truncate(start + end)
    return path


def with_header(header: object, data: bytes = b"") -> bytes:
    """A length word, the header and the data; a header that is not bytes becomes padded JSON."""
    if isinstance(header, bytes):
        text = header
    else:
        text = json.dumps(header, separators=(",", ":")).encode()
        text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + data


def write_sharded(folder: Path, shards: Mapping[str, Mapping[str, TensorData]]) -> Path:
    """Writes the shards and their index, and gives the path of the index."""
    placement: dict[str, str] = {}
    for shard, tensors in shards.items():
        write_safetensors(folder / shard, tensors)
        placement |= dict.fromkeys(tensors, shard)
    return write_index(folder, placement)


def write_index(folder: Path, placement: Mapping[str, object]) -> Path:
    path = folder / "model.safetensors.index.json"
    path.write_text(json.dumps({"metadata": {"total_size": 0}, "weight_map": placement}))
    return path
