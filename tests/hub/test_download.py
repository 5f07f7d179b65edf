"""A wanted file from sources that deliver, stop, lie or fail."""

from __future__ import annotations

import resource
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from forwardpass.errors import DownloadError
from forwardpass.hub import Cache, Progress, Silent
from forwardpass.hub.digest import Digest
from forwardpass.hub.download import Partial, Wanted, fetch
from forwardpass.hub.failures import SourceFailed
from hub.fake_hub import git_id, sha256
from hub.parts import MODEL, Recorder


class Plain:
    """A source that appends `body` from where the partial file ends, up to `stop`, then fails."""

    origin = "a test"
    spare = 0

    def __init__(self, body: bytes, stop: int | None = None, name: str = "first") -> None:
        self.body, self.stop, self.name = body, stop, name
        self.starts: list[int] = []

    def append(self, partial: Partial, progress: Progress) -> None:
        self.starts.append(partial.size)
        progress.begin(partial.transfer, partial.size)
        end = len(self.body) if self.stop is None else self.stop
        partial.write(self.body[partial.size : end])
        if self.stop is not None:
            raise SourceFailed("it stopped")


@pytest.fixture
def wanted(cache: Cache) -> Wanted:
    digest = Digest("sha256", sha256(MODEL))
    return Wanted("tiny", cache.file("tiny.gguf"), len(MODEL), digest, "MIT", "do something")


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir() if path.is_file()}


def test_a_file_gets_its_name_when_its_digest_is_right(cache: Cache, wanted: Wanted) -> None:
    stamp = fetch(wanted, [Plain(MODEL)], cache, Silent())
    assert wanted.path.read_bytes() == MODEL
    assert (stamp.origin, stamp.digest) == ("a test", f"sha256 {sha256(MODEL)}")
    assert names(cache.home) == {"tiny.gguf"}


def test_a_small_file_is_held_to_the_id_that_git_gives_it(cache: Cache) -> None:
    wanted = Wanted("x", cache.file("x"), 5, Digest("git", git_id(b"hello")), None, "")
    fetch(wanted, [Plain(b"hello")], cache, Silent())
    assert wanted.path.read_bytes() == b"hello"


def test_a_file_with_another_digest_never_gets_the_name(cache: Cache, wanted: Wanted) -> None:
    wrong = MODEL[:-1] + b"?"
    with pytest.raises(DownloadError) as caught:
        fetch(wanted, [Plain(wrong)], cache, Silent())
    ours, theirs = sha256(MODEL)[:12], sha256(wrong)[:12]
    assert f"first  its sha256 is {theirs}…, wanted {ours}…" in caught.value.details[0]
    assert not wanted.path.exists()
    assert names(cache.home) == set()


def test_the_next_source_is_tried_and_the_note_says_so(cache: Cache, wanted: Wanted) -> None:
    heard = Recorder()
    wrong, right = Plain(b"?" * len(MODEL)), Plain(MODEL, name="second")
    fetch(wanted, [wrong, right], cache, heard)
    assert wanted.path.read_bytes() == MODEL
    assert heard.ended == [None, wanted.path]
    assert heard.notes[0].startswith("  first: its sha256 is ")
    assert heard.notes[0].endswith("trying second")


@pytest.mark.parametrize("stop", [0, 1, 1_000, len(MODEL) - 1])
def test_another_source_goes_on_where_one_stopped(cache: Cache, wanted: Wanted, stop: int) -> None:
    first, second = Plain(MODEL, stop), Plain(MODEL, name="second")
    fetch(wanted, [first, second], cache, Silent())
    assert second.starts == [stop]
    assert wanted.path.read_bytes() == MODEL


def test_a_later_try_goes_on_where_an_earlier_one_stopped(cache: Cache, wanted: Wanted) -> None:
    with pytest.raises(DownloadError):
        fetch(wanted, [Plain(MODEL, 1_000)], cache, Silent())
    heard, source = Recorder(), Plain(MODEL)
    fetch(wanted, [source], cache, heard)
    assert source.starts == [1_000]
    assert heard.begun[0][1] == 1_000


def test_a_partial_file_that_is_damaged_costs_one_more_try(cache: Cache, wanted: Wanted) -> None:
    cache.home.mkdir()
    wanted.path.with_name("tiny.gguf.partial").write_bytes(b"?" * 1_000)
    heard, source = Recorder(), Plain(MODEL)
    fetch(wanted, [source], cache, heard)
    assert source.starts == [1_000, 0]
    assert "damaged" in heard.notes[0]
    assert wanted.path.read_bytes() == MODEL


@pytest.mark.parametrize("size", [len(MODEL), len(MODEL) + 1])
def test_a_partial_file_as_long_as_the_file_is_used_only_if_it_is_right(
    cache: Cache, wanted: Wanted, size: int
) -> None:
    cache.home.mkdir()
    wanted.path.with_name("tiny.gguf.partial").write_bytes((MODEL + b"?")[:size])
    source = Plain(MODEL)
    fetch(wanted, [source], cache, Silent())
    assert source.starts == ([] if size == len(MODEL) else [0])
    assert wanted.path.read_bytes() == MODEL


def test_a_source_that_sends_too_much_or_too_little_fails(cache: Cache, wanted: Wanted) -> None:
    with pytest.raises(DownloadError) as caught:
        fetch(wanted, [Plain(MODEL + b"?"), Plain(MODEL[:-2], name="second")], cache, Silent())
    assert "it sends more than 256,000 bytes" in caught.value.details[0]
    assert "it ended after 255,998 of 256,000 bytes" in caught.value.details[1]


def test_failure_lists_each_source_with_its_time_and_gives_the_advice(
    cache: Cache, wanted: Wanted
) -> None:
    sources = [Plain(MODEL, 1), Plain(MODEL, 2, name="the second")]
    with pytest.raises(DownloadError) as caught:
        fetch(wanted, sources, cache, Silent())
    assert str(caught.value).splitlines() == [
        "tiny is not here and could not be fetched",
        "  first       it stopped (0.0 s)",
        "  the second  it stopped (0.0 s)",
        "  do something",
    ]


def test_a_wrong_file_under_the_name_is_replaced_or_named_in_the_failure(
    cache: Cache, wanted: Wanted
) -> None:
    cache.home.mkdir()
    wanted.path.write_bytes(b"?" * len(MODEL))
    with pytest.raises(DownloadError) as caught:
        fetch(wanted, [Plain(MODEL, 5)], cache, Silent())
    assert "is here, but it is not the file that is wanted" in caught.value.details[0]
    fetch(wanted, [Plain(MODEL)], cache, Silent())
    assert wanted.path.read_bytes() == MODEL


def test_an_interrupt_keeps_what_is_here(cache: Cache, wanted: Wanted) -> None:
    class Interrupted(Plain):
        def append(self, partial: Partial, progress: Progress) -> None:
            partial.write(self.body[:77])
            raise KeyboardInterrupt

    heard = Recorder()
    with pytest.raises(KeyboardInterrupt):
        fetch(wanted, [Interrupted(MODEL)], cache, heard)
    assert wanted.path.with_name("tiny.gguf.partial").stat().st_size == 77
    assert heard.ended == [None]


def test_a_file_that_is_here_is_hashed_once_and_again_when_it_changes(
    cache: Cache, wanted: Wanted, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetch(wanted, [Plain(MODEL)], cache, Silent())
    hashed: list[Path] = []
    original = Digest.of

    def counted(self: Digest, path: Path, on_bytes: Callable[[int], None] | None = None) -> str:
        hashed.append(path)
        return original(self, path, on_bytes)

    monkeypatch.setattr(Digest, "of", counted)
    arguments = (wanted.path, wanted.bytes, wanted.digest, "a local file")
    assert cache.verified(*arguments)
    assert hashed == []
    wanted.path.write_bytes(MODEL[::-1])
    assert cache.verified(*arguments) is None
    assert hashed == [wanted.path]
    wanted.path.write_bytes(MODEL)
    found = cache.verified(*arguments)
    assert found is not None
    assert cache.verified(*arguments) == cache.stamp(wanted.path)
    assert len(hashed) == 2


def test_a_damaged_stamp_only_costs_another_hash(cache: Cache, wanted: Wanted) -> None:
    fetch(wanted, [Plain(MODEL)], cache, Silent())
    (stamp,) = (cache.home / "verified").iterdir()
    for text in ("", "[]", "{}", '{"path": 1}', "[" * 100_000):
        stamp.write_text(text)
        assert cache.verified(wanted.path, wanted.bytes, wanted.digest, "x") is not None


def test_a_place_that_cannot_be_written_is_named_with_the_way_out(wanted: Wanted) -> None:
    cache = Cache(Path("/dev/null/home"))
    there = Wanted("tiny", cache.file("t"), wanted.bytes, wanted.digest, None, "")
    with pytest.raises(DownloadError, match="/dev/null/home: cannot be written") as caught:
        fetch(there, [Plain(MODEL)], cache, Silent())
    assert caught.value.advice == "set FORWARDPASS_HOME to a folder that you may write to"


def test_space_is_checked_before_anything_is_fetched(
    cache: Cache, wanted: Wanted, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage("/")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=100_000))
    source = Plain(MODEL)
    with pytest.raises(DownloadError, match=r"256\.0 kB are needed, 100\.0 kB are free"):
        fetch(wanted, [source], cache, Silent())
    assert source.starts == []


@contextmanager
def files_no_longer_than(count: int) -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (count, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_disk_that_takes_no_more_is_no_fault_of_the_source(cache: Cache, wanted: Wanted) -> None:
    second = Plain(MODEL, name="second")
    with files_no_longer_than(100_000), pytest.raises(DownloadError) as caught:
        fetch(wanted, [Plain(MODEL), second], cache, Silent())
    assert caught.value.fact.endswith("tiny.gguf.partial: file too large")
    assert "goes on from there" in caught.value.details[0]
    assert second.starts == []
    fetch(wanted, [second], cache, Silent())
    assert wanted.path.read_bytes() == MODEL
