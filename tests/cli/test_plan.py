from __future__ import annotations

import json
import re
from math import prod
from pathlib import Path

import jsonschema
import pytest

import forwardpass as fp
from cli.counting import TINY_TENSORS, holes, leave_alone, tiny_folder
from cli.running import Run
from cli.test_run import closed
from formats.safetensors_writer import write_safetensors
from forwardpass.backends import ceilings
from forwardpass.work.layout import WIDTH
from forwardpass.work.machines import known_machines

ASKED = ("--machine", "h100", "--prompt", 12_060, "--answer", 300)
PRICED = (*ASKED, "--price", "2.00/h")
H100 = """\
llama-3.1-8b in bf16 on 1 × H100 SXM (80 GB; 989 TFLOP/s bf16 dense, 3.35 TB/s: vendor's figures)
  a prompt of 12,060 and an answer of 300 tokens, KV cache in bf16

memory       16.06 GB weights + 1.62 GB KV (12,360 tokens) + ~0.6 GB work = ~18.3 of 80 GB: fits
first token  206.47 TFLOP ÷ 989 TFLOP/s       ≥ 0.21 s   arithmetic binds
each token   (15.01 + 1.60 GB) ÷ 3.35 TB/s    ≥ 4.96 ms  memory binds  ≤ 202 tokens/s
answer       300 × 4.96 ms                    ≥ 1.49 s   its arithmetic alone: 0.0065 s
cost         (0.21 + 1.49) s at 2.00 an hour  ≥ 0.00094, or 3.1 per million answer tokens
concurrency  ~63 GB left for KV               ~39 such requests at once
"""

NUMBER_OR_NULL = {"type": ["number", "null"]}
COUNT, COUNT_OR_NULL = {"type": "integer"}, {"type": ["integer", "null"]}
TEXT = {"type": "string"}
BOUND = {"enum": ["memory", "arithmetic", "capacity", None]}
MACHINE = closed(
    name=TEXT,
    title=TEXT,
    count=COUNT,
    memory=COUNT_OR_NULL,
    bytes_per_second=NUMBER_OR_NULL,
    flop_per_second=NUMBER_OR_NULL,
    flop_type=TEXT,
    figures=TEXT,
    source=TEXT,
)
SCHEMA = closed(
    model=TEXT,
    machine=MACHINE,
    dtype=TEXT,
    estimated={"type": "boolean"},
    kv_type=TEXT,
    prompt=COUNT,
    answer=COUNT,
    concurrency=COUNT,
    fits={"type": ["boolean", "null"]},
    memory=closed(weights=COUNT, kv=COUNT, activations=COUNT, total=COUNT, available=COUNT_OR_NULL),
    binds={"enum": ["weights", "kv", "activations", None]},
    prefill_seconds=NUMBER_OR_NULL,
    prefill_bound=BOUND,
    prefill_flop=COUNT,
    decode_seconds_per_token=NUMBER_OR_NULL,
    tokens_per_second=NUMBER_OR_NULL,
    tokens_per_second_each=NUMBER_OR_NULL,
    bound=BOUND,
    answer_flop=COUNT,
    weight_bytes_per_pass=COUNT,
    cache_bytes_per_pass={"type": "number"},
    max_concurrency=COUNT_OR_NULL,
    cost=NUMBER_OR_NULL,
    cost_per_million_tokens=NUMBER_OR_NULL,
)


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    leave_alone(monkeypatch, tmp_path / "home")


def test_a_plan_shows_memory_times_cost_and_concurrency(run: Run) -> None:
    page = run.ok("plan", "llama-3.1-8b", *PRICED).out
    assert page.startswith(H100)
    words = " ".join(page.removeprefix(H100).split())
    assert "reads 15.01 GB of the weights, not 16.06 GB: the embedding is looked up" in words
    assert "300 times that takes 1.34 s without the cache; with all the weights 1.44 s" in words
    assert "values alive at once in a chunk of 8,192 prompt tokens, 2 bytes each" in words
    assert "floors from the vendor's figures. Measured machines reach 40 to 90 % of them" in words


def test_the_json_object_has_the_same_figures(run: Run) -> None:
    found = json.loads(run.ok("plan", "llama-3.1-8b", *PRICED, "--json").out)
    jsonschema.validate(found, SCHEMA)
    assert found["fits"] is True
    assert found["memory"] == {
        "weights": 16_060_522_496,
        "kv": 1_620_049_920,
        "activations": 603_979_776,
        "total": 18_284_552_192,
        "available": 80_000_000_000,
    }
    assert found["prefill_seconds"] == pytest.approx(0.2088, abs=1e-4)
    assert found["decode_seconds_per_token"] == pytest.approx(0.004958, abs=1e-6)
    assert found["tokens_per_second"] == pytest.approx(201.7, abs=0.05)
    assert (found["prefill_bound"], found["bound"]) == ("arithmetic", "memory")
    assert found["max_concurrency"] == 39
    assert found["cost_per_million_tokens"] == pytest.approx(3.14, abs=0.005)


def test_the_python_call_gives_the_same_plan(run: Run) -> None:
    found = fp.plan("llama-3.1-8b", machine="h100", prompt=12_060, answer=300, price="2.00/h")
    written = json.loads(run.ok("plan", "llama-3.1-8b", *PRICED, "--json").out)
    assert found.as_dict() == written
    assert found.fits
    with pytest.raises(fp.RequestError, match="machine = None: wanted a text"):
        fp.plan("gpt2", machine=None)  # type: ignore[arg-type]
    with pytest.raises(fp.RequestError, match="dtype = 4: wanted a text"):
        fp.plan("gpt2", machine="h100", dtype=4)  # type: ignore[arg-type]


def test_every_line_fits_the_terminal_and_every_object_its_schema(run: Run) -> None:
    for known in ("2xh100", "m4-max,48GB", "epyc-9654", "rtx-3090", "80GB", "9TB/s", "1TFLOP/s"):
        for more in ((), ("--concurrency", 40, "--price", "$1/h"), ("--dtype", "q4_k_m")):
            arguments = ("plan", "llama-3.1-8b", "--machine", known, *more)
            page = run.ok(*arguments).out
            assert all(len(line) <= WIDTH for line in page.splitlines()), page
            jsonschema.validate(json.loads(run.ok(*arguments, "--json").out), SCHEMA)


def test_what_does_not_fit_says_what_binds_and_what_would_fit(run: Run) -> None:
    page = run.ok("plan", "llama-3.1-70b", *PRICED).out
    assert "~146.4 of 80 GB: does not fit" in page
    assert "binds        the weights alone are more than the memory" in page
    assert "on 2 × H100 SXM; in f8_e4m3 (70.55 GB weights); in q4_k_m (~42.51 GB weights)" in page
    assert "≥" not in page
    found = json.loads(run.ok("plan", "llama-3.1-70b", *PRICED, "--json").out)
    jsonschema.validate(found, SCHEMA)
    assert (found["fits"], found["bound"], found["binds"]) == (False, "capacity", "weights")
    assert found["prefill_seconds"] is found["cost_per_million_tokens"] is None
    page = run.ok("plan", "llama-3.1-8b", "--machine", "20GB,1TB/s", "--prompt", 100_000).out
    assert "binds        the KV cache" in page
    assert re.search(r"one request of 2\d,\d{3} tokens", page)


def test_requests_at_once_have_rates_each_and_together(run: Run) -> None:
    page = run.ok("plan", "llama-3.1-8b", *PRICED, "--concurrency", 8).out
    assert "8 requests at once, each a prompt of 12,060" in page
    assert "8 × 1.62 GB KV (12,360 tokens each)" in page
    assert re.search(r"first token  8 × 206.47 TFLOP ÷ .* binds, for all 8", page)
    each, together = re.findall(r"≤ ([\d,]+) tokens/s", page)
    assert int(together.replace(",", "")) == pytest.approx(8 * int(each), abs=4)


def test_several_devices_say_that_their_links_are_not_counted(run: Run) -> None:
    page = run.ok("plan", "llama-3.1-70b", "--machine", "2xh100").out
    assert "on 2 × H100 SXM\n  (each 80 GB; " in page
    assert "together 160 GB, 1.978 PFLOP/s, 6.7 TB/s; what they send each other is not" in page


def test_machines_and_types_make_a_table(run: Run) -> None:
    several = ("--machines", "h100,m4-max,128GB,2xh100", "--quantisations", "bf16,q4_k_m")
    arguments = ("plan", "llama-3.1-70b", *several)
    lines = run.ok(*arguments).out.splitlines()
    assert lines[2].split()[:3] == ["machine", "weights", "memory"]
    rows = [line.split() for line in lines[3:9]]
    assert [row[:2] for row in rows] == [
        [name, dtype] for name in ("h100", "m4-max,128GB", "2xh100") for dtype in ("bf16", "q4_k_m")
    ]
    assert "does not fit" in lines[3]
    assert "unknown" in lines[6]  # the first token, as nobody states FLOP/s
    assert "~42.51 GB" in lines[4]
    plans = json.loads(run.ok(*arguments, "--json").out)["plans"]
    assert [plan["fits"] for plan in plans] == [False, True, False, True, True, True]
    assert [plan["estimated"] for plan in plans] == [False, True] * 3
    priced = run.ok("plan", "gpt2", "--machine", "l4", "--quantizations", "f32,f16", "--price",
                    "€1/h").out  # fmt: skip
    assert priced.splitlines()[2].endswith("per million")
    assert priced.count("≥ €") == 2


def test_a_file_is_planned_with_the_bytes_that_it_stores(run: Run, tmp_path: Path) -> None:
    folder = tiny_folder(tmp_path / "model")
    write_safetensors(folder / "model.safetensors", holes(TINY_TENSORS, "F16"))
    found = json.loads(run.ok("plan", folder, "--machine", "l4", "--json").out)
    assert found["memory"]["weights"] == 2 * sum(map(prod, TINY_TENSORS.values()))
    assert found["dtype"] == "f16"
    page = run.ok("plan", folder, "--machine", "l4").out
    assert "1,280 tokens are beyond the 64 positions of the config." in page
    (folder / "config.json").unlink()
    said = run.refused("plan", folder / "model.safetensors", "--machine", "l4")
    assert "a file of tensors alone does not say what model it is" in said


def test_this_machine_is_measured(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ceilings, "READ_BYTES", 2**20)
    monkeypatch.setattr(ceilings, "_LARGEST_PRODUCT", 256)
    page = run.ok("plan", "qwen3-0.6b").out
    assert page.startswith("qwen3-0.6b in bf16 on this machine, ")
    assert re.search(r"available; [\d.]+ [MGT]FLOP/s f32, [\d.]+ [MGT]B/s: measured\)", page)
    assert "floors from ceilings measured just now" in " ".join(page.split())
    found = json.loads(run.ok("plan", "gpt2", "--machine", "here", "--json").out)
    jsonschema.validate(found, SCHEMA)
    assert found["machine"]["figures"] == "measured"
    assert found["prefill_seconds"] > 0


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--machine", "h10"], 'there is no machine "h10"  (did you mean h100?)'),
        (["--machine", "h100", "--price", "2"], '"2" is no price'),
        (["--concurrency", "0"], "--concurrency 0: wanted a number of requests"),
        (["--prompt", "0"], "--prompt 0: wanted a number of tokens"),
        (["--answer", "0"], "--answer 0: wanted a number of tokens"),
        (["--machine", "h100", "--dtype", "q4_k_x"], 'there is no type of weights "q4_k_x"'),
        (["--machine", "h100", "--kv-type", "q8"], '"q8" is no type of a KV cache'),
        (["--machine", "h100", "--machines", "a100"], "one of them is enough"),
        (["--dtype", "bf16", "--quantisations", "bf16"], "one of them is enough"),
        (["--machines", "h100,a100", "--price", "1/h"], "--price is that of one machine"),
        (["--machines", "h100,,a100"], 'there is no machine ""'),
    ],
)
def test_what_makes_no_sense_is_refused(run: Run, arguments: list[str], says: str) -> None:
    assert says in run.refused("plan", "gpt2", *arguments)


def test_the_catalogue_is_listed(run: Run) -> None:
    page = run.ok("machine", "--list").out
    assert re.search(
        r"^  h100 +H100 SXM +80 GB +3.35 TB/s +989 TFLOP/s +bf16 dense +vendor$", page, re.M
    )
    found = json.loads(run.ok("machine", "--list", "--json").out)["machines"]
    for entry in found:
        jsonschema.validate(entry, MACHINE)
    assert [entry["name"] for entry in found] == [known.name for known in known_machines()]
    assert "measures nothing" in run.refused("machine", "--list", "--measure")
