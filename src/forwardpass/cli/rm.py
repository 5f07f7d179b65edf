"""`forwardpass rm MODEL`: removes what was downloaded of a model, after saying what."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from forwardpass import hub
from forwardpass.cli.account import plural
from forwardpass.cli.console import as_json, columns, data, note
from forwardpass.cli.progress import shown
from forwardpass.errors import RequestError
from forwardpass.hub.removal import Kept, Removal, removal, remove
from forwardpass.shapes import SHAPES
from forwardpass.units import size


def command(
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL",
            help="an alias, or a Hugging Face id org/name[@revision][:file or quantisation]",
        ),
    ],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="do not ask")] = False,
    json: Annotated[bool, typer.Option("--json", help="print one JSON object")] = False,
) -> None:
    """Removes the files of a model that forwardpass downloaded, and nothing else."""
    environment = hub.settings(os.environ)
    found = removal(model, catalogue=environment.catalogue, shapes=SHAPES, cache=environment.cache)
    if not yes:
        _ask(found)
    remove(found, environment.cache)
    if json:
        as_json(
            {
                "model": found.label,
                "bytes": found.bytes,
                "removed": [{"path": str(file.path), "bytes": file.bytes} for file in found.files],
            }
        )
        return
    for line in _lines(found.files):
        data(line)
    data(f"removed {_sum(found)}")


def _ask(found: Removal) -> None:
    """Goes on only where a person at a terminal says yes."""
    if not sys.stdin.isatty():
        raise RequestError(
            f"rm {found.label} would remove {_sum(found)}, and there is nobody to ask",
            *_lines(found.files),
            advice="--yes removes without a question",
        )
    for line in _lines(found.files):
        note(line)
    sys.stderr.write(f"remove {_sum(found)}? [y/N] ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise RequestError(f"{found.label} is kept")


def _sum(found: Removal) -> str:
    return f"{plural(len(found.files), 'file')}, {size(found.bytes)}"


def _lines(files: Sequence[Kept]) -> list[str]:
    rows = [(shown(file.path), "a link" if file.link else size(file.bytes)) for file in files]
    return columns(rows, "<>")
