"""Measures forwardpass and other engines in turn on the same model files.

    python benchmarks/rivals.py setup
    python benchmarks/rivals.py run NAME MODEL.gguf …
    python benchmarks/rivals.py show benchmarks/results/NAME.json

`setup` makes each rival's environment. `run` measures pairs of runs and writes
benchmarks/results/NAME.json after every measure; `show` prints its table. README.md beside this
file says what the measures are.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent / "rivals"))

import environments
from measures import MEASURES, Measure, Plan, Side, measured
from pairs import summary
from processes import Reply, RivalError, Worker
from report import Found, Results, engine_entry, heading, table

RESULTS = Path(__file__).resolve().parent / "results"


def main(arguments: Sequence[str] | None = None) -> int:
    """Does what the command line asks for; the exit status."""
    given = _parser().parse_args(arguments)
    if given.do == "setup":
        return _set_up(given)
    if given.do == "show":
        print(table(json.loads(given.results.read_text("utf-8"))))
        return 0
    return _run(given)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="forwardpass and other engines, in turn")
    commands = parser.add_subparsers(dest="do", required=True)
    names = [row.name for row in environments.RIVALS]
    measures = [measure.name for measure in MEASURES]
    setup = commands.add_parser("setup", help="make the rivals' environments")
    setup.add_argument("rivals", nargs="*", metavar="RIVAL", help=f"of {', '.join(names)}")
    setup.add_argument("--jobs", type=int, default=2, help="compilers at once")
    run = commands.add_parser("run", help="measure and write the results")
    run.add_argument("name", help="of the results")
    run.add_argument("models", nargs="+", type=Path, metavar="MODEL.gguf")
    run.add_argument("--first", default=environments.OURS, choices=environments.NAMES)
    run.add_argument("--rivals", nargs="+", default=names, choices=environments.NAMES)
    run.add_argument("--measures", nargs="+", default=measures, choices=measures)
    run.add_argument("--backend", default="native", help="of forwardpass")
    run.add_argument("--threads", type=int, default=2)
    run.add_argument("--pairs", type=int, default=7)
    run.add_argument("--limit", type=float, default=5, help="per cent that others may compute")
    run.add_argument("--wait", type=float, default=10, help="seconds for that, before each pair")
    run.add_argument("--seed", type=int, default=0, help="of the prompts")
    run.add_argument("--results", type=Path, default=RESULTS, help="folder")
    for command in (setup, run):
        command.add_argument("--environments", type=Path, default=environments.DEFAULT)
    show = commands.add_parser("show", help="print the table of results")
    show.add_argument("results", type=Path, metavar="RESULTS.json")
    return parser


def _set_up(given: argparse.Namespace) -> int:
    folder = given.environments.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    failed = False
    for row in environments.RIVALS:
        if not given.rivals or row.name in given.rivals:
            said = environments.set_up(row, folder, given.jobs)
            failed |= ": failed" in said
            print(said, flush=True)
    return int(failed)


@dataclass(frozen=True)
class Comparison:
    """The measures of one model and one pair of engines, `names`; each result is added at once."""

    plan: Plan
    names: tuple[str, str]
    measures: Sequence[Measure]
    environments: Path
    backend: str
    seed: int
    results: Results

    def run(self) -> None:
        """Measures; what an engine cannot do becomes a result with a reason."""
        for name in self.names:
            if reason := environments.absent(name, self.environments):
                return self._add("", {"reason": f"{name}: {reason}"})
        with ExitStack() as stack:
            sides, rows = [], []
            for name in self.names:
                worker = stack.enter_context(self._start(name))
                try:
                    loaded = self._load(name, worker)
                except RivalError as error:
                    return self._add("", {"reason": f"{name}: {error}"})
                rows.append(int(loaded.number("vocabulary")))
                sides.append(Side(worker, partial(self._start, name)))
            least = min(count for count in rows if count)
            for measure in self.measures:
                self._measure(measure, (sides[0], sides[1]), least)
        return None

    def _measure(self, measure: Measure, sides: tuple[Side, Side], rows: int) -> None:
        chance = random.Random(f"{self.seed} {measure.name}")
        try:
            pairs = measured(measure, self.plan, sides, rows, chance)
        except RivalError as error:
            self._add(measure.name, {"reason": str(error)})
        else:
            self._add(measure.name, {"kind": measure.kind} | summary(pairs, self.plan.limit))

    def _start(self, name: str) -> Worker:
        command = environments.command(name, self.environments)
        return Worker(command, {"FORWARDPASS_BACKEND": self.backend})

    def _load(self, name: str, worker: Worker) -> Reply:
        worker.hello()
        loaded = self.plan.load(worker)
        noted = environments.record(name, self.environments)
        self.results.found["engines"][name] = engine_entry(loaded.values, noted)
        return loaded

    def _add(self, measure: str, what: Found) -> None:
        about = {"model": self.plan.path.name, "engines": self.names, "measure": measure}
        self.results.add(about | what)
        print(table(self.results.found).rsplit("\n", 1)[1], flush=True)


def _run(given: argparse.Namespace) -> int:
    folder = given.environments.resolve()
    settings = {
        name: getattr(given, name) for name in ("threads", "pairs", "limit", "wait", "seed")
    }
    results = Results(given.results / f"{given.name}.json", heading(settings))
    known = {measure.name: measure for measure in MEASURES}
    measures = [known[name] for name in given.measures]
    for model in given.models:
        path, cache = model.resolve(), str(folder / "models")
        plan = Plan(path, given.threads, given.pairs, given.limit / 100, cache, given.wait)
        for rival in given.rivals:
            if rival != given.first:
                print(f"{path.name}: {given.first} against {rival}", flush=True)
                names = (given.first, rival)
                Comparison(plan, names, measures, folder, given.backend, given.seed, results).run()
    print(f"\n{table(results.found)}\n\nwritten to {results.path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
