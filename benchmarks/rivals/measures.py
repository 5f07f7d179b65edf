"""What is measured: each measure asks two workers for the same and makes samples of it."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pairs import Pair, Prompts, Sample, interleave
from processes import LOOK, Reply, Window, Worker, wait_for_quiet

DEEP, DEEP_COUNT = 4_096, 32
_LEAST = 0.5  # seconds of one sample, or the clock of /proc/stat is too coarse for it
_MOST_REPEATS = 32
_PAUSE = 0.2  # seconds in which the other engine's threads stop waiting for work


@dataclass(frozen=True)
class Measure:
    """`decode` runs `count` passes behind a prompt; `deep` behind what the last pair left."""

    name: str
    kind: str
    prompt: int
    count: int = 0


MEASURES = (
    Measure("decode", "decode", 16, 64),
    Measure("prefill 16", "prefill", 16),
    Measure("prefill 64", "prefill", 64),
    Measure("prefill 512", "prefill", 512),
    Measure("first token of a fresh process", "fresh", 64),
    Measure(f"decode at {DEEP:,} visible", "deep", DEEP, DEEP_COUNT),
)


@dataclass(frozen=True)
class Plan:
    """How often, how strictly and how large.

    `limit`: the share, 0 to 1, that others may take. `wait`: seconds that a pair waits at most for
    them to be below it. `cache`: a folder for what an engine makes of the model.
    """

    path: Path
    threads: int
    pairs: int
    limit: float
    cache: str
    wait: float = 0.0

    @property
    def most(self) -> int:
        """Pairs that are run at most, the dropped ones among them."""
        return 2 * self.pairs

    @property
    def context(self) -> int:
        """Tokens that an engine has to hold."""
        return DEEP + self.most * DEEP_COUNT

    def load(self, worker: Worker) -> Reply:
        """Loads the model in a worker; the reply has its version, build and vocabulary."""
        return worker.ask(
            "load",
            path=str(self.path),
            threads=self.threads,
            context=self.context,
            cache=self.cache,
        )


@dataclass(frozen=True)
class Side:
    """One engine of a pair: its worker with the model loaded, and how to start another one."""

    worker: Worker
    start: Callable[[], Worker]


def measured(
    measure: Measure, plan: Plan, sides: tuple[Side, Side], rows: int, chance: random.Random
) -> list[Pair]:
    """The pairs of one measure, on random token ids below `rows`."""

    def prompt(length: int) -> list[int]:
        return chance.choices(range(rows), k=length)

    runs = [_run(measure, plan, side) for side in sides]
    repeats = 1
    if measure.kind == "deep":
        # The middle of the pairs sees 4,096 tokens.
        held = prompt(measure.prompt - plan.pairs * measure.count // 2)
        for side in sides:
            side.worker.ask("hold", prompt=held)
    elif measure.kind == "fresh":
        # Brings the file into the page cache.
        with plan.path.open("rb") as file:
            while file.read(1 << 24):
                pass
    else:
        warm = [[prompt(measure.prompt) for _ in range(2)] for _ in sides]
        fastest = min(run(given).seconds / 2 for run, given in zip(runs, warm, strict=True))
        repeats = min(_MOST_REPEATS, math.ceil(_LEAST / fastest))

    def draw() -> Prompts:
        wait_for_quiet(plan.limit, int(plan.wait / LOOK))
        return [prompt(measure.prompt) for _ in range(repeats)] if measure.kind != "deep" else []

    return interleave(runs[0], runs[1], draw, wanted=plan.pairs, limit=plan.limit, most=plan.most)


def _run(measure: Measure, plan: Plan, side: Side) -> Callable[[Prompts], Sample]:
    if measure.kind == "fresh":
        return lambda prompts: _fresh(plan, side, prompts[0])

    def run(prompts: Prompts) -> Sample:
        requests: list[Mapping[str, object]] = [{"prompt": prompt} for prompt in prompts]
        if measure.kind != "prefill":
            requests = [given | {"count": measure.count} for given in map(dict, requests or [{}])]
        ask = {"deep": "more"}.get(measure.kind, measure.kind)
        return _timed(side.worker, ask, requests)

    return run


def _timed(worker: Worker, ask: str, requests: Sequence[Mapping[str, object]]) -> Sample:
    """One sample of several requests: all their tokens in all their timed seconds."""
    time.sleep(_PAUSE)
    window = Window()
    replies = [worker.ask(ask, **request) for request in requests]
    others = window.others(sum(reply.cpu for reply in replies))
    tokens = sum(int(reply.number("tokens")) for reply in replies)
    own = None
    if all(reply.values["own"] for reply in replies):
        own = tokens / sum(reply.number("tokens") / reply.number("own") for reply in replies)
    return Sample(tokens, sum(reply.number("seconds") for reply in replies), others, own)


def _fresh(plan: Plan, side: Side, prompt: Sequence[int]) -> Sample:
    """From the start of a process to the first token of an answer; one token in all of it."""
    time.sleep(_PAUSE)
    window = Window()
    with side.start() as worker:
        imported = worker.hello()
        loaded = plan.load(worker)
        first = worker.ask("prefill", prompt=list(prompt))
        others = window.others(imported.cpu + loaded.cpu + first.cpu)
    parts = {
        "imports": imported.at - worker.started,
        "load": loaded.at - imported.at,
        "prompt": first.at - loaded.at,
    }
    return Sample(1, first.at - worker.started, others, parts=parts)
