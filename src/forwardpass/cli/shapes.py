"""Options that give an answer its shape: schemas, patterns, choices, tools."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from forwardpass.cli.answering import given
from forwardpass.errors import RequestError

if TYPE_CHECKING:
    from forwardpass.options import Options

MOST_BYTES = 64 * 2**20
_KEYWORDS = ("none", "auto", "required")


@dataclass(frozen=True)
class ShapeOptions:
    """What the answer may be."""

    schema: Annotated[
        str | None,
        typer.Option(
            "--schema",
            metavar="FILE",
            help="the answer is JSON that is valid under this JSON Schema: a file, or the schema "
            "itself where it begins with {",
        ),
    ] = None
    json_object: Annotated[
        bool, typer.Option("--json-object", help="the answer is a JSON object")
    ] = False
    regex: Annotated[
        str | None,
        typer.Option(
            "--regex", metavar="PATTERN", help="all of the answer matches this (ECMA-262)"
        ),
    ] = None
    choice: Annotated[
        list[str] | None,
        typer.Option("--choice", metavar="TEXT", help="the answer is one of these; repeatable"),
    ] = None
    lark: Annotated[
        Path | None,
        typer.Option(
            "--lark", metavar="FILE", help="the answer is in this Lark grammar (llguidance)"
        ),
    ] = None
    tools: Annotated[
        Path | None,
        typer.Option(
            "--tools", metavar="FILE", help="tools on offer, as either interface has them"
        ),
    ] = None
    tool_choice: Annotated[
        str | None,
        typer.Option(
            "--tool-choice",
            metavar="none|auto|required|NAME",
            help="whether tools are called, or the one that is; or the JSON of an interface",
        ),
    ] = None
    parallel_tool_calls: Annotated[
        str | None,
        typer.Option(
            "--parallel-tool-calls", metavar="on|off", help="several calls in one answer (on)"
        ),
    ] = None
    strict: Annotated[
        str | None,
        typer.Option(
            "--strict", metavar="on|off", help="enforce schemas of tools that do not say (on)"
        ),
    ] = None
    key_order: Annotated[
        str | None,
        typer.Option(
            "--key-order",
            metavar="schema|any",
            help="names as the schema has them, or in any order",
        ),
    ] = None
    constraint: Annotated[
        str | None,
        typer.Option(
            "--constraint", metavar="own|llguidance", help="what enforces a schema or a pattern"
        ),
    ] = None

    def chosen(self) -> Options:
        """What was set of it, as `Model.generate` takes it. Reads the files that are named."""
        tools = None if self.tools is None else _tools(self.tools)
        return given(
            schema=None if self.schema is None else _schema(self.schema),
            json_object=self.json_object or None,
            regex=self.regex,
            choice=self.choice or None,
            lark=None if self.lark is None else _read(self.lark, "--lark"),
            tools=tools,
            tool_choice=None if self.tool_choice is None else _choice(self.tool_choice),
            parallel_tool_calls=_switch("--parallel-tool-calls", self.parallel_tool_calls),
            strict=_switch("--strict", self.strict),
            key_order=self.key_order,
            constraint=self.constraint,
        )


def _schema(text: str) -> Any:
    if text.lstrip().startswith("{"):
        return _parsed(text, "--schema")
    return _parsed(_read(Path(text), "--schema"), text)


def _tools(path: Path) -> Any:
    data = _parsed(_read(path, "--tools"), str(path))
    if isinstance(data, dict) and "tools" in data:
        data = data["tools"]
    tools = [data] if isinstance(data, dict) else data
    if not isinstance(tools, list) or not tools:
        raise RequestError(f"--tools {path}: wanted a list of tools")
    return tools


def _choice(text: str) -> Any:
    """A mode, the JSON of an interface, or the name of a tool."""
    if text.startswith("{"):
        return _parsed(text, "--tool-choice")
    return text if text in _KEYWORDS else {"type": "function", "name": text}


def _switch(option: str, text: str | None) -> bool | None:
    if text not in (None, "on", "off"):
        raise RequestError(f'{option} {text}: wanted "on" or "off"')
    return None if text is None else text == "on"


def _read(path: Path, option: str) -> str:
    try:
        size = path.stat().st_size
        if size > MOST_BYTES:
            raise RequestError(f"{option} {path}: {size:,} bytes, more than {MOST_BYTES:,}")
        return path.read_bytes().decode("utf-8")
    except OSError as error:
        raise RequestError(f"{option} {path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise RequestError(f"{option} {path}: cannot be read as UTF-8 text: {error}") from None


def _parsed(text: str, where: str) -> Any:
    try:
        return json.loads(text, parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        raise RequestError(f"{where}: not JSON: {error}"[:300]) from None


def _no_number(name: str) -> None:
    raise ValueError(f"{name} is not JSON")
