"""Parts that the tests of finding and fetching are put together from."""

from __future__ import annotations

from pathlib import Path

import pytest
from huggingface_hub import constants

from forwardpass.hub import Catalogue, Transfer
from forwardpass.hub.catalogue import Entry, HubPlace, Package, PackagesPlace
from hub.fake_hub import COMMIT, sha256

MODEL = bytes(range(256)) * 1_000  # 256,000 bytes
CLOSED = "http://127.0.0.1:1"


class Recorder:
    """A `Progress` that keeps what it is told."""

    def __init__(self) -> None:
        self.begun: list[tuple[Transfer, int]] = []
        self.steps: list[int] = []
        self.ended: list[Path | None] = []
        self.notes: list[str] = []

    def begin(self, transfer: Transfer, done: int) -> None:
        self.begun.append((transfer, done))

    def at(self, done: int) -> None:
        self.steps.append(done)

    def end(self, path: Path | None) -> None:
        self.ended.append(path)

    def note(self, text: str) -> None:
        self.notes.append(text)


def point_at(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    """Makes `url` the hub's address, as HF_ENDPOINT does at start-up."""
    monkeypatch.setattr(constants, "ENDPOINT", url)
    monkeypatch.setattr(
        constants, "HUGGINGFACE_CO_URL_TEMPLATE", url + "/{repo_id}/resolve/{revision}/{filename}"
    )


def entry(*, hub: bool = True, packages: tuple[Package, ...] = (), body: bytes = MODEL) -> Entry:
    """A model of a catalogue, on the fake hub and in packages as asked for."""
    places: list[HubPlace | PackagesPlace] = []
    if hub:
        places.append(HubPlace("org/tiny-GGUF", "tiny-Q4_K_M.gguf", COMMIT))
    if packages:
        places.append(PackagesPlace(packages))
    return Entry("tiny", "tiny.gguf", len(body), sha256(body), "MIT", "a test", tuple(places))


def catalogue(*entries: Entry) -> Catalogue:
    return Catalogue({entry.alias: entry for entry in entries})
