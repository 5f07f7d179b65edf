"""The hub: listing, downloading with resume, and reading ranges, against one of our own."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Literal

import pytest

from forwardpass.errors import DownloadError, ModelNotFound
from forwardpass.formats.source import ByteSource
from forwardpass.hub import (
    Cache,
    HubFile,
    ModelFiles,
    Progress,
    Silent,
    Transfer,
    open_remote,
    resolve,
)
from forwardpass.hub.choice import RemoteFile
from forwardpass.hub.digest import Digest
from forwardpass.hub.download import Partial, Wanted, fetch
from forwardpass.hub.failures import ANSWER_SECONDS
from forwardpass.hub.references import parse_hub_id
from forwardpass.hub.remote import list_files, remote_files
from hub.fake_hub import COMMIT, FakeHub, git_id, sha256
from hub.parts import MODEL, Recorder, catalogue, entry, point_at

HOLDS = "tiny-Q4_K_M.gguf"


def pulled(cache: Cache, heard: Recorder | None = None) -> ModelFiles:
    return resolve("tiny", catalogue=catalogue(entry()), shapes=(), cache=cache, progress=heard)


def failure(cache: Cache) -> str:
    with pytest.raises(DownloadError, match="tiny is not here and could not be fetched") as caught:
        pulled(cache)
    (line,) = caught.value.details
    return line.removeprefix("Hugging Face hub  ")


def remote_file(body: bytes = MODEL, path: str = HOLDS) -> RemoteFile:
    return RemoteFile(path, len(body), Digest("sha256", sha256(body)))


def test_a_repository_is_listed_with_sizes_digests_commit_and_license(fake_hub: FakeHub) -> None:
    hub_id = parse_hub_id("org/tiny@v1.0")
    assert hub_id is not None
    listing = list_files(hub_id)
    assert (listing.commit, listing.license) == (COMMIT, "apache-2.0")
    by_path = {file.path: file for file in listing.files}
    assert by_path["model.safetensors"] == remote_file(path="model.safetensors")
    body = fake_hub.repositories["org/tiny"].files["config.json"]
    assert by_path["config.json"].digest == Digest("git", git_id(body))
    assert remote_files(hub_id) == list(listing.files)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("org/none", 'there is no model "org/none" on the Hugging Face hub'),
        ("org/tiny@v9", 'there is no model "org/tiny@v9" on the Hugging Face hub'),
    ],
)
@pytest.mark.usefixtures("fake_hub")
def test_what_the_hub_does_not_have_is_not_found(cache: Cache, name: str, words: str) -> None:
    with pytest.raises(ModelNotFound, match=words):
        resolve(name, catalogue=catalogue(), shapes=(), cache=cache)


@pytest.mark.usefixtures("fake_hub")
def test_a_gated_repository_says_how_to_get_in(
    cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(DownloadError, match="org/gated is not here") as caught:
        resolve("org/gated", catalogue=catalogue(), shapes=(), cache=cache)
    assert "gated: accept its terms on its page, then log in with" in caught.value.details[0]
    monkeypatch.setenv("HF_TOKEN", "hf_allowed")
    files = resolve("org/gated", catalogue=catalogue(), shapes=(), cache=cache)
    assert (files.path / "model.safetensors").read_bytes() == MODEL


def test_a_token_goes_to_the_hub_and_not_to_its_storage(
    fake_hub: FakeHub, cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    pulled(cache)
    tokens = {(request.storage, request.token) for request in fake_hub.requests}
    assert tokens == {(False, "Bearer hf_secret"), (True, None)}


def test_a_listing_in_another_form_is_no_answer_of_a_hub(fake_hub: FakeHub, cache: Cache) -> None:
    listings: tuple[dict[str, object], ...] = (
        {"id": "x"},
        {"id": "x", "sha": "main", "siblings": []},
        {"id": "x", "sha": COMMIT, "siblings": [{"name": "a"}]},
        {"id": "x", "sha": COMMIT, "siblings": [{"rfilename": "a", "size": -1, "blobId": "b"}]},
        {"id": "x", "sha": COMMIT, "siblings": [{"rfilename": "a", "size": 1, "blobId": "b"}]},
        {"id": "x", "sha": COMMIT, "siblings": [{"rfilename": "a", "size": 1}]},
    )
    for listing in listings:
        fake_hub.behaviour.lists = listing
        with pytest.raises(DownloadError) as caught:
            resolve("org/tiny", catalogue=catalogue(), shapes=(), cache=cache)
        assert "its " in caught.value.details[0]


def test_a_listed_name_that_leaves_the_folder_is_never_written(
    fake_hub: FakeHub, cache: Cache
) -> None:
    repository = fake_hub.repositories["org/tiny"]
    repository.files["../../evil.safetensors"] = b"evil"
    resolve("org/tiny", catalogue=catalogue(), shapes=(), cache=cache)
    assert not list(cache.home.parent.rglob("evil*"))


def test_a_file_comes_with_one_download_from_the_first_byte(
    fake_hub: FakeHub, cache: Cache
) -> None:
    heard = Recorder()
    files = pulled(cache, heard)
    assert files.path.read_bytes() == MODEL
    assert (files.origin, files.license) == ("the Hugging Face hub", "MIT")
    assert [request.range for request in fake_hub.downloads()] == [None]
    assert heard.steps[-1] == len(MODEL)


def test_a_connection_that_is_cut_is_taken_up_where_it_ended(
    fake_hub: FakeHub, cache: Cache
) -> None:
    fake_hub.behaviour.cut_after = [100_000, 1, 0, 50_000]
    assert pulled(cache).path.read_bytes() == MODEL
    starts = [request.range for request in fake_hub.downloads()]
    assert starts == [None, "bytes=100000-", "bytes=100001-", "bytes=100001-", "bytes=150001-"]


def test_a_connection_that_is_cut_each_time_at_once_is_given_up_and_kept(
    fake_hub: FakeHub, cache: Cache
) -> None:
    fake_hub.behaviour.cut_after = [100_000, 0, 0, 0, 0]
    failure(cache)
    assert cache.file("tiny.gguf.partial").read_bytes() == MODEL[:100_000]
    fake_hub.behaviour.cut_after = []
    fake_hub.requests.clear()
    assert pulled(cache).path.read_bytes() == MODEL
    assert [request.range for request in fake_hub.downloads()] == ["bytes=100000-"]


def test_a_storage_that_ignores_ranges_sends_the_file_again(
    fake_hub: FakeHub, cache: Cache
) -> None:
    fake_hub.behaviour.ignore_ranges = True
    fake_hub.behaviour.cut_after = [100_000]
    assert pulled(cache).path.read_bytes() == MODEL


def test_a_storage_that_answers_another_range_is_refused(fake_hub: FakeHub, cache: Cache) -> None:
    fake_hub.behaviour.other_range = True
    fake_hub.behaviour.cut_after = [100_000]
    assert failure(cache).startswith("it answers a request for a range with another one")


def test_bytes_that_differ_from_the_digest_get_no_name(fake_hub: FakeHub, cache: Cache) -> None:
    fake_hub.behaviour.wrong_bytes = True
    assert failure(cache).startswith("its sha256 is ")
    assert not cache.file("tiny.gguf").exists()


@pytest.mark.parametrize("kind", ["sha256", "git"])
def test_a_digest_is_called_by_its_name(tmp_path: Path, kind: Literal["sha256", "git"]) -> None:
    heard: list[Transfer] = []

    class Sends:
        name = origin = "here"
        spare = 0

        def append(self, partial: Partial, progress: Progress) -> None:
            heard.append(partial.transfer)
            partial.write(b"four")

    wanted = Wanted("m", tmp_path / "m", 4, Digest(kind, "0" * 64), None, "")
    name = {"sha256": "sha256", "git": "git id"}[kind]
    with pytest.raises(DownloadError, match=f"its {name} is [0-9a-f]{{12}}…, wanted 0{{12}}…"):
        fetch(wanted, [Sends()], Cache(tmp_path / "home"), Silent())
    assert [transfer.checked for transfer in heard] == [name]


def test_a_hub_whose_file_is_another_one_is_left_before_the_download(
    fake_hub: FakeHub, cache: Cache
) -> None:
    fake_hub.repositories["org/tiny-GGUF"].files[HOLDS] = MODEL[::-1]
    assert failure(cache).startswith(f"its sha256 is {sha256(MODEL[::-1])[:12]}…, wanted")
    fake_hub.repositories["org/tiny-GGUF"].files[HOLDS] = MODEL[1:]
    assert failure(cache).startswith("its file has 255,999 bytes, not 256,000")
    del fake_hub.repositories["org/tiny-GGUF"].files[HOLDS]
    assert failure(cache).startswith("no such file in the repository")
    assert fake_hub.downloads() == []


def test_the_offline_switch_is_honoured(
    fake_hub: FakeHub, cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    assert failure(cache).startswith("HF_HUB_OFFLINE is set (0.")
    assert fake_hub.requests == []


def test_a_hub_that_refuses_connections_or_does_not_resolve_fails_at_once(
    cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert failure(cache).startswith("connection refused (")
    point_at(monkeypatch, "http://hub.invalid")
    assert failure(cache).startswith("could not resolve the name (")


def test_a_hub_that_never_answers_is_given_up(
    fake_hub: FakeHub, cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert ANSWER_SECONDS == 10
    monkeypatch.setattr("forwardpass.hub.remote.ANSWER_SECONDS", 0.3)
    fake_hub.behaviour.silent = True
    started = time.monotonic()
    assert failure(cache).startswith("no answer (0.")
    assert time.monotonic() - started < 10


def test_ranges_of_a_file_are_read_without_the_rest(fake_hub: FakeHub) -> None:
    source: ByteSource = HubFile("org/tiny-GGUF", COMMIT, remote_file())
    assert (source.name, source.size) == (f"org/tiny-GGUF/{HOLDS}", len(MODEL))
    assert source.read(0, 8) == MODEL[:8]
    assert source.read(1_000, 500) == MODEL[1_000:1_500]
    assert source.read(len(MODEL) - 3, 3) == MODEL[-3:]
    assert source.read(5, 0) == b""
    ranges = [request.range for request in fake_hub.downloads()]
    assert ranges == ["bytes=0-7", "bytes=1000-1499", "bytes=255997-255999"]
    assert isinstance(source, HubFile)
    assert source.bytes_read == 511


def test_a_part_of_the_last_range_costs_no_request(fake_hub: FakeHub) -> None:
    source = HubFile("org/tiny-GGUF", COMMIT, remote_file())
    source.read(100, 1_000)
    assert source.read(200, 300) == MODEL[200:500]
    assert len(fake_hub.downloads()) == 1


@pytest.mark.usefixtures("fake_hub")
@pytest.mark.parametrize(("offset", "length"), [(-1, 4), (0, -1), (0, 256_001), (256_000, 1)])
def test_a_range_outside_the_file_is_refused(offset: int, length: int) -> None:
    with pytest.raises(DownloadError, match="wanted, it has 256000"):
        HubFile("org/tiny-GGUF", COMMIT, remote_file()).read(offset, length)


def test_a_hub_that_ignores_ranges_is_read_up_to_a_limit_and_then_refused(
    fake_hub: FakeHub,
) -> None:
    body = MODEL * 20
    fake_hub.repositories["org/tiny-GGUF"].files[HOLDS] = body
    fake_hub.behaviour.ignore_ranges = True
    source = HubFile("org/tiny-GGUF", COMMIT, remote_file(body))
    assert source.read(0, 100) == body[:100]
    assert source.read(1_000_000, 100) == body[1_000_000:1_000_100]
    read = source.bytes_read
    with pytest.raises(DownloadError, match="it ignores ranges"):
        source.read(2_000_000, 100)
    assert source.bytes_read == read < 2_000_000


def test_a_range_that_is_cut_or_another_one_is_an_error(fake_hub: FakeHub) -> None:
    source = HubFile("org/tiny-GGUF", COMMIT, remote_file())
    fake_hub.behaviour.cut_after = [10]
    with pytest.raises(DownloadError, match=f"org/tiny-GGUF/{HOLDS}: the Hugging Face hub"):
        source.read(0, 100)
    fake_hub.behaviour.other_range = True
    with pytest.raises(DownloadError, match="another one"):
        source.read(50, 100)


def test_a_model_on_the_hub_is_opened_without_a_download(fake_hub: FakeHub) -> None:
    opened = open_remote("org/tiny", catalogue=catalogue())
    assert opened is not None
    assert [file.file.path for file in opened] == [
        *("config.json", "tokenizer.json", "model.safetensors")
    ]
    (gguf,) = open_remote("org/tiny-GGUF:q8_0", catalogue=catalogue()) or ()
    assert gguf.read(0, 4) == b"GGUF"
    (named,) = open_remote("tiny", catalogue=catalogue(entry())) or ()
    assert named.read(0, 3) == MODEL[:3]
    assert sum(file.bytes_read for file in (*opened, gguf, named)) == 7
    assert fake_hub.downloads()


@pytest.mark.usefixtures("fake_hub")
def test_a_model_that_is_not_on_the_hub_is_not_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    assert open_remote("nothing", catalogue=catalogue()) is None
    assert open_remote("tiny", catalogue=catalogue(entry(hub=False))) is None
    point_at(monkeypatch, "http://127.0.0.1:1")
    with pytest.raises(DownloadError, match="org/tiny: the Hugging Face hub: connection refused"):
        open_remote("org/tiny", catalogue=catalogue())
