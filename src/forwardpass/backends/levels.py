"""The C++ part: whether it is here, why not, and what this processor lets it use."""

from __future__ import annotations

import importlib.util
import platform
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

_PACKAGE = Path(__file__).resolve().parents[1]
_REASON_FILE = "native_missing.txt"  # CMakeLists.txt installs it in the extension's place

_AVX2 = frozenset({"avx2", "fma", "f16c"})
_VNNI = _AVX2 | {"avx512f", "avx512dq", "avx512bw", "avx512vl", "avx512_vnni"}
_BF16 = _VNNI | {"avx512_bf16"}
_AMX = _BF16 | {"avx512vbmi", "amx_tile", "amx_int8", "amx_bf16"}

LEVELS: dict[str, frozenset[str]] = {
    "portable": frozenset(),
    "avx2": _AVX2,
    "avx512-vnni": _VNNI,
    "avx512-bf16": _BF16,
    "amx": _AMX,
}
"""Instruction-set levels, lowest first, with every feature that each one needs."""


@dataclass(frozen=True)
class Cpu:
    """What the processor and the operating system let a program use.

    `features` are the present ones of those that `LEVELS` names. `tile_permission` is Linux's
    answer about AMX registers: "granted", "on request" (this process has not asked yet) or
    "unsupported". Caches are in bytes as one core sees them, 0 where unknown. Off x86 the texts
    are empty and nothing is present.
    """

    vendor: str
    brand: str
    features: frozenset[str]
    tile_permission: str
    l1d: int
    l2: int
    l3: int


@dataclass(frozen=True)
class NativeReport:
    """Whether the C++ part is here; `reason` is None where it is, and says why where it is not.

    `level` is the highest of `LEVELS` that this machine has; without the C++ part, "portable"
    and no `cpu`.
    """

    available: bool
    reason: str | None
    level: str
    cpu: Cpu | None


def native_report() -> NativeReport:
    """The report on the C++ part, which this loads."""
    reason = missing_reason()
    if reason is not None:
        return NativeReport(available=False, reason=reason, level="portable", cpu=None)
    try:
        from forwardpass import _native
    except ImportError as error:
        reason = f"its C++ part cannot be loaded ({error})"
        return NativeReport(available=False, reason=reason, level="portable", cpu=None)
    found = _native.cpu()
    cpu = Cpu(
        vendor=found["vendor"],
        brand=found["brand"],
        features=frozenset(name for name, present in found["features"].items() if present),
        tile_permission=found["tile_permission"],
        **found["caches"],
    )
    return NativeReport(available=True, reason=None, level=level(cpu), cpu=cpu)


def missing_reason() -> str | None:
    """Why the C++ part is not here, or None where it is; loads nothing."""
    if importlib.util.find_spec("forwardpass._native") is not None:
        return None
    stated = _PACKAGE / _REASON_FILE
    if stated.exists():
        return f"{stated.read_text('utf-8').strip()}; see docs/install.md"
    if _PACKAGE.parent.name == "src":
        return "its C++ part is not built in a source tree; see docs/install.md"
    return "its C++ part did not build when it was installed; see docs/install.md"


def level(cpu: Cpu) -> str:
    """The highest of `LEVELS` whose features are all present; AMX needs the kernel's consent."""
    granted = cpu.tile_permission != "unsupported"
    return _highest(name for name in cpu.features if granted or not name.startswith("amx_"))


def level_by_kernel() -> str | None:
    """The level by the flags that Linux lists, or None elsewhere; loads nothing.

    Linux leaves out what it does not save on a task switch, so on x86-64 this is `level` of the
    report, for where the C++ part must not be loaded.
    """
    if platform.system() != "Linux":
        return None
    for line in Path("/proc/cpuinfo").read_text("utf-8").splitlines():
        if line.startswith("flags"):
            return _highest(line.partition(":")[2].split())
    return "portable"


def _highest(features: Iterable[str]) -> str:
    present = frozenset(features)
    return [name for name, needed in LEVELS.items() if needed <= present][-1]
