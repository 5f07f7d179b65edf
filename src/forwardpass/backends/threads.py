"""How many threads NumPy's matrix products run on.

The BLAS library behind NumPy reads the number from the environment when it is loaded. OpenBLAS,
which NumPy's own packages carry, can be told another one later too.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator, MutableMapping
from pathlib import Path

from forwardpass.errors import RequestError
from forwardpass.sampling.ranges import whole

# OpenBLAS, oneMKL, BLIS, Apple's Accelerate, and OpenMP builds of any.
VARIABLES = (
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "BLIS_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "OMP_NUM_THREADS",
)
_ROOT = Path("/")
_OPENBLAS = (
    "scipy_openblas_{}_num_threads64_",
    "openblas_{}_num_threads64_",
    "scipy_openblas_{}_num_threads",
    "openblas_{}_num_threads",
)


def set_threads(count: int, environment: MutableMapping[str, str] = os.environ) -> None:
    """Makes matrix products run on `count` threads.

    Raises RequestError for a number below 1 or above the cores, and where NumPy is loaded already
    with another BLAS than OpenBLAS, which runs on another number.
    """
    cores = usable_cores()
    number = whole(count)
    if number is None or not 1 <= number <= cores:
        raise RequestError(f"threads = {count!r:.60}: this process may use 1 to {cores}")
    if "numpy" not in sys.modules:
        for name in VARIABLES:
            environment[name] = str(count)
        return
    for library, pattern in _openblas():
        getattr(library, pattern.format("set"))(count)
    now = threads_in_force()
    if now != count:
        raise RequestError(
            f"threads = {count}: NumPy is loaded already and runs on {now}",
            advice=f"set {VARIABLES[-1]}={count} before the program starts",
        )


def threads_in_force() -> int:
    """Threads that matrix products run on: asked of OpenBLAS, elsewhere by the environment."""
    for library, pattern in _openblas():
        return int(getattr(library, pattern.format("get"))())
    for name in VARIABLES:
        value = os.environ.get(name, "")
        if value.isdecimal() and int(value) > 0:
            return int(value)
    return usable_cores()


def _openblas() -> Iterator[tuple[ctypes.CDLL, str]]:
    """Each OpenBLAS among the files that this process has mapped, and its way of naming."""
    try:
        mapped = Path("/proc/self/maps").read_text("utf-8", "replace").splitlines()
    except OSError:
        return
    paths = {line.split(maxsplit=5)[5] for line in mapped if "openblas" in line.lower()}
    for path in sorted(paths):
        try:
            library = ctypes.CDLL(path)
        except OSError:
            continue
        for pattern in _OPENBLAS:
            if hasattr(library, pattern.format("get")):
                yield library, pattern
                break


def native_threads(asked: int | None) -> int:
    """Threads of the native backend: those asked for, all usable cores otherwise.

    Raises RequestError for a number below 1 or above the cores.
    """
    cores = usable_cores()
    if asked is None:
        return cores
    number = whole(asked)
    if number is None or not 1 <= number <= cores:
        raise RequestError(f"threads = {asked!r:.60}: this process may use 1 to {cores}")
    return number


def usable_cores(root: Path = _ROOT) -> int:
    """Cores that this process may run on, and that its control group gives time on.

    A group's quota of 1.5 cores is one: two threads would wait for each other. `root` is where
    proc and sys are.

    Source: the kernel's cgroup-v2.rst, `cpu.max`; v1's sched-bwc.rst, `cpu.cfs_quota_us`.
    """
    affinity = hasattr(os, "sched_getaffinity")
    cores = len(os.sched_getaffinity(0)) if affinity else os.cpu_count() or 1
    for quota, period in _quotas(root):
        if quota > 0 and period > 0:
            cores = min(cores, max(1, quota // period))
    return cores


def _quotas(root: Path) -> Iterator[tuple[int, int]]:
    """Microseconds of processor time in each period of so many, of each group that limits it."""
    for line in _text(root / "proc/self/cgroup").splitlines():
        _, _, place = line.partition(":")
        controllers, _, path = place.partition(":")
        if controllers == "":
            base, names = root / "sys/fs/cgroup", ["cpu.max"]
        elif "cpu" in controllers.split(","):
            base = root / "sys/fs/cgroup/cpu"
            names = ["cpu.cfs_quota_us", "cpu.cfs_period_us"]
        else:
            continue
        group = base / path.strip("/")
        while True:
            words = " ".join(_text(group / name) for name in names).split()
            if len(words) == 2 and all(word.isdecimal() for word in words):
                yield int(words[0]), int(words[1])
            if group == base or base not in group.parents:
                break
            group = group.parent


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except (OSError, ValueError):
        return ""
