"""Model files, read by bounds-checked, lazy readers: GGUF and safetensors.

`open_tensors` opens whatever a path holds; `read_gguf`, `read_safetensors` and `read_sharded`
take any `ByteSource`. `unpacked` makes one tensor of those that a quantized checkpoint stores
apart.
"""

from __future__ import annotations

from pathlib import Path

from forwardpass.errors import FormatError
from forwardpass.formats.gguf import MAGIC
from forwardpass.formats.gguf_split import read_gguf
from forwardpass.formats.packed import PackedTensor, unpacked
from forwardpass.formats.safetensors import INDEX_SUFFIX, read_safetensors, read_sharded
from forwardpass.formats.source import ByteSource, MappedFile
from forwardpass.formats.tensors import StoredTensor, Tensor, TensorFile

__all__ = [
    "ByteSource",
    "MappedFile",
    "PackedTensor",
    "StoredTensor",
    "Tensor",
    "TensorFile",
    "open_tensors",
    "read_gguf",
    "read_safetensors",
    "read_sharded",
    "unpacked",
]


def open_tensors(path: Path) -> TensorFile:
    """The tensors of a `.gguf` or `.safetensors` file, of an index of shards, or of a folder.

    A GGUF is known by its first bytes, the others by their names; one part of a split GGUF stands
    for all, which must lie beside it. In a folder `model.safetensors` comes before
    `model.safetensors.index.json`.

    Errors: `FormatError` where there is no such file or its bytes are not what it should be.
    """
    if path.is_dir():
        path = _weights_of_folder(path)
    source = MappedFile(path)

    def beside(name: str) -> MappedFile:
        return MappedFile(path.parent / name)

    if path.name.endswith(INDEX_SUFFIX):
        with source:
            return read_sharded(source, beside, _files(path.parent, ".safetensors"))
    if path.suffix == ".safetensors":
        return read_safetensors(source)
    if path.suffix == ".gguf" or source.read(0, min(4, source.size)) == MAGIC:
        return read_gguf(source, beside, lambda: _files(path.parent, ".gguf"))
    raise FormatError(f"{path}: neither a GGUF nor a safetensors file")


def _weights_of_folder(folder: Path) -> Path:
    names = ("model.safetensors", f"model{INDEX_SUFFIX}")
    for name in names:
        if (folder / name).exists():
            return folder / name
    raise FormatError(f"{folder}: holds no weights: neither {' nor '.join(names)}")


def _files(folder: Path, suffix: str) -> dict[str, int]:
    """The files of a folder whose names end so, with their sizes."""
    return {
        path.name: path.stat().st_size
        for path in folder.iterdir()
        if path.name.lower().endswith(suffix) and path.is_file()
    }
