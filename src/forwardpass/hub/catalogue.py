"""The catalogue: short names of models, what their files are, and where to fetch them.

A catalogue file is TOML with a table `models."alias"` for each model: `file`, `bytes`, `sha256`,
`license`, `about`, and a list of `sources` that are tried in order. A source's `kind` is `hub`
(`repo`, `file`, `revision`) or `packages` (Python packages that carry the file whole, or in
parts that are put together in order; each with `name`, `version` and `member`, a pattern that
exactly one file of the package matches). Unknown keys are refused by name.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from forwardpass.errors import ConfigError, did_you_mean
from forwardpass.hub.digest import Digest

BUILT_IN = Path(__file__).with_name("catalogue.toml")

_ALIAS = re.compile(r"[a-z0-9][a-z0-9._-]*")
_FILE = re.compile(r"[A-Za-z0-9][\w.+-]*", re.ASCII)
_REPO = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*", re.ASCII)
_REPO_FILE = re.compile(r"[\w+-][\w.+-]*(/[\w+-][\w.+-]*)*", re.ASCII)
_REVISION = re.compile(r"[0-9a-f]{40}")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_PACKAGE = re.compile(r"[A-Za-z0-9]([\w.-]*[A-Za-z0-9])?", re.ASCII)
_VERSION = re.compile(r"[0-9][\w.!+]*", re.ASCII)
_TEXT = re.compile(r"[^\x00-\x1f\x7f]+")


@dataclass(frozen=True)
class HubPlace:
    """One file at one commit of a Hugging Face repository."""

    repo: str
    file: str
    revision: str


@dataclass(frozen=True)
class Package:
    """A file, or a part of one, inside a Python package."""

    name: str
    version: str
    member: str


@dataclass(frozen=True)
class PackagesPlace:
    """Python packages that together carry a file, in the order of its parts."""

    packages: tuple[Package, ...]


@dataclass(frozen=True)
class Entry:
    """A model of the catalogue."""

    alias: str
    file: str
    bytes: int
    sha256: str
    license: str
    about: str
    sources: tuple[HubPlace | PackagesPlace, ...]

    @property
    def digest(self) -> Digest:
        return Digest("sha256", self.sha256)


@dataclass(frozen=True)
class Catalogue:
    """The models by their aliases."""

    models: Mapping[str, Entry]

    def __iter__(self) -> Iterator[Entry]:
        return iter(self.models.values())

    def get(self, alias: str) -> Entry | None:
        """The model of that alias, or None."""
        return self.models.get(alias)


def load_catalogue(files: Sequence[Path] = ()) -> Catalogue:
    """The built-in catalogue and those in `files`.

    An entry in one of `files` takes the place of the built-in one of its alias.

    Errors: `ConfigError` where a file cannot be read or says anything that is not understood,
    where two of `files` hold the same alias, or two models would share a file name.
    """
    added: dict[str, Entry] = {}
    for path in files:
        for entry in read_catalogue(path):
            if entry.alias in added:
                raise ConfigError(f'{path}: model "{entry.alias}" is in another catalogue file too')
            added[entry.alias] = entry
    models = {entry.alias: entry for entry in read_catalogue(BUILT_IN)} | added
    owners: dict[str, Entry] = {}
    for entry in models.values():
        other = owners.setdefault(entry.file, entry)
        if other.sha256 != entry.sha256:
            raise ConfigError(
                f'{entry.file}: both "{other.alias}" and "{entry.alias}" want this file name'
            )
    return Catalogue(models)


def read_catalogue(path: Path) -> list[Entry]:
    """The entries of one catalogue file. Errors: `ConfigError` naming the file and the place."""
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror or error}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(f"{path}: not TOML: {error}") from error
    top = _Table(str(path), "", document)
    models = top.get("models", lambda value: isinstance(value, dict), "a table of models")
    top.finish()
    return [_entry(str(path), alias, value) for alias, value in models.items()]


def _entry(path: str, alias: str, value: object) -> Entry:
    where = f'models."{alias}"'
    if not _ALIAS.fullmatch(alias):
        raise ConfigError(
            f"{path}: {where}: an alias is made of a-z, 0-9, dots, dashes and underscores"
        )
    table = _Table(path, where, value)
    entry = Entry(
        alias=alias,
        file=table.text("file", _FILE, "a plain file name"),
        bytes=table.get("bytes", lambda n: type(n) is int and n > 0, "a count of bytes above 0"),
        sha256=table.text("sha256", _SHA256, "64 lower-case hexadecimal digits"),
        license=table.text("license", _TEXT, "one line of text"),
        about=table.text("about", _TEXT, "one line of text"),
        sources=tuple(
            _source(_Table(path, f"{where}.sources[{i}]", source))
            for i, source in enumerate(table.sequence("sources"))
        ),
    )
    table.finish()
    return entry


def _source(table: _Table) -> HubPlace | PackagesPlace:
    kind = table.text("kind", _TEXT, '"hub" or "packages"')
    place: HubPlace | PackagesPlace
    if kind == "hub":
        place = HubPlace(
            repo=table.text("repo", _REPO, "org/name"),
            file=table.text("file", _REPO_FILE, "a file's path in the repository"),
            revision=table.text("revision", _REVISION, "a commit, 40 hexadecimal digits"),
        )
    elif kind == "packages":
        rows = table.sequence("packages")
        tables = [
            _Table(table.path, f"{table.where}.packages[{i}]", row) for i, row in enumerate(rows)
        ]
        place = PackagesPlace(tuple(_package(row) for row in tables))
    else:
        raise table.error(f'kind = "{kind}", wanted "hub" or "packages"')
    table.finish()
    return place


def _package(table: _Table) -> Package:
    package = Package(
        name=table.text("name", _PACKAGE, "a package's name"),
        version=table.text("version", _VERSION, "a version"),
        member=table.text("member", _TEXT, "a file's path in the package, * for any letters"),
    )
    table.finish()
    return package


class _Table:
    """A TOML table whose keys are taken one by one; what is left over is refused."""

    def __init__(self, path: str, where: str, value: object) -> None:
        self.path, self.where = path, where
        if not isinstance(value, dict):
            raise self.error(f"a table is wanted, not {value!r:.60}")
        self.left: dict[str, Any] = dict(value)
        self.taken: list[str] = []

    def error(self, text: str) -> ConfigError:
        return ConfigError(": ".join(part for part in (self.path, self.where, text) if part))

    def get(self, key: str, accept: Callable[[Any], bool], wanted: str) -> Any:
        self.taken.append(key)
        if key not in self.left:
            unknown = ", ".join(self.left) or "nothing"
            raise self.error(f"{key} is missing, wanted {wanted}; there is {unknown}")
        value = self.left.pop(key)
        if not accept(value):
            raise self.error(f"{key} = {value!r:.80}, wanted {wanted}")
        return value

    def text(self, key: str, pattern: re.Pattern[str], wanted: str) -> str:
        value = self.get(
            key,
            lambda text: (
                isinstance(text, str) and len(text) <= 300 and bool(pattern.fullmatch(text))
            ),
            wanted,
        )
        return str(value)

    def sequence(self, key: str) -> list[object]:
        value = self.get(key, lambda rows: isinstance(rows, list) and bool(rows), "a list")
        return list(value)

    def finish(self) -> None:
        for key in self.left:
            raise self.error(f"{key} is not a known key{did_you_mean(key, self.taken)}")
