"""A model hub on 127.0.0.1 that serves ranges of one folder's files and counts what it sends."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit

COMMIT = "89abcdef0123456789abcdef0123456789abcdef"


@dataclass
class RangeHub:
    """Where the hub is, and the bytes of files that it sent, by name."""

    url: str
    sent: dict[str, int] = field(default_factory=dict)


@contextmanager
def range_hub(repo: str, folder: Path) -> Iterator[RangeHub]:
    """A running hub that knows one repository."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *args: object) -> None:
            pass

        def do_HEAD(self) -> None:
            self.answer()

        def do_GET(self) -> None:
            self.answer()

        def answer(self) -> None:
            path = unquote(urlsplit(self.path).path)
            if path.startswith(f"/api/models/{repo}"):
                return self.send(200, json.dumps(_listing(repo, folder)).encode())
            file = path.rpartition("/")[2]
            if not path.startswith(f"/{repo}/resolve/") or not (folder / file).is_file():
                return self.send(404, b"")
            size = (folder / file).stat().st_size
            first, last = 0, size - 1
            if wanted := self.headers.get("Range"):
                start, _, end = wanted.removeprefix("bytes=").partition("-")
                first, last = int(start), int(end)
            if self.command == "GET":
                hub.sent[file] = hub.sent.get(file, 0) + last + 1 - first
            with (folder / file).open("rb") as opened:
                opened.seek(first)
                body = opened.read(last + 1 - first) if self.command == "GET" else b""
            return self.send(206 if wanted else 200, body, f"bytes {first}-{last}/{size}")

        def send(self, status: int, body: bytes, content_range: str | None = None) -> None:
            self.send_response(status)
            self.send_header("X-Repo-Commit", COMMIT)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            if status == 206 and content_range:
                self.send_header("Content-Range", content_range)
            self.end_headers()
            self.wfile.write(body)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    hub = RangeHub(f"http://127.0.0.1:{server.server_port}")
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()


def _listing(repo: str, folder: Path) -> dict[str, object]:
    siblings: list[dict[str, object]] = []
    for path in sorted(folder.iterdir()):
        # What a digest is made of does not matter to one who downloads nothing.
        name_hash = hashlib.sha256(path.name.encode()).hexdigest()
        size = path.stat().st_size
        sibling = {"rfilename": path.name, "size": size, "blobId": name_hash[:40]}
        if path.suffix == ".safetensors":
            sibling["lfs"] = {"sha256": name_hash, "size": size, "pointerSize": 130}
        siblings.append(sibling)
    return {"id": repo, "sha": COMMIT, "siblings": siblings}
