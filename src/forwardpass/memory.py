"""How much memory there still is, asked before something large is allocated.

A process that takes more than there is gets killed without a word; this says so beforehand.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from forwardpass.errors import WeightsError
from forwardpass.units import exact, size

_ROOT = Path("/")


def available_memory(root: Path = _ROOT) -> int | None:
    """Bytes that this process can still take without swapping, or None where nobody says.

    The least of what Linux has available and what each control group around the process leaves,
    where pages of files that can be dropped count as free. `root` is where proc and sys are.

    Source: proc_meminfo(5), `MemAvailable`; the kernel's cgroup-v2.rst, `memory.max`; v1's
    memory.rst, `memory.limit_in_bytes`.
    """
    found = [*_meminfo(root), *_control_groups(root)]
    return min(found) if found else None


def total_memory(root: Path = _ROOT) -> int | None:
    """Bytes of memory that the machine has, or None where nobody says."""
    return next(_meminfo(root, "MemTotal"), None)


def require_memory(wanted: int, what: str) -> None:
    """Raises WeightsError where `wanted` bytes are more than there is, naming both."""
    there = available_memory()
    if there is not None and wanted > there:
        raise WeightsError(
            f"{what} need {size(wanted)}, {size(there)} of memory are available",
            f"{exact(wanted)} bytes of {exact(there)}",
            advice="Choose a smaller model or fewer tokens, or free memory first.",
        )


def _meminfo(root: Path, wanted: str = "MemAvailable") -> Iterator[int]:
    for line in _lines(root / "proc/meminfo"):
        name, _, rest = line.partition(":")
        if name == wanted:
            yield 1024 * int(rest.split()[0])


def _control_groups(root: Path) -> Iterator[int]:
    """What each group leaves that can be seen from here: in a container, only the outer ones."""
    for line in _lines(root / "proc/self/cgroup"):
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            base = root / "sys/fs/cgroup"
            names = ("memory.max", "memory.current", "inactive_file")
        elif "memory" in controllers.split(","):
            base = root / "sys/fs/cgroup/memory"
            names = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
        else:
            continue
        group = base / path.strip("/")
        while True:
            yield from _left(group, *names)
            if group == base:
                break
            group = group.parent


def _left(group: Path, limit_name: str, used_name: str, droppable_name: str) -> Iterator[int]:
    limit, used = _number(group / limit_name), _number(group / used_name)
    if limit is None or used is None:
        return
    droppable = 0
    for line in _lines(group / "memory.stat"):
        name, _, value = line.partition(" ")
        if name == droppable_name:
            droppable = int(value)
    yield max(0, limit - max(0, used - droppable))


def _number(path: Path) -> int | None:
    text = "".join(_lines(path)).strip()
    return int(text) if text.isdecimal() else None


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text("utf-8").splitlines()
    except (OSError, ValueError):
        return []
