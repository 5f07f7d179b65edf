"""A wanted file, fetched from the first source that delivers it, verified, then named.

The bytes gather in `NAME.partial` beside their final place. Only when their digest is right does
the file get its name, in one step; so a download that is killed at any moment leaves a partial
file and nothing else, and the next try goes on from its end, whichever source it uses.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from forwardpass.errors import DownloadError
from forwardpass.hub.cache import Cache, Stamp
from forwardpass.hub.digest import Digest
from forwardpass.hub.failures import SourceFailed, check_space, writing
from forwardpass.hub.progress import Progress, Transfer
from forwardpass.units import exact


@dataclass(frozen=True)
class Wanted:
    """A file to fetch: what the user called it, where it shall lie, and what its bytes must be."""

    label: str
    path: Path
    bytes: int
    digest: Digest
    license: str | None
    advice: str


class Source(Protocol):
    """Something that can append a file's missing bytes to a partial one."""

    @property
    def name(self) -> str:
        """As a line of an error names it: `Hugging Face hub`."""

    @property
    def origin(self) -> str:
        """As a sentence names it: `the Hugging Face hub`."""

    @property
    def spare(self) -> int:
        """Bytes of disk that it needs for a while beside the file itself."""

    def append(self, partial: Partial, progress: Progress) -> None:
        """Appends what is missing. Errors: `SourceFailed` with a few words on why."""


class Partial:
    """The first bytes of a wanted file, on disk; they only grow, up to the size of the file."""

    def __init__(self, wanted: Wanted, origin: str) -> None:
        self.wanted, self.origin = wanted, origin
        self.path = wanted.path.with_name(wanted.path.name + ".partial")
        self._marks_path = wanted.path.with_name(wanted.path.name + ".parts")
        with writing(self.path):
            self._file = self.path.open("ab")
            self.size = self._file.tell()
        if self.size > wanted.bytes:
            self.restart()

    @property
    def transfer(self) -> Transfer:
        """What a `Progress` is told about this file."""
        wanted = self.wanted
        return Transfer(
            label=wanted.label,
            file=wanted.path.name,
            bytes=wanted.bytes,
            license=wanted.license,
            origin=self.origin,
            checked=wanted.digest.name,
        )

    @property
    def missing(self) -> int:
        """Bytes that are not here yet."""
        return self.wanted.bytes - self.size

    def write(self, chunk: bytes) -> None:
        """Appends a chunk. Errors: `SourceFailed` where it is more than the file has."""
        if len(chunk) > self.missing:
            raise SourceFailed(f"it sends more than {exact(self.wanted.bytes)} bytes")
        with writing(self.path):
            self._file.write(chunk)
        self.size += len(chunk)

    def restart(self) -> None:
        """Drops the bytes that are here."""
        with writing(self.path):
            self._file.truncate(0)
            self._file.seek(0)
            self._marks_path.unlink(missing_ok=True)
        self.size = 0

    def marks(self) -> list[tuple[str, int]]:
        """Parts that are here whole, in order: what `mark` was told, each with its bytes."""
        try:
            kept = json.loads(self._marks_path.read_text(encoding="utf-8"))
            marks = [(str(name), int(count)) for name, count in kept]
        except (OSError, ValueError, TypeError, RecursionError):
            return []
        whole = all(count >= 0 for _, count in marks) and sum(n for _, n in marks) <= self.size
        return marks if whole else []

    def mark(self, marks: Sequence[tuple[str, int]]) -> None:
        """Keeps, for a later try, which parts are here whole."""
        with writing(self._marks_path):
            self._file.flush()
            self._marks_path.write_text(json.dumps(list(marks)), encoding="utf-8")

    def close(self) -> None:
        """Closes the file; its bytes stay for a later try, an empty one goes."""
        with writing(self.path):
            self._file.close()
            if self.size == 0:
                self.path.unlink(missing_ok=True)

    def give_name(self) -> None:
        """Puts the file in its place, in one step, after its bytes are on the disk."""
        with writing(self.wanted.path):
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()
            self._marks_path.unlink(missing_ok=True)
            self.path.replace(self.wanted.path)
            folder = os.open(self.wanted.path.parent, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)

    def actual_digest(self) -> str:
        """The digest of the bytes that are here."""
        with writing(self.path):
            self._file.flush()
        return self.wanted.digest.of(self.path)


def fetch(wanted: Wanted, sources: Sequence[Source], cache: Cache, progress: Progress) -> Stamp:
    """The stamp of the wanted file, which lies at its path when this returns.

    One process at a time fetches a file; others wait for it and then find it there.

    Errors: `DownloadError` with a line for each source and the time it took, or saying why the
    place cannot be written.
    """
    with writing(wanted.path.parent):
        wanted.path.parent.mkdir(parents=True, exist_ok=True)
    with _locked(wanted, cache, progress):
        here = cache.verified(wanted.path, wanted.bytes, wanted.digest, "a local file")
        if here is not None:
            return here
        failures: list[tuple[str, str]] = []
        for number, source in enumerate(sources):
            started = time.monotonic()
            try:
                return _from(source, wanted, cache, progress)
            except SourceFailed as failure:
                seconds = time.monotonic() - started
                reason = f"{failure} ({seconds:.{0 if seconds >= 9.5 else 1}f} s)"
                failures.append((source.name, reason))
                if number + 1 < len(sources):
                    progress.note(f"  {source.name}: {reason}; trying {sources[number + 1].name}")
        raise _not_fetched(wanted, failures)


def _from(source: Source, wanted: Wanted, cache: Cache, progress: Progress) -> Stamp:
    partial = Partial(wanted, source.origin)
    try:
        if not _complete(source, partial, progress):
            progress.note(
                "  the part from an earlier try was damaged; starting from the first byte"
            )
            if not _complete(source, partial, progress):
                raise SourceFailed(f"its file does not have the {wanted.digest.name} wanted")
        partial.give_name()
        cache.remember(wanted.path, wanted.digest, source.origin)
        progress.end(wanted.path)
        found = wanted.path.stat()
        return Stamp(
            str(wanted.path), found.st_size, found.st_mtime_ns, str(wanted.digest), source.origin
        )
    except BaseException:
        progress.end(None)
        raise
    finally:
        partial.close()


def _complete(source: Source, partial: Partial, progress: Progress) -> bool:
    """Whether the partial file is now the wanted one; False: an older start of it was wrong."""
    wanted, before = partial.wanted, partial.size
    check_space(wanted.path.parent, partial.missing + (source.spare if partial.missing else 0))
    if partial.missing:
        source.append(partial, progress)
    if partial.missing:
        raise SourceFailed(f"it ended after {exact(partial.size)} of {exact(wanted.bytes)} bytes")
    actual = partial.actual_digest()
    if actual == wanted.digest.value:
        return True
    partial.restart()
    if before:
        return False
    raise SourceFailed(
        f"its {wanted.digest.name} is {actual[:12]}…, wanted {wanted.digest.value[:12]}…"
    )


@contextlib.contextmanager
def _locked(wanted: Wanted, cache: Cache, progress: Progress) -> Iterator[None]:
    from filelock import FileLock, Timeout

    path = cache.lock(wanted.path)
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = FileLock(path)
        try:
            lock.acquire(timeout=0.2)
        except Timeout:
            progress.note(f"{wanted.label}: another process is fetching it; waiting")
            lock.acquire()
    try:
        yield
    finally:
        lock.release()


def _not_fetched(wanted: Wanted, failures: Sequence[tuple[str, str]]) -> DownloadError:
    lines = []
    if wanted.path.exists():
        lines.append(f"{wanted.path} is here, but it is not the file that is wanted")
    width = max((len(name) for name, _ in failures), default=0)
    lines += [f"{name:<{width}}  {reason}" for name, reason in failures]
    return DownloadError(
        f"{wanted.label} is not here and could not be fetched", *lines, advice=wanted.advice
    )
