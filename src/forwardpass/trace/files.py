"""Traces in files."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path

from forwardpass.errors import FormatError, RequestError
from forwardpass.formats.output import check_place, write_whole
from forwardpass.formats.strict_json import parse_object
from forwardpass.trace.form import FORMAT, as_dict
from forwardpass.trace.reading import from_dict
from forwardpass.trace.trace import Trace

LARGEST_FILE = 2**30
_START = re.compile(rb'\s*\{\s*"format"\s*:\s*"' + FORMAT.encode() + rb'"')


def read_trace(path: str | Path) -> Trace:
    """The trace that a file holds.

    Raises FormatError, naming the place in it, for what is no trace, a newer version's, and a
    trace that contradicts itself; RequestError for a file that cannot be read.
    """
    where = str(path)
    try:
        with Path(path).open("rb") as file:
            text = file.read(LARGEST_FILE + 1)
    except OSError as error:
        raise RequestError(f"{where}: {error.strerror}") from None
    if len(text) > LARGEST_FILE:
        raise FormatError(f"{where}: more than {LARGEST_FILE:,} bytes: no trace is as large")
    return from_dict(parse_object(text, where), where)


def write_trace(trace: Trace, path: str | Path) -> None:
    """Writes the trace whole or not at all. A file that is there is replaced if it is a trace.

    Raises RequestError for what is no trace, for a place where none can go and for a trace that no
    file may hold.
    """
    if not isinstance(trace, Trace):
        raise RequestError(
            f"write_trace({trace!r:.60}): wanted a Trace, which answer.trace() gives"
        )
    check_trace_file(Path(path))
    content = _text(as_dict(trace)).encode()
    if len(content) > LARGEST_FILE:
        raise RequestError(
            f"{path}: a trace of {len(content):,} bytes, and a file holds {LARGEST_FILE:,}",
            advice="fewer tokens, or fewer scores of each, make it smaller",
        )
    write_whole(Path(path), content, str(path))


def check_trace_file(path: Path, label: str | None = None) -> None:
    """Refuses a place where no trace can go, before any work is done for it.

    `label` begins an error, by default the path. Errors: RequestError for a folder, a file that is
    no trace, and a folder that is not there or cannot be written to.
    """
    if str(path) == "-":
        raise RequestError(f"{label or path}: wanted the name of a file")
    check_place(path, label or str(path), "trace", _is_trace)


def _is_trace(path: Path) -> bool:
    """Whether a file begins like a trace, or is empty."""
    with path.open("rb") as file:
        start = file.read(100)
    return not start or _START.match(start) is not None


def _text(shown: Mapping[str, object]) -> str:
    """JSON with a line for each key, setting, token and step."""
    lines = (f"{_json(key)}: {_lines(value)}" for key, value in shown.items())
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _lines(value: object) -> str:
    if isinstance(value, dict) and all(isinstance(inner, dict) for inner in value.values()):
        return (
            "{\n"
            + ",\n".join(f"{_json(key)}: {_json(each)}" for key, each in value.items())
            + "\n}"
        )
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return "[\n" + ",\n".join(map(_json, value)) + "\n]"
    return _json(value)


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)
