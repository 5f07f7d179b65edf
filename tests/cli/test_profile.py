from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest

from formats.safetensors_writer import TensorData, write_safetensors
from forwardpass import memory, profiling
from forwardpass.backends.levels import missing_reason
from forwardpass.cli.console import WIDTH
from forwardpass.cli.main import main
from forwardpass.graph.graph import Role
from forwardpass.work.machine import Ceilings, Machine
from profiling.shapes import GPT2, LLAMA, tiny

MACHINE = Machine("Some CPU", 2, 2, 0.25, Ceilings(20e9, 100e9), 12e9, "as a test says")
DENSE = [role for role in Role if not role.startswith("mixer") and role != "mlp.router"]
QUICK = ["--each", "2", "--repeat", "1"]
NUMBER = {"type": "number", "minimum": 0}
COUNT = {"type": "integer", "minimum": 0}
BOUND = {"enum": ["reading", "products", None]}


def closed(**properties: object) -> dict[str, object]:
    """An object with these keys and no other."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


SCHEMA = closed(
    model={"type": "string"},
    weights={"enum": ["random", "stored"]},
    backend={"enum": ["native", "reference"]},
    dtype={"enum": ["as packed", "float32"]},
    version={"type": "string"},
    commit={"type": ["string", "null"]},
    notes={"type": "array", "items": {"type": "string"}},
    machine=closed(
        cpu={"type": "string"},
        cores=COUNT,
        threads=COUNT,
        load={"type": ["number", "null"], "minimum": 0},
        bytes_per_second=NUMBER,
        bytes_per_second_one_thread=NUMBER,
        flop_per_second=NUMBER,
        source={"type": "string"},
    ),
    rows={
        "type": "array",
        "items": closed(
            visible=COUNT,
            tokens=COUNT,
            seconds=NUMBER,
            flop=COUNT,
            bytes=COUNT,
            roles={
                "type": "array",
                "items": closed(
                    role={"enum": list(Role)},
                    flop=COUNT,
                    bytes=COUNT,
                    seconds=NUMBER,
                    predicted_seconds=NUMBER,
                    bound=BOUND,
                ),
            },
            seconds_waiting=NUMBER,
            seconds_between_nodes=NUMBER,
            predicted_seconds=NUMBER,
            bound={"type": "array", "items": BOUND},
            passes=COUNT,
            repetitions=COUNT,
            spread_seconds=NUMBER,
        ),
    },
)


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Ceilings that are given, and a cache of downloads without any."""
    monkeypatch.setattr(profiling, "this_machine", lambda *_: MACHINE)
    monkeypatch.setenv("FORWARDPASS_HOME", str(tmp_path / "home"))


@pytest.fixture
def config(tmp_path: Path) -> str:
    """The config of a tiny GPT-2, alone."""
    path = tmp_path / "config.json"
    path.write_text(json.dumps(GPT2), "utf-8")
    return str(path)


@pytest.fixture
def folder(tmp_path: Path) -> str:
    """A tiny GPT-2 with weights, drawn with seed 5."""
    path = tmp_path / "model"
    path.mkdir()
    (path / "config.json").write_text(json.dumps(GPT2), "utf-8")
    random = np.random.default_rng(5)
    tensors = {}
    for weight in tiny("gpt2").graph.weights.values():
        transposed = re.search(r"(c_attn|c_proj|c_fc)\.weight", weight.name)
        shape = weight.shape[::-1] if transposed else weight.shape
        numbers = random.standard_normal(shape, dtype=np.float32) * np.float32(0.1)
        tensors[weight.name] = TensorData("F32", shape, numbers.tobytes())
    write_safetensors(path / "model.safetensors", tensors)
    return str(path)


def run(*arguments: str) -> int:
    """The exit status, on the reference backend unless another is asked for."""
    backend = [] if "--backend" in arguments else ["--backend", "reference"]
    return main(["profile", *arguments, *backend])


def as_json(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    jsonschema.validate(found, SCHEMA)
    return found


def test_gpt2_with_random_weights_reproduces_the_known_table(
    capsys: pytest.CaptureFixture[str],
) -> None:
    visible = ["--visible", "128,1024,8192"]
    assert run("gpt2", "--weights", "random", *visible, "--each", "1", "--repeat", "1") == 0
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= WIDTH
    assert "8,192 is beyond the 1,024 positions of the shape: the position table was made" in out
    work = re.findall(r"^  (\S+) +([\d.]+) +([\d.]+ %) ", out, flags=re.MULTILINE)
    assert work[:8] == [
        ("embedding", "0.00", "0.0 %"),
        ("attention.qkv", "42.47", "16.8 %"),
        ("attention.read", "4.72", "1.9 %"),
        ("attention.output", "14.16", "5.6 %"),
        ("mlp.up", "56.62", "22.4 %"),
        ("mlp.down", "56.62", "22.4 %"),
        ("head", "77.19", "30.6 %"),
        ("other", "0.45", "0.2 %"),
    ]
    assert re.findall(r"^  together +([\d.]+)", out, flags=re.MULTILINE) == [
        "252.23",
        "285.65",
        "552.98",
    ]
    assert len(re.findall(r"^  other .* 60 small steps \+ 1$", out, flags=re.MULTILINE)) == 3
    assert re.search(r"^visible +128 +1,024 +8,192$", out, flags=re.MULTILINE)
    assert re.search(r"^  MFLOP +252\.2 +285\.6 +553\.0$", out, flags=re.MULTILINE)
    assert re.search(r"^  share of the read +1\.9 % +13\.2 % +54\.6 %$", out, flags=re.MULTILINE)


def test_figures_carry_machine_commit_repetitions_and_spread(
    config: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(config, "--weights", "random", "--visible", "5", "--each", "4", "--repeat", "2") == 0
    head, _, table = capsys.readouterr().out.partition("\n\n")
    said = head.replace("\n", " · ")
    assert "shape, random weights · reference backend, float32, 2 threads" in said
    assert "4 tokens × 2, median (spread)" in said
    assert (
        "Some CPU, 2 cores, load 0.2 · reads 20.0 GB/s (12.0 by one thread), 100.0 GFLOP/s" in said
    )
    assert "as a test says · forwardpass 0." in said
    assert ", commit " in said
    assert re.search(r"^  together .* \(± [\d.]+\) ", table, flags=re.MULTILINE)


def test_one_object_holds_every_row_and_its_parts_add_up(
    config: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(config, "--weights", "random", "--visible", "3,9", "--tokens", "1,40", *QUICK,
               "--json") == 0  # fmt: skip
    found = as_json(capsys)
    assert found["machine"] == MACHINE.as_dict()
    rows = found["rows"]
    assert [(row["visible"], row["tokens"]) for row in rows] == [(3, 1), (9, 1), (1, 1), (40, 40)]
    assert [row["passes"] for row in rows] == [2, 2, 2, 1]
    for row in rows:
        assert [part["role"] for part in row["roles"]] == DENSE
        assert sum(part["flop"] for part in row["roles"]) == row["flop"]
        assert sum(part["bytes"] for part in row["roles"]) == row["bytes"]
        seconds = sum(part["seconds"] for part in row["roles"])
        assert seconds + row["seconds_between_nodes"] == pytest.approx(row["seconds"])
        for part in row["roles"]:
            reading, products = part["bytes"] / 20e9, part["flop"] / 100e9
            assert part["predicted_seconds"] == max(reading, products)


def test_passes_of_more_tokens_are_judged_by_their_bound(
    config: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(config, "--weights", "random", "--tokens", "1,16", *QUICK) == 0
    table = capsys.readouterr().out.partition("\n\n")[2].splitlines()
    assert re.split(r"  +", table[0].strip()) == [
        "tokens a pass",
        "ms a pass",
        "ms a token",
        "GFLOP/s",
        "of bound",
        "bound by",
    ]
    assert re.fullmatch(r" +1( +[\d.,]+){3} +\d+ % +reading [\d.]+ kB", table[1])
    assert re.fullmatch(r" +16( +[\d.,]+){3} +\d+ % +(reading|products).*", table[2])
    assert len(table) == 3  # and no table of roles


def test_a_model_is_profiled_with_its_own_weights(
    folder: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(folder, *QUICK, "--json") == 0
    found = as_json(capsys)
    assert found["weights"] == "stored"
    assert found["notes"] == []
    assert [row["visible"] for row in found["rows"]] == [48]  # all the positions that it has


def test_a_learned_position_table_is_never_made_longer_for_stored_weights(
    folder: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(folder, "--visible", "49", *QUICK) == 2
    error = capsys.readouterr().err
    assert "49 is beyond the 48 positions of the model" in error
    assert "--weights random" in error
    assert run(folder, "--weights", "random", "--visible", "49", *QUICK) == 0
    assert "the position table was made longer for this run" in capsys.readouterr().out


def test_positions_that_are_no_table_may_be_exceeded_and_that_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(LLAMA), "utf-8")
    assert run(str(path), "--weights", "random", "--visible", "65", *QUICK, "--json") == 0
    (note,) = as_json(capsys)["notes"]
    assert note.startswith("65 is beyond the 64 positions of the model")


def test_a_setting_that_was_accepted_unknown_is_in_the_profile(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**LLAMA, "strange_setting": 7}), "utf-8")
    accepted = ["--accept-unknown", "strange_setting"]
    assert run(str(path), "--weights", "random", "--visible", "2", *QUICK, *accepted) == 0
    assert "without strange_setting = 7" in capsys.readouterr().out.splitlines()


@pytest.mark.parametrize(
    ("arguments", "status", "fact"),
    [
        (["gpt2"], 2, "gpt2 is a shape without weights"),
        (["gpt2", "--weights", "zero"], 2, '--weights "zero": wanted random'),
        (["gpt2", "--weights", "random", "--backend", "torch"], 2, "no backend 'torch'"),
        (["gpt2", "--weights", "random", "--visible", "128,many"], 2, "--visible"),
        (["gpt2", "--weights", "random", "--visible", "0"], 2, "--visible"),
        (["gpt2", "--weights", "random", "--tokens", "-1"], 2, "--tokens"),
        (["gpt2", "--weights", "random", "--repeat", "0"], 2, "repeat"),
        (["gpt2", "--weights", "random", "--threads", "0"], 2, "--threads 0"),
        (["gpt2", "--weights", "random", "--visible", "99999999"], 1, "need "),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_what_cannot_be_profiled_is_refused(
    arguments: list[str], status: int, fact: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(*arguments) == status
    out, error = capsys.readouterr()
    assert fact in error.splitlines()[0]
    assert out == ""


def test_more_than_the_memory_is_refused_before_anything_is_allocated(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(memory, "available_memory", lambda: 32_000_000_000)
    assert run("llama-3.1-8b", "--weights", "random", "--visible", "1000") == 1
    error = capsys.readouterr().err
    assert "llama-3.1-8b: float32 weights and a cache of 1,000 tokens need 32.4 GB" in error
    assert "32.0 GB of memory are available" in error
    wanted = 4 * (8_030_261_248 + 1_000 * 2 * 32 * 8 * 128)
    assert f"{wanted:,} bytes of 32,000,000,000" in error


def test_what_was_measured_before_a_stop_is_printed(
    config: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(profiling.Profiler, "prompt", stop)
    asked = [config, "--weights", "random", "--visible", "3,4", "--tokens", "8", *QUICK]
    assert run(*asked, "--json") == 130
    assert [row["visible"] for row in as_json(capsys)["rows"]] == [3, 4]
    assert run(*asked) == 130
    assert re.search(r"^visible +3 +4$", capsys.readouterr().out, flags=re.MULTILINE)


def test_the_threads_that_were_asked_for_are_in_force(config: str) -> None:
    asked = [config, "--weights", "random", "--visible", "3", "--threads", "1", *QUICK, "--json"]
    command = [sys.executable, "-m", "forwardpass", "profile", *asked]
    done = subprocess.run(command, capture_output=True, encoding="utf-8")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    jsonschema.validate(found, SCHEMA)
    assert found["machine"]["threads"] == 1


@pytest.mark.skipif(missing_reason() is not None, reason="the C++ part is not here")
def test_the_native_backend_is_profiled_as_it_packs_its_weights(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "config.json").write_text(json.dumps(LLAMA), "utf-8")
    asked = [str(tmp_path), "--weights", "random", "--backend", "native", "--visible", "9", *QUICK]
    assert run(*asked, "--json") == 0
    found = as_json(capsys)
    assert (found["backend"], found["dtype"]) == ("native", "as packed")
    (row,) = found["rows"]
    assert row["seconds_waiting"] > 0
    parts = sum(part["seconds"] for part in row["roles"])
    together = parts + row["seconds_waiting"] + row["seconds_between_nodes"]
    assert together == pytest.approx(row["seconds"])
    assert run(*asked) == 0
    out = capsys.readouterr().out
    assert "native backend (" in out
    assert "for other threads" in out
