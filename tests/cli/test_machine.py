from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest

from cli.running import Run
from cli.test_run import NUMBER, closed
from forwardpass.backends import ceilings
from forwardpass.backends.caches import caches
from forwardpass.backends.levels import LEVELS
from forwardpass.backends.threads import threads_in_force, usable_cores
from forwardpass.memory import total_memory

COUNT_OR_NULL = {"type": ["integer", "null"], "minimum": 1}
TEXT, TEXT_OR_NULL = {"type": "string"}, {"type": ["string", "null"]}
SCHEMA = closed(
    cpu=TEXT,
    level={"enum": [*LEVELS, None]},
    cores={"const": usable_cores()},
    memory=closed(total=COUNT_OR_NULL, available=COUNT_OR_NULL),
    caches=closed(l1d=COUNT_OR_NULL, l2=COUNT_OR_NULL, l3=COUNT_OR_NULL),
    extension=closed(built={"type": "boolean"}, reason=TEXT_OR_NULL),
    backend={"enum": ["native", "reference"]},
    blas=closed(numpy=TEXT, name=TEXT_OR_NULL, version=TEXT_OR_NULL, threads=COUNT_OR_NULL),
    measured={"type": ["object", "null"]},
)
RATES = closed(
    bytes_per_second=NUMBER,
    bytes_per_second_one_thread=NUMBER,
    flop_per_second=NUMBER,
    source=TEXT,
)


def test_the_machine_is_described_without_measuring(run: Run) -> None:
    found = json.loads(run.ok("machine", "--json").out)
    jsonschema.validate(found, SCHEMA)
    assert found["measured"] is None
    assert found["blas"]["threads"] == threads_in_force()
    assert found["extension"]["built"] == (found["extension"]["reason"] is None)
    assert found["extension"]["built"] == (found["backend"] == "native")
    lines = run.ok("machine").out.splitlines()
    names = ["processor", "level", "cores", "memory", "caches", "C++", "backend", "products"]
    assert [line.split()[0] for line in lines] == [*names, "rates"]
    assert lines[-1].endswith("not measured; --measure takes about a second")


def test_rates_are_measured_where_asked(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ceilings, "READ_BYTES", 2**20)
    monkeypatch.setattr(ceilings, "_LARGEST_PRODUCT", 256)
    found = json.loads(run.ok("machine", "--measure", "--json").out)
    jsonschema.validate(found, SCHEMA)
    jsonschema.validate(found["measured"], RATES)
    assert found["measured"]["bytes_per_second"] > 0
    lines = run.ok("machine", "--measure").out.splitlines()
    assert [line.split()[0] for line in lines[-2:]] == ["reads", "multiplies"]
    assert "B/s" in lines[-2]
    assert "FLOP/s" in lines[-1]


def test_threads_can_be_set(run: Run) -> None:
    before = threads_in_force()
    assert json.loads(run.ok("machine", "--threads", 1, "--json").out)["blas"]["threads"] == 1
    run.ok("machine", "--threads", before)
    assert "this process may use 1 to" in run.refused("machine", "--threads", 10_000)


def test_caches_and_memory_are_read_where_linux_lists_them(tmp_path: Path) -> None:
    for place, (level, kind, size) in enumerate(
        [("1", "Data", "48K"), ("1", "Instruction", "32K"), ("2", "Unified", "2M"),
         ("3", "Unified", "1G"), ("x", "y", "")]
    ):  # fmt: skip
        folder = tmp_path / "sys/devices/system/cpu/cpu0/cache" / f"index{place}"
        folder.mkdir(parents=True)
        for name, value in (("level", level), ("type", kind), ("size", size)):
            (folder / name).write_text(f"{value}\n")
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/meminfo").write_text("MemTotal:  1000 kB\nMemAvailable:  10 kB\n")
    assert caches(tmp_path) == {"l1d": 48 * 2**10, "l2": 2 * 2**20, "l3": 2**30}
    assert total_memory(tmp_path) == 1_024_000
    nothing = tmp_path / "nothing"
    assert caches(nothing) == {"l1d": None, "l2": None, "l3": None}
    assert total_memory(nothing) is None
