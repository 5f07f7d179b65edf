"""How fast every kernel of the list in tests/kernels is, beside the machine's own read rate.

    python benchmarks/kernels.py
    python benchmarks/kernels.py --types q4_k q6_k --levels avx2 --rows 1 8 --json

Products run as steps of a program over tables that no cache holds (`--megabytes` in all, two at
least), attention over a cache of that size, ops on rows over rows that stay in the nearest cache:
they are fed by the products before them. Bytes are those of the packed tables, or of the cache's
keys and values, read once; for ops on rows those read and written. Each figure is the median of
`--repetitions` runs, by the program's own clock of a step; the read rate is measured before and
after each kernel's runs, and `of read` is the kernel's rate over the mean of both.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

# In the place of this folder, where `kernels` would be this file.
sys.path[0] = str(Path(__file__).resolve().parents[1] / "tests")

from kernels import harness  # noqa: E402
from kernels.inputs import KV_TYPES  # noqa: E402
from kernels.stored import TYPES, Table, random_table  # noqa: E402

COLS, PIECE = 4096, 2048  # of a table; its rows
HEADS, GROUPS, WIDTH = 24, 8, 128  # of attention
ROW = 4096
READ_BYTES = 256 << 20


@dataclass(frozen=True)
class Figure:
    """One kernel's time: GB/s of what it reads, and the read rate around it (0: no memory read)."""

    op: str
    type: str
    level: str
    rows: int
    seconds: float
    gigabytes_a_second: float
    read_rate: float

    @property
    def share(self) -> float:
        return self.gigabytes_a_second / self.read_rate if self.read_rate else 0.0


@dataclass(frozen=True)
class Settings:
    levels: list[str]
    types: list[str]
    rows: list[int]
    threads: int
    megabytes: int
    repetitions: int


def main() -> None:
    settings, as_json = _settings()
    figures = []
    if not as_json:
        print(
            f"{'op':14} {'type':10} {'level':12} {'rows':>4} {'µs':>10} {'GB/s':>7} {'of read':>8}"
        )
    for figure in measure(settings):
        figures.append(figure)
        if not as_json:
            share = f"{figure.share:8.2f}" if figure.read_rate else " " * 8
            print(
                f"{figure.op:16} {figure.type:10} {figure.level:12} {figure.rows:4} "
                f"{figure.seconds * 1e6:10.1f} {figure.gigabytes_a_second:7.2f} {share}",
                flush=True,
            )
    if as_json:
        print(json.dumps({"settings": asdict(settings), "figures": [asdict(f) for f in figures]}))


def measure(settings: Settings) -> Iterator[Figure]:
    """Figures of every op that has a kernel, in the order of the op table."""
    for op, (_, how) in harness.held().items():
        if how.by == "products":
            for kind in settings.types:
                yield from _products(op, kind, settings)
        elif how.by == "attention" and op == "attention":
            for kv_type in KV_TYPES:
                yield from _attention(op, kv_type, settings)
        elif how.by == "rows":
            yield from _row(op, settings)


def _products(op: str, kind: str, settings: Settings) -> Iterator[Figure]:
    table = random_table(kind, PIECE, COLS, np.random.default_rng(1))
    tables = _native().Tables(settings.threads)
    numbers = [harness.add_table(tables, table)]
    size = tables.nbytes
    while tables.nbytes < settings.megabytes << 20 or len(numbers) < 2:
        numbers.append(harness.add_table(tables, table))
    for level in settings.levels:
        for rows in settings.rows:
            program = _program_of(tables, table, numbers, rows, level, settings)
            x = np.random.default_rng(2).normal(size=(rows, COLS)).astype(np.float32)
            harness.run_program(program, x)
            yield _figure((op, kind, level, rows), size * len(numbers), program, settings)


def _program_of(
    tables: Any, table: Table, numbers: list[int], rows: int, level: str, settings: Settings
) -> Any:
    """A pass whose last step multiplies with every table in turn."""
    slots = [(COLS, False), *[(table.rows, False)] * len(numbers)]
    program = _native().Program(tables, slots, [], "f16", rows, level, settings.threads)
    program.row_step([{"kind": "quantize", "a": (0, 0), "width": COLS}], False)
    segments = [{"table": number, "out": (i, 0)} for i, number in enumerate(numbers, 1)]
    program.linear_step((0, 0), segments, False)
    return program


def _attention(op: str, kv_type: str, settings: Settings) -> Iterator[Figure]:
    size = 2 * GROUPS * WIDTH * (4 if kv_type == "f32" else 2)
    positions = (settings.megabytes << 20) // size
    for level in settings.levels:
        tables = _native().Tables(1)
        slots = [(HEADS * WIDTH, False)] * 2
        states = [(GROUPS, WIDTH)]
        program = _native().Program(tables, slots, states, kv_type, 1, level, settings.threads)
        members = {"q": (0, 0), "out": (1, 0), "state": 0, "heads": HEADS, "groups": GROUPS}
        program.attention_step(members | {"width": WIDTH, "scale": WIDTH**-0.5})
        cache = _native().Cache(program)
        cache.fill_random(positions, 1)
        program.slot(0, 1)[:] = np.random.default_rng(3).normal(size=HEADS * WIDTH)
        yield _figure((op, kv_type, level, 1), size * positions, program, settings, cache)


def _row(op: str, settings: Settings) -> Iterator[Figure]:
    for level in settings.levels:
        tables = _native().Tables(1)
        program = _native().Program(tables, [(ROW, False)] * 3, [], "f16", 1, level, 1)
        width = 128 if op.startswith("rope") or op == "head_layer_norm" else ROW
        names = {"plain_layer_norm": "layer_norm", "rope_factors": "rope"}
        members: dict[str, Any] = {"kind": names.get(op, op), "a": (0, 0), "out": (2, 0)}
        members |= {"width": width, "heads": ROW // width, "number": 30.0}
        if op in ("add", "silu_multiply", "gelu_multiply"):
            members["b"] = (1, 0)
        if op.endswith("norm"):
            members["weight"] = np.ones(ROW if op == "head_layer_norm" else width, np.float32)
        if op == "layer_norm":
            members["bias"] = np.ones(width, np.float32)
        if op.startswith("rope"):
            members |= {"rope": 0, "pairs": width // 2}
        # Many times in one step: one alone is shorter than a clock's tick.
        program.row_step([members] * 100, False)
        if op.startswith("rope"):
            program.set_rope(0, *np.full((2, 1, width // 2), 0.5**0.5, np.float32))
        x = np.random.default_rng(4).normal(size=(1, ROW)).astype(np.float32)
        program.slot(1, 1)[:] = x
        harness.run_program(program, x)
        read = 4 * ROW * (3 if "b" in members else 2)
        yield _figure((op, "f32", level, 1), read, program, settings, times=100)


def _figure(
    named: tuple[str, str, str, int],
    nbytes: int,
    program: Any,
    settings: Settings,
    cache: Any = None,
    times: int = 1,
) -> Figure:
    """The median of the last step's time; the read rate too where memory is read."""
    before = 0.0 if times > 1 else _read_rate(settings)
    spent = []
    for _ in range(settings.repetitions + 1):
        _pass(program, named[3], cache)
        work, wait = program.stamps()
        spent.append(float(work[-1] + wait[-1]) / times)
    after = 0.0 if times > 1 else _read_rate(settings)
    seconds = statistics.median(spent[1:])
    return Figure(*named, seconds, nbytes / seconds / 1e9, (before + after) / 2)


def _pass(program: Any, rows: int, cache: Any) -> None:
    cache = cache or _native().Cache(program)
    every = np.arange(rows, dtype=np.int64)
    if cache.length:
        cache.length -= 1  # the pass writes no key: it reads those that are there
    positions = every + cache.length
    which = np.zeros(rows, np.int32)
    program.run(every * 0, positions, which, [cache], every[:0], stamps=True)


def _read_rate(settings: Settings) -> float:
    return float(_native().read_rate(READ_BYTES, settings.threads, 3)) / 1e9


def _native() -> Any:
    from forwardpass import _native

    return _native


def _settings() -> tuple[Settings, bool]:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    levels = list(_native().levels())
    parser.add_argument("--levels", nargs="+", choices=levels, default=levels)
    parser.add_argument("--types", nargs="+", choices=TYPES, default=list(TYPES))
    parser.add_argument("--rows", nargs="+", type=int, default=[1, 2, 4, 8])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--megabytes", type=int, default=256)
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    found = vars(parser.parse_args())
    as_json = bool(found.pop("json"))
    return Settings(**found), as_json


if __name__ == "__main__":
    main()
