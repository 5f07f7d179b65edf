"""Worker processes, and what else computed while one was timed."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

_IDLE = (3, 4)  # fields of /proc/stat: idle and iowait
_TIMES = 8  # user to steal; guests are in user already. Source: proc(5)

LOOK = 0.5  # seconds


class RivalError(Exception):
    """An engine did not do what it was asked; the text says why."""


def busy_seconds(stat: str, ticks: int) -> float:
    """Seconds that all processors together computed since boot, by the text of /proc/stat.

    Time stolen by other guests of the host counts: it disturbs as much.

    >>> busy_seconds("cpu  100 0 50 900 0 0 0 10 0 0", ticks=100)
    1.6
    """
    fields = [int(field) for field in stat.split("\n", 1)[0].split()[1 : 1 + _TIMES]]
    return sum(value for i, value in enumerate(fields) if i not in _IDLE) / ticks


class Window:
    """The time of one sample, and the share of the machine that others took in it."""

    def __init__(self) -> None:
        self._busy, self._own = _busy(), time.process_time()
        self._start = time.monotonic()

    def others(self, worker: float) -> float:
        """Share, 0 to 1, of all processors' time so far that neither side of the pipe took.

        `worker`: seconds that the worker computed. /proc/stat counts in hundredths of a second,
        so half a second's share is good to about two in a hundred.
        """
        wall = time.monotonic() - self._start
        rest = _busy() - self._busy - worker - (time.process_time() - self._own)
        return min(1.0, max(0.0, rest) / (wall * (os.cpu_count() or 1)))


def _busy() -> float:
    return busy_seconds(Path("/proc/stat").read_text("ascii"), os.sysconf("SC_CLK_TCK"))


def wait_for_quiet(limit: float, looks: int) -> bool:
    """Looks at the machine, half a second each time, until others take at most `limit` of it.

    False where they took more in each of `looks`.
    """
    for _ in range(looks):
        window = Window()
        time.sleep(LOOK)
        if window.others(0.0) <= limit:
            return True
    return False


@dataclass(frozen=True)
class Reply:
    """A worker's answer; `at` in seconds of the monotonic clock, `cpu` seconds it computed."""

    values: Mapping[str, object]
    at: float
    cpu: float

    def number(self, name: str) -> float:
        value = self.values[name]
        assert isinstance(value, int | float), (name, value)
        return float(value)


class Worker:
    """A worker process; use it as a context, which ends it."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        self._errors = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")  # noqa: SIM115
        self.started = time.monotonic()
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            env=os.environ | environment,
        )

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()
        self._errors.close()

    def hello(self) -> Reply:
        """What the worker says once its imports are done."""
        return self._reply()

    def ask(self, do: str, **values: object) -> Reply:
        """One request and its reply. Raises RivalError where the engine fails or has ended."""
        pipe = self._process.stdin
        assert pipe is not None
        try:
            pipe.write(json.dumps({"do": do, **values}) + "\n")
            pipe.flush()
        except BrokenPipeError:
            raise RivalError(self._ending()) from None
        return self._reply()

    def _reply(self) -> Reply:
        pipe = self._process.stdout
        assert pipe is not None
        line = pipe.readline()
        if not line:
            raise RivalError(self._ending())
        values = json.loads(line)
        if "error" in values:
            raise RivalError(values["error"])
        return Reply(values, values["at"], values["cpu"])

    def _ending(self) -> str:
        code = self._process.wait()
        self._errors.seek(0)
        last = (self._errors.read().strip().splitlines() or ["it said nothing"])[-1]
        how = f"signal {-code}" if code < 0 else f"code {code}"
        return f"the worker ended with {how}: {last:.300}"
