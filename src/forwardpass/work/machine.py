"""`Machine`: what a computer can do at most, as far as the work of a pass depends on it."""

from __future__ import annotations

import platform
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Ceilings:
    """The two rates that bound a pass: bytes read a second, and FLOP a second of products."""

    read_rate: float
    flop_rate: float


@dataclass(frozen=True)
class Machine:
    """A computer and its ceilings.

    `threads` are those in use of `cores` that this process may run on. `load` is how many programs
    wanted to run there, None where the system does not say: what they took, neither the ceilings
    nor the passes had. `read_rate_one` is the read rate of a single thread. `source` says how the
    ceilings were found.
    """

    cpu: str
    cores: int
    threads: int
    load: float | None
    ceilings: Ceilings
    read_rate_one: float
    source: str

    def as_dict(self) -> dict[str, object]:
        """The keys of `machine` in JSON."""
        return {
            "cpu": self.cpu,
            "cores": self.cores,
            "threads": self.threads,
            "load": self.load,
            "bytes_per_second": self.ceilings.read_rate,
            "bytes_per_second_one_thread": self.read_rate_one,
            "flop_per_second": self.ceilings.flop_rate,
            "source": self.source,
        }


def cpu_name() -> str:
    """The processor's name as the system gives it."""
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8", "replace").splitlines()
    except OSError:
        lines = []
    for line in lines:
        key, _, value = line.partition(":")
        if key.strip() == "model name" and value.strip():
            return " ".join(value.split())
    return platform.processor() or platform.machine() or "unknown processor"
