"""Where a command's words go: data to standard output, everything else to standard error.

Names out of files and what templates say stand in these words, so control characters are written
out (`\\x1b`). Only what a model answers (`say`) is left as it is where no terminal reads it.
"""

from __future__ import annotations

import json
import os
import re
import sys
import threading
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TextIO

WIDTH = 98
PATIENCE_SECONDS = 1.0

# C0 but tab and newline, DEL, C1, and what turns the direction of the text around it.
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


class ReaderGoneError(Exception):
    """Whoever read standard output went away, so that nothing is left to say."""


def data(text: str = "", end: str = "\n") -> None:
    """One piece of what a command found out, to standard output."""
    _write(harmless(text) + end)


def say(text: str, end: str = "\n") -> None:
    """One piece of a model's answer, to standard output: every byte where it is piped."""
    _write((harmless(text) if sys.stdout.isatty() else text) + end)


def note(text: str) -> None:
    """One line about the answer, to standard error; nothing where nobody reads that."""
    try:
        sys.stderr.write(harmless(text) + "\n")
        sys.stderr.flush()
    except (OSError, ValueError):  # ValueError: the stream is closed
        silence(sys.stderr)


def as_json(value: Mapping[str, object]) -> None:
    """One JSON object, to standard output."""
    written = json.dumps(value, ensure_ascii=False, allow_nan=False)
    # Those that JSON leaves bare can only stand inside its strings.
    _write(_CONTROL.sub(lambda match: f"\\u{ord(match[0]):04x}", written) + "\n")


def harmless(text: str) -> str:
    """The text with its control characters, but tabs and line ends, written out."""
    return _CONTROL.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


def silence(stream: TextIO) -> None:
    """Lets what a stream still holds, and all that follows, go nowhere.

    What is buffered must not meet a closed pipe or a full disk when the interpreter ends.
    """
    with suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)


def _write(text: str) -> None:
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        raise ReaderGoneError from None


@contextmanager
def patience(text: str) -> Iterator[None]:
    """Shows `text` on the terminal while what is inside goes on for more than a second."""
    if not sys.stderr.isatty():
        yield
        return
    shown = threading.Event()

    def show() -> None:
        shown.set()
        sys.stderr.write(f"{harmless(text)} …")
        sys.stderr.flush()

    timer = threading.Timer(PATIENCE_SECONDS, show)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()
        if shown.is_set():
            sys.stderr.write(f"\r{' ' * (cells(harmless(text)) + 2)}\r")
            sys.stderr.flush()


def columns(rows: Sequence[Sequence[str]], align: str, gap: str = "  ") -> list[str]:
    """The rows as lines with aligned cells: `align` holds `<` or `>` for each column.

    A row shorter than `align` ends early; trailing blanks are dropped.
    """
    widths = [0] * len(align)
    for row in rows:
        for i, cell in enumerate(row):
            widths[i] = max(widths[i], cells(cell))
    return [
        gap.join(padded(cell, align[i], widths[i]) for i, cell in enumerate(row)).rstrip()
        for row in rows
    ]


def padded(text: str, align: str, width: int) -> str:
    """The text at the left (`<`) or the right (`>`) of `width` cells of the terminal."""
    blanks = " " * (width - cells(text))
    return blanks + text if align == ">" else text + blanks


def cells(text: str) -> int:
    """How many cells of a terminal the text takes: two for each wide character."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(char) else 1 + (unicodedata.east_asian_width(char) in "FW")
        for char in text
    )


def visible(token: str, most: int = 24) -> str:
    """A token in one line: outer blanks and whatever does not print made visible, long ones cut."""
    inner = token.strip(" ")
    left = len(token) - len(token.lstrip(" "))
    right = len(token) - len(inner) - left
    text = "␣" * left + "".join(map(_printable, inner)) + "␣" * right
    return text if len(text) <= most else text[: most - 1] + "…"


def _printable(char: str) -> str:
    return char if char.isprintable() else char.encode("unicode_escape").decode()
