"""Repositories of the hub: which files come, where they lie, what is used again."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from huggingface_hub import constants, hf_hub_download

from forwardpass.errors import DownloadError, ModelNotFound
from forwardpass.hub import Cache, ModelFiles, locate, pull, resolve
from hub.fake_hub import COMMIT, FakeHub, Repository, sha256
from hub.parts import MODEL, Recorder, catalogue, entry, point_at

FOLDER = ["config.json", "model.safetensors", "tokenizer.json"]


def resolved(
    reference: str, cache: Cache, refresh: bool = False, heard: Recorder | None = None
) -> ModelFiles:
    return resolve(
        reference,
        catalogue=catalogue(entry()),
        shapes=("gpt2",),
        cache=cache,
        refresh=refresh,
        progress=heard,
    )


@pytest.mark.usefixtures("fake_hub")
def test_a_safetensors_repository_becomes_a_folder(cache: Cache) -> None:
    files = resolved("org/tiny", cache)
    assert (files.kind, files.label, files.origin) == ("folder", "org/tiny", "the Hugging Face hub")
    assert (files.license, files.revision, files.sha256) == ("apache-2.0", COMMIT, None)
    assert sorted(path.name for path in files.path.iterdir()) == FOLDER
    assert (files.path / "model.safetensors").read_bytes() == MODEL
    assert files.bytes == sum(path.stat().st_size for path in files.path.iterdir())


@pytest.mark.usefixtures("fake_hub")
def test_a_quantisation_of_a_gguf_repository_becomes_one_file(cache: Cache) -> None:
    files = resolved("org/tiny-GGUF:q4_k_m", cache)
    assert (files.kind, files.bytes, files.sha256) == ("gguf", len(MODEL), sha256(MODEL))
    assert files.path.read_bytes() == MODEL
    assert [path.name for path in files.path.parent.iterdir()] == ["tiny-Q4_K_M.gguf"]


@pytest.mark.usefixtures("fake_hub")
def test_several_quantisations_and_none_named_are_listed(cache: Cache) -> None:
    with pytest.raises(ModelNotFound, match="org/tiny-GGUF holds 2 GGUF files; name one"):
        resolved("org/tiny-GGUF", cache)


def test_what_is_here_is_used_without_a_request(fake_hub: FakeHub, cache: Cache) -> None:
    first = [resolved(name, cache) for name in ("org/tiny", "org/tiny-GGUF:q8_0", "tiny")]
    fake_hub.requests.clear()
    assert [resolved(name, cache) for name in ("org/tiny", "org/tiny-GGUF:q8_0", "tiny")] == first
    for name in ("org/tiny", "org/tiny-GGUF:q8_0", "tiny"):
        assert locate(name, catalogue=catalogue(entry()), shapes=(), cache=cache) is not None
    assert fake_hub.requests == []


def test_a_refresh_asks_what_the_revision_holds_now(fake_hub: FakeHub, cache: Cache) -> None:
    old = resolved("org/tiny", cache)
    repository = fake_hub.repositories["org/tiny"]
    repository.commit = "f" * 40
    repository.files["config.json"] = b'{"model_type": "qwen2"}'
    assert resolved("org/tiny", cache) == old
    new = resolved("org/tiny", cache, refresh=True)
    assert new.revision == "f" * 40
    assert (new.path / "config.json").read_bytes() == b'{"model_type": "qwen2"}'
    assert resolved("org/tiny", cache) == new


def test_a_refresh_without_the_hub_uses_what_is_here_and_says_so(
    fake_hub: FakeHub, cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = resolved("org/tiny", cache)
    point_at(monkeypatch, "http://127.0.0.1:1")
    heard = Recorder()
    assert resolved("org/tiny", cache, refresh=True, heard=heard) == old
    (note,) = heard.notes
    assert note.startswith("org/tiny: Hugging Face hub: connection refused")
    assert note.endswith("what is here is used")
    assert fake_hub.requests


def test_a_file_of_a_folder_that_changed_or_went_is_fetched_again(
    fake_hub: FakeHub, cache: Cache
) -> None:
    folder = resolved("org/tiny", cache).path
    (folder / "model.safetensors").write_bytes(MODEL[::-1])
    (folder / "tokenizer.json").unlink()
    fake_hub.requests.clear()
    assert resolved("org/tiny", cache).path == folder
    assert (folder / "model.safetensors").read_bytes() == MODEL
    assert (folder / "tokenizer.json").read_bytes() == b"{}"
    assert not any("config.json" in request.path for request in fake_hub.requests)


@pytest.mark.usefixtures("fake_hub")
def test_a_damaged_listing_is_asked_for_again(cache: Cache) -> None:
    resolved("org/tiny", cache)
    kept = cache.home / "hub" / "org--tiny" / "main.json"
    for text in ("", "[]", '{"repo": "org/other"}', kept.read_text().replace(COMMIT, "../../..")):
        kept.write_text(text)
        assert resolved("org/tiny", cache).revision == COMMIT


def test_a_file_that_the_hubs_own_cache_holds_is_used_where_it_lies(
    fake_hub: FakeHub, cache: Cache
) -> None:
    theirs = hf_hub_download("org/tiny-GGUF", "tiny-Q4_K_M.gguf", revision=COMMIT)
    assert theirs.startswith(constants.HF_HUB_CACHE)
    fake_hub.requests.clear()
    files = resolved("tiny", cache)
    assert (str(files.path), files.origin) == (theirs, "the Hugging Face hub")
    assert str(resolved("org/tiny-GGUF:q4_k_m", cache).path) == theirs
    assert fake_hub.downloads() == []
    assert not list(cache.home.rglob("*.gguf"))


def test_a_file_in_the_hubs_own_cache_that_is_damaged_is_not_used(
    fake_hub: FakeHub, cache: Cache
) -> None:
    theirs = Path(hf_hub_download("org/tiny-GGUF", "tiny-Q4_K_M.gguf", revision=COMMIT))
    theirs.write_bytes(MODEL[::-1])
    files = resolved("tiny", cache)
    assert files.path == cache.file("tiny.gguf")
    assert files.path.read_bytes() == MODEL
    assert fake_hub.requests


def test_a_folder_is_linked_together_out_of_the_hubs_own_cache(
    fake_hub: FakeHub, cache: Cache
) -> None:
    theirs = Path(hf_hub_download("org/tiny", "model.safetensors"))
    fake_hub.requests.clear()
    folder = resolved("org/tiny", cache).path
    assert sorted(path.name for path in folder.iterdir()) == FOLDER
    assert (folder / "model.safetensors").resolve() == theirs.resolve()
    assert fake_hub.downloads() == []
    shutil.rmtree(constants.HF_HUB_CACHE)
    assert resolved("org/tiny", cache).path == folder
    assert (folder / "model.safetensors").read_bytes() == MODEL


@pytest.mark.usefixtures("fake_hub")
def test_without_the_hub_its_own_cache_is_enough(
    cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in FOLDER:
        hf_hub_download("org/tiny", name)
    theirs = hf_hub_download("org/tiny-GGUF", "tiny-Q8_0.gguf")
    point_at(monkeypatch, "http://127.0.0.1:1")
    heard = Recorder()
    files = resolved("org/tiny", cache, heard=heard)
    assert (files.kind, files.revision) == ("folder", COMMIT)
    assert sorted(path.name for path in files.path.iterdir()) == FOLDER
    assert str(resolved("org/tiny-GGUF:q8_0", cache, heard=heard).path) == theirs
    assert all(note.endswith("what is here is used") for note in heard.notes)
    with pytest.raises(DownloadError, match="org/other is not here and could not be fetched"):
        resolved("org/other", cache)


def test_without_the_hub_a_model_that_is_here_in_part_is_not_used(
    fake_hub: FakeHub, cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ["config.json", "model-00001-of-00002.safetensors"]
    fake_hub.repositories["org/big"] = Repository(dict.fromkeys(names, b"{}"))
    for name in names:
        hf_hub_download("org/big", name)
    point_at(monkeypatch, "http://127.0.0.1:1")
    with pytest.raises(DownloadError, match="org/big is not here and could not be fetched"):
        resolved("org/big", cache)


@pytest.mark.usefixtures("fake_hub")
def test_two_revisions_lie_side_by_side(cache: Cache) -> None:
    assert resolved("org/tiny@v1.0", cache).path == resolved("org/tiny", cache).path
    kept = {path.name for path in (cache.home / "hub" / "org--tiny").glob("*.json")}
    assert kept == {"main.json", "v1.0.json"}


def test_what_is_not_here_and_shall_not_be_fetched_is_an_error(
    fake_hub: FakeHub, cache: Cache
) -> None:
    for name in ("tiny", "org/tiny"):
        with pytest.raises(DownloadError, match=f"{name} is not here") as caught:
            resolve(name, catalogue=catalogue(entry()), shapes=(), cache=cache, fetch=False)
        assert caught.value.advice == f"forwardpass pull {name} fetches it"
    assert fake_hub.requests == []


def test_a_file_that_the_user_put_into_the_cache_folder_is_found(cache: Cache) -> None:
    cache.home.mkdir()
    cache.file("tiny.gguf").write_bytes(MODEL)
    files = resolved("tiny", cache)
    assert (files.path, files.origin) == (cache.file("tiny.gguf"), "a local file")


def test_pull_gives_the_path_with_the_environments_catalogue_and_cache(
    tmp_path: Path, cache: Cache
) -> None:
    path = tmp_path / "more.toml"
    path.write_text(
        f'[models.mine]\nfile = "m.gguf"\nbytes = {len(MODEL)}\nsha256 = "{sha256(MODEL)}"\n'
        'license = "MIT"\nabout = "mine"\n[[models.mine.sources]]\nkind = "packages"\n'
        'packages = [{ name = "none", version = "1", member = "x" }]\n'
    )
    cache.home.mkdir()
    cache.file("m.gguf").write_bytes(MODEL)
    environ = {"FORWARDPASS_HOME": str(cache.home), "FORWARDPASS_CATALOGUE": str(path)}
    assert pull("mine", environ) == cache.file("m.gguf")
