"""The parts of the benchmark against other engines that need no other engine."""

from __future__ import annotations

import json
import os
import random
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "benchmarks"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "benchmarks" / "rivals"))

import environments
import measures
import processes
from pairs import Pair, Prompts, Sample, Spread, interleave, summary
from protocol import Stepwise
from report import Results, heading, table

import rivals

WORKERS = environments.WORKERS

FAKE = """
import sys
sys.path.insert(0, {workers!r})
from protocol import Stepwise, serve

class Fake(Stepwise):
    def load(self, path, threads, context, cache):
        print("a library's greeting")
        return {{"version": "fake 1", "build": "none", "vocabulary": 50}}
    def clear(self):
        self.seen = 0
    def read(self, prompt):
        if 49 < max(prompt):
            sys.exit("no such token")
        self.seen += len(prompt)
        if self.seen > 5_000:
            raise ValueError("out of room")
        return self.seen % 50
    def step(self, token):
        return self.read([token])

serve(Fake())
"""


def run_of(tokens: int, seconds: float, others: float = 0.0) -> Sample:
    return Sample(tokens, seconds, others)


def pair_of(first: float, second: float, others: float = 0.0) -> Pair:
    return Pair(run_of(1, first), run_of(1, second, others))


@pytest.fixture
def fake(tmp_path: Path) -> tuple[str, str]:
    script = tmp_path / "fake_worker.py"
    script.write_text(FAKE.format(workers=str(WORKERS)), "utf-8")
    return sys.executable, str(script)


@pytest.fixture
def worker(fake: tuple[str, str]) -> Iterator[processes.Worker]:
    with processes.Worker(fake, {}) as worker:
        worker.hello()
        worker.ask("load", path="m", threads=1, context=9, cache="")
        yield worker


def test_runs_alternate_and_each_pair_has_prompts_of_its_own() -> None:
    seen: list[tuple[str, Prompts]] = []
    numbers = iter(range(100))

    def engine(name: str) -> Sample:
        return run_of(1, 1.0)

    def first(prompts: Prompts) -> Sample:
        seen.append(("A", prompts))
        return engine("A")

    def second(prompts: Prompts) -> Sample:
        seen.append(("B", prompts))
        return engine("B")

    interleave(first, second, lambda: [[next(numbers)]], wanted=3, limit=0.05, most=6)
    assert seen == [(side, [[i]]) for i in range(3) for side in "AB"]


@pytest.mark.parametrize("noisy", ["first", "second"])
def test_a_pair_in_which_others_computed_is_dropped_counted_and_run_again(noisy: str) -> None:
    shares = iter([0.2, 0.0, 0.06, 0.05])
    runs = {"first": run_of(4, 2.0), "second": run_of(4, 4.0)}

    def run(side: str) -> Sample:
        return replace(runs[side], others=next(shares)) if side == noisy else runs[side]

    pairs = interleave(
        lambda _: run("first"), lambda _: run("second"), list, wanted=2, limit=0.05, most=9
    )
    found = summary(pairs, 0.05)
    assert (found["kept"], found["dropped"]) == (2, 2)
    assert [pair.quiet(0.05) for pair in pairs] == [False, True, False, True]


def test_a_machine_that_is_never_quiet_ends_the_pairs_and_has_no_ratio() -> None:
    loud = run_of(1, 1.0, others=0.5)
    pairs = interleave(lambda _: loud, lambda _: loud, list, wanted=2, limit=0.05, most=4)
    found = summary(pairs, 0.05)
    assert (len(pairs), found["kept"], found["ratio"]) == (4, 0, None)
    assert found["ratio_of_all"] == {"median": 1.0, "quarters": (1.0, 1.0), "extremes": (1.0, 1.0)}


def test_the_ratio_is_the_median_of_the_pairs_ratios_and_not_the_ratio_of_medians() -> None:
    # Rates 1, 1/2, 1/8 against 1/4, 1/2, 1/64: the medians alone would give 1/2 ÷ 1/4 = 2.
    pairs = [pair_of(1, 4), pair_of(2, 2), pair_of(8, 64)]
    ratio = summary(pairs, 0.05)["ratio"]
    assert ratio == {"median": 4.0, "quarters": (2.5, 6.0), "extremes": (1.0, 8.0)}


def test_a_dropped_pair_stays_in_the_results_and_out_of_the_medians() -> None:
    found = summary([pair_of(1, 2), pair_of(1, 50, others=0.3)], 0.05)
    assert isinstance(found["ratio"], dict)
    assert found["ratio"]["median"] == 2.0
    pairs = found["pairs"]
    assert isinstance(pairs, list)
    assert [pair["kept"] for pair in pairs] == [True, False]


def test_the_table_says_so_where_no_pair_was_quiet() -> None:
    pairs = [pair_of(1, 3, others=0.9)]
    about = {"model": "m", "engines": ["a", "b"], "measure": "decode", "kind": "decode"}
    results = heading({"threads": 2}) | {"results": [about | summary(pairs, 0.05)]}
    assert "no quiet pair; all 1, to be distrusted: × 3" in table(results)


def test_waiting_for_a_quiet_machine_ends_with_the_time_given(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shares = iter([0.5, 0.5, 0.01, 0.5, 0.5, 0.5])
    monkeypatch.setattr(processes.Window, "others", lambda window, worker: next(shares))
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    assert processes.wait_for_quiet(0.05, looks=3)
    assert not processes.wait_for_quiet(0.05, looks=3)
    assert next(shares, None) is None


def test_a_single_value_is_its_own_spread() -> None:
    assert Spread.of([4.0]) == Spread(4.0, (4.0, 4.0), (4.0, 4.0))


def test_stolen_time_is_busy_and_waiting_is_not() -> None:
    stat = "cpu  10 20 30 1000 2000 4 5 6 7 8\ncpu0 1 1 1 1 1 1 1 1 1 1\n"
    assert processes.busy_seconds(stat, ticks=10) == 7.5


def test_what_worker_and_benchmark_computed_is_not_others(monkeypatch: pytest.MonkeyPatch) -> None:
    class Clock:
        busy, own, now = 100.0, 5.0, 50.0

    monkeypatch.setattr(processes, "_busy", lambda: Clock.busy)
    monkeypatch.setattr(time, "process_time", lambda: Clock.own)
    monkeypatch.setattr(time, "monotonic", lambda: Clock.now)
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    window = processes.Window()
    Clock.busy, Clock.own, Clock.now = 103.0, 5.5, 52.0
    assert window.others(worker=2.0) == pytest.approx(0.5 / 4)
    assert window.others(worker=9.0) == 0.0


def test_decode_is_greedy_and_runs_one_pass_for_each_token_behind_the_prompt() -> None:
    passes: list[object] = []

    class Counting(Stepwise):
        def clear(self) -> None:
            passes.append("clear")

        def read(self, prompt: Sequence[int]) -> int:
            passes.append(prompt)
            return prompt[-1] + 1

        def step(self, token: int) -> int:
            return self.read([token])

    engine = Counting()
    done = engine.decode([7, 8], 3)
    assert passes == ["clear", [7, 8], [9], [10], [11]]
    assert (done.tokens, done.token) == (3, 12)
    assert engine.more(1).token == 13


def test_what_a_library_prints_is_no_reply(worker: processes.Worker) -> None:
    assert worker.ask("prefill", prompt=[1, 2, 3]).number("token") == 3


def test_an_engines_error_is_told_and_the_worker_goes_on(worker: processes.Worker) -> None:
    with pytest.raises(processes.RivalError, match="ValueError: out of room"):
        worker.ask("prefill", prompt=[1] * 5_001)
    assert worker.ask("prefill", prompt=[1]).number("tokens") == 1


def test_a_worker_that_ends_is_told_with_its_code_and_last_words(worker: processes.Worker) -> None:
    with pytest.raises(processes.RivalError, match=r"code 1: no such token"):
        worker.ask("prefill", prompt=[50])


def test_every_measure_makes_a_result_that_json_holds_and_the_table_shows(
    tmp_path: Path, fake: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measures, "_LEAST", 1e-9)
    monkeypatch.setattr(measures, "_PAUSE", 0.0)
    model = tmp_path / "tiny.gguf"
    model.write_bytes(b"GGUF")
    names = ("forwardpass", "openvino")
    for name in names:
        environment = tmp_path / name
        environment.mkdir()
        (environment / "rival.json").write_text('{"cmake": ["-DX=ON"]}', "utf-8")
    monkeypatch.setattr(environments, "command", lambda name, folder: fake)
    arguments = ["run", "trial", str(model), "--rivals", "openvino", "--pairs", "2"]
    arguments += ["--limit", "100", "--environments", str(tmp_path), "--results", str(tmp_path)]
    assert rivals.main(arguments) == 0

    found = json.loads((tmp_path / "trial.json").read_text("utf-8"))
    assert [entry["measure"] for entry in found["results"]] == [m.name for m in measures.MEASURES]
    assert all(entry["engines"] == list(names) for entry in found["results"])
    assert all(len(entry["pairs"]) == entry["kept"] == 2 for entry in found["results"])
    fresh = next(entry for entry in found["results"] if entry["kind"] == "fresh")
    assert list(fresh["first"]["parts"]) == ["imports", "load", "prompt"]
    assert found["engines"]["openvino"] == {
        "version": "fake 1",
        "build": "none",
        "cmake": ["-DX=ON"],
    }
    assert found["cpu"]["model"]
    assert found["date"]
    shown = table(found)
    assert all(f"  {measure.name} " in shown for measure in measures.MEASURES)


def test_an_engine_that_cannot_do_a_measure_has_its_reason_in_the_results(
    tmp_path: Path, fake: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measures, "_PAUSE", 0.0)
    plan = measures.Plan(tmp_path / "m.gguf", 1, 1, 1.0, "")
    with processes.Worker(fake, {}) as worker:
        worker.hello()
        side = measures.Side(worker, lambda: processes.Worker(fake, {}))
        long = measures.Measure("long", "prefill", 6_000)
        with pytest.raises(processes.RivalError, match="out of room"):
            measures.measured(long, plan, (side, side), 50, random.Random(0))


def test_a_rival_that_is_not_set_up_is_a_result_with_a_reason(tmp_path: Path) -> None:
    arguments = ["run", "none", "m.gguf", "--rivals", "openvino", "transformers"]
    arguments += ["--environments", str(tmp_path), "--results", str(tmp_path)]
    assert rivals.main(arguments) == 0
    results = json.loads((tmp_path / "none.json").read_text("utf-8"))["results"]
    assert [entry["reason"] for entry in results] == [
        f"openvino: not set up in {tmp_path}",
        f"transformers: not set up in {tmp_path}",
    ]


def test_results_are_whole_after_every_addition(tmp_path: Path) -> None:
    results = Results(tmp_path / "deep" / "r.json", heading({"threads": 2}))
    for reason in ("one", "two"):
        results.add({"model": "m", "engines": ["a", "b"], "measure": "", "reason": reason})
        written = json.loads(results.path.read_text("utf-8"))
        assert written["results"][-1]["reason"] == reason
    assert [path.name for path in results.path.parent.iterdir()] == ["r.json"]


def test_the_amx_build_says_what_a_processor_without_amx_lacks() -> None:
    row = environments.rival("llama.cpp-amx")
    plain = frozenset({"avx512f", "avx512_vnni"})
    assert row.missing(plain) == "this processor lacks amx_int8, amx_tile"
    assert row.missing(plain | {"amx_int8", "amx_tile"}) is None
    assert "-DCMAKE_C_FLAGS='-fno-tree-dse -fno-dse'" in row.cmake_args(plain)


def test_the_avx512_build_leaves_amx_out_where_the_processor_has_it() -> None:
    row = environments.rival("llama.cpp-avx512")
    assert row.cmake_args(frozenset()) == ("-DGGML_NATIVE=ON",)
    assert "-mno-amx-tile" in " ".join(row.cmake_args(frozenset({"amx_tile"})))


def test_every_rival_has_a_worker_and_a_name_of_its_own() -> None:
    assert len(set(environments.NAMES)) == len(environments.RIVALS) + 1
    for row in environments.RIVALS:
        assert (WORKERS / row.worker).is_file(), row.name
