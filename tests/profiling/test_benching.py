"""Speeds and their bounds: the arithmetic exact, on a made-up clock and machine."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path

import numpy as np
import pytest

from forwardpass import benching
from forwardpass.backends import ceilings
from forwardpass.backends.random_weights import RandomWeights
from forwardpass.backends.reference import Reference
from forwardpass.benching import Bench, Figure, NativeProbe, NumpyProbe, Peak
from forwardpass.graph.graph import Graph, Weight
from forwardpass.graph.references import F32
from profiling.shapes import tiny

WEIGHT = 2  # bytes of an element, as some file stores it


@dataclass
class Kept:
    """A cache that only knows its length."""

    length: int = 0

    def truncate(self, length: int) -> None:
        assert length <= self.length
        self.length = length

    def fill_random(self, tokens: int, seed: int = 0) -> None:
        self.length = tokens


@dataclass
class Fake:
    """A backend whose passes take the seconds of `script`, one after another, by its own clock."""

    graph: Graph
    script: Iterator[float]
    now: float = 0.0
    seen: list[tuple[int, ...]] = field(default_factory=list)
    name = "native"
    words = "made-up backend"
    threads = 3
    kv_width = 2
    fallbacks: tuple[str, ...] = ()

    def clock(self) -> float:
        return self.now

    def new_cache(self) -> Kept:
        return Kept()

    def run(self, cache: Kept, tokens: Sequence[int], **_: object) -> F32:
        return self.run_batch([(cache, tokens, None)])[0]

    def run_batch(self, parts: Sequence[tuple[Kept, Sequence[int], object]]) -> list[F32]:
        assert len({id(cache) for cache, _, _ in parts}) == len(parts)
        for cache, tokens, _ in parts:
            assert all(0 <= token < self.graph.config.vocab_size for token in tokens)
            cache.length += len(tokens)
        self.seen.append(tuple(cache.length for cache, _, _ in parts))
        self.now += next(self.script)
        return [np.zeros((1, 1), np.float32)] * len(parts)


@dataclass
class Scripted:
    """A machine that reads and multiplies at the rates of a script."""

    rates: list[float]
    source = "as a test says"

    def read_one(self) -> float:
        return 7.0

    def read(self) -> float:
        return self.rates.pop(0)

    def products(self) -> float:
        return self.rates.pop(0)


def stored(weight: Weight) -> int:
    return WEIGHT * weight.elements


def bench(name: str, script: Sequence[float], rates: list[float], together: bool = True) -> Bench:
    fake = Fake(tiny(name).graph, iter(script))
    probe = Scripted(rates)
    return Bench(fake, probe, stored, together, seconds=0.0, clock=fake.clock)  # type: ignore[arg-type]


def test_the_middle_is_shown_with_half_the_range() -> None:
    assert Figure.of([9.0, 4.0, 5.0]) == Figure(5.0, 2.5)
    assert Figure.of([3.0]) == Figure(3.0, 0.0)


def test_a_prompts_speed_is_judged_by_the_flop_rate_of_the_same_moment() -> None:
    # Two passes to warm up and to estimate; three repetitions, with the machine around each.
    found = bench("llama", [90, 80, 2, 8, 4], [100, 300, 200, 250]).prefill(16)
    assert found.rate == Figure(4.0, 3.0)  # 16 tokens in 2, 8 and 4 seconds
    # Per token 2 FLOP a weight of the layers; attention 4 x 32 a pair and layer; the head, once.
    layer = 32 * 32 * 2 + 32 * 16 * 2 + 3 * 32 * 48
    flop = 16 * 2 * 2 * layer + 2 * 4 * 32 * (16 * 17 // 2) + 2 * 89 * 32
    assert found.flop == flop
    assert found.ceiling == Figure(225.0, 100.0)
    assert found.as_dict() == {
        "tokens": 16,
        "tokens_per_second": 4.0,
        "flop_per_second": flop / 4,
        "of_peak": flop / 4 / 225,
    }
    assert found.bound == pytest.approx(225 * 16 / flop)


LAYERS = 2 * (32 * 32 * 2 + 32 * 16 * 2 + 3 * 32 * 48 + 2 * 32)
READ = WEIGHT * (LAYERS + 32 + 89 * 32)  # the tables and gains that every pass reads whole
ROW = WEIGHT * 32  # of the embedding
CACHE = 2 * 2 * 2 * 16  # bytes a token: a key and a value of 2 heads x 8, in 2 layers


@pytest.mark.parametrize(
    ("batch", "together", "wanted"),
    [
        (1, True, READ + ROW + 40 * CACHE),
        (8, True, READ / 8 + ROW + 40 * CACHE),
        (8, False, READ + ROW + 40 * CACHE),
    ],
)
def test_a_generated_token_is_judged_by_the_bytes_that_it_reads(
    batch: int, together: bool, wanted: float
) -> None:
    measured = bench("llama", [90, 80, 2, 8, 4], [1e3, 3e3, 2e3, 2e3], together)
    found = measured.decode(40, batch)
    assert found.rate == Figure(batch / 4, (batch / 2 - batch / 8) / 2)
    assert found.bytes == wanted
    assert found.as_dict() == {
        "visible": 40,
        "batch": batch,
        "tokens_per_second": batch / 4,
        "bytes_per_token": wanted,
        "bytes_per_second": batch / 4 * wanted,
        "of_bandwidth": batch / 4 * wanted / 2e3,
    }
    assert found.bound == pytest.approx(2e3 / wanted)


def test_a_window_bounds_what_a_token_reads() -> None:
    one, more = (bench("gemma3_text", [1] * 5, [1.0] * 4).decode(n, 1).bytes for n in (30, 40))
    assert more - one == 10 * 2 * 2 * 16  # one layer of six sees all


def test_a_tied_table_is_read_once() -> None:
    graph = tiny("gpt2").graph
    found = bench("gpt2", [1] * 5, [1.0] * 4).decode(1, 1).bytes
    positions = 48 * 24
    weights = sum(map(stored, graph.parameters)) - WEIGHT * positions + WEIGHT * 24
    assert found == weights + 2 * 3 * 2 * 24


@pytest.mark.parametrize("batch", [1, 3])
def test_every_pass_sees_what_its_row_says(batch: int) -> None:
    measured = bench("llama", [1] * 9, [1.0] * 8)
    measured.decode(40, batch)
    assert isinstance(measured.backend, Fake)
    assert measured.backend.seen == [(40,) * batch] * 5


def test_a_prompt_is_read_behind_nothing_each_time() -> None:
    measured = bench("llama", [1] * 5, [1.0] * 4)
    measured.prefill(7)
    assert isinstance(measured.backend, Fake)
    assert measured.backend.seen == [(7,)] * 5


def test_a_repetition_has_as_many_passes_as_fit_into_its_time() -> None:
    fake = Fake(tiny("llama").graph, cycle([0.1]))
    measured = Bench(
        fake,  # type: ignore[arg-type]
        Scripted([1.0] * 5),
        stored,
        together=True,
        repetitions=4,
        seconds=0.5,
        clock=fake.clock,
    )
    assert measured.decode(3, 1).rate.value == pytest.approx(10)
    assert len(fake.seen) == 2 + 4 * 5


def test_the_machine_has_the_middle_of_the_ceilings_of_all_rows() -> None:
    measured = bench("llama", [1.0] * 15, [50.0, 70, 60, 90, 1, 2, 3, 4, 5, 9, 9, 9])
    measured.prefill(4)
    measured.decode(3, 1)
    measured.decode(3, 2)
    machine = measured.machine()
    assert machine.ceilings.flop_rate == 65
    assert machine.ceilings.read_rate == 4.5
    assert (machine.read_rate_one, machine.threads, machine.source) == (7, 3, "as a test says")


def test_the_machine_is_measured_where_no_row_was() -> None:
    machine = bench("llama", [], [5.0, 6.0]).machine()
    assert (machine.ceilings.read_rate, machine.ceilings.flop_rate) == (5, 6)


def test_ops_without_a_kernel_are_named_once() -> None:
    measured = bench("llama", [], [])
    assert measured.fallbacks() == []
    nodes = [node for node in measured.backend.graph.nodes if node.op.name in ("rope", "add")]
    assert len(nodes) > 2
    measured.backend.fallbacks = tuple(node.name for node in nodes)  # type: ignore[attr-defined]
    assert measured.fallbacks() == ["add", "rope"]


def test_the_reference_can_be_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ceilings, "READ_BYTES", 2**20)
    monkeypatch.setattr(ceilings, "_LARGEST_PRODUCT", 256)
    monkeypatch.setattr(ceilings.read_rates, "__defaults__", (2**20,))
    graph = tiny("llama").graph
    backend = Reference(graph, RandomWeights(graph))
    measured = Bench(backend, NumpyProbe(), stored, together=False, seconds=0.01)
    assert measured.prefill(5).rate.value > 0
    assert measured.decode(9, 2).ceiling.value > 0
    assert len(measured.reads) == len(measured.products) == 4
    assert measured.peak.bytes is None or measured.peak.bytes > 10_000_000


def test_native_reads_are_measured_with_the_threads_of_the_passes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ceilings, "native_read_rate", lambda threads: 10.0 * threads)
    monkeypatch.setattr(ceilings, "product_rate", lambda: 5.0)
    monkeypatch.setattr(benching, "threads_in_force", lambda: 1)
    probe = NativeProbe(4)
    assert (probe.read_one(), probe.read(), probe.products()) == (10, 40, 5)
    assert probe.source.endswith("by NumPy on 1 of the threads")
    assert NativeProbe(1).source.endswith("by NumPy")
    monkeypatch.setattr(ceilings, "native_tile_rate", lambda level, threads: threads * len(level))
    tiles = NativeProbe(4, "amx")
    assert (tiles.read(), tiles.products()) == (40, 12)
    assert "tiles of bf16" in tiles.source


def test_the_peak_is_the_largest_of_the_parts(tmp_path: Path) -> None:
    (tmp_path / "proc/self").mkdir(parents=True)
    status, forget = tmp_path / "proc/self/status", tmp_path / "proc/self/clear_refs"
    peak = Peak(tmp_path)
    assert peak.bytes is None
    for held in (30, 50, 40):
        peak.begin()
        assert forget.read_text() == "5"
        forget.write_text("")
        status.write_text(f"Name:\tx\nVmHWM:\t   {held} kB\n")
        peak.end()
    assert peak.bytes == 50 * 1024
    assert peak.exact


def test_a_peak_that_cannot_be_forgotten_is_that_of_the_process(tmp_path: Path) -> None:
    peak = Peak(tmp_path / "nothing")
    peak.begin()
    peak.end()
    assert not peak.exact
    assert peak.bytes is None or peak.bytes > 10_000_000


def test_memory_that_was_held_between_the_parts_is_not_in_the_peak() -> None:
    peak = Peak()
    peak.begin()
    peak.end()
    if not peak.exact or peak.bytes is None:
        pytest.skip("this system does not let a process forget its peak")
    before, large = peak.bytes, 200_000_000
    np.ones(large, np.uint8)
    peak.begin()
    peak.end()
    assert peak.bytes < before + large / 2
    peak.begin()
    np.ones(large, np.uint8)
    peak.end()
    assert peak.bytes > before + large / 2
