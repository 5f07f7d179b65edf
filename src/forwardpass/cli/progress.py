"""How downloads and the loading of weights look in the terminal.

A download has a line for its source, a bar, and a line when it is done; loading only a bar.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from forwardpass.cli.console import harmless, note
from forwardpass.hub import Transfer
from forwardpass.units import size

if TYPE_CHECKING:
    from rich.progress import Progress as Bar

_BAR_AFTER_SECONDS = 1.0
_BAR_WIDTH = 26


class TerminalProgress:
    """A `hub.Progress` on standard error; the bar moves only on a terminal."""

    def __init__(self, terminal: bool | None = None) -> None:
        self.terminal = sys.stderr.isatty() if terminal is None else terminal
        self._transfer: Transfer | None = None
        self._began = 0.0
        self._first = 0
        self._bar: Bar | None = None

    def begin(self, transfer: Transfer, done: int) -> None:
        """One line: what comes from where."""
        terms = f", {transfer.license}" if transfer.license else ""
        again = f", {size(done)} of it here already" if done else ""
        note(
            f"{transfer.label}: {transfer.file}, {size(transfer.bytes)}{terms}, "
            f"from {transfer.origin}{again}"
        )
        self._transfer, self._began, self._first = transfer, time.monotonic(), done

    def at(self, done: int) -> None:
        """Moves the bar, which appears after a second."""
        if self._transfer is None or not self.terminal:
            return
        if self._bar is None and time.monotonic() - self._began > _BAR_AFTER_SECONDS:
            self._bar = _bar(self._transfer.bytes)
            self._bar.start()
        if self._bar is not None:
            task = self._bar.tasks[0]
            self._bar.update(task.id, completed=min(max(done, task.completed), task.total or 0))

    def end(self, path: Path | None) -> None:
        """One line: how much, how fast, verified, where; nothing where the source failed."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None
        transfer, self._transfer = self._transfer, None
        if transfer is None or path is None:
            return
        seconds = max(time.monotonic() - self._began, 1e-3)
        rate = size((transfer.bytes - self._first) / seconds, 0)
        total = size(transfer.bytes)
        number = total.split(" ")[0]
        bar = f"100 % {'█' * _BAR_WIDTH}  {number} / {total}" if self.terminal else total
        note(f"  {bar}  {rate}/s  {transfer.checked} ok, in {shown(path.parent)}")

    def note(self, text: str) -> None:
        """The line as it is."""
        note(text)


class LoadingBar:
    """A bar on standard error for weights on their way into memory.

    It runs to and fro until `at` tells how far they are. On a terminal only, and only where
    loading goes on for more than a second.
    """

    def __init__(self, label: str) -> None:
        self._label = harmless(label)
        self._bar: Bar | None = None
        self._done: tuple[int, int] | None = None
        self._lock = threading.Lock()

    def at(self, done: int, total: int) -> None:
        """Moves the bar: `done` of `total` bytes are packed."""
        with self._lock:
            self._done = (done, total)
            self._move()

    def begin(self) -> None:
        """Shows the bar."""
        with self._lock:
            self._bar = _loading_bar(self._label)
            self._move()
            self._bar.start()

    def end(self) -> None:
        """Takes the bar away."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def _move(self) -> None:
        if self._bar is not None and self._done is not None:
            done, total = self._done
            self._bar.update(self._bar.tasks[0].id, completed=done, total=total)


@contextmanager
def loading(label: str) -> Iterator[LoadingBar]:
    """The bar for what is loaded inside."""
    bar = LoadingBar(label)
    if not sys.stderr.isatty():
        yield bar
        return
    timer = threading.Timer(_BAR_AFTER_SECONDS, bar.begin)
    timer.daemon = True
    timer.start()
    try:
        yield bar
    finally:
        timer.cancel()
        timer.join()
        bar.end()


def shown(path: Path) -> str:
    """A path as people write it: the home folder as ~."""
    try:
        return f"~/{path.relative_to(Path.home())}"
    except (ValueError, RuntimeError):
        return str(path)


def _bar(total: int) -> Bar:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    bar = Progress(
        TextColumn("{task.percentage:>5.0f} %"),
        BarColumn(bar_width=_BAR_WIDTH),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
    )
    bar.add_task("download", total=total)
    return bar


def _loading_bar(label: str) -> Bar:
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn

    bar = Progress(
        TextColumn(f"loading {label}", markup=False),
        BarColumn(bar_width=_BAR_WIDTH),
        DownloadColumn(),
        console=Console(stderr=True),
        transient=True,
    )
    bar.add_task("load", total=None)
    return bar
