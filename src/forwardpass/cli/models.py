"""`forwardpass models`: what can be named, how large it is, and what of it is here."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated

import typer

from forwardpass import hub
from forwardpass.cli.console import WIDTH, as_json, columns, data
from forwardpass.cli.progress import shown
from forwardpass.hub.listings import kept_listings, snapshot
from forwardpass.shapes import SHAPES
from forwardpass.units import size


def command(
    json: Annotated[bool, typer.Option("--json", help="print one JSON object")] = False,
) -> None:
    """Lists the models of the catalogue, those fetched from the hub, and the bundled shapes."""
    environment = hub.settings(os.environ)
    cache = environment.cache
    named = [
        (entry, hub.locate(entry.alias, catalogue=environment.catalogue, shapes=(), cache=cache))
        for entry in environment.catalogue
    ]
    fetched = list(_from_the_hub(cache))
    if json:
        as_json(
            {
                "home": str(cache.home),
                "models": [_described(entry, files) for entry, files in named],
                "hub": [
                    {"model": name, "bytes": count, "path": str(path)}
                    for name, count, path in fetched
                ],
                "shapes": list(SHAPES),
            }
        )
        return
    rows = [("alias", "size", "license", "here", "")]
    for entry, files in named:
        here = "yes" if files is not None else "no"
        rows.append((entry.alias, size(entry.bytes), entry.license, here, entry.about))
    for line in columns(rows, "<><<<"):
        data(line if len(line) <= WIDTH else f"{line[: WIDTH - 1]}…")
    if fetched:
        data("\nfrom the Hugging Face hub")
        for line in columns([(name, size(count)) for name, count, _ in fetched], "<>"):
            data(f"  {line}")
    data(f"\nkept in {shown(cache.home)}")
    data("\nshapes, known without weights: for counting and planning")
    for line in _wrapped(SHAPES):
        data(f"  {line}")


def _described(entry: hub.Entry, files: hub.ModelFiles | None) -> dict[str, object]:
    return {
        "model": entry.alias,
        "file": entry.file,
        "bytes": entry.bytes,
        "sha256": entry.sha256,
        "license": entry.license,
        "about": entry.about,
        "here": files is not None,
        "path": str(files.path) if files is not None else None,
    }


def _from_the_hub(cache: hub.Cache) -> Iterator[tuple[str, int, Path]]:
    """What was fetched from repositories: the id to call it by, bytes, and where it lies."""
    for revision, listing in kept_listings(cache):
        folder = snapshot(listing, cache)
        name = listing.repo if revision == "main" else f"{listing.repo}@{revision}"
        present = [file for file in listing.files if (folder / file.path).is_file()]
        if any(file.path == "config.json" for file in present):
            yield name, sum(file.bytes for file in present), folder
        for file in present:
            if file.path.endswith(".gguf"):
                yield f"{name}:{file.path}", file.bytes, folder / file.path


def _wrapped(names: Iterable[str]) -> list[str]:
    """The names in lines that fit the terminal."""
    lines = [""]
    for name in names:
        if len(lines[-1]) + len(name) + 4 > WIDTH:
            lines.append("")
        lines[-1] += f"{name}  "
    return [line.rstrip() for line in lines]
