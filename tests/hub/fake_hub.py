"""A model hub on 127.0.0.1 that knows the few requests forwardpass makes, and how to misbehave.

Large files are redirected to a second port, as the real hub redirects to its storage.
"""

from __future__ import annotations

import hashlib
import json
import threading
import time
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from urllib.parse import unquote, urlsplit

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@dataclass
class Repository:
    """Files by path. `large` ones are announced by SHA-256, the others by git's id."""

    files: dict[str, bytes]
    large: frozenset[str] = frozenset()
    commit: str = COMMIT
    revisions: tuple[str, ...] = ("main",)
    license: str = "apache-2.0"
    gated: bool = False


@dataclass
class Behaviour:
    """How the server misbehaves; by default not at all."""

    ignore_ranges: bool = False
    cut_after: list[int] = field(default_factory=list)  # for the next answers: bytes, then a cut
    bytes_a_second: int = 0
    wrong_bytes: bool = False
    silent: bool = False
    other_range: bool = False
    lists: dict[str, object] | None = None  # another listing than the true one


@dataclass(frozen=True)
class Request:
    """What was asked for, on the hub's own port or on that of its storage."""

    method: str
    path: str
    range: str | None
    token: str | None
    storage: bool


class FakeHub:
    """Serves repositories until it is left."""

    def __init__(self, repositories: dict[str, Repository]) -> None:
        self.repositories = repositories
        self.behaviour = Behaviour()
        self.requests: list[Request] = []
        self._servers = [_Server(self, storage=False), _Server(self, storage=True)]
        self.url, self.storage_url = (
            f"http://127.0.0.1:{server.server_port}" for server in self._servers
        )

    def __enter__(self) -> FakeHub:
        for server in self._servers:
            threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for server in self._servers:
            server.shutdown()
            server.server_close()

    def downloads(self) -> list[Request]:
        """The requests for bytes of files, without the redirects that led to them."""
        return [r for r in self.requests if r.method == "GET" and r.storage]


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, hub: FakeHub, storage: bool) -> None:
        self.hub, self.storage = hub, storage
        super().__init__(("127.0.0.1", 0), _Handler)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def log_message(self, format: str, *args: object) -> None:
        pass

    def do_HEAD(self) -> None:
        self._answer()

    def do_GET(self) -> None:
        self._answer()

    def _answer(self) -> None:
        hub = self.server.hub
        path = unquote(urlsplit(self.path).path)
        hub.requests.append(
            Request(
                self.command,
                path,
                self.headers.get("Range"),
                self.headers.get("Authorization"),
                self.server.storage,
            )
        )
        if hub.behaviour.silent:
            time.sleep(30)
        if self.server.storage:
            _, repo_and_path = path.split("/storage/")
            repo, file = repo_and_path.split("//")
            return self._send_file(hub.repositories[repo], file)
        if path.startswith("/api/models/"):
            repo, _, revision = path.removeprefix("/api/models/").partition("/revision/")
            return self._guarded(repo, revision or "main", self._send_listing)
        repo, _, rest = path.strip("/").partition("/resolve/")
        revision, _, file = rest.partition("/")
        return self._guarded(repo, revision, lambda r: self._resolve(repo, r, file))

    def _guarded(self, repo: str, revision: str, send: object) -> None:
        repository = self.server.hub.repositories.get(repo)
        if repository is None:
            return self._refuse(404, "RepoNotFound")
        if repository.gated and self.headers.get("Authorization") != "Bearer hf_allowed":
            return self._refuse(403, "GatedRepo")
        if revision not in (*repository.revisions, repository.commit):
            return self._refuse(404, "RevisionNotFound")
        assert callable(send)
        send(repository)
        return None

    def _refuse(self, status: int, code: str) -> None:
        self.send_response(status)
        self.send_header("X-Error-Code", code)
        self.send_header("X-Error-Message", "no")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def _send_listing(self, repository: Repository) -> None:
        listing = self.server.hub.behaviour.lists or {
            "id": "any/name",
            "sha": repository.commit,
            "cardData": {"license": repository.license},
            "siblings": [_sibling(repository, path) for path in repository.files],
        }
        body = json.dumps(listing).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _resolve(self, repo: str, repository: Repository, file: str) -> None:
        if file not in repository.files:
            return self._refuse(404, "EntryNotFound")
        if file not in repository.large:
            return self._send_file(repository, file)
        self.send_response(302)
        self.send_header("Location", f"{self.server.hub.storage_url}/storage/{repo}//{file}")
        self.send_header("X-Repo-Commit", repository.commit)
        self.send_header("X-Linked-Etag", f'"{sha256(repository.files[file])}"')
        self.send_header("X-Linked-Size", str(len(repository.files[file])))
        self.send_header("Content-Length", "0")
        self.end_headers()
        return None

    def _send_file(self, repository: Repository, file: str) -> None:
        behaviour, body = self.server.hub.behaviour, repository.files[file]
        if behaviour.wrong_bytes:
            body = body[:-1] + bytes([body[-1] ^ 1])
        first, last = 0, len(body) - 1
        asked = self.headers.get("Range")
        if asked is not None and not behaviour.ignore_ranges:
            start, _, end = asked.removeprefix("bytes=").partition("-")
            first, last = int(start), min(int(end), last) if end else last
            if behaviour.other_range:
                first -= 1
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {first}-{last}/{len(body)}")
        else:
            self.send_response(200)
        piece = body[first : last + 1]
        self.send_header("X-Repo-Commit", repository.commit)
        self.send_header("ETag", f'"{git_id(repository.files[file])}"')
        self.send_header("Content-Length", str(len(piece)))
        self.end_headers()
        if self.command == "GET":
            self._send_slowly_or_cut(piece)

    def _send_slowly_or_cut(self, piece: bytes) -> None:
        behaviour = self.server.hub.behaviour
        if behaviour.cut_after:
            self.wfile.write(piece[: behaviour.cut_after.pop(0)])
            self.wfile.flush()
            self.close_connection = True
            return
        step = max(1, behaviour.bytes_a_second // 20) if behaviour.bytes_a_second else len(piece)
        for start in range(0, len(piece), max(step, 1)):
            try:
                self.wfile.write(piece[start : start + step])
            except OSError:
                self.close_connection = True
                return
            if behaviour.bytes_a_second:
                time.sleep(0.05)


def _sibling(repository: Repository, path: str) -> dict[str, object]:
    body = repository.files[path]
    sibling: dict[str, object] = {"rfilename": path, "size": len(body), "blobId": git_id(body)}
    if path in repository.large:
        sibling["lfs"] = {"sha256": sha256(body), "size": len(body), "pointerSize": 130}
    return sibling


def sha256(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()


def git_id(body: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(body) + body).hexdigest()
