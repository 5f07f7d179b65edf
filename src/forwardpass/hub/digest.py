"""What a file's bytes must add up to."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

_CHUNK = 1 << 20


@dataclass(frozen=True)
class Digest:
    """A SHA-256, or the id that git gives a small file (SHA-1 over a header and the bytes).

    Source: "Git Objects" in the Git documentation: `blob`, a blank, the size, a zero byte.
    """

    kind: Literal["sha256", "git"]
    value: str

    @property
    def name(self) -> str:
        """As people call it: `sha256`, `git id`."""
        return "git id" if self.kind == "git" else self.kind

    def of(self, path: Path, on_bytes: Callable[[int], None] | None = None) -> str:
        """The digest of this kind of a file's bytes; `on_bytes` is told how many were read."""
        with path.open("rb") as file:
            if self.kind == "sha256":
                summed = hashlib.sha256()
            else:
                summed = hashlib.sha1(usedforsecurity=False)
                summed.update(b"blob %d\0" % path.stat().st_size)
            while chunk := file.read(_CHUNK):
                summed.update(chunk)
                if on_bytes is not None:
                    on_bytes(len(chunk))
        return summed.hexdigest()

    def __str__(self) -> str:
        return f"{self.kind} {self.value}"
