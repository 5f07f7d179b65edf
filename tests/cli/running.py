"""Runs a command as a person would: here, with what it printed, or in a process of its own."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import pytest

from forwardpass.cli.main import main

PROGRAM = (sys.executable, "-m", "forwardpass")


class Done(NamedTuple):
    """How a command ended, and what it printed."""

    status: int
    out: str
    err: str


class Run:
    """Runs commands in this process; `typed` is what stands on standard input."""

    def __init__(self, capsys: pytest.CaptureFixture[str], patch: pytest.MonkeyPatch) -> None:
        self.capsys, self.patch = capsys, patch

    def __call__(self, *arguments: object, typed: str | bytes = b"") -> Done:
        content = typed.encode() if isinstance(typed, str) else typed
        self.patch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(content), encoding="utf-8"))
        self.capsys.readouterr()
        status = main([str(argument) for argument in arguments])
        return Done(status, *self.capsys.readouterr())

    def ok(self, *arguments: object, typed: str | bytes = b"") -> Done:
        """The same of a command that must succeed."""
        done = self(*arguments, typed=typed)
        assert done.status == 0, done.err
        return done

    def refused(self, *arguments: object, typed: str | bytes = b"") -> str:
        """What a request that is wrong is told; nothing else happens."""
        done = self(*arguments, typed=typed)
        assert (done.status, done.out) == (2, ""), done.err
        assert done.err.startswith("error: ")
        return done.err.removeprefix("error: ").rstrip("\n")


def shell(
    script: str, *arguments: object, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Runs a bash script; `$program` is the command line program, `$@` the arguments."""
    words = " ".join(f"'{word}'" for word in PROGRAM)
    return subprocess.run(
        ["bash", "-c", f'program="{words}"\nforwardpass() {{ {words} "$@"; }}\n{script}', "bash",
         *map(str, arguments)],
        capture_output=True,
        encoding="utf-8",
        env={**os.environ, **(environment or {})},
    )  # fmt: skip


def start(arguments: Sequence[object]) -> subprocess.Popen[str]:
    """The program in a process of its own, its output in pipes."""
    return subprocess.Popen(
        [*PROGRAM, *map(str, arguments)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
    )
