"""The folder where fetched models lie, and what is known about the files in it.

home/NAME.gguf               a model of the catalogue, verified before it got its name
home/NAME.gguf.partial       one on its way; a later try goes on from its end
home/hub/ORG--NAME/          files of a Hugging Face repository, by commit
home/verified/, home/locks/  stamps of files that were hashed; one lock a download
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from forwardpass.hub.catalogue import Catalogue, load_catalogue
from forwardpass.hub.digest import Digest
from forwardpass.hub.paths import written

HOME = "FORWARDPASS_HOME"
CATALOGUE = "FORWARDPASS_CATALOGUE"


@dataclass(frozen=True)
class Stamp:
    """That a file of this size and time of change was hashed once, and where it came from."""

    path: str
    bytes: int
    mtime_ns: int
    digest: str
    origin: str


@dataclass(frozen=True)
class Cache:
    """A folder for models. Nothing in it is made before something is put there."""

    home: Path

    def file(self, name: str) -> Path:
        """Where the catalogue's file of that name lies, or would lie."""
        return self.home / name

    def repository(self, repo: str) -> Path:
        """Where the files of a Hugging Face repository lie; `repo` is a checked org/name."""
        return self.home / "hub" / repo.replace("/", "--")

    def lock(self, path: Path) -> Path:
        """The lock file of whoever fetches `path`."""
        return self.home / "locks" / f"{_key(path)}.lock"

    def stamp(self, path: Path) -> Stamp | None:
        """What was found when `path` was hashed; None where it never was, or has changed."""
        try:
            kept = json.loads(self._stamp_path(path).read_text(encoding="utf-8"))
            stamp = Stamp(**kept)
            found = path.stat()
        except (OSError, ValueError, TypeError, RecursionError):
            return None
        same = (os.path.abspath(path), found.st_size, found.st_mtime_ns)
        return stamp if same == (stamp.path, stamp.bytes, stamp.mtime_ns) else None

    def remember(self, path: Path, digest: Digest, origin: str) -> None:
        """Keeps the stamp of a file that has just been hashed."""
        found = path.stat()
        stamp = Stamp(os.path.abspath(path), found.st_size, found.st_mtime_ns, str(digest), origin)
        target = self._stamp_path(path)
        # Without its stamp a file is hashed again next time; a read-only folder costs no more.
        with suppress(OSError):
            target.parent.mkdir(parents=True, exist_ok=True)
            fresh = target.with_suffix(f".{os.getpid()}")
            fresh.write_text(json.dumps(vars(stamp)), encoding="utf-8")
            fresh.replace(target)

    def forget(self, path: Path) -> None:
        """Drops the stamp of a file that is gone."""
        self._stamp_path(path).unlink(missing_ok=True)

    def verified(
        self,
        path: Path,
        size: int,
        digest: Digest,
        origin: str,
        on_bytes: Callable[[int], None] | None = None,
    ) -> Stamp | None:
        """The stamp of `path` where its bytes are the ones wanted, else None.

        The file is hashed only where its stamp is missing or older than the file; `origin` is
        where it is then said to come from.
        """
        try:
            if not path.is_file() or path.stat().st_size != size:
                return None
            stamp = self.stamp(path)
            if stamp is None or stamp.digest.split(" ")[0] != digest.kind:
                if digest.of(path, on_bytes) != digest.value:
                    return None
                self.remember(path, digest, origin)
                found = path.stat()
                return Stamp(str(path), size, found.st_mtime_ns, str(digest), origin)
        except OSError:
            return None
        return stamp if stamp.digest == str(digest) else None

    def _stamp_path(self, path: Path) -> Path:
        return self.home / "verified" / f"{_key(path)}.json"


def _key(path: Path) -> str:
    """A file name that stands for a path, the same for all ways to write the path."""
    return hashlib.sha256(os.fsencode(os.path.abspath(path))).hexdigest()[:32]


@dataclass(frozen=True)
class Settings:
    """The models that have a name, and the folder they are kept in."""

    catalogue: Catalogue
    cache: Cache


def settings(environ: Mapping[str, str]) -> Settings:
    """Catalogue and cache as the environment names them.

    `FORWARDPASS_HOME` is the cache folder (default: the user's cache folder of this system);
    `FORWARDPASS_CATALOGUE` names more catalogue files, separated as in `PATH`. The variables of
    the hub (`HF_…`) and of package installers (`PIP_…`, `UV_…`) are read by these themselves.

    Errors: those of `load_catalogue`; `RequestError` for the home folder of somebody unknown.
    """
    home = environ.get(HOME)
    if home:
        folder = written(home, f"{HOME} = ").absolute()
    else:
        from platformdirs import user_cache_path

        folder = user_cache_path("forwardpass", appauthor=False)
    named = environ.get(CATALOGUE, "").split(os.pathsep)
    return Settings(
        catalogue=load_catalogue([written(name, f"{CATALOGUE} = ") for name in named if name]),
        cache=Cache(folder),
    )
