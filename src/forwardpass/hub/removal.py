"""What of a model lies in our cache, and how it is taken away again.

Only what forwardpass fetched itself is touched: nothing outside its own folder, and of what
huggingface_hub keeps at most the links that lead there.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from forwardpass.errors import DownloadError, RequestError
from forwardpass.hub.cache import Cache
from forwardpass.hub.catalogue import Catalogue, Entry
from forwardpass.hub.choice import choose
from forwardpass.hub.listings import forget_listing, kept_listing, snapshot
from forwardpass.hub.references import HubId, ModelFiles
from forwardpass.hub.resolver import locate, named

_LEFTOVERS = (".partial", ".parts")  # of a download that was stopped


@dataclass(frozen=True)
class Kept:
    """One file of ours, with the bytes that its removal gives back; a link gives none."""

    path: Path
    bytes: int
    link: bool


@dataclass(frozen=True)
class Removal:
    """The files of ours that a model's reference stands for, parts of downloads included."""

    label: str
    files: tuple[Kept, ...]
    hub_id: HubId | None

    @property
    def bytes(self) -> int:
        """What their removal gives back."""
        return sum(file.bytes for file in self.files)


def removal(
    reference: str, *, catalogue: Catalogue, shapes: Collection[str], cache: Cache
) -> Removal:
    """What could be removed of the model that `reference` names.

    Errors: `ModelNotFound` where there is no such model; `RequestError` where nothing of it is
    ours: a local path, a bundled shape, files that huggingface_hub keeps, or nothing at all.
    """
    found = named(reference, catalogue, shapes)
    if isinstance(found, ModelFiles):
        if found.kind == "shape":
            raise RequestError(f"{reference} is a shape, known without weights: it has no files")
        raise RequestError(
            f"{reference} is a path of yours, and rm removes only what was downloaded",
            advice="forwardpass models lists that",
        )
    hub_id = found if isinstance(found, HubId) else None
    places = [cache.file(found.file)] if isinstance(found, Entry) else _of_the_hub(found, cache)
    files = tuple(kept for place in places for kept in _kept(place))
    if not files:
        raise _nothing(reference, catalogue, shapes, cache)
    return Removal(reference, files, hub_id)


def remove(removal: Removal, cache: Cache) -> None:
    """Deletes the files, what was known about them, and the folders that this empties.

    Errors: `RequestError` where one of them is being fetched just now; `DownloadError` where the
    system refuses.
    """
    from filelock import FileLock, Timeout

    with contextlib.ExitStack() as held:
        for path in {_final(file.path) for file in removal.files}:
            lock = cache.lock(path)
            lock.parent.mkdir(parents=True, exist_ok=True)
            try:
                held.enter_context(FileLock(lock).acquire(timeout=0.2))
            except Timeout:
                raise RequestError(
                    f"{removal.label}: {path.name} is being fetched just now"
                ) from None
        for file in removal.files:
            try:
                file.path.unlink(missing_ok=True)
            except OSError as error:
                raise DownloadError(
                    f"{file.path}: cannot be removed: {error.strerror or error}"
                ) from error
            cache.forget(file.path)
    _tidy(removal, cache)


def _of_the_hub(hub_id: HubId, cache: Cache) -> list[Path]:
    """Our places for the files of a repository: of one model in it, or of all."""
    listing = kept_listing(hub_id, cache)
    if listing is None:
        return []
    files = listing.files
    if hub_id.selector is not None:
        files = choose(listing, hub_id.selector, hub_id.text).files
    return [snapshot(listing, cache) / file.path for file in files]


def _kept(place: Path) -> Iterator[Kept]:
    for path in (place, *(place.with_name(place.name + ending) for ending in _LEFTOVERS)):
        if path.is_symlink():
            yield Kept(path, 0, link=True)
        elif path.is_file():
            yield Kept(path, path.stat().st_size, link=False)


def _final(path: Path) -> Path:
    """The file that a partial one is to become."""
    ending = next((ending for ending in _LEFTOVERS if path.name.endswith(ending)), "")
    return path.with_name(path.name.removesuffix(ending))


def _nothing(
    reference: str, catalogue: Catalogue, shapes: Collection[str], cache: Cache
) -> RequestError:
    elsewhere = locate(reference, catalogue=catalogue, shapes=shapes, cache=cache)
    if elsewhere is None:
        return RequestError(
            f"{reference} is not here, so there is nothing to remove",
            advice="forwardpass models lists what is here",
        )
    return RequestError(
        f"{reference} lies in the cache of huggingface_hub, which other programs use too",
        str(elsewhere.path),
        advice="hf cache removes it there",
    )


def _tidy(removal: Removal, cache: Cache) -> None:
    """Takes away the folders that are empty now, and the listing of a repository without files."""
    home = cache.home.resolve()
    for file in removal.files:
        folder = file.path.parent
        while home in folder.resolve().parents:
            if removal.hub_id is not None and folder == cache.repository(removal.hub_id.repo):
                forget_listing(removal.hub_id, cache)
            try:
                folder.rmdir()
            except OSError:
                break
            folder = folder.parent
