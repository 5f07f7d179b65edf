"""From a reference to files on this machine: what is here is used, what is missing is fetched."""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Mapping
from pathlib import Path

from forwardpass.errors import DownloadError, ModelNotFound
from forwardpass.hub.cache import HOME, Cache, Stamp, settings
from forwardpass.hub.catalogue import Catalogue, Entry, HubPlace
from forwardpass.hub.choice import Choice, Listing, RemoteFile, choose, missing_parts
from forwardpass.hub.download import Source, Wanted, fetch
from forwardpass.hub.failures import SourceFailed, writing
from forwardpass.hub.hubcache import cached_by_the_hub, is_whole, listing_from_cache
from forwardpass.hub.listings import keep_listing, kept_listing, snapshot
from forwardpass.hub.packages import PackagesSource
from forwardpass.hub.progress import Progress, Silent
from forwardpass.hub.references import (
    HUB,
    HubId,
    ModelFiles,
    exists,
    folder_bytes,
    local_model,
    means_a_path,
    no_such_model,
    parse_hub_id,
)
from forwardpass.hub.remote import (
    HubFile,
    HubSource,
    list_files,
)

_ADVICE = f"put the file anywhere and pass its path, or set {HOME} to a folder that has it"
_FOLDER_ADVICE = "put the files anywhere and pass their path"


def resolve(
    reference: str,
    *,
    catalogue: Catalogue,
    shapes: Collection[str],
    cache: Cache,
    fetch: bool = True,
    refresh: bool = False,
    progress: Progress | None = None,
) -> ModelFiles:
    """The files of the model that `reference` names, fetched where they are not here.

    A reference is tried as a path, an alias of the catalogue, a bundled shape, and an id of the
    Hugging Face hub, in this order. With `refresh` the hub is asked what a revision holds now,
    even where an earlier answer is kept.

    Errors: `ModelNotFound` where there is no such model or a repository holds several;
    `DownloadError` where it could not be fetched, or is not here and `fetch` is false.
    """
    listener = progress or Silent()
    found = named(reference, catalogue, shapes)
    if isinstance(found, ModelFiles):
        return found
    here = None if refresh and isinstance(found, HubId) else _here(found, cache)
    if here is not None:
        return here
    if not fetch:
        raise DownloadError(
            f"{reference} is not here", advice=f"forwardpass pull {reference} fetches it"
        )
    if isinstance(found, Entry):
        return _fetch_entry(found, cache, listener)
    return _fetch_hub(found, cache, listener)


def pull(
    reference: str,
    environ: Mapping[str, str] = os.environ,
    progress: Progress | None = None,
) -> Path:
    """The path of a model's file or folder, fetched where it is not here: `resolve` in short.

    Catalogue and cache are those that `environ` names.
    """
    from forwardpass.shapes import SHAPES

    where = settings(environ)
    files = resolve(
        reference,
        catalogue=where.catalogue,
        shapes=SHAPES,
        cache=where.cache,
        progress=progress,
    )
    return files.path


def locate(
    reference: str, *, catalogue: Catalogue, shapes: Collection[str], cache: Cache
) -> ModelFiles | None:
    """The files of a model that are here whole; None where they would have to be fetched.

    Errors: `ModelNotFound` where there is no such model.
    """
    return _here(named(reference, catalogue, shapes), cache)


def _here(found: ModelFiles | Entry | HubId, cache: Cache) -> ModelFiles | None:
    if isinstance(found, Entry):
        return _entry_here(found, cache)
    return _hub_here(found, cache) if isinstance(found, HubId) else found


def open_remote(reference: str, *, catalogue: Catalogue) -> tuple[HubFile, ...] | None:
    """The model's files on the hub, to be read range by range without a download.

    One GGUF file, or the files of a folder. None where the reference names nothing on the hub.

    Errors: `ModelNotFound`; `DownloadError` where the hub gives no answer.
    """
    entry, hub_id = catalogue.get(reference), parse_hub_id(reference)
    try:
        if entry is not None:
            return _open_entry(entry)
        if hub_id is None:
            return None
        listing = list_files(hub_id)
    except SourceFailed as failure:
        raise DownloadError(f"{reference}: the Hugging Face hub: {failure}") from failure
    choice = choose(listing, hub_id.selector, reference)
    _check_parts(choice, reference)
    return tuple(HubFile(listing.repo, listing.commit, file) for file in choice.files)


def _check_parts(choice: Choice, label: str) -> None:
    """Refuses a split GGUF before its first byte is fetched where not all of it is there."""
    if missing := missing_parts(choice):
        total = len(missing) + len(choice.files)
        raise ModelNotFound(
            f"{label}: the repository lacks {len(missing)} of the {total} parts", *missing[:5]
        )


def _open_entry(entry: Entry) -> tuple[HubFile, ...] | None:
    place = next((place for place in entry.sources if isinstance(place, HubPlace)), None)
    if place is None:
        return None
    file = RemoteFile(place.file, entry.bytes, entry.digest)
    HubSource(place.repo, place.revision, file).check()
    return (HubFile(place.repo, place.revision, file),)


def named(
    reference: str, catalogue: Catalogue, shapes: Collection[str]
) -> ModelFiles | Entry | HubId:
    """What a reference means: files at a path or a shape, a model of the catalogue, or a hub id.

    Errors: `ModelNotFound` where it means nothing.
    """
    local = local_model(reference)
    if local is not None:
        return local
    if not means_a_path(reference):
        entry = catalogue.get(reference)
        if entry is not None:
            return entry
        if reference in shapes:
            return ModelFiles("shape", (), reference, "a bundled shape", None, 0)
        hub_id = parse_hub_id(reference)
        # What lies here is what is meant, even where it is no model.
        if hub_id is not None and not exists(reference):
            return hub_id
    raise no_such_model(reference, catalogue.models, shapes)


def _entry_here(entry: Entry, cache: Cache) -> ModelFiles | None:
    path = cache.file(entry.file)
    stamp = cache.verified(path, entry.bytes, entry.digest, "a local file")
    if stamp is not None:
        return _entry_files(entry, path, stamp)
    for place in entry.sources:
        if isinstance(place, HubPlace):
            kept = cached_by_the_hub(place.repo, place.revision, place.file)
            if kept is None:
                continue
            stamp = cache.verified(kept, entry.bytes, entry.digest, HUB)
            if stamp is not None:
                return _entry_files(entry, kept, stamp)
    return None


def _fetch_entry(entry: Entry, cache: Cache, progress: Progress) -> ModelFiles:
    path = cache.file(entry.file)
    sources: list[Source] = []
    for place in entry.sources:
        if isinstance(place, HubPlace):
            file = RemoteFile(place.file, entry.bytes, entry.digest)
            sources.append(HubSource(place.repo, place.revision, file))
        else:
            sources.append(PackagesSource(place, entry.bytes))
    wanted = Wanted(entry.alias, path, entry.bytes, entry.digest, entry.license, _ADVICE)
    return _entry_files(entry, path, fetch(wanted, sources, cache, progress))


def _entry_files(entry: Entry, path: Path, stamp: Stamp) -> ModelFiles:
    return ModelFiles(
        kind="gguf",
        paths=(path,),
        label=entry.alias,
        origin=stamp.origin,
        license=entry.license,
        bytes=entry.bytes,
        sha256=entry.sha256,
    )


def _hub_here(hub_id: HubId, cache: Cache) -> ModelFiles | None:
    listing = kept_listing(hub_id, cache)
    if listing is None:
        return None
    choice = choose(listing, hub_id.selector, hub_id.text)
    if len(choice.files) == 1 and choice.kind == "gguf":
        place = _place(listing, choice.files[0], cache)
        return _hub_files(hub_id, listing, choice, place) if place else None
    folder = snapshot(listing, cache)
    inside = [_verified(folder / file.path, file, cache) for file in choice.files]
    if not all(inside):
        return None
    path = folder if choice.kind == "folder" else folder / choice.files[0].path
    return _hub_files(hub_id, listing, choice, path)


def _fetch_hub(hub_id: HubId, cache: Cache, progress: Progress) -> ModelFiles:
    started = time.monotonic()
    try:
        listing = list_files(hub_id)
    except SourceFailed as failure:
        reason = f"{failure} ({time.monotonic() - started:.1f} s)"
        return _without_the_hub(hub_id, cache, progress, reason)
    choice = choose(listing, hub_id.selector, hub_id.text)
    _check_parts(choice, hub_id.text)
    keep_listing(hub_id, listing, cache)
    return _bring(hub_id, listing, choice, cache, progress)


def _without_the_hub(hub_id: HubId, cache: Cache, progress: Progress, reason: str) -> ModelFiles:
    """The model out of what was fetched before, by us or by another user of the hub's cache."""
    here = _hub_here(hub_id, cache)
    if here is None and (listing := listing_from_cache(hub_id)) is not None:
        choice = choose(listing, hub_id.selector, hub_id.text)
        if is_whole(choice):
            here = _bring(hub_id, listing, choice, cache, progress)
    if here is None:
        raise DownloadError(
            f"{hub_id.text} is not here and could not be fetched",
            f"Hugging Face hub  {reason}",
            advice=_FOLDER_ADVICE,
        )
    progress.note(f"{hub_id.text}: Hugging Face hub: {reason}; what is here is used")
    return here


def _bring(
    hub_id: HubId, listing: Listing, choice: Choice, cache: Cache, progress: Progress
) -> ModelFiles:
    folder = snapshot(listing, cache)
    for file in choice.files:
        # What is several files must lie together.
        together = choice.kind == "folder" or len(choice.files) > 1
        _fetch_file(hub_id, listing, file, cache, progress, link=together)
    if choice.kind == "folder":
        return _hub_files(hub_id, listing, choice, folder)
    if len(choice.files) > 1:
        return _hub_files(hub_id, listing, choice, folder / choice.files[0].path)
    path = _place(listing, choice.files[0], cache) or folder / choice.files[0].path
    return _hub_files(hub_id, listing, choice, path)


def _fetch_file(
    hub_id: HubId,
    listing: Listing,
    file: RemoteFile,
    cache: Cache,
    progress: Progress,
    link: bool,
) -> None:
    """Brings one file here; with `link`, one in the hub's own cache is linked into our folder."""
    target = snapshot(listing, cache) / file.path
    if _verified(target, file, cache):
        return
    kept = _place(listing, file, cache)
    if kept is not None:
        if link:
            with writing(target):
                target.parent.mkdir(parents=True, exist_ok=True)
                target.unlink(missing_ok=True)
                os.symlink(kept.resolve(), target)
        return
    wanted = Wanted(
        label=hub_id.text,
        path=target,
        bytes=file.bytes,
        digest=file.digest,
        license=listing.license,
        advice=_FOLDER_ADVICE,
    )
    fetch(wanted, [HubSource(listing.repo, listing.commit, file)], cache, progress)


def _place(listing: Listing, file: RemoteFile, cache: Cache) -> Path | None:
    """Where a file of the listing lies, verified: in our cache or in the hub's own."""
    ours = snapshot(listing, cache) / file.path
    if _verified(ours, file, cache):
        return ours
    kept = cached_by_the_hub(listing.repo, listing.commit, file.path)
    return kept if kept is not None and _verified(kept, file, cache) else None


def _verified(path: Path, file: RemoteFile, cache: Cache) -> bool:
    return cache.verified(path, file.bytes, file.digest, HUB) is not None


def _hub_files(hub_id: HubId, listing: Listing, choice: Choice, path: Path) -> ModelFiles:
    only = choice.files[0].digest if len(choice.files) == 1 else None
    return ModelFiles(
        kind=choice.kind,
        paths=(path,),
        label=hub_id.text,
        origin=HUB,
        license=listing.license,
        bytes=choice.bytes if choice.kind == "gguf" else folder_bytes(path),
        sha256=only.value if only is not None and only.kind == "sha256" else None,
        revision=listing.commit,
    )
