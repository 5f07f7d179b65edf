from __future__ import annotations

import hashlib
import io
import json
from pathlib import Path

import pytest
from filelock import FileLock
from huggingface_hub import constants

from cli.running import Run
from forwardpass.hub import Cache, parse_hub_id
from forwardpass.hub.choice import Listing, RemoteFile
from forwardpass.hub.digest import Digest
from forwardpass.hub.listings import keep_listing, kept_listing, snapshot

BODY = b"GGUF and more"
COMMIT = "a" * 40


@pytest.fixture(autouse=True)
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Cache:
    """One model of a catalogue with two, half of the other, and files of two repositories."""
    text = "".join(
        f'[models.{name}]\nfile = "{name}.gguf"\nbytes = {len(BODY)}\nlicense = "MIT"\n'
        f'sha256 = "{hashlib.sha256(BODY).hexdigest()}"\nabout = "{name}, a test"\n'
        f'[[models.{name}.sources]]\nkind = "packages"\n'
        'packages = [{ name = "none", version = "1", member = "x" }]\n'
        for name in ("present", "half", "absent")
    )
    (tmp_path / "more.toml").write_text(text)
    monkeypatch.setenv("FORWARDPASS_CATALOGUE", str(tmp_path / "more.toml"))
    monkeypatch.setenv("FORWARDPASS_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub-cache"))
    kept = Cache(tmp_path / "home")
    digest = Digest("sha256", hashlib.sha256(BODY).hexdigest())
    for name, files in (
        ("org/folder", ("config.json", "model.safetensors")),
        ("org/ggufs", ("m-Q4_K_M.gguf", "m-Q8_0.gguf")),
    ):
        hub_id = parse_hub_id(name)
        assert hub_id is not None
        remote = tuple(RemoteFile(file, len(BODY), digest) for file in files)
        listing = Listing(hub_id.repo, COMMIT, None, remote)
        keep_listing(hub_id, listing, kept)
        snapshot(listing, kept).mkdir()
        for file in files:
            (snapshot(listing, kept) / file).write_bytes(BODY)
    kept.file("present.gguf").write_bytes(BODY)
    kept.file("half.gguf.partial").write_bytes(BODY[:4])
    kept.file("half.gguf.parts").write_text("[]")
    return kept


def left(cache: Cache) -> list[str]:
    """The files in the cache but stamps and locks."""
    files = (p.relative_to(cache.home) for p in cache.home.rglob("*") if not p.is_dir())
    return sorted(p.as_posix() for p in files if p.parts[0] not in ("locks", "verified"))


def test_a_model_of_the_catalogue_goes_and_nothing_else(run: Run, cache: Cache) -> None:
    before = left(cache)
    path = cache.file("present.gguf")
    assert cache.verified(path, len(BODY), Digest("sha256", hashlib.sha256(BODY).hexdigest()), "x")
    assert list((cache.home / "verified").iterdir())
    done = run.ok("rm", "present", "--yes")
    assert [line.split()[-2:] for line in done.out.splitlines()] == [["13", "B"], ["13", "B"]]
    assert done.out.splitlines()[-1] == "removed 1 file, 13 B"
    assert left(cache) == [name for name in before if name != "present.gguf"]
    assert not list((cache.home / "verified").iterdir())
    said = run.refused("rm", "present", "--yes")
    assert said.startswith("present is not here, so there is nothing to remove")


def test_what_a_stopped_download_left_goes_too(run: Run, cache: Cache) -> None:
    found = json.loads(run.ok("rm", "half", "--yes", "--json").out)
    assert found == {
        "model": "half",
        "bytes": 6,
        "removed": [
            {"path": str(cache.file("half.gguf.partial")), "bytes": 4},
            {"path": str(cache.file("half.gguf.parts")), "bytes": 2},
        ],
    }
    assert not any("half" in name for name in left(cache))


def test_one_quantisation_goes_and_the_others_stay(run: Run, cache: Cache) -> None:
    run.ok("rm", "org/ggufs:q4_k_m", "--yes")
    ours = [name for name in left(cache) if "ggufs" in name]
    assert ours == [f"hub/org--ggufs/{COMMIT}/m-Q8_0.gguf", "hub/org--ggufs/main.json"]
    run.ok("rm", "org/ggufs", "--yes")
    assert not (cache.home / "hub" / "org--ggufs").exists()
    assert "hub/org--folder/main.json" in left(cache)


def test_a_repository_goes_with_its_listing_and_its_folders(run: Run, cache: Cache) -> None:
    done = run.ok("rm", "org/folder", "--yes")
    assert done.out.splitlines()[-1] == "removed 2 files, 26 B"
    hub_id = parse_hub_id("org/folder")
    assert hub_id is not None
    assert kept_listing(hub_id, cache) is None
    assert not (cache.home / "hub" / "org--folder").exists()
    assert (cache.home / "hub" / "org--ggufs").is_dir()


def test_of_files_in_the_cache_of_the_hub_only_our_links_go(
    run: Run, cache: Cache, tmp_path: Path
) -> None:
    theirs = tmp_path / "blob"
    theirs.write_bytes(BODY)
    link = cache.home / "hub" / "org--folder" / COMMIT / "config.json"
    link.unlink()
    link.symlink_to(theirs)
    found = json.loads(run.ok("rm", "org/folder", "--yes", "--json").out)
    assert found["bytes"] == len(BODY)
    assert theirs.read_bytes() == BODY


def test_a_model_that_only_the_hub_keeps_is_left_to_it(
    run: Run, cache: Cache, tmp_path: Path
) -> None:
    run.ok("rm", "org/ggufs:q4_k_m", "--yes")
    place = Path(constants.HF_HUB_CACHE) / "models--org--ggufs" / "snapshots" / COMMIT
    place.mkdir(parents=True)
    (place / "m-Q4_K_M.gguf").write_bytes(BODY)
    said = run.refused("rm", "org/ggufs:q4_k_m", "--yes")
    assert "lies in the cache of huggingface_hub, which other programs use too" in said
    assert "hf cache removes it there" in said
    assert (place / "m-Q4_K_M.gguf").read_bytes() == BODY


def test_local_files_shapes_and_misspelt_names_are_refused(
    run: Run, cache: Cache, tmp_path: Path
) -> None:
    own = tmp_path / "own.gguf"
    own.write_bytes(BODY)
    for path in (own, cache.file("present.gguf")):
        assert "is a path of yours" in run.refused("rm", path, "--yes")
        assert path.exists()
    assert "gpt2 is a shape" in run.refused("rm", "gpt2", "--yes")
    assert "did you mean present?" in run.refused("rm", "presnt", "--yes")
    assert "org/other is not here" in run.refused("rm", "org/other", "--yes")


def test_what_is_being_fetched_is_not_removed(run: Run, cache: Cache) -> None:
    lock = cache.lock(cache.file("half.gguf"))
    lock.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(lock):
        said = run.refused("rm", "half", "--yes")
    assert said == "half: half.gguf is being fetched just now"
    assert cache.file("half.gguf.partial").exists()


def test_without_a_terminal_nothing_is_removed_unasked(run: Run, cache: Cache) -> None:
    said = run.refused("rm", "present")
    assert said.startswith("rm present would remove 1 file, 13 B, and there is nobody to ask")
    assert said.endswith("--yes removes without a question")
    assert cache.file("present.gguf").exists()


@pytest.mark.parametrize(
    ("answer", "gone"), [("y", True), ("yes", True), ("n", False), ("", False)]
)
def test_a_person_at_a_terminal_is_asked(
    run: Run, cache: Cache, monkeypatch: pytest.MonkeyPatch, answer: str, gone: bool
) -> None:
    class Terminal(io.TextIOWrapper):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr(io, "TextIOWrapper", Terminal)
    done = run("rm", "present", typed=f"{answer}\n")
    assert "remove 1 file, 13 B? [y/N] " in done.err
    assert cache.file("present.gguf").exists() is not gone
    assert done.status == (0 if gone else 2)
    if not gone:
        assert done.err.endswith("error: present is kept\n")
