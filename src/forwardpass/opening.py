"""From what a user calls a model to its description.

open_model     the model's files, fetched where they are not here: to run it
open_headers   what its headers say, read over the network where it is not here: to count it
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Literal

from forwardpass import hub
from forwardpass.describe import Description, describe_config, describe_file, read_json_object
from forwardpass.errors import DownloadError, FormatError, RequestError
from forwardpass.formats import (
    ByteSource,
    TensorFile,
    open_tensors,
    read_gguf,
    read_safetensors,
    read_sharded,
)
from forwardpass.formats.strict_json import parse_object
from forwardpass.shapes import SHAPES

Seen = Literal["shape", "config", "file", "hub"]

_INDEX = "model.safetensors.index.json"
_WEIGHT_FILES = ("model.safetensors", _INDEX)
_OTHER_WEIGHTS = (".gguf", ".safetensors", ".bin", ".pth", ".pt")
_SHARD = re.compile(r".*-\d{5}-of-\d{5}\.safetensors")
_MAX_CONFIG_BYTES = 16 * 2**20


@dataclass(frozen=True)
class Opened:
    """A model as it was found.

    `seen` says what was read: a bundled shape, a config alone, local files, or headers on the
    hub. `description` is None for a safetensors file without a config; `file` where there are no
    weights; `files` where nothing is on this machine. Leaving it as a context closes the file.
    """

    label: str
    seen: Seen
    description: Description | None
    file: TensorFile | None
    files: hub.ModelFiles | None

    def close(self) -> None:
        """Gives the mapped weights up."""
        if self.file is not None:
            self.file.close()

    def __enter__(self) -> Opened:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def open_model(
    reference: str,
    settings: hub.Settings,
    *,
    accept_unknown: Sequence[str] = (),
    progress: hub.Progress | None = None,
) -> Opened:
    """The model that `reference` names, its files fetched where they are not here.

    Tied tables that a file stores twice are compared, so that what is one table is known.

    Errors: those of `hub.resolve`, of the file formats, of config and weights.
    """
    _check_keys(accept_unknown)
    files = hub.resolve(
        reference,
        catalogue=settings.catalogue,
        shapes=SHAPES,
        cache=settings.cache,
        progress=progress,
    )
    opened = _local(files, accept_unknown, compare_tied=True)
    check_accepted(accept_unknown, opened)
    return opened


def open_headers(
    reference: str,
    settings: hub.Settings,
    *,
    accept_unknown: Sequence[str] = (),
    check: bool = True,
) -> Opened:
    """What the headers of the model say, nothing else read and nothing downloaded.

    Without `check` the caller sees to keys in `accept_unknown` that the config does not have.

    Errors: as `open_model`; DownloadError where the model is neither here nor on the hub.
    """
    _check_keys(accept_unknown)
    catalogue, cache = settings.catalogue, settings.cache
    files = hub.locate(reference, catalogue=catalogue, shapes=SHAPES, cache=cache)
    if files is not None:
        opened = _local(files, accept_unknown, compare_tied=False)
    else:
        opened = _remote(reference, settings, accept_unknown)
    if check:
        check_accepted(accept_unknown, opened)
    return opened


def _local(files: hub.ModelFiles, accept: Sequence[str], *, compare_tied: bool) -> Opened:
    label = files.label
    if files.kind == "shape":
        shape = describe_config(label, SHAPES[label], label, accept)
        return Opened(label, "shape", shape, None, files)
    if files.kind == "config":
        return _from_config(files, files.path, accept)
    config = files.path / "config.json"
    if files.kind == "folder" and not _has_weights(files.path):
        return _from_config(files, config, accept)
    file = open_tensors(files.path)
    try:
        if files.kind == "safetensors":
            config = files.path.with_name("config.json")
            if _SHARD.fullmatch(files.path.name) or not config.is_file():
                return Opened(label, "file", None, file, files)
        raw = None if files.kind == "gguf" else read_json_object(config)
        found = describe_file(label, file, raw, str(config), accept, compare_tied)
    except BaseException:
        file.close()
        raise
    return Opened(label, "file", found, file, files)


def _from_config(files: hub.ModelFiles, config: Path, accept: Sequence[str]) -> Opened:
    found = describe_config(files.label, read_json_object(config), str(config), accept)
    return Opened(files.label, "config", found, None, files)


def _has_weights(folder: Path) -> bool:
    return any((folder / name).is_file() for name in _WEIGHT_FILES)


def weights_missing(opened: Opened) -> RequestError | None:
    """What to say where a folder has a config and no weights; None for other models."""
    if opened.file is not None or opened.files is None or opened.files.kind != "folder":
        return None
    folder = opened.files.path
    others = sorted(path.name for path in folder.iterdir() if path.suffix in _OTHER_WEIGHTS)[:5]
    more = [f"{', '.join(others)} is not read from a folder"] if len(others) == 1 else []
    if len(others) > 1:
        more = [f"{', '.join(others)} are not read from a folder"]
    named = next((name for name in others if name.endswith(".gguf")), None)
    return RequestError(
        f"{opened.label} can be counted and not run: its folder has no weights",
        f"looked for {' and '.join(_WEIGHT_FILES)}",
        *more,
        advice=f"name the file: {folder / named}" if named else None,
    )


def _remote(reference: str, settings: hub.Settings, accept: Sequence[str]) -> Opened:
    entry = settings.catalogue.get(reference)
    fetch = f"forwardpass pull {reference} fetches it, from other places than the hub too"
    try:
        remote = hub.open_remote(reference, catalogue=settings.catalogue)
    except DownloadError as error:
        if entry is None or error.advice is not None:
            raise
        raise DownloadError(error.fact, *error.details, advice=fetch) from error
    if remote is None:
        raise DownloadError(f"{reference} is not here", advice=fetch)
    raw: Mapping[str, object] | None = None
    where = ""
    by_path = {file.file.path: file for file in remote}
    if (config := by_path.get("config.json")) is not None:
        where = config.name
        raw = parse_object(_whole(config), where)
    file = _tensors(reference, by_path)
    found = describe_file(reference, file, raw, where, accept)
    return Opened(reference, "hub", found, file, None)


def _tensors(reference: str, by_path: Mapping[str, ByteSource]) -> TensorFile:
    """The tensors of a model on the hub, from the headers of its files."""
    if ggufs := [path for path in by_path if path.lower().endswith(".gguf")]:
        parts = {path.rpartition("/")[2]: by_path[path] for path in ggufs}
        return read_gguf(by_path[ggufs[0]], parts.__getitem__, lambda: _sizes(parts))
    weights = [path for path in by_path if path.endswith(".safetensors")]
    if _INDEX in by_path and "model.safetensors" not in by_path:
        return read_sharded(by_path[_INDEX], by_path.__getitem__, _sizes(by_path))
    if len(weights) != 1:
        raise FormatError(f"{reference}: {len(weights)} safetensors files and no {_INDEX}")
    return read_safetensors(by_path[weights[0]])


def _sizes(files: Mapping[str, ByteSource]) -> dict[str, int]:
    return {name: source.size for name, source in files.items()}


def _whole(source: ByteSource) -> bytes:
    if source.size > _MAX_CONFIG_BYTES:
        raise FormatError(f"{source.name}: {source.size:,} bytes are no config")
    return source.read(0, source.size)


def _check_keys(accept: object) -> None:
    if not isinstance(accept, list | tuple) or not all(isinstance(key, str) for key in accept):
        raise RequestError(f"accept_unknown = {accept!r:.60}: wanted a list of keys of the config")


def check_accepted(accept: Sequence[str], *models: Opened) -> None:
    """Refuses a key that none of the models needed to be accepted: it was meant for another."""
    configs = [model.description.config for model in models if model.description is not None]
    needed = {key for config in configs for key, _ in config.accepted_unknown}
    for key in accept:
        if key not in needed:
            for model in models:
                model.close()
            names = " and ".join(model.label for model in models)
            raise RequestError(
                f"accept_unknown = {key}: no unknown setting of {names} is called so"
            )
