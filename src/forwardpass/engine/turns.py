"""`Turns`: a lock under which threads use a model one after another, also after a fork."""

from __future__ import annotations

import os
import threading
from types import TracebackType
from weakref import WeakSet


class Turns:
    """For `with`: one thread at a time. In a forked child nobody has the turn."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        _ALL.add(self)

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._lock.release()

    def renew(self) -> None:
        """Forgets who has the turn: a thread of another process, which cannot end it here."""
        self._lock = threading.Lock()


_ALL: WeakSet[Turns] = WeakSet()


def _renew_all() -> None:
    for turns in list(_ALL):
        turns.renew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_all)
