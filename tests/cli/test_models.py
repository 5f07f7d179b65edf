from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from forwardpass.cli.main import main
from forwardpass.hub import Cache, parse_hub_id
from forwardpass.hub.choice import Listing, RemoteFile
from forwardpass.hub.digest import Digest
from forwardpass.hub.listings import keep_listing, snapshot
from forwardpass.shapes import SHAPES

BODY = b"GGUF and more"
COMMIT = "a" * 40


@pytest.fixture(autouse=True)
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A cache that holds one model of a catalogue with two, and two files of repositories."""
    path = tmp_path / "more.toml"
    path.write_text(
        "".join(
            f'[models.{name}]\nfile = "{name}.gguf"\nbytes = {len(BODY)}\nlicense = "MIT"\n'
            f'sha256 = "{hashlib.sha256(body).hexdigest()}"\nabout = "{name}, a test"\n'
            f'[[models.{name}.sources]]\nkind = "packages"\n'
            'packages = [{ name = "none", version = "1", member = "x" }]\n'
            for name, body in (("present", BODY), ("absent", b"another"))
        )
    )
    monkeypatch.setenv("FORWARDPASS_CATALOGUE", str(path))
    monkeypatch.setenv("FORWARDPASS_HOME", str(tmp_path / "home"))
    cache = Cache(tmp_path / "home")
    digest = Digest("sha256", "0" * 64)
    for name, file in (("org/folder@v2", "config.json"), ("org/ggufs", "m-Q4_0.gguf")):
        hub_id = parse_hub_id(name)
        assert hub_id is not None
        files = (RemoteFile(file, 2, digest), RemoteFile("absent.gguf", 3, digest))
        listing = Listing(hub_id.repo, COMMIT, None, files)
        keep_listing(hub_id, listing, cache)
        snapshot(listing, cache).mkdir()
        (snapshot(listing, cache) / file).write_text("{}")
    cache.file("present.gguf").write_bytes(BODY)
    return cache.home


def test_models_lists_what_can_be_named_and_what_is_here(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["models"]) == 0
    out = capsys.readouterr().out
    lines = out.splitlines()
    assert lines[0].split() == ["alias", "size", "license", "here"]
    rows = {line.split()[0]: line for line in lines if line}
    assert rows["smollm2-135m"].split()[1:5] == ["98.4", "MB", "Apache-2.0", "no"]
    assert rows["present"].split()[3:] == ["MIT", "yes", "present,", "a", "test"]
    assert rows["absent"].split()[4] == "no"
    assert "org/folder@v2" in rows
    assert "org/ggufs:m-Q4_0.gguf" in rows
    assert f"kept in {home}" in lines
    assert all(name in out for name in SHAPES)
    assert all(len(line) <= 98 for line in lines)


def test_models_answers_in_json_with_paths(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["home"] == str(home)
    by_name = {model["model"]: model for model in answer["models"]}
    assert by_name["present"]["path"] == str(home / "present.gguf")
    assert (by_name["present"]["here"], by_name["absent"]["here"]) == (True, False)
    assert by_name["absent"]["path"] is None
    assert by_name["smollm2-135m"]["bytes"] == 98_362_432
    folder, gguf = answer["hub"]
    assert folder["model"] == "org/folder@v2"
    assert folder["path"] == str(home / "hub" / "org--folder" / COMMIT)
    assert gguf == {
        "model": "org/ggufs:m-Q4_0.gguf",
        "bytes": 2,
        "path": str(home / "hub" / "org--ggufs" / COMMIT / "m-Q4_0.gguf"),
    }
    assert answer["shapes"] == list(SHAPES)
