from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import jsonschema
import pytest

from cli.running import Run
from cli.test_profile import COUNT, NUMBER, closed
from forwardpass import benching, memory
from forwardpass.backends import ceilings
from forwardpass.backends.reference import Reference
from forwardpass.backends.threads import set_threads, threads_in_force
from forwardpass.benching import Bench, NumpyProbe, Peak
from forwardpass.cli.console import WIDTH
from forwardpass.computing import Computing
from forwardpass.describe import Description
from profiling.shapes import GPT2
from tiny_model import CONFIG, random_gguf

TEXT_OR_NULL = {"type": ["string", "null"]}
NUMBER_OR_NULL = {"type": ["number", "null"], "minimum": 0}


def rows(**properties: object) -> dict[str, object]:
    return {"type": "array", "items": closed(**properties)}


SCHEMA = closed(
    model={"type": "string"},
    weights={"enum": ["random", "stored"]},
    backend={"const": "reference"},
    level={"const": None},
    threads=COUNT,
    kv_type={"const": "f32"},
    version={"type": "string"},
    commit=TEXT_OR_NULL,
    notes={"type": "array", "items": {"type": "string"}},
    fallbacks={"const": []},
    machine=closed(
        cpu={"type": "string"},
        cores=COUNT,
        threads=COUNT,
        load=NUMBER_OR_NULL,
        bytes_per_second={"const": 20e9},
        bytes_per_second_one_thread={"const": 12e9},
        flop_per_second={"const": 100e9},
        source={"const": NumpyProbe.source},
    ),
    prefill=rows(tokens=COUNT, tokens_per_second=NUMBER, flop_per_second=NUMBER, of_peak=NUMBER),
    decode=rows(
        visible=COUNT,
        batch=COUNT,
        tokens_per_second=NUMBER,
        bytes_per_token=NUMBER,
        bytes_per_second=NUMBER,
        of_bandwidth=NUMBER,
    ),
    load_seconds=NUMBER_OR_NULL,
    peak_rss_bytes={"type": ["integer", "null"], "minimum": 10_000_000},
    repetitions={"type": "integer", "minimum": 3},
    spread=closed(
        prefill=rows(tokens_per_second=NUMBER),
        decode=rows(tokens_per_second=NUMBER),
        load_seconds=NUMBER_OR_NULL,
    ),
    ceilings=closed(
        prefill=rows(flop_per_second={"const": 100e9}, spread={"const": 0}),
        decode=rows(bytes_per_second={"const": 20e9}, spread={"const": 0}),
    ),
)
REFERENCE = ["--backend", "reference"]
HEAD = cast("int", CONFIG["head_dim"])


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """Ceilings that are given, short repetitions, and a cache of downloads without any."""
    threads = threads_in_force()
    monkeypatch.setattr(NumpyProbe, "read_one", lambda self: 12e9)
    monkeypatch.setattr(NumpyProbe, "read", lambda self: 20e9)
    monkeypatch.setattr(NumpyProbe, "products", lambda self: 100e9)
    monkeypatch.setattr(benching, "SECONDS", 0.0)
    monkeypatch.setenv("FORWARDPASS_HOME", str(tmp_path / "home"))
    yield
    set_threads(threads)


def bench(run: Run, *arguments: object) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(run.ok("bench", *arguments, *REFERENCE, "--json").out)
    jsonschema.validate(found, SCHEMA)
    return found


def test_speeds_stand_beside_their_bounds(run: Run, tiny: Path) -> None:
    found = bench(run, tiny)
    assert [row["tokens"] for row in found["prefill"]] == [16, 64, 512]
    pairs = [(row["visible"], row["batch"]) for row in found["decode"]]
    assert pairs == [(80, 1), (80, 8), (512, 1), (512, 8)]  # the context ends at 512
    for row in found["prefill"]:
        assert row["of_peak"] == pytest.approx(row["flop_per_second"] / 100e9)
    for row in found["decode"]:
        moved = row["bytes_per_token"] * row["tokens_per_second"]
        assert row["bytes_per_second"] == pytest.approx(moved)
        assert row["of_bandwidth"] == pytest.approx(moved / 20e9)
    assert found["load_seconds"] > 0
    assert found["repetitions"] == 3
    assert [len(found["spread"][name]) for name in ("prefill", "decode")] == [3, 4]
    assert [len(found["ceilings"][name]) for name in ("prefill", "decode")] == [3, 4]


def test_bytes_are_those_that_the_file_stores(run: Run, tiny: Path, tmp_path: Path) -> None:
    asked = ["--prompt", 4, "--visible", "3,5", "--batch", 1]
    folder = bench(run, tiny, *asked)["decode"]
    gguf = bench(run, random_gguf(tmp_path / "tiny.gguf"), *asked)["decode"]
    kept = 2 * 2 * 2 * HEAD * 4  # bytes a token, in float32
    counted = json.loads(run.ok("count", tmp_path / "tiny.gguf", "--json").out)
    looked_up = 4 * 32 * (416 - 1)  # of the embedding, a table of its own, one row is read
    wanted = [counted["bytes"]["unique"] - looked_up + visible * kept for visible in (3, 5)]
    for found in (folder, gguf):
        assert [row["bytes_per_token"] for row in found] == wanted


def test_the_tables_show_every_figure_and_what_it_ran_on(run: Run, tiny: Path) -> None:
    out = run.ok("bench", tiny, *REFERENCE, "--prompt", "4,9", "--visible", 6).out
    head, prompts, tokens, last = out.split("\n\n")
    said = head.replace("\n", " · ")
    assert "reference backend (NumPy), " in said
    assert "3 repetitions, median ± half the range · forwardpass 0." in said
    assert ", commit " in said
    assert "every op has a kernel" not in said
    assert re.split(r"  +", prompts.splitlines()[0].strip()) == [
        "prompt tokens",
        "tokens/s",
        "±",
        "GFLOP/s",
        "of peak",
        "bound tokens/s",
    ]
    number = r"[\d.,]+"
    for line, size in zip(prompts.splitlines()[1:], (4, 9), strict=True):
        assert re.fullmatch(rf" +{size}( +{number}){{3}} +\d+ % +{number}", line)
    for line, batch in zip(tokens.splitlines()[1:], (1, 8), strict=True):
        pattern = rf" +6 +{batch}( +{number}){{2}} +{number} kB +{number} +\d+ % +{number}"
        assert re.fullmatch(pattern, line)
    assert re.match(r"loaded in [\d.]+ s \(± [\d.]+\) · peak memory [\d.]+ [MG]B\n", last)
    assert re.search(r"reads 20\.0 GB/s.*, 100\.0 GFLOP/s", last)
    assert NumpyProbe.source in last
    assert max(map(len, out.splitlines())) <= WIDTH


def test_each_is_repeated_as_often_as_asked(
    run: Run, tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trials: list[int] = []
    timed = Bench._timed

    def counted(self: Bench, one_pass: Any, passes: int) -> float:
        trials.append(passes)
        return timed(self, one_pass, passes)

    monkeypatch.setattr(Bench, "_timed", counted)
    asked = ["--prompt", 4, "--visible", 6, "--batch", 1, "--repeat", 4]
    assert bench(run, tiny, *asked)["repetitions"] == 4
    assert len(trials) == 2 * (1 + 4)


def test_a_shape_runs_with_random_weights(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(GPT2), "utf-8")
    assert "--weights random" in run.refused("bench", path, *REFERENCE)
    found = bench(run, path, "--weights", "random")
    assert found["weights"] == "random"
    assert found["load_seconds"] is None
    assert [row["tokens"] for row in found["prefill"]] == [16, 48]  # all the positions there are
    asked = ["--prompt", 4, "--visible", 6, "--weights", "random"]
    out = run.ok("bench", path, *REFERENCE, *asked).out
    assert "shape, random weights" in out
    assert "loaded in" not in out


def test_the_context_ends_the_usual_sizes(run: Run, tiny: Path) -> None:
    found = bench(run, tiny, "--context", 40, "--batch", 2)
    assert [row["tokens"] for row in found["prefill"]] == [16, 40]
    assert [(row["visible"], row["batch"]) for row in found["decode"]] == [(40, 2)]


@pytest.mark.parametrize(
    ("arguments", "fact"),
    [
        (["--visible", "600"], "--visible 600: the context is 512 tokens"),
        (["--prompt", "64", "--context", "32"], "--prompt 64: the context is 32 tokens"),
        (["--context", "1000"], "--context 1000: wanted a whole number from 1 to 512"),
        (["--batch", "0"], "--batch 0"),
        (["--prompt", "many"], "--prompt many"),
        (["--repeat", "2"], "Invalid value for '--repeat'"),
        (["--weights", "zero"], '--weights "zero": wanted random'),
        (["--backend", "torch"], "there is no backend 'torch'"),
        (["--kv-type", "q3", "--backend", "reference"], "--kv-type"),
        (["--threads", "0", "--backend", "reference"], "--threads 0"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_what_cannot_be_measured_is_refused(
    run: Run, tiny: Path, arguments: list[str], fact: str
) -> None:
    given = arguments if "--backend" in arguments else [*arguments, *REFERENCE]
    assert run.refused("bench", tiny, *given).startswith(fact)


def test_caches_beyond_the_memory_are_refused_before_anything_is_measured(
    run: Run, tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "available_memory", lambda: 2_000_000)
    done = run("bench", tiny, *REFERENCE, "--batch", 1_000)
    assert (done.status, done.out) == (1, "")
    assert "the caches of 1,000 × 512 tokens need 262.1 MB" in done.err


@pytest.mark.parametrize("tokens", [0, 1])
def test_what_was_measured_before_a_stop_is_printed(
    run: Run, tiny: Path, monkeypatch: pytest.MonkeyPatch, tokens: int
) -> None:
    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Bench, "decode" if tokens else "prefill", stop)
    done = run("bench", tiny, *REFERENCE, "--prompt", 4, "--json")
    assert done.status == 130
    found = json.loads(done.out)
    jsonschema.validate(found, SCHEMA)
    assert (len(found["prefill"]), found["decode"]) == (tokens, [])
    done = run("bench", tiny, *REFERENCE, "--prompt", 4)
    assert done.status == 130
    assert ("prompt tokens" in done.out) == bool(tokens)
    assert "reads 20.0 GB/s" in done.out


def test_a_setting_that_was_accepted_unknown_is_noted(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**GPT2, "strange_setting": 7}), "utf-8")
    asked = ["--weights", "random", "--prompt", 4, "--visible", 6]
    found = bench(run, path, *asked, "--accept-unknown", "strange_setting")
    assert found["notes"][0] == "without strange_setting = 7"


def test_a_peak_that_holds_the_ceilings_says_so(
    run: Run, tiny: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(benching, "Peak", lambda: Peak(tmp_path))
    out = run.ok("bench", tiny, *REFERENCE, "--prompt", 4, "--visible", 6).out
    assert re.search(
        r"peak memory .*, what measuring the bounds takes included$", out, re.MULTILINE
    )


class Standing(Reference):
    """The reference in the native backend's place."""

    name = "native"
    words = "native backend (made up), f16 cache"
    kv_width = 2
    kv_type, level = "f16", "made up"
    fallbacks: tuple[str, ...] = ()


@pytest.mark.parametrize("lacking", [False, True])
def test_a_native_backend_is_named_with_its_level_and_what_has_no_kernel(
    run: Run, tiny: Path, monkeypatch: pytest.MonkeyPatch, lacking: bool
) -> None:
    def standing(_: Computing, description: Description, label: str) -> tuple[Standing, list[str]]:
        assert description.weights is not None
        backend = Standing(description.graph, description.weights)
        if lacking:
            backend.fallbacks = (description.graph.nodes[0].name,)
        return backend, ["computed by the reference"] if lacking else []

    monkeypatch.setattr(Computing, "backend_for", standing)
    monkeypatch.setattr(ceilings, "native_read_rate", lambda threads: 20e9)
    monkeypatch.setattr(ceilings, "product_rate", lambda: 100e9)
    asked = ["bench", tiny, "--prompt", 4, "--visible", "3,5", "--batch", "1,8"]
    found = json.loads(run.ok(*asked, "--json").out)
    assert (found["backend"], found["level"], found["kv_type"]) == ("native", "made up", "f16")
    assert found["fallbacks"] == (["embed"] if lacking else [])
    assert found["notes"] == ["computed by the reference" if lacking else "every op has a kernel"]
    one, eight, more, _ = (row["bytes_per_token"] for row in found["decode"])
    cached = 2 * 2 * 2 * HEAD * 2  # bytes a token, in two bytes an element
    assert more - one == 2 * cached
    looked_up = 4 * 32  # a row of the embedding for each sequence
    assert eight == (one - looked_up - 3 * cached) / 8 + looked_up + 3 * cached
    assert ("every op has a kernel\n" in run.ok(*asked).out) != lacking
