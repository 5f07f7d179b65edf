"""Files held in memory: a `ByteSource` that keeps account of what is read from it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from forwardpass.errors import FormatError
from forwardpass.formats import ByteSource, TensorFile


@dataclass
class MemorySource:
    """Bytes under a name; `reads` lists every (offset, length) that was asked for."""

    content: bytes
    name: str = "memory"
    reads: list[tuple[int, int]] = field(default_factory=list)

    @property
    def size(self) -> int:
        return len(self.content)

    def read(self, offset: int, length: int) -> bytes:
        self.reads.append((offset, length))
        return self.content[offset : offset + length]


def refusal(read: Callable[[ByteSource], TensorFile], content: bytes) -> str:
    """The line of fact with which `read` refuses these bytes, and which names their source."""
    with pytest.raises(FormatError) as error:
        read(MemorySource(content))
    assert error.value.fact.startswith("memory: ")
    return error.value.fact
