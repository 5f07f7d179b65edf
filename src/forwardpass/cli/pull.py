"""`forwardpass pull MODEL`: brings a model here, verified, and says where it lies."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from forwardpass import hub
from forwardpass.cli.console import as_json, columns, data
from forwardpass.cli.progress import TerminalProgress, shown
from forwardpass.errors import RequestError
from forwardpass.hub.references import LOCAL
from forwardpass.shapes import SHAPES
from forwardpass.units import exact, size


def command(
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL",
            help="an alias, or a Hugging Face id org/name[@revision][:file or quantisation]",
        ),
    ],
    json: Annotated[bool, typer.Option("--json", help="print one JSON object")] = False,
) -> None:
    """Downloads a model with progress, resume and sha256; what is here already is kept."""
    environment = hub.settings(os.environ)
    files = hub.resolve(
        model,
        catalogue=environment.catalogue,
        shapes=SHAPES,
        cache=environment.cache,
        refresh=True,
        progress=TerminalProgress(),
    )
    path = files.path
    if files.origin == LOCAL:
        what = "folder" if files.kind == "folder" else "file"
        raise RequestError(f"{model} is a {what} here already; pull fetches aliases and hub ids")
    if json:
        as_json(
            {
                "model": files.label,
                "kind": files.kind,
                "path": str(path),
                "bytes": files.bytes,
                "sha256": files.sha256,
                "origin": files.origin,
                "license": files.license,
                "revision": files.revision,
            }
        )
        return
    rows = [
        ("path", shown(path)),
        ("size", f"{exact(files.bytes)} bytes, {size(files.bytes)}"),
        ("sha256", f"{files.sha256}  ok" if files.sha256 else ""),
        ("commit", files.revision or ""),
        ("license", files.license or ""),
        ("origin", files.origin),
    ]
    for line in columns([row for row in rows if row[1]], "<<"):
        data(line)
