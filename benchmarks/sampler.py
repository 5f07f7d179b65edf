"""How long a choice takes, ours beside llama.cpp's chain and transformers' processors.

    python benchmarks/sampler.py my-machine model.gguf
    python benchmarks/sampler.py my-machine model.gguf --llama-python PATH

All sides read the same rows: `--rows` of the scores that the model gives along a text, and as many
of normal numbers, of the same size. One thread each, processes that run in turn, A B C A B C, with
`--calls` calls in a turn; a figure is the median over `--turns` turns of the turn's median, a ratio
the median of the turns' ratios. `--llama-python` names an interpreter that has llama-cpp-python,
as `rivals.py setup` makes one; transformers is that of this interpreter. A side that cannot be
started is left out, and the results say why. Writes benchmarks/results/NAME.json.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE / "rivals"))

from report import Results, heading  # noqa: E402
from sampler_sides import SETTINGS  # noqa: E402

TEXT = (
    "def merge(left: list[int], right: list[int]) -> list[int]:\n"
    '    """Both lists in one, sorted; each is sorted already."""\n'
)
ALONE = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")


class Side:
    """A process that times one engine."""

    def __init__(self, name: str, python: str) -> None:
        command = [python, str(HERE / "rivals" / "sampler_sides.py"), name]
        environment = os.environ | ALONE
        if python != sys.executable:
            environment.pop("PYTHONPATH", None)
        self.name = name
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        )
        self.version = self._reply()["version"]

    def ask(self, **request: object) -> dict[str, Any]:
        """One request and its reply."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        return self._reply()

    def _reply(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            said = self._process.communicate()[1].strip().splitlines() or ["it said nothing"]
            raise RuntimeError(said[-1])
        return dict(json.loads(line))

    def end(self) -> None:
        """Ends the process."""
        self._process.kill()
        self._process.communicate()


def rows(model: str, count: int, folder: Path) -> dict[str, list[Path]]:
    """Files with the rows: of the model along a text, and of normal numbers."""
    import forwardpass

    with forwardpass.load(model) as loaded:
        sequence = loaded.runner.prefill(loaded.tokenizer.encode_prompt(TEXT))
        along = []
        for _ in range(count):
            along.append(np.array(sequence.scores, np.float32))
            loaded.runner.decode(sequence, int(along[-1].argmax()))
    normal = np.random.default_rng(0).standard_normal((count, along[0].size))
    kept = {"model": along, "normal": [row.astype(np.float32) for row in normal]}
    files: dict[str, list[Path]] = {}
    for kind, made in kept.items():
        for i, row in enumerate(made):
            path = folder / f"{kind}-{i}.npy"
            np.save(path, row)
            files.setdefault(kind, []).append(path)
    return files


def measure(sides: list[Side], files: list[Path], setting: str, given: Any) -> dict[str, Any]:
    """One setting on rows of one kind: microseconds of each side, and ratios to ours."""
    turns: dict[str, list[float]] = {side.name: [] for side in sides}
    apart: dict[str, list[float]] = {side.name: [] for side in sides}
    for turn in range(given.turns):
        for side in sides:
            side.ask(do="load", row=str(files[turn % len(files)]))
            reply = side.ask(do="time", setting=setting, count=given.calls)
            turns[side.name].append(reply["us"])
            apart[side.name].append(reply["apart"])
    ours = turns[sides[0].name]
    found: dict[str, Any] = {}
    for side in sides:
        mine = turns[side.name]
        ratios = [theirs / own for theirs, own in zip(mine, ours, strict=True)]
        found[side.name] = {
            "us": round(statistics.median(mine), 1),
            "apart_us": round(statistics.median(apart[side.name]), 1),
            "least_and_most_us": [round(min(mine), 1), round(max(mine), 1)],
            "times_ours": round(statistics.median(ratios), 2),
            "turns_us": [round(us, 1) for us in mine],
        }
    return found


def start(given: Any) -> tuple[list[Side], dict[str, str]]:
    """The sides that can be started, ours first, and why the others cannot."""
    pythons = {"forwardpass": sys.executable, "transformers": sys.executable}
    if given.llama_python:
        pythons["llama.cpp"] = given.llama_python
    sides, missing = [], {}
    for name, python in pythons.items():
        try:
            sides.append(Side(name, python))
        except (RuntimeError, OSError) as error:
            missing[name] = str(error)
    if not sides or sides[0].name != "forwardpass":
        sys.exit(f"forwardpass cannot be started: {missing['forwardpass']}")
    return sides, missing


def main() -> None:
    """Measures and writes the results."""
    parser = argparse.ArgumentParser(description="samplers, in turn on the same rows")
    parser.add_argument("name", help="of the results")
    parser.add_argument("model", help="whose scores are taken: a file or a known name")
    parser.add_argument("--llama-python", help="an interpreter that has llama-cpp-python")
    parser.add_argument("--rows", type=int, default=5)
    parser.add_argument("--turns", type=int, default=9)
    parser.add_argument("--calls", type=int, default=60)
    parser.add_argument("--results", type=Path, default=HERE / "results", help="folder")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        files = rows(given.model, given.rows, Path(folder))
        sides, missing = start(given)
        settings = {"turns": given.turns, "calls": given.calls, "rows": given.rows, "threads": 1}
        size = int(np.load(files["model"][0]).size)
        engines = {side.name: side.version for side in sides} | missing
        about = {"model": Path(given.model).name, "scores": size, "engines": engines}
        results = Results(given.results / f"{given.name}.json", heading(settings) | about)
        try:
            for kind, paths in files.items():
                for setting in SETTINGS:
                    times = measure(sides, paths, setting, given)
                    results.add({"rows": kind, "setting": setting, "times": times})
                    shown = ", ".join(f"{n} {t['us']} us" for n, t in times.items())
                    print(f"{kind}, {setting}: {shown}", flush=True)
        finally:
            for side in sides:
                side.end()


if __name__ == "__main__":
    main()
