"""The sizes of the processor's caches, as Linux lists them."""

from __future__ import annotations

from pathlib import Path

_NAMES = {("1", "Data"): "l1d", ("2", "Unified"): "l2", ("3", "Unified"): "l3"}
_UNITS = {"K": 2**10, "M": 2**20, "G": 2**30}
_ROOT = Path("/")


def caches(root: Path = _ROOT) -> dict[str, int | None]:
    """Bytes of `l1d`, `l2` and `l3` as the first core sees them, None where nobody says.

    Source: the kernel's ABI documentation of /sys/devices/system/cpu.
    """
    found: dict[str, int | None] = dict.fromkeys(("l1d", "l2", "l3"))
    for folder in sorted((root / "sys/devices/system/cpu/cpu0/cache").glob("index*")):
        try:
            level, kind, size = (
                (folder / name).read_text("utf-8").strip() for name in ("level", "type", "size")
            )
        except (OSError, ValueError):
            continue
        name = _NAMES.get((level, kind))
        if name is not None and size[:-1].isdecimal() and size[-1:] in _UNITS:
            found[name] = int(size[:-1]) * _UNITS[size[-1]]
    return found
