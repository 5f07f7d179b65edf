"""Files that are written: whole or not at all, and never over something else."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from forwardpass.errors import ForwardpassError, RequestError


def check_place(path: Path, label: str, kind: str, is_one: Callable[[Path], bool]) -> None:
    """Refuses a place where no file of a kind can go, before any work is done for it.

    `label` begins an error, `kind` names what is written; a file that is there may be replaced
    where `is_one` says that it is of that kind. Errors: RequestError for a folder, for a file of
    another kind, and for a folder that is not there or cannot be written to.
    """
    target = Path(os.path.realpath(path))
    try:
        if path.is_dir():
            raise RequestError(f"{label}: this is a folder", advice="name a file in it")
        if not target.parent.is_dir():
            raise RequestError(f"{label}: there is no folder {target.parent}")
        if target.exists() and not target.is_file():
            return  # a pipe or a device
        if not os.access(target.parent, os.W_OK):
            raise RequestError(f"{label}: {target.parent} cannot be written to")
        if target.exists() and not is_one(target):
            raise RequestError(
                f"{label}: this file is there and is no {kind}",
                advice="choose another name, or remove the file first",
            )
    except OSError as error:
        raise RequestError(f"{label}: {error.strerror}") from None


def write_whole(path: Path, content: bytes, label: str) -> None:
    """Writes a file whole or not at all; `label` begins an error.

    What is no ordinary file (a pipe, a device) is written to as it is.
    """
    target = Path(os.path.realpath(path))  # a link stays one
    try:
        if target.exists() and not target.is_file():
            target.write_bytes(content)
        else:
            _replace(target, content)
    except OSError as error:
        raise ForwardpassError(f"{label}: {error.strerror}") from None


def _replace(target: Path, content: bytes) -> None:
    beside = target.with_name(f".forwardpass-{secrets.token_hex(8)}{target.suffix}")
    try:
        with beside.open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(target)
    except BaseException:
        with suppress(OSError):
            beside.unlink()
        raise
