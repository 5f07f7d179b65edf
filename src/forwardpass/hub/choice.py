"""Which files of a repository make up the model that was asked for."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import Literal

from forwardpass.errors import ModelNotFound, nearest
from forwardpass.formats.gguf_split import PartName, part_name
from forwardpass.hub.digest import Digest
from forwardpass.units import size

_SHARD = re.compile(r"model-\d{5}-of-\d{5}\.safetensors")
_SMALL = frozenset(
    (
        *("config.json", "generation_config.json", "model.safetensors.index.json"),
        *("tokenizer.json", "tokenizer_config.json", "tokenizer.model", "special_tokens_map.json"),
        *("added_tokens.json", "vocab.json", "merges.txt", "chat_template.json"),
        "chat_template.jinja",
    )
)


@dataclass(frozen=True)
class RemoteFile:
    """A file of a repository: its path there, its size, and what its bytes add up to."""

    path: str
    bytes: int
    digest: Digest


@dataclass(frozen=True)
class Listing:
    """The files of a Hugging Face repository at one commit."""

    repo: str
    commit: str
    license: str | None
    files: tuple[RemoteFile, ...]


@dataclass(frozen=True)
class Choice:
    """The files of one model: a GGUF, whole or in parts, or a folder's with the weights last."""

    kind: Literal["gguf", "folder"]
    files: tuple[RemoteFile, ...]

    @property
    def bytes(self) -> int:
        return sum(file.bytes for file in self.files)


def is_plain_path(path: object) -> bool:
    """Whether a repository's path stays inside the folder it is put into."""
    if not isinstance(path, str) or not path.isprintable() or "\\" in path or len(path) > 400:
        return False
    return all(part not in ("", ".", "..") and ":" not in part for part in path.split("/"))


def choose(listing: Listing, selector: str | None, label: str) -> Choice:
    """The files that a selector picks: a file's path, or a quantisation such as `Q4_K_M`.

    Without a selector: the safetensors model of the repository, or its only GGUF file.

    Errors: `ModelNotFound` listing what there is, where nothing or more than one thing matches.
    """
    everything = [file for file in listing.files if file.path.lower().endswith(".gguf")]
    ggufs = _first_parts(everything)
    if selector is not None:
        wanted = selector.lower()
        named = [f for f in everything if wanted in (f.path.lower(), _name(f).lower())]
        picked = named[0] if len(named) == 1 else _picked(ggufs, selector, label)
        return Choice("gguf", _all_parts(picked, everything))
    folder = _folder(listing.files)
    if folder is not None:
        return folder
    models = [file for file in ggufs if not _name(file).lower().startswith("mmproj")]
    if len(models) == 1:
        return Choice("gguf", _all_parts(models[0], everything))
    if models:
        raise ModelNotFound(
            f"{label} holds {len(models)} GGUF files; name one",
            *_lines(models),
            advice=f"for example {label}:{_name(models[0])}",
        )
    raise ModelNotFound(
        f"{label}: this repository holds no model that can be read",
        "wanted a .gguf file, or config.json with .safetensors files",
    )


def missing_parts(choice: Choice) -> list[str]:
    """The paths of the parts of a split GGUF that the repository does not hold."""
    found = _part(choice.files[0]) if choice.kind == "gguf" else None
    if found is None:
        return []
    folder, part = found
    here = {file.path for file in choice.files}
    return [path for name in part.all if (path := folder + name) not in here]


def _part(file: RemoteFile) -> tuple[str, PartName] | None:
    """The folder of a part of a split GGUF, with its slash, and what its name says."""
    part = part_name(_name(file))
    return (file.path.removesuffix(_name(file)), part) if part is not None else None


def _first_parts(ggufs: Sequence[RemoteFile]) -> list[RemoteFile]:
    """One file a model: of a split one the first part that is there, with the bytes of all."""
    groups: dict[tuple[object, ...], list[RemoteFile]] = {}
    for file in ggufs:
        found = _part(file)
        key = (file.path,) if found is None else (found[0], found[1].stem, found[1].parts)
        groups.setdefault(key, []).append(file)
    firsts = (sorted(group, key=lambda file: file.path) for group in groups.values())
    return [replace(group[0], bytes=sum(file.bytes for file in group)) for group in firsts]


def _all_parts(picked: RemoteFile, ggufs: Sequence[RemoteFile]) -> tuple[RemoteFile, ...]:
    """The file itself, or the parts that it is one of, in order."""
    found = _part(picked)
    wanted = [found[0] + name for name in found[1].all] if found is not None else [picked.path]
    by_path = {file.path: file for file in ggufs}
    return tuple(by_path[path] for path in wanted if path in by_path)


def _picked(ggufs: Sequence[RemoteFile], selector: str, label: str) -> RemoteFile:
    wanted = selector.lower()
    exact = [file for file in ggufs if wanted in (file.path.lower(), _name(file).lower())]
    whole = re.compile(rf"(?<![a-z0-9]){re.escape(wanted)}(?![a-z0-9_])")
    matching = exact or [file for file in ggufs if whole.search(_name(file).lower())]
    if len(matching) == 1:
        return matching[0]
    base = label.removesuffix(f":{selector}")
    if not ggufs:
        raise ModelNotFound(f"{base} holds no GGUF files, so there is no {selector} of it")
    if matching:
        raise ModelNotFound(
            f"{label} fits {len(matching)} files; name one",
            *_lines(matching),
            advice=f"for example {base}:{matching[0].path}",
        )
    near = nearest(wanted, [_name(file).lower() for file in ggufs])
    original = next((_name(file) for file in ggufs if _name(file).lower() == near), None)
    raise ModelNotFound(
        f"{base} holds no GGUF file like {selector}",
        *_lines(ggufs),
        advice=f"did you mean {base}:{original}?" if original else None,
    )


def _folder(files: Sequence[RemoteFile]) -> Choice | None:
    """The config, tokenizer and weights that lie in the repository's top folder, or None."""
    top = [file for file in files if "/" not in file.path]
    weights = (
        [file for file in top if file.path == "model.safetensors"]
        or [file for file in top if _SHARD.fullmatch(file.path)]
        or [file for file in top if file.path.endswith(".safetensors")]
    )
    if not weights or not any(file.path == "config.json" for file in top):
        return None
    return Choice("folder", (*(file for file in top if file.path in _SMALL), *weights))


def _name(file: RemoteFile) -> str:
    return PurePosixPath(file.path).name


def _lines(files: Sequence[RemoteFile]) -> list[str]:
    shown = sorted(files, key=lambda file: file.bytes)[:30]
    width = max(len(file.path) for file in shown)
    lines = [f"{file.path:<{width}}  {size(file.bytes):>9}" for file in shown]
    more = len(files) - len(shown)
    return [*lines, f"and {more} more"] if more else lines
