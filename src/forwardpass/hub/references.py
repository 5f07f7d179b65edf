"""What a user may call a model, and what a call leads to."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from forwardpass.errors import ModelNotFound, RequestError, nearest
from forwardpass.formats.gguf_split import part_name
from forwardpass.hub.paths import written

Kind = Literal["gguf", "folder", "config", "safetensors", "shape"]

LOCAL = "a local file"
HUB = "the Hugging Face hub"

_HUB_ID = re.compile(
    r"(?P<repo>[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9_][\w.-]{0,95})"
    r"(@(?P<revision>[A-Za-z0-9_][\w./-]{0,199}))?"
    r"(:(?P<selector>[\w+-][\w./+-]{0,199}))?",
    re.ASCII,
)
_SUFFIXES: dict[str, Kind] = {".gguf": "gguf", ".safetensors": "safetensors", ".json": "config"}
_MAGIC = b"GGUF"
_SHOWN = 5  # names in a folder that is no model


@dataclass(frozen=True)
class ModelFiles:
    """A model's files on this machine.

    `paths` holds one file (kinds `gguf`, `config`, `safetensors`), one folder (`folder`) or
    nothing (`shape`: a bundled config of that label, without weights). `bytes` is their size on
    disk. `sha256` is set where the file was verified, `revision` is a hub repository's commit.
    """

    kind: Kind
    paths: tuple[Path, ...]
    label: str
    origin: str
    license: str | None
    bytes: int
    sha256: str | None = None
    revision: str | None = None

    @property
    def path(self) -> Path:
        """The file or folder. Errors: `RequestError` for a shape, which has none."""
        if not self.paths:
            raise RequestError(
                f"{self.label} is a shape, known without weights: there is no file of it",
                advice="name a model with weights; forwardpass models lists them",
            )
        return self.paths[0]


@dataclass(frozen=True)
class HubId:
    """A Hugging Face id: `org/name[@revision][:file or quantisation]`."""

    text: str
    repo: str
    revision: str
    selector: str | None


def parse_hub_id(text: str) -> HubId | None:
    """The id that `text` writes, or None where it has another form."""
    found = _HUB_ID.fullmatch(text)
    if found is None or ".." in text or "--" in found["repo"] or "//" in text:
        return None
    return HubId(text, found["repo"], found["revision"] or "main", found["selector"])


def local_model(reference: str) -> ModelFiles | None:
    """The model at a path; None where nothing that could be a model lies there."""
    if not reference or "\0" in reference:
        return None
    path = written(reference)
    try:
        kind = _kind_of(path)
        if kind is None:
            return None
        size = folder_bytes(path) if kind == "folder" else _file_bytes(path)
    except (OSError, ValueError):
        return None
    return ModelFiles(kind, (path,), reference, LOCAL, None, size)


def _kind_of(path: Path) -> Kind | None:
    if path.is_dir():
        return "folder" if (path / "config.json").is_file() else None
    if not path.is_file():
        return None
    kind = _SUFFIXES.get(path.suffix.lower())
    if kind is None:
        with path.open("rb") as file:
            kind = "gguf" if file.read(len(_MAGIC)) == _MAGIC else None
    return kind


def folder_bytes(folder: Path) -> int:
    """Bytes of the files that lie in a folder itself, not in folders below it."""
    return sum(path.stat().st_size for path in folder.iterdir() if path.is_file())


def _file_bytes(path: Path) -> int:
    """Bytes of a file; of all parts where it is one part of a split GGUF."""
    part = part_name(path.name)
    paths = [path] if part is None else [path.with_name(name) for name in part.all]
    return sum(path.stat().st_size for path in paths if path.is_file())


def means_a_path(reference: str) -> bool:
    """Whether `reference` can only be meant as a path."""
    path = Path(reference.replace("\0", ""))
    return reference.startswith((".", "/", "~")) or path.suffix.lower() in (".gguf", ".safetensors")


def exists(reference: str) -> bool:
    """Whether anything, a model or not, lies at the path that `reference` writes."""
    try:
        return bool(reference) and os.path.lexists(written(reference))
    except (OSError, ValueError):
        return False


def no_such_model(reference: str, aliases: Iterable[str], shapes: Iterable[str]) -> ModelNotFound:
    """The error for a reference that leads nowhere: what was tried, and what is close."""
    shown = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in reference[:200])
    if "\0" not in reference and (means_a_path(reference) or exists(reference)):
        return _no_model_at(shown, written(reference))
    near = nearest(reference.lower(), [*aliases, *shapes])
    listed = "forwardpass models lists all"
    return ModelNotFound(
        f'there is no model "{shown}"',
        "not a file, not an alias, and a Hugging Face id looks like org/name",
        advice=f"did you mean {near}?     {listed}" if near else listed,
    )


def _folder_words(folder: Path) -> str:
    """What is wrong with a folder that is no model, and what it holds: files of models first."""
    inside = sorted(
        (path.name for path in folder.iterdir()),
        key=lambda name: (Path(name).suffix not in _SUFFIXES, name),
    )
    without = "without config.json"
    if os.path.lexists(folder / "config.json"):
        without = "whose config.json is not a file"
    more = ", …" if len(inside) > _SHOWN else ""
    held = f"it holds {', '.join(inside[:_SHOWN])}{more}" if inside else "it is empty"
    return f"a folder {without}; {held}"


def _no_model_at(shown: str, path: Path) -> ModelNotFound:
    wanted = "wanted a .gguf file, a folder with config.json, a config.json or a .safetensors file"
    try:
        if path.is_dir():
            return ModelNotFound(f"{shown}: {_folder_words(path)}", wanted)
        if path.exists():
            return ModelNotFound(f"{shown}: not a model file", wanted)
        siblings = [p.name for p in path.parent.iterdir()] if path.parent.is_dir() else []
    except (OSError, ValueError) as error:
        return ModelNotFound(f"{shown}: {getattr(error, 'strerror', None) or error}", wanted)
    near = nearest(path.name, siblings)
    return ModelNotFound(
        f"{shown}: there is no such file",
        wanted,
        advice=f"did you mean {path.parent / near}?" if near else None,
    )
