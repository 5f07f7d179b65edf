"""What a worker and the benchmark say to each other: one JSON object a line, stdin and stdout.

A worker runs in its engine's own environment, so this file needs the standard library alone.
Requests: {"do": "load", "path", "threads", "context", "cache"}, {"do": "prefill", "prompt"},
{"do": "decode", "prompt", "count"}, {"do": "hold", "prompt"}, {"do": "more", "count"}. Each has
one reply, which ends with `at` (seconds of the system's monotonic clock, which all processes
share) and `cpu` (seconds that the worker's threads computed for it); {"error"} says that it
failed. The first line, before any request, is {"at", "cpu"} too: the imports are done.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TextIO


@dataclass(frozen=True)
class Timed:
    """Passes over `tokens` tokens in `seconds`; `token` has the best score after the last.

    `own` is what the engine's own clocks say of the same passes, in tokens a second.
    """

    seconds: float
    tokens: int
    token: int
    own: float | None = None


class Engine(Protocol):
    """One engine with one model; what it clears before a pass is not in the pass's time."""

    def load(self, path: str, threads: int, context: int, cache: str) -> dict[str, object]:
        """Loads the model and says `version`, `build` and `vocabulary` (rows, 0 if unknown)."""

    def prefill(self, prompt: Sequence[int]) -> Timed:
        """Reads a new prompt into an empty cache, to the scores after its last token."""

    def decode(self, prompt: Sequence[int], count: int) -> Timed:
        """`count` greedy passes of one token behind a new prompt, whose own pass is not timed."""

    def hold(self, prompt: Sequence[int]) -> Timed:
        """Reads a long prompt that `more` goes on behind."""

    def more(self, count: int) -> Timed:
        """`count` greedy passes of one token behind what is held."""


@dataclass
class Stepwise:
    """The timed requests of an engine that runs one pass a call; it adds `load`.

    `read` empties the cache and reads a prompt, `step` runs one token; both return the best next.
    """

    held: int = field(default=0, init=False)

    def clear(self) -> None:
        """Empties the cache."""
        raise NotImplementedError

    def read(self, prompt: Sequence[int]) -> int:
        """One pass over a prompt, behind an empty cache: the token with the best score."""
        raise NotImplementedError

    def step(self, token: int) -> int:
        """One pass over one token: the token with the best score after it."""
        raise NotImplementedError

    def own_rate(self) -> float | None:
        """Tokens a second since `clear` or the last call, by the engine's own clocks."""
        return None

    def prefill(self, prompt: Sequence[int]) -> Timed:
        self.clear()
        self.own_rate()
        start = time.perf_counter()
        best = self.read(prompt)
        seconds = time.perf_counter() - start
        return Timed(seconds, len(prompt), best, self.own_rate())

    def decode(self, prompt: Sequence[int], count: int) -> Timed:
        self.hold(prompt)
        return self.more(count)

    def hold(self, prompt: Sequence[int]) -> Timed:
        done = self.prefill(prompt)
        self.held = done.token
        return done

    def more(self, count: int) -> Timed:
        self.own_rate()
        token = self.held
        start = time.perf_counter()
        for _ in range(count):
            token = self.step(token)
        seconds = time.perf_counter() - start
        self.held = token
        return Timed(seconds, count, token, self.own_rate())


def serve(engine: Engine) -> None:
    """Answers requests until stdin ends. What libraries print goes to stderr from now on."""
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    _say(replies, {}, 0.0)
    for line in sys.stdin:
        before = time.process_time()
        try:
            reply = _answer(engine, json.loads(line))
        except Exception as error:  # the benchmark reports it beside what did work
            text = " ".join(str(error).split()) or "no message"
            reply = {"error": f"{type(error).__name__}: {text:.600}"}
        _say(replies, reply, before)


def _answer(engine: Engine, request: Mapping[str, object]) -> dict[str, object]:
    given = {name: value for name, value in request.items() if name != "do"}
    reply = getattr(engine, str(request["do"]))(**given)
    return dict(reply) if isinstance(reply, dict) else dict(vars(reply))


def _say(replies: TextIO, reply: dict[str, object], before: float) -> None:
    clocks = {"at": time.monotonic(), "cpu": time.process_time() - before}
    replies.write(json.dumps(reply | clocks) + "\n")
    replies.flush()
