"""benchmarks/kernels.py times every kernel that is held, on small tables here."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from kernels import harness

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "kernels.py"


def test_the_benchmark_times_the_list_that_is_held() -> None:
    levels = harness.runnable()
    small = ["--types", "q4_0", "mlx4_bf16", "--rows", "1", "3", "--megabytes", "2"]
    done = subprocess.run(
        [sys.executable, SCRIPT, *small, "--repetitions", "1", "--json", "--levels", *levels],
        env=os.environ,
        capture_output=True,
        text=True,
        check=True,
    )
    figures = json.loads(done.stdout)["figures"]
    timed = {figure["op"] for figure in figures}
    kernels = {n for n, (_, how) in harness.held().items() if how.by in ("rows", "products")}
    assert timed == kernels | {"attention"}
    for figure in figures:
        assert figure["seconds"] > 0
        assert figure["gigabytes_a_second"] > 0
        assert (figure["read_rate"] > 0) == (figure["op"] in ("linear", "attention"))
    products = [figure for figure in figures if figure["op"] == "linear"]
    assert len(products) == 2 * 2 * len(levels)
