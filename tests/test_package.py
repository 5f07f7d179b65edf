"""What is installed: the version, the type marker, and what is known of the C++ part."""

from __future__ import annotations

import importlib.util
import itertools
import platform
import re
import tomllib
from importlib.resources import files
from pathlib import Path

import pytest

import build_version
from forwardpass import _version
from forwardpass.backends import levels

ROOT = Path(__file__).resolve().parents[1]
ALL = frozenset().union(*levels.LEVELS.values())
CPUINFO = Path("/proc/cpuinfo")


def _cpu(features: frozenset[str], tile_permission: str = "on request") -> levels.Cpu:
    return levels.Cpu("", "", features, tile_permission, l1d=0, l2=0, l3=0)


def test_the_build_takes_the_version_that_the_package_states() -> None:
    built = build_version.version(ROOT)
    assert re.fullmatch(r"\d+\.\d+\.\d+(\+g[0-9a-f]{7,40}(\.dirty)?)?", built)
    assert built.partition("+")[0] == _version.__version__


def test_a_source_archive_keeps_its_version(tmp_path: Path) -> None:
    (tmp_path / "PKG-INFO").write_text("Metadata-Version: 2.4\nVersion: 7.8.9+gabc\n", "utf-8")
    assert build_version.version(tmp_path) == "7.8.9+gabc"


def test_the_commit_is_a_commit_or_unknown() -> None:
    commit = _version.commit()
    assert commit is None or re.fullmatch(r"[0-9a-f]{7,40}(-dirty)?", commit)


def test_the_changelog_knows_the_version() -> None:
    assert f"## {_version.__version__}" in (ROOT / "CHANGELOG.md").read_text("utf-8")


def test_the_package_is_marked_as_typed() -> None:
    assert files("forwardpass").joinpath("py.typed").is_file()


def test_the_test_extra_is_small_and_brings_no_judge() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    extras = project["optional-dependencies"]
    assert {"serve", "lark", "test", "oracles", "dev"} == set(extras)
    for name in ("torch", "transformers"):
        users = [extra for extra, needs in extras.items() if any(name in need for need in needs)]
        assert users == ["oracles"]
        assert not any(name in need for need in project["dependencies"])


def test_the_report_and_the_finder_agree_on_whether_the_cpp_part_is_here() -> None:
    report = levels.native_report()
    here = importlib.util.find_spec("forwardpass._native") is not None
    assert report.available == here
    assert (report.reason is None) == here
    assert (report.cpu is None) == (not here)
    assert report.level in levels.LEVELS
    if report.reason is not None:
        assert report.reason.endswith("see docs/install.md")


@pytest.mark.parametrize(
    ("stated", "folder", "reason"),
    [
        ("no C++ compiler when it was installed\n", "site-packages", "no C++ compiler"),
        ("no Python headers (Python.h) when it was installed\n", "site-packages", "no Python h"),
        (None, "site-packages", "its C++ part did not build"),
        (None, "src", "its C++ part is not built in a source tree"),
    ],
)
def test_a_missing_cpp_part_says_why(
    stated: str | None,
    folder: str,
    reason: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    package = tmp_path / folder / "forwardpass"
    package.mkdir(parents=True)
    if stated is not None:
        (package / "native_missing.txt").write_text(stated, "utf-8")
    monkeypatch.setattr(levels, "_PACKAGE", package)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    report = levels.native_report()
    assert not report.available
    assert report.level == "portable"
    assert (report.reason or "").startswith(reason)
    assert (report.reason or "").endswith("; see docs/install.md")


def test_the_build_states_the_reasons_that_the_report_repeats() -> None:
    script = (ROOT / "CMakeLists.txt").read_text("utf-8")
    for reason in ("no C++ compiler", "no Python headers (Python.h)"):
        assert f'"{reason} when it was installed"' in script
    assert "native_missing.txt" in script


def test_a_level_needs_every_feature_of_the_levels_below_it() -> None:
    needs = list(levels.LEVELS.values())
    assert all(low < high for low, high in itertools.pairwise(needs))
    for name, needed in levels.LEVELS.items():
        assert levels.level(_cpu(needed)) == name
        for feature in needed:
            assert levels.level(_cpu(needed - {feature})) != name


def test_amx_needs_the_consent_of_the_kernel() -> None:
    assert levels.level(_cpu(ALL, "granted")) == "amx"
    assert levels.level(_cpu(ALL, "on request")) == "amx"
    assert levels.level(_cpu(ALL, "unsupported")) == "avx512-bf16"


@pytest.mark.skipif(not CPUINFO.exists(), reason="Linux alone lists its processor's flags")
def test_the_report_equals_what_linux_says_of_the_processor() -> None:
    report = levels.native_report()
    listed = CPUINFO.read_text("utf-8")
    if report.cpu is None or platform.machine() != "x86_64":
        assert report.level == "portable"
        return
    flags = re.search(r"^flags\s*: (.*)$", listed, flags=re.MULTILINE)
    assert flags is not None
    assert report.cpu.features == ALL & set(flags[1].split())
    assert f": {report.cpu.vendor}\n" in listed
    assert f": {report.cpu.brand}\n" in listed
    assert report.level == levels.level_by_kernel()
    assert 8 << 10 <= report.cpu.l1d <= report.cpu.l2
