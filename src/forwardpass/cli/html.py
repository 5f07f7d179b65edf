"""`--html FILE`: where a page goes, and the command that it names as its maker."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated, Any

import typer

from forwardpass.cli.console import note
from forwardpass.errors import RequestError
from forwardpass.formats.output import check_place, write_whole

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
    check_place(path, f"--html {path}", "page of HTML", _is_page)


def _is_page(path: Path) -> bool:
    """Whether a file is a page of HTML, or empty."""
    with path.open("rb") as file:
        start = file.read(len(_STARTS))
    return not start or start.lower() == _STARTS


def write_page(path: Path, page: str) -> None:
    """Writes the page whole or not at all, and says so on standard error.

    What is no ordinary file (a pipe, a device) is written to as it is.
    """
    write_whole(path, page.encode("utf-8"), f"--html {path}")
    note(f"page written to {path}")


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
