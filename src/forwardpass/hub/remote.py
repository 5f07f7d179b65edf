"""The Hugging Face hub, through huggingface_hub's session, tokens, proxies and offline switch.

The library's own download function starts a file again from its first byte after any
interruption (2.4), and its retries keep a machine without a route waiting for minutes. So only
its building blocks are used, and the bytes go through `download.py`.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from forwardpass.errors import DownloadError, ModelNotFound
from forwardpass.hub.choice import Listing, RemoteFile, is_plain_path
from forwardpass.hub.digest import Digest
from forwardpass.hub.download import Partial
from forwardpass.hub.failures import (
    ANSWER_SECONDS,
    SourceFailed,
    network_errors,
    within,
    words,
)
from forwardpass.hub.progress import Progress
from forwardpass.hub.references import HUB, HubId
from forwardpass.units import exact

_TRIES = 3
_UNASKED_LIMIT = 1 << 20
_SHA256 = re.compile(r"[0-9a-f]{64}")
_SHA1 = re.compile(r"[0-9a-f]{40}")
_CONTENT_RANGE = re.compile(r"bytes (\d+)-(\d+)/(\d+)")
_MAX_FILES = 100_000


def list_files(hub_id: HubId) -> Listing:
    """The files of a repository at the revision that the id names.

    Errors: `ModelNotFound` where the hub knows no such repository or revision, `SourceFailed`
    where it gives no answer within ten seconds, refuses, or answers in another form.
    """
    from huggingface_hub import HfApi, errors

    def ask() -> Any:
        return HfApi(library_name="forwardpass").model_info(
            hub_id.repo, revision=hub_id.revision, files_metadata=True, timeout=ANSWER_SECONDS
        )

    try:
        info = within(ANSWER_SECONDS, ask)
    except errors.GatedRepoError as error:
        raise SourceFailed(words(error)) from error
    except (errors.RepositoryNotFoundError, errors.RevisionNotFoundError) as error:
        what = f"{hub_id.repo}@{hub_id.revision}" if _revision_is_missing(error) else hub_id.repo
        raise ModelNotFound(
            f'there is no model "{what}" on the Hugging Face hub',
            advice="if it is private, log in with `hf auth login`",
        ) from error
    except network_errors() as error:
        raise SourceFailed(words(error)) from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise SourceFailed("its answer is not that of a model hub") from error
    return _listing(hub_id, info)


def _revision_is_missing(error: Exception) -> bool:
    from huggingface_hub.errors import RevisionNotFoundError

    return isinstance(error, RevisionNotFoundError)


def _listing(hub_id: HubId, info: Any) -> Listing:
    """The answer of the hub, every field of it checked."""
    siblings = info.siblings or []
    if not isinstance(info.sha, str) or not _SHA1.fullmatch(info.sha) or len(siblings) > _MAX_FILES:
        raise SourceFailed("its answer names no commit")
    card = getattr(info, "card_data", None)
    license_name = getattr(card, "license", None)
    return Listing(
        repo=hub_id.repo,
        commit=info.sha,
        license=license_name if isinstance(license_name, str) else None,
        files=tuple(
            _remote_file(sibling) for sibling in siblings if is_plain_path(sibling.rfilename)
        ),
    )


def _remote_file(sibling: Any) -> RemoteFile:
    size, large = sibling.size, sibling.lfs
    value = large.sha256 if large else sibling.blob_id
    pattern = _SHA256 if large else _SHA1
    if type(size) is not int or size < 0 or not isinstance(value, str):
        raise SourceFailed(f"its listing lacks the size or digest of {sibling.rfilename}")
    if not pattern.fullmatch(value):
        raise SourceFailed(f"its listing has no usable digest of {sibling.rfilename}")
    return RemoteFile(sibling.rfilename, size, Digest("sha256" if large else "git", value))


def remote_files(hub_id: HubId) -> list[RemoteFile]:
    """All files of a repository with their sizes. Errors: as `list_files`, as `DownloadError`."""
    try:
        return list(list_files(hub_id).files)
    except SourceFailed as failure:
        raise DownloadError(f"{hub_id.text}: the Hugging Face hub: {failure}") from failure


@dataclass(frozen=True)
class HubSource:
    """A `Source` that fetches one file of a repository at a commit."""

    repo: str
    commit: str
    file: RemoteFile

    name = "Hugging Face hub"
    origin = HUB
    spare = 0

    def append(self, partial: Partial, progress: Progress) -> None:
        self.check()
        progress.begin(partial.transfer, partial.size)
        failed = 0
        try:
            while partial.missing:
                before = partial.size
                try:
                    self._stream(partial, progress)
                except network_errors() as error:
                    failed = 0 if partial.size > before else failed + 1
                    if failed == _TRIES or _is_refusal(error):
                        raise
                    time.sleep(0.2 * (1 + failed))
                else:
                    if partial.size == before:
                        raise SourceFailed("it sends nothing")
        except network_errors() as error:
            raise SourceFailed(words(error)) from error

    def check(self) -> None:
        """Nothing, where the hub has the file with the size and SHA-256 that are wanted.

        Errors: `SourceFailed`, also where the hub gives no answer within ten seconds.
        """
        from huggingface_hub import get_hf_file_metadata

        url = _url(self.repo, self.commit, self.file.path)

        def ask() -> Any:
            return get_hf_file_metadata(url, headers=_headers(), timeout=ANSWER_SECONDS)

        try:
            found = within(ANSWER_SECONDS, ask)
        except network_errors() as error:
            raise SourceFailed(words(error)) from error
        if found.size is not None and found.size != self.file.bytes:
            raise SourceFailed(
                f"its file has {exact(found.size)} bytes, not {exact(self.file.bytes)}"
            )
        etag, wanted = found.etag or "", self.file.digest
        if wanted.kind == "sha256" and _SHA256.fullmatch(etag) and etag != wanted.value:
            raise SourceFailed(f"its sha256 is {etag[:12]}…, wanted {wanted.value[:12]}…")

    def _stream(self, partial: Partial, progress: Progress) -> None:
        start = partial.size
        asked = {"Range": f"bytes={start}-"} if start else {}
        with _get(self.repo, self.commit, self.file.path, asked) as response:
            if start and response.status_code == 200:
                partial.restart()
            elif start and _first_byte(response) != start:
                raise SourceFailed("it answers a request for a range with another one")
            for chunk in response.iter_bytes():
                partial.write(chunk)
                progress.at(partial.size)


class HubFile:
    """A file on the hub, read range by range; a `ByteSource` for counting without a download.

    `bytes_read` is what has come over the network. The last range is kept, so asking for a part
    of it again costs nothing.

    Errors: `DownloadError` where the hub does not answer, refuses, or ignores the range and
    would send more than 1 MiB that nobody asked for.
    """

    def __init__(self, repo: str, commit: str, file: RemoteFile) -> None:
        self.repo, self.commit, self.file = repo, commit, file
        self.name = f"{repo}/{file.path}"
        self.size = file.bytes
        self.bytes_read = 0
        self._kept = (0, b"")

    def read(self, offset: int, length: int) -> bytes:
        """The bytes of a range, fetched by one request."""
        if offset < 0 or length < 0 or offset + length > self.size:
            raise DownloadError(
                f"{self.name}: bytes {offset} to {offset + length} wanted, it has {self.size}"
            )
        start, kept = self._kept
        if not start <= offset <= offset + length <= start + len(kept):
            start, kept = offset, self._fetch(offset, length) if length else b""
            self._kept = (start, kept)
        return kept[offset - start : offset - start + length]

    def _fetch(self, offset: int, length: int) -> bytes:
        asked = {"Range": f"bytes={offset}-{offset + length - 1}"}
        data = bytearray()
        try:
            with _get(self.repo, self.commit, self.file.path, asked) as response:
                skip = self._bytes_before(response, offset)
                for chunk in response.iter_bytes():
                    self.bytes_read += len(chunk)
                    data += chunk
                    if len(data) >= skip + length:
                        break
        except SourceFailed as failure:
            raise DownloadError(f"{self.name}: the Hugging Face hub: {failure}") from failure
        except network_errors() as error:
            raise DownloadError(f"{self.name}: the Hugging Face hub: {words(error)}") from error
        if len(data) < skip + length:
            raise DownloadError(
                f"{self.name}: {length} bytes wanted at byte {offset}, {len(data) - skip} came"
            )
        return bytes(data[skip : skip + length])

    def _bytes_before(self, response: Any, offset: int) -> int:
        """How many bytes come before the wanted ones: none, or all where ranges are ignored."""
        if response.status_code == 206:
            if _first_byte(response) != offset:
                raise SourceFailed("it answers a request for a range with another one")
            return 0
        if offset > _UNASKED_LIMIT:
            raise SourceFailed("it ignores ranges, and the whole file would have to be read")
        return offset


def _is_refusal(error: BaseException) -> bool:
    """Whether asking again would give the same answer."""
    from huggingface_hub.errors import HfHubHTTPError, OfflineModeIsEnabled

    if isinstance(error, HfHubHTTPError):
        return 400 <= error.response.status_code < 500
    return isinstance(error, OfflineModeIsEnabled)


def _first_byte(response: Any) -> int | None:
    found = _CONTENT_RANGE.fullmatch(response.headers.get("Content-Range", ""))
    return int(found[1]) if found else None


def _url(repo: str, commit: str, file: str) -> str:
    from huggingface_hub import hf_hub_url

    return hf_hub_url(repo, file, revision=commit)


def _headers() -> dict[str, str]:
    from huggingface_hub.utils import build_hf_headers  # type: ignore[attr-defined]

    headers: dict[str, str] = build_hf_headers(library_name="forwardpass")
    return {**headers, "Accept-Encoding": "identity"}


@contextmanager
def _get(repo: str, commit: str, file: str, more: dict[str, str]) -> Iterator[Any]:
    """An open answer to GET, redirects followed; the token goes to the hub's own host only."""
    from huggingface_hub.utils import (  # type: ignore[attr-defined]
        get_session,
        hf_raise_for_status,
    )

    with get_session().stream(
        "GET",
        _url(repo, commit, file),
        headers={**_headers(), **more},
        timeout=ANSWER_SECONDS,
        follow_redirects=True,
    ) as response:
        hf_raise_for_status(response)
        yield response
