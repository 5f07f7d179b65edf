"""What the hub said a repository holds, kept so that the next use needs no network."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

from forwardpass.hub.cache import Cache
from forwardpass.hub.choice import Listing, RemoteFile, is_plain_path
from forwardpass.hub.digest import Digest
from forwardpass.hub.failures import writing
from forwardpass.hub.references import HubId, parse_hub_id

_COMMIT = re.compile(r"[0-9a-f]{40}")


def snapshot(listing: Listing, cache: Cache) -> Path:
    """The folder for a repository's files at the listing's commit."""
    return cache.repository(listing.repo) / listing.commit


def keep_listing(hub_id: HubId, listing: Listing, cache: Cache) -> None:
    """Keeps a listing as what the id's revision holds."""
    path = _path(hub_id, cache)
    document = {
        "repo": listing.repo,
        "commit": listing.commit,
        "license": listing.license,
        "files": [
            {"path": f.path, "bytes": f.bytes, "kind": f.digest.kind, "digest": f.digest.value}
            for f in listing.files
        ],
    }
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh = path.with_name(f"{path.name}.{os.getpid()}")
        fresh.write_text(json.dumps(document), encoding="utf-8")
        fresh.replace(path)


def kept_listing(hub_id: HubId, cache: Cache) -> Listing | None:
    """The listing that was kept for the id's revision, or None where there is no usable one."""
    listing = _read(_path(hub_id, cache))
    return listing if listing is not None and listing.repo == hub_id.repo else None


def forget_listing(hub_id: HubId, cache: Cache) -> None:
    """Drops what was kept for the id's revision."""
    _path(hub_id, cache).unlink(missing_ok=True)


def kept_listings(cache: Cache) -> Iterator[tuple[str, Listing]]:
    """All kept listings, each with the revision that it was kept for."""
    for path in sorted((cache.home / "hub").glob("*/*.json")):
        listing = _read(path)
        if listing is not None:
            yield unquote(path.stem), listing


def _path(hub_id: HubId, cache: Cache) -> Path:
    return cache.repository(hub_id.repo) / f"{quote(hub_id.revision, safe='')}.json"


def _read(path: Path) -> Listing | None:
    with suppress(OSError, ValueError, TypeError, KeyError, RecursionError):
        kept: Any = json.loads(path.read_text(encoding="utf-8"))
        files = tuple(
            RemoteFile(row["path"], int(row["bytes"]), Digest(row["kind"], row["digest"]))
            for row in kept["files"]
        )
        plain = all(is_plain_path(file.path) for file in files)
        if plain and _COMMIT.fullmatch(kept["commit"]) and parse_hub_id(kept["repo"]):
            return Listing(kept["repo"], kept["commit"], kept["license"], files)
    return None
