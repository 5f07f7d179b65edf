"""What a download tells whoever is waiting for it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol


@dataclass(frozen=True)
class Transfer:
    """A file on its way: what the user called it, the file, its size, its license, its source.

    `checked` is the digest that its bytes are held to: `sha256` or `git id`.
    """

    label: str
    file: str
    bytes: int
    license: str | None
    origin: str
    checked: str


class Progress(Protocol):
    """Told about one transfer at a time: `begin`, `at` any number of times, then `end`."""

    def begin(self, transfer: Transfer, done: int) -> None:
        """A source is about to deliver; `done` bytes are here from an earlier try."""

    def at(self, done: int) -> None:
        """So many bytes of the file are here, or nearly so."""

    def end(self, path: Path | None) -> None:
        """The file is verified and lies at `path`; None: this source failed."""

    def note(self, text: str) -> None:
        """One line that the user should see."""


class Silent:
    """A `Progress` that says nothing."""

    def begin(self, transfer: Transfer, done: int) -> None:
        pass

    def at(self, done: int) -> None:
        pass

    def end(self, path: Path | None) -> None:
        pass

    def note(self, text: str) -> None:
        pass
