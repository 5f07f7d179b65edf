"""How fast passes are, each speed beside its bound.

A prompt is bound by arithmetic: its FLOP beside those that this machine can do. A generated token
is bound by reading: its bytes beside those that this machine can read. Both rates are measured in
the same run, before, between and after the repetitions of each speed, so that what else the machine
does lowers both alike.
"""

from __future__ import annotations

import os
import random
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from forwardpass.backends import ceilings
from forwardpass.backends.backend import Backend
from forwardpass.backends.threads import threads_in_force, usable_cores
from forwardpass.work.count import PassWork, WeightBytes, count_pass
from forwardpass.work.machine import Ceilings, Machine, cpu_name
from forwardpass.work.passes import PassShape, SequenceShape

SECONDS = 0.5  # that a repetition lasts, about
_SETTLED = 0.05  # seconds after which a BLAS thread that spins for more work has gone to sleep
_ROOT = Path("/")


@dataclass(frozen=True)
class Figure:
    """What repetitions found: the one in the middle, and half the range of all."""

    value: float
    spread: float

    @classmethod
    def of(cls, found: Sequence[float]) -> Figure:
        return cls(statistics.median(found), (max(found) - min(found)) / 2)


@dataclass(frozen=True)
class Prefill:
    """Passes over a prompt of `tokens` tokens behind nothing, with the logits of the last.

    `rate`: tokens a second. `flop`: of matrix products and attention, of one pass. `ceiling`: FLOP
    a second that this machine did meanwhile.
    """

    tokens: int
    rate: Figure
    flop: int
    ceiling: Figure

    @property
    def flop_per_second(self) -> float:
        return self.rate.value * self.flop / self.tokens

    @property
    def bound(self) -> float:
        """Tokens a second at the ceiling."""
        return self.ceiling.value * self.tokens / self.flop

    def as_dict(self) -> dict[str, object]:
        """The keys of a row in JSON."""
        return {
            "tokens": self.tokens,
            "tokens_per_second": self.rate.value,
            "flop_per_second": self.flop_per_second,
            "of_peak": self.flop_per_second / self.ceiling.value,
        }


@dataclass(frozen=True)
class Decode:
    """Passes of one generated token in each of `batch` sequences, seeing `visible` tokens each.

    `rate`: tokens a second of all sequences together. `bytes`: read for one token. `ceiling`: bytes
    a second that this machine read meanwhile.
    """

    visible: int
    batch: int
    rate: Figure
    bytes: float
    ceiling: Figure

    @property
    def bytes_per_second(self) -> float:
        return self.rate.value * self.bytes

    @property
    def bound(self) -> float:
        """Tokens a second at the ceiling."""
        return self.ceiling.value / self.bytes

    def as_dict(self) -> dict[str, object]:
        """The keys of a row in JSON."""
        return {
            "visible": self.visible,
            "batch": self.batch,
            "tokens_per_second": self.rate.value,
            "bytes_per_token": self.bytes,
            "bytes_per_second": self.bytes_per_second,
            "of_bandwidth": self.bytes_per_second / self.ceiling.value,
        }


class Probe(Protocol):
    """Measures what this machine does at most, with the threads that passes run on."""

    @property
    def source(self) -> str:
        """How it measures, for people."""

    def read_one(self) -> float:
        """Bytes a second that one thread reads."""

    def read(self) -> float:
        """Bytes a second that all threads read."""

    def products(self) -> float:
        """FLOP a second."""


class NumpyProbe:
    """What NumPy and its BLAS reach: the bound of the reference backend."""

    source = "measured through NumPy in float32"

    def read_one(self) -> float:
        return ceilings.read_rates(threads_in_force())[0]

    def read(self) -> float:
        return ceilings.read_rates(threads_in_force())[1]

    def products(self) -> float:
        return ceilings.product_rate()


@dataclass(frozen=True)
class NativeProbe:
    """Reads as the kernels do, in C++; products are those of NumPy's BLAS.

    `tiles`: the level that multiplies prompts in tiles; then products are those of tiles.
    """

    threads: int
    tiles: str = ""

    @property
    def source(self) -> str:
        if self.tiles:
            return "read and multiplied, in tiles of bf16, by the C++ part"
        blas = threads_in_force()
        words = "read by the C++ part, float32 products by NumPy"
        return words if blas == self.threads else f"{words} on {blas} of the threads"

    def read_one(self) -> float:
        return ceilings.native_read_rate(1)

    def read(self) -> float:
        return ceilings.native_read_rate(self.threads)

    def products(self) -> float:
        if self.tiles:
            return ceilings.native_tile_rate(self.tiles, self.threads)
        found = ceilings.product_rate()
        time.sleep(_SETTLED)
        return found


@dataclass
class Peak:
    """The most memory that this process held while what is measured ran.

    `begin` before and `end` after each part of it. Where the system does not let a process forget
    its peak (`exact` is false then), it is that of the whole process.
    """

    root: Path = _ROOT
    exact: bool = True
    bytes: int | None = None

    def begin(self) -> None:
        """Forgets the peak so far.

        Source: the kernel's proc.rst, `clear_refs`: 5 sets `VmHWM` to what is held now.
        """
        try:
            (self.root / "proc/self/clear_refs").write_text("5")
        except OSError:
            self.exact = False

    def end(self) -> None:
        """Looks at the peak since `begin`."""
        found = self._peak()
        if found is not None:
            self.bytes = max(found, self.bytes or 0)

    def _peak(self) -> int | None:
        try:
            lines = (self.root / "proc/self/status").read_text("utf-8").splitlines()
        except OSError:
            return _whole_peak()
        return next((1024 * int(ln.split()[1]) for ln in lines if ln.startswith("VmHWM:")), None)


@dataclass
class Bench:
    """Measures the passes of one model on one backend.

    `weight_bytes`: of a table, as its file stores it. `together`: whether a pass of several
    sequences reads each table once. A repetition lasts about `seconds`, at least one pass. Token
    ids, and the keys and values that stand for earlier tokens, are random with `seed`: they change
    no time.
    """

    backend: Backend
    probe: Probe
    weight_bytes: WeightBytes
    together: bool
    repetitions: int = 3
    seconds: float = SECONDS
    seed: int = 0
    peak: Peak = field(default_factory=Peak)
    clock: Callable[[], float] = time.perf_counter
    reads: list[float] = field(default_factory=list)
    products: list[float] = field(default_factory=list)

    def prefill(self, tokens: int) -> Prefill:
        """Passes over a prompt of `tokens` tokens; memory of the cache is there after the first."""
        cache = self.backend.new_cache()
        ids = self._ids(tokens)

        def one_pass() -> None:
            self.backend.run(cache, ids)
            cache.truncate(0)

        seconds, rates = self._repeat(one_pass, self.probe.products)
        self.products += rates
        work = self._work(PassShape.prompt(tokens))
        speeds = [tokens / each for each in seconds]
        return Prefill(tokens, Figure.of(speeds), work.flop, Figure.of(rates))

    def decode(self, visible: int, batch: int) -> Decode:
        """Passes of one token in each of `batch` sequences that sees `visible` tokens, itself too.

        Each pass runs behind the same cache, so that all see the same number of tokens.
        """
        caches = [self.backend.new_cache() for _ in range(batch)]
        for number, cache in enumerate(caches):
            cache.fill_random(visible - 1, self.seed + number)
        ids = self._ids(batch)
        parts = [(cache, [token], None) for cache, token in zip(caches, ids, strict=True)]

        def one_pass() -> None:
            if batch == 1:
                self.backend.run(caches[0], ids, generated=True)
            else:
                self.backend.run_batch(parts)
            for cache in caches:
                cache.truncate(visible - 1)

        seconds, rates = self._repeat(one_pass, self.probe.read)
        self.reads += rates
        speeds = [batch / each for each in seconds]
        moved = self._read_bytes(visible, batch)
        return Decode(visible, batch, Figure.of(speeds), moved, Figure.of(rates))

    def machine(self) -> Machine:
        """This machine with the ceilings found so far, measured now where none was."""
        return Machine(
            cpu=cpu_name(),
            cores=usable_cores(),
            threads=self.backend.threads,
            load=os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
            ceilings=Ceilings(
                read_rate=statistics.median(self.reads or [self.probe.read()]),
                flop_rate=statistics.median(self.products or [self.probe.products()]),
            ),
            read_rate_one=self.probe.read_one(),
            source=self.probe.source,
        )

    def fallbacks(self) -> list[str]:
        """Ops that the reference computes inside the backend's passes, each once."""
        ops = {node.name: node.op.name for node in self.backend.graph.nodes}
        found: Sequence[str] = getattr(self.backend, "fallbacks", ())
        return sorted({ops.get(name, name) for name in found})

    def _repeat(
        self, one_pass: Callable[[], None], ceiling: Callable[[], float]
    ) -> tuple[list[float], list[float]]:
        """Seconds a pass of each repetition, and the ceiling before, between and after them."""
        one_pass()  # wakes threads, decodes weights, takes memory
        estimate = self._timed(one_pass, 1)
        passes = max(1, round(self.seconds / estimate)) if estimate > 0 else 1
        seconds, rates = [], [ceiling()]
        for _ in range(self.repetitions):
            self.peak.begin()
            seconds.append(self._timed(one_pass, passes))
            self.peak.end()
            rates.append(ceiling())
        return seconds, rates

    def _timed(self, one_pass: Callable[[], None], passes: int) -> float:
        start = self.clock()
        for _ in range(passes):
            one_pass()
        return (self.clock() - start) / passes

    def _read_bytes(self, visible: int, batch: int) -> float:
        """Bytes of tables and cache that are read for one token."""
        shared = batch if self.together else 1
        work = self._work(PassShape((SequenceShape(1, visible - 1),) * shared))
        cached = work.total.cache_read + work.other.cache_read
        return (work.weight_bytes + cached) / shared

    def _work(self, shape: PassShape) -> PassWork:
        return count_pass(self.backend.graph, shape, self.weight_bytes, self.backend.kv_width)

    def _ids(self, count: int) -> list[int]:
        draw = random.Random(self.seed)
        vocabulary = self.backend.graph.config.vocab_size
        return [draw.randrange(vocabulary) for _ in range(count)]


def _whole_peak() -> int | None:
    """The peak of the whole process where there is no proc."""
    if sys.platform == "win32":
        return None
    import resource

    unit = 1 if sys.platform == "darwin" else 1024
    return unit * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
