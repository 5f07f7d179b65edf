"""A process of mask_sides.py: started again where it dies or does not answer."""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

_SCRIPT = Path(__file__).resolve().parent / "mask_sides.py"
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "RAYON_NUM_THREADS")
_STARTING = 120.0  # seconds: imports, and a vocabulary


class SideError(Exception):
    """An engine died or took too long; the text says which."""


class Side:
    """A process that times one engine, each reply within `seconds`."""

    def __init__(self, name: str, python: str, seconds: float) -> None:
        self.name, self._python, self._seconds = name, python, seconds
        self._prepared: dict[str, object] | None = None
        self.version = self._start()

    def ask(self, **request: object) -> dict[str, Any]:
        """One request and its reply. Raises SideError, and is ready for the next."""
        preparing = request["do"] == "vocabulary"
        try:
            reply = self._ask(request, _STARTING if preparing else self._seconds)
        except SideError:
            self.end()
            self._start()
            if self._prepared is not None:
                self._ask(self._prepared, _STARTING)
            raise
        if preparing:
            self._prepared = request
        return reply

    def end(self) -> None:
        """Ends the process."""
        self._process.kill()
        self._process.communicate()
        self._errors.close()

    def _start(self) -> str:
        environment = os.environ | dict.fromkeys(_THREADS, "1")
        if self._python != sys.executable:
            environment.pop("PYTHONPATH", None)
        self._errors = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")  # noqa: SIM115
        self._process = subprocess.Popen(
            [self._python, str(_SCRIPT), self.name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            env=environment,
        )
        return str(self._reply(_STARTING)["version"])

    def _ask(self, request: dict[str, object], seconds: float) -> dict[str, Any]:
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # the reply, or its lack, says more
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
        return self._reply(seconds)

    def _reply(self, seconds: float) -> dict[str, Any]:
        pipe = self._process.stdout
        assert pipe is not None
        # One line is all that comes for a request, so nothing of it waits in a buffer.
        if not select.select([pipe], [], [], seconds)[0]:
            raise SideError(f"no reply in {seconds:g} s")
        line = pipe.readline()
        if not line:
            code = self._process.wait()
            self._errors.seek(0)
            last = (self._errors.read().strip().splitlines() or ["it said nothing"])[-1]
            raise SideError(f"it ended with {code}: {last:.200}")
        return dict(json.loads(line))
