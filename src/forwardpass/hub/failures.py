"""Why a source did not deliver, in words, and how long one may stay silent."""

from __future__ import annotations

import errno
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from forwardpass.errors import DownloadError
from forwardpass.hub.cache import HOME
from forwardpass.units import size

ANSWER_SECONDS = 10.0

T = TypeVar("T")

_NO_ROUTE = (errno.ENETUNREACH, errno.EHOSTUNREACH, errno.ENETDOWN)
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)

_PHRASES = (
    ("certificate", "its TLS certificate is not accepted"),
    ("not a trusted or secure host", "an index without TLS that is not trusted"),
    ("name or service not known", "could not resolve the name"),
    ("nodename nor servname", "could not resolve the name"),
    ("temporary failure in name resolution", "could not resolve the name"),
    ("failed to lookup address", "could not resolve the name"),
    ("network is unreachable", "no route"),
    ("no route to host", "no route"),
    ("connection refused", "connection refused"),
    ("connection reset", "the connection was cut"),
    ("timed out", "no answer"),
)


class SourceFailed(Exception):
    """One source did not deliver; the next one may."""


def network_errors() -> tuple[type[Exception], ...]:
    """What a request through huggingface_hub raises when the network or the server fails."""
    from huggingface_hub.errors import HfHubHTTPError

    # Its base is the base of all errors of the HTTP library that huggingface_hub is built on.
    return (HfHubHTTPError.__bases__[0], OSError)


def words(error: BaseException) -> str:
    """A few words on why a request failed, for a line of an error message."""
    from huggingface_hub import errors

    if isinstance(error, errors.OfflineModeIsEnabled):
        return "HF_HUB_OFFLINE is set"
    if isinstance(error, errors.GatedRepoError):
        return "gated: accept its terms on its page, then log in with `hf auth login`"
    if isinstance(error, errors.RepositoryNotFoundError):
        return "no such repository, or a private one (`hf auth login` logs in)"
    if isinstance(error, errors.RevisionNotFoundError):
        return "no such revision"
    if isinstance(error, errors.EntryNotFoundError):
        return "no such file in the repository"
    if isinstance(error, errors.HfHubHTTPError):
        return f"HTTP {error.response.status_code}"
    links = list(_chain(error))
    for link in links:
        if isinstance(link, OSError) and link.errno in _NO_ROUTE:
            return "no route"
        if isinstance(link, TimeoutError) or "Timeout" in type(link).__name__:
            return "no answer"
    found = next((phrase for link in links if (phrase := known_phrase(str(link)))), None)
    return found or str(error).strip().split("\n")[0][:80] or type(error).__name__


def known_phrase(text: str) -> str | None:
    """Our words for a network failure that `text` speaks of, or None."""
    lower = text.lower()
    return next((ours for theirs, ours in _PHRASES if theirs in lower), None)


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    for _ in range(10):
        if error is None:
            return
        yield error
        error = error.__cause__ or error.__context__


def within(seconds: float, work: Callable[[], T]) -> T:
    """What `work` returns, or `TimeoutError` after so many seconds.

    Looking up a name can hang for longer than any timeout of a socket, hence the thread; one
    that hangs is left behind and ends with the process.
    """
    results: list[T] = []
    failures: list[BaseException] = []

    def run() -> None:
        try:
            results.append(work())
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    if failures:
        raise failures[0]
    if not results:
        raise TimeoutError("no answer")
    return results[0]


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turns a failure to write into a `DownloadError` that says where and what to do."""
    try:
        yield
    except OSError as error:
        raise cannot_write(path, error) from error


def cannot_write(path: Path, error: OSError) -> DownloadError:
    """The error for a place that takes no bytes."""
    reason = error.strerror or str(error)
    if error.errno in _FULL:
        return DownloadError(
            f"{path}: {reason[0].lower()}{reason[1:]}",
            "what is here already is kept, and the next try goes on from there",
            advice=f"free some space, or set {HOME} to a folder with more",
        )
    return DownloadError(
        f"{path}: cannot be written: {reason}",
        advice=f"set {HOME} to a folder that you may write to",
    )


def check_space(folder: Path, needed: int) -> None:
    """Nothing, where `folder` (or the nearest one above that exists) has that many bytes free.

    Errors: `DownloadError` saying how much is needed and how much there is.
    """
    existing = folder
    while not existing.exists() and existing != existing.parent:
        existing = existing.parent
    with writing(existing):
        free = shutil.disk_usage(existing).free
    if free < needed:
        raise DownloadError(
            f"{folder}: {size(needed)} are needed, {size(free)} are free",
            advice=f"free some space, or set {HOME} to a folder with more",
        )
