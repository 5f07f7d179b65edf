"""`--html FILE`: where a page goes, and the command that it names as its maker."""

from __future__ import annotations

import os
import secrets
import shlex
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import typer

from forwardpass.cli.console import note
from forwardpass.errors import ForwardpassError, RequestError

HtmlFile = Annotated[
    Path | None,
    typer.Option("--html", metavar="FILE", help="write one page for browsers and paper as well"),
]
_STARTS = b"<!doctype html"


def check_page(path: Path | None) -> None:
    """Refuses a place where no page can go, before any work is done for it.

    Errors: RequestError for a folder, for what is no page of HTML, and for a folder that is not
    there or cannot be written to.
    """
    if path is None:
        return
    if str(path) == "-":
        raise RequestError("--html -: wanted the name of a file")
    target = Path(os.path.realpath(path))
    try:
        if path.is_dir():
            raise RequestError(f"--html {path}: this is a folder", advice="name a file in it")
        if not target.parent.is_dir():
            raise RequestError(f"--html {path}: there is no folder {target.parent}")
        if target.exists() and not target.is_file():
            return  # a pipe or a device
        if not os.access(target.parent, os.W_OK):
            raise RequestError(f"--html {path}: {target.parent} cannot be written to")
        if target.exists() and not _is_page(target):
            raise RequestError(
                f"--html {path}: this file is there and is no page of HTML",
                advice="choose another name, or remove the file first",
            )
    except OSError as error:
        raise RequestError(f"--html {path}: {error.strerror}") from None


def _is_page(path: Path) -> bool:
    """Whether a file is a page of HTML, or empty."""
    with path.open("rb") as file:
        start = file.read(len(_STARTS))
    return not start or start.lower() == _STARTS


def write_page(path: Path, page: str) -> None:
    """Writes the page whole or not at all, and says so on standard error.

    What is no ordinary file (a pipe, a device) is written to as it is.
    """
    target = Path(os.path.realpath(path))  # a link stays one
    content = page.encode("utf-8")
    try:
        if target.exists() and not target.is_file():
            target.write_bytes(content)
        else:
            _replace(target, content)
    except OSError as error:
        raise ForwardpassError(f"--html {path}: {error.strerror}") from None
    note(f"page written to {path}")


def _replace(target: Path, content: bytes) -> None:
    beside = target.with_name(f".forwardpass-{secrets.token_hex(8)}.html")
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


def typed(context: typer.Context) -> str:
    """The command line that gives these options again; defaults are left out."""
    words = ["forwardpass", str(context.info_name).removeprefix("forwardpass ")]
    for parameter in context.command.params:
        value: Any = context.params.get(str(parameter.name))
        if value is None or value == parameter.default:
            continue
        option = parameter.opts[0] if parameter.opts[0].startswith("-") else None
        for each in value if isinstance(value, list | tuple) else [value]:
            if option is not None:
                words.append(option)
            if not isinstance(each, bool):
                words.append(str(each))
    return shlex.join(words)
