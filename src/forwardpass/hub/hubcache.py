"""What huggingface_hub has fetched before, used where it lies.

Its cache links `snapshots/COMMIT/PATH` to `blobs/DIGEST`, where the digest is the SHA-256 of a
large file and git's id of a small one, so what lies there can be verified without the network.

Source: "Understand caching" in the documentation of huggingface_hub.
"""

from __future__ import annotations

import re
from pathlib import Path

from forwardpass.hub.choice import Choice, Listing, RemoteFile
from forwardpass.hub.digest import Digest
from forwardpass.hub.references import HubId

_BLOB = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_COMMIT = re.compile(r"[0-9a-f]{40}")
_PART = re.compile(r".*-\d{5}-of-(\d{5})\.(?:safetensors|gguf)")


def cached_by_the_hub(repo: str, commit: str, file: str) -> Path | None:
    """Where huggingface_hub keeps a file that it fetched at that commit, or None."""
    from huggingface_hub import try_to_load_from_cache

    try:
        found = try_to_load_from_cache(repo, file, revision=commit)
    except (OSError, ValueError):
        return None
    return Path(found) if isinstance(found, str) else None


def listing_from_cache(hub_id: HubId) -> Listing | None:
    """The files of a repository that huggingface_hub keeps, as if the hub had listed them.

    None where it keeps nothing of that revision. The repository may hold more.
    """
    found = _snapshot(hub_id)
    if found is None:
        return None
    folder, commit = found
    files = []
    for path in sorted(folder.rglob("*")):
        blob = path.resolve()
        if path.is_file() and _BLOB.fullmatch(blob.name):
            digest = Digest("sha256" if len(blob.name) == 64 else "git", blob.name)
            name = path.relative_to(folder).as_posix()
            files.append(RemoteFile(name, blob.stat().st_size, digest))
    return Listing(hub_id.repo, commit, None, tuple(files)) if files else None


def _snapshot(hub_id: HubId) -> tuple[Path, str] | None:
    """The snapshot folder of the id's revision in huggingface_hub's cache, and its commit."""
    from huggingface_hub import constants

    root = Path(constants.HF_HUB_CACHE) / f"models--{hub_id.repo.replace('/', '--')}"
    commit = hub_id.revision
    try:
        if not _COMMIT.fullmatch(commit):
            commit = (root / "refs" / commit).read_text(encoding="utf-8").strip()
    except (OSError, ValueError):
        return None
    folder = root / "snapshots" / commit
    return (folder, commit) if _COMMIT.fullmatch(commit) and folder.is_dir() else None


def is_whole(choice: Choice) -> bool:
    """Whether all parts of a model's weights are among the chosen files."""
    parts = [found for file in choice.files if (found := _PART.fullmatch(file.path))]
    return all(int(part[1]) == len(parts) for part in parts)
