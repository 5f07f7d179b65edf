"""Where a file's bytes come from: a local file mapped into memory, or anything that reads ranges.

A header is read front to back through `HeaderReader`, which asks its source for few, growing
pieces and checks every length against the bytes that are left, so the same parsing serves a
local file and a file fetched range by range.
"""

from __future__ import annotations

import mmap
import os
import reprlib
import stat
import struct
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

from forwardpass.errors import FormatError

_FIRST_READ = 1 << 16


class ByteSource(Protocol):
    """A named run of `size` bytes, any range of which can be read."""

    @property
    def name(self) -> str: ...

    @property
    def size(self) -> int: ...

    def read(self, offset: int, length: int) -> bytes: ...


class MappedFile:
    """A local file, read-only; nothing is read before it is asked for.

    The file must stay as long as it was when it was opened. One that is cut short while it is
    mapped ends the process on the next access (SIGBUS), which no check here can prevent.

    Errors: `FormatError` where the path is no readable regular file, or a range reaches past
    the end.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.name = str(path)
        self._map: mmap.mmap | None = None
        try:
            if not stat.S_ISREG(os.stat(path).st_mode):
                raise FormatError(f"{self.name}: not a regular file")
            with self.path.open("rb") as file:
                self.size = os.fstat(file.fileno()).st_size
                if self.size:
                    self._map = mmap.mmap(file.fileno(), self.size, access=mmap.ACCESS_READ)
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            raise FormatError(f"{self.name}: cannot be opened: {reason}") from error

    def view(self, offset: int, length: int) -> memoryview:
        """The bytes of a range, read-only and not copied."""
        if offset < 0 or length < 0 or offset + length > self.size:
            raise FormatError(
                f"{self.name}: bytes {offset} to {offset + length} wanted, the file has {self.size}"
            )
        return memoryview(self._map or b"")[offset : offset + length]

    def read(self, offset: int, length: int) -> bytes:
        """A copy of the bytes of a range."""
        return bytes(self.view(offset, length))

    def forget(self, offset: int, length: int) -> None:
        """Takes the pages of a range out of memory; they are read again when they are asked for."""
        page = mmap.PAGESIZE
        start = offset // page * page
        if self._map is not None and hasattr(mmap, "MADV_DONTNEED"):
            self._map.madvise(mmap.MADV_DONTNEED, start, offset + length - start)

    def close(self) -> None:
        """Gives the mapping up; it lasts as long as views or arrays made from it do."""
        if self._map is not None:
            with suppress(BufferError):
                self._map.close()

    def __enter__(self) -> MappedFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class HeaderReader:
    """A source's first bytes, fetched as far as they are needed.

    The first fetch takes `first` bytes, each later one at least doubles what is there, so a header
    of n bytes takes about log2(n) - 15 reads. No length that the file states is believed before it
    was held against the bytes left.

    Errors: `FormatError` naming the byte where the file ends too early, or that the header is
    longer than `limit`.
    """

    def __init__(self, source: ByteSource, limit: int, first: int = _FIRST_READ) -> None:
        self.source = source
        self.limit = limit
        self.first = first
        self.data = bytearray()

    def need(self, end: int, what: str) -> None:
        """Makes the bytes up to `end` present in `data`; `what` names them in an error."""
        if end <= len(self.data):
            return
        name, size = self.source.name, self.source.size
        if end > size:
            raise FormatError(f"{name}: {what} reaches to byte {end}, the file ends at byte {size}")
        if end > self.limit:
            raise FormatError(
                f"{name}: {what} reaches to byte {end}, a header may take {self.limit} bytes"
            )
        have = len(self.data)
        wanted = min(max(end, 2 * have, self.first), size) - have
        piece = self.source.read(have, wanted)
        if len(piece) != wanted:
            raise FormatError(f"{name}: {wanted} bytes wanted at byte {have}, {len(piece)} came")
        self.data += piece

    def bytes(self, start: int, end: int) -> bytes:
        """A copy of bytes that were present before."""
        if end <= len(self.data):
            return bytes(memoryview(self.data)[start:end])
        found = self.source.read(start, end - start)
        if isinstance(self.source, MappedFile):
            self.source.forget(start, end - start)
        return found

    def finish(self) -> None:
        """Gives up what a mapped file has anyway; it is read again when it is asked for."""
        if isinstance(self.source, MappedFile):
            self.source.forget(0, len(self.data))
            self.data = bytearray()

    def unpack(self, layout: struct.Struct, position: int, what: str) -> tuple[Any, ...]:
        """The values of `layout` at `position`."""
        self.need(position + layout.size, what)
        return layout.unpack_from(self.data, position)


_QUOTES = reprlib.Repr()
_QUOTES.maxstring = _QUOTES.maxother = 80


def quoted(value: object) -> str:
    """A value out of a file, safe to print: control characters escaped, cut at 80 characters."""
    return _QUOTES.repr(value)
