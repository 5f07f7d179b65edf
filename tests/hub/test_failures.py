from __future__ import annotations

import errno
import socket
import time

import pytest

from forwardpass.hub.failures import known_phrase, within, words


@pytest.mark.parametrize(
    ("error", "wanted"),
    [
        (OSError(errno.ENETUNREACH, "Network is unreachable"), "no route"),
        (OSError(errno.EHOSTUNREACH, "No route to host"), "no route"),
        (socket.gaierror(-2, "Name or service not known"), "could not resolve the name"),
        (socket.gaierror(-3, "Temporary failure in name resolution"), "could not resolve the name"),
        (ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused"), "connection refused"),
        (ConnectionResetError(errno.ECONNRESET, "Connection reset"), "the connection was cut"),
        (TimeoutError("no answer"), "no answer"),
        (OSError("certificate verify failed"), "its TLS certificate is not accepted"),
        (OSError("something else\nin two lines"), "something else"),
        (OSError(), "OSError"),
    ],
)
def test_a_network_failure_is_said_in_a_few_words(error: OSError, wanted: str) -> None:
    outer = RuntimeError("outer")
    outer.__cause__ = error
    assert words(error) == wanted
    assert words(outer) in (wanted, "outer")


def test_an_unknown_text_has_no_phrase() -> None:
    assert known_phrase("all is well") is None


def test_work_that_hangs_is_left_after_its_time() -> None:
    started = time.monotonic()
    with pytest.raises(TimeoutError, match="no answer"):
        within(0.05, lambda: time.sleep(20))
    assert time.monotonic() - started < 20


def test_work_in_time_gives_its_result_or_its_error() -> None:
    assert within(10, lambda: 42) == 42
    with pytest.raises(ZeroDivisionError):
        within(10, lambda: 1 // 0)
