"""The version, written once, and the commit that was installed."""

from __future__ import annotations

from pathlib import Path

__version__ = "0.1.0"


def commit() -> str | None:
    """The commit that this code is, abbreviated, or None where nobody recorded it.

    In a checkout git is asked, so that `-dirty` at its end tells of uncommitted changes. An
    installed package carries the commit in its version, as in 0.1.0+g1a2b3c4d5e6f: see
    scripts/build_version.py, which writes it there.
    """
    source = Path(__file__).resolve().parents[1]
    if source.name == "src" and (source.parent / ".git").exists():
        return _ask_git(source.parent)
    return _installed()


def _ask_git(folder: Path) -> str | None:
    import subprocess

    command = ["git", "describe", "--always", "--exclude=*", "--abbrev=12", "--dirty"]
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None if done.returncode == 0 else None


def _installed() -> str | None:
    from importlib.metadata import PackageNotFoundError, version

    try:
        local = version("forwardpass").partition("+")[2]
    except PackageNotFoundError:
        return None
    return local.removeprefix("g").replace(".dirty", "-dirty") or None
