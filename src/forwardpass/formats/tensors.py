"""A tensor as a file stores it, and a file as a set of named tensors.

Everything here is lazy: a `StoredTensor` knows where its bytes are and what they mean, and
reads or decodes them when asked. A `Tensor` may also be packed in several stored ones
(`packed.py`).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING

from forwardpass.dtypes import DType
from forwardpass.errors import FormatError
from forwardpass.formats.source import ByteSource, MappedFile, quoted

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_MAX_AXES = 64
# Far beyond any file, and within what an array library can index.
_MAX_ELEMENTS = 1 << 56


@dataclass(frozen=True)
class Tensor(ABC):
    """`shape` elements of type `dtype`, in `nbytes` bytes of a file.

    `shape` is row-major, the last axis contiguous, as in torch and safetensors.
    """

    name: str
    dtype: DType
    shape: tuple[int, ...]
    nbytes: int

    @property
    def elements(self) -> int:
        """The product of the axes; 1 for a scalar."""
        return math.prod(self.shape)

    @abstractmethod
    def raw(self) -> memoryview:
        """The bytes as stored, read-only."""

    @abstractmethod
    def numpy(self) -> NDArray[np.float32]:
        """All elements as float32, in `shape`; read-only where they are stored as float32.

        Errors: `FormatError` where the type has no decoder, or the bytes have no meaning.
        """

    @abstractmethod
    def _rows(self, start: int, stop: int) -> NDArray[np.float32]: ...

    def rows(self, start: int, stop: int) -> NDArray[np.float32]:
        """Rows `start` to `stop` (excluded) along the first axis as float32: (stop - start, …).

        A tensor of fewer than two axes has no rows.

        Errors: `IndexError` for rows outside the tensor, `FormatError` as in `numpy`.
        """
        if len(self.shape) < 2:
            raise IndexError(f"tensor {quoted(self.name)} of shape {self.shape} has no rows")
        if not 0 <= start <= stop <= self.shape[0]:
            raise IndexError(
                f"tensor {quoted(self.name)}: rows {start} to {stop} of {self.shape[0]}"
            )
        return self._rows(start, stop)


@dataclass(frozen=True)
class StoredTensor(Tensor):
    """A tensor whose `nbytes` bytes lie together, at byte `offset` of `source`.

    `raw` copies nothing where the source is a mapped file; `rows` reads the bytes of those rows
    and no others.
    """

    offset: int
    source: ByteSource = field(repr=False)

    def raw(self) -> memoryview:
        return self._bytes(0, self.nbytes)

    def numpy(self) -> NDArray[np.float32]:
        return self._decode(0, self.nbytes).reshape(self.shape)

    def _rows(self, start: int, stop: int) -> NDArray[np.float32]:
        width = self.nbytes // max(self.shape[0], 1)
        values = self._decode(start * width, (stop - start) * width)
        return values.reshape(stop - start, *self.shape[1:])

    def _bytes(self, start: int, length: int) -> memoryview:
        if isinstance(self.source, MappedFile):
            return self.source.view(self.offset + start, length)
        return memoryview(self.source.read(self.offset + start, length) if length else b"")

    def _decode(self, start: int, length: int) -> NDArray[np.float32]:
        from forwardpass.formats import blocks

        if not blocks.can_decode(self.dtype):
            raise FormatError(
                f"{self.source.name}: tensor {quoted(self.name)} is stored as "
                f"{self.dtype.name.upper()}, which cannot be decoded yet",
                f"types that can: {', '.join(sorted(blocks.DECODERS)).upper()}",
            )
        return blocks.decode(self.dtype, self._bytes(start, length))


@dataclass(frozen=True)
class TensorFile:
    """The tensors and the metadata of a model file, or of the shards of one model.

    `format` is `gguf` or `safetensors`; `tensors` keeps the order of the header. `header_bytes`
    are the bytes before the first tensor's data, `file_bytes` all bytes, `bytes_read` what
    reading the header took from the source; each is summed over the shards.
    """

    format: str
    name: str
    metadata: Mapping[str, object]
    tensors: Mapping[str, Tensor]
    header_bytes: int
    file_bytes: int
    bytes_read: int
    sources: tuple[ByteSource, ...] = field(repr=False)

    @property
    def data_bytes(self) -> int:
        """The bytes of all tensors, without padding."""
        return sum(tensor.nbytes for tensor in self.tensors.values())

    def close(self) -> None:
        """Closes the mapped files; other sources belong to whoever made them."""
        for source in self.sources:
            if isinstance(source, MappedFile):
                source.close()

    def __enter__(self) -> TensorFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def stored_bytes(dtype: DType, shape: tuple[int, ...], where: str) -> int:
    """The bytes of a tensor of that type and shape; `where` begins the error.

    Errors: `FormatError` for too many axes or elements, or rows that do not fill whole blocks.
    """
    if len(shape) > _MAX_AXES:
        raise FormatError(f"{where} has {len(shape)} axes, at most {_MAX_AXES} are possible")
    elements = 1
    for size in shape:
        elements *= max(size, 1)
        if elements > _MAX_ELEMENTS:
            raise FormatError(f"{where} has a shape of more than 2**56 elements")
    row = shape[-1] if shape else 1
    # Plain types narrower than a byte may end their rows inside one; block types may not.
    if row % dtype.block and (dtype.block >= 32 or math.prod(shape) % dtype.block):
        raise FormatError(
            f"{where} has rows of {row} elements, "
            f"{dtype.name.upper()} stores blocks of {dtype.block}"
        )
    return dtype.nbytes(math.prod(shape))


def name_fault(name: str) -> str | None:
    """What keeps text out of a file from being a name, or None."""
    if "\0" in name:
        return "holds a NUL"
    try:
        name.encode()
    except UnicodeEncodeError:
        return "is not valid Unicode"
    return None


def spans_in_order(tensors: Iterable[StoredTensor]) -> list[StoredTensor]:
    """The tensors by their place in the file.

    Errors: `FormatError` naming the first two that share bytes.
    """
    ordered = sorted(tensors, key=lambda tensor: (tensor.offset, tensor.nbytes))
    for left, right in pairwise(ordered):
        if left.offset + left.nbytes > right.offset:
            raise FormatError(
                f"{right.source.name}: tensors {quoted(left.name)} and {quoted(right.name)} "
                "overlap",
                f"the first ends at byte {left.offset + left.nbytes}, "
                f"the second begins at byte {right.offset}",
            )
    return ordered
