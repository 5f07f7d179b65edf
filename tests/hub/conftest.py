"""What the tests of finding and fetching share: no network, a hub and an index of their own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import huggingface_hub
import pytest
from huggingface_hub import constants

from forwardpass.hub import Cache
from hub.fake_hub import FakeHub, Repository
from hub.parts import CLOSED, MODEL, point_at


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    return Cache(tmp_path / "home")


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """No test reaches a hub, an index, a token or a cache other than its own."""
    for name in ("FORWARDPASS_HOME", "FORWARDPASS_CATALOGUE", "HF_TOKEN", "PIP_EXTRA_INDEX_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "user"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "user" / "cache"))
    monkeypatch.setenv("HF_TOKEN_PATH", str(tmp_path / "user" / "token"))
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_INDEX_URL", f"{CLOSED}/simple")
    monkeypatch.setenv("PIP_FIND_LINKS", "")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub-cache"))
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "user" / "token"))
    point_at(monkeypatch, CLOSED)
    yield
    huggingface_hub.close_session()


@pytest.fixture
def fake_hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    """A hub with one GGUF repository, one safetensors repository and one that is gated."""
    ggufs = {"tiny-Q4_K_M.gguf": MODEL, "tiny-Q8_0.gguf": b"GGUF" + MODEL, "README.md": b"hello"}
    folder = {
        "config.json": b'{"model_type": "llama"}',
        "tokenizer.json": b"{}",
        "model.safetensors": MODEL,
        "pytorch_model.bin": b"never fetched",
        "onnx/model.onnx": b"never fetched",
    }
    repositories = {
        "org/tiny-GGUF": Repository(ggufs, frozenset(n for n in ggufs if n.endswith("gguf"))),
        "org/tiny": Repository(
            folder, frozenset({"model.safetensors"}), revisions=("main", "v1.0")
        ),
        "org/gated": Repository(folder, gated=True),
    }
    with FakeHub(repositories) as running:
        point_at(monkeypatch, running.url)
        yield running
