"""Definitions of tools, in the forms that interfaces use, brought into one."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from forwardpass.errors import RequestError, did_you_mean

_FUNCTION = {"name", "description", "parameters", "strict", "return"}
_NESTED = {"type", "function"}
_FLAT = _FUNCTION | {"type"}
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_SCHEMA_NAMED = {"name", "description", "input_schema", "strict", "type", "cache_control"}


def tools_from(data: object, *, where: str = "request") -> tuple[dict[str, Any], ...]:
    """Tools as `{"type": "function", "function": {"name", "description", "parameters"}}`.

    Three forms are read: that one, the same without the inner object, and
    `{"name", "description", "input_schema"}`. The order of keys is kept, since a template
    prints it. `strict` is kept where it was said: whoever enforces a schema decides what its
    absence means, and no template sees it.
    """
    if data is None:
        return ()
    if not isinstance(data, list):
        raise RequestError(f"{where}: tools is not a list")
    tools = tuple(_tool(tool, f"{where}: tools[{i}]") for i, tool in enumerate(data))
    names = [tool["function"]["name"] for tool in tools]
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise RequestError(f"{where}: two tools are called {name!r:.60}")
        seen.add(name)
    return tools


def strict_of(tool: Mapping[str, Any]) -> bool | None:
    """What a loaded tool says of itself: its schema is enforced, is not, or nothing (None)."""
    strict: bool | None = tool["function"].get("strict")
    return strict


def shown(tools: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Loaded tools as templates see them: without `strict`, which is not for the model."""
    return [
        {
            **tool,
            "function": {k: v for k, v in tool["function"].items() if k != "strict"},
        }
        for tool in tools
    ]


def _tool(data: object, where: str) -> dict[str, Any]:
    if not isinstance(data, Mapping):
        raise RequestError(f"{where} is not an object")
    kind = data.get("type", "function")
    if kind not in ("function", "custom"):
        raise RequestError(f"{where}: a tool of type {kind!r:.60}; only functions can be offered")
    if "function" in data:
        _known(data, _NESTED, where)
        inner = data["function"]
        if not isinstance(inner, Mapping):
            raise RequestError(f"{where}.function is not an object")
        function = dict(inner)
        _known(function, _FUNCTION, f"{where}.function")
    elif "input_schema" in data:
        _known(data, _SCHEMA_NAMED, where)
        function = {
            "parameters" if key == "input_schema" else key: value
            for key, value in data.items()
            if key not in ("type", "cache_control")
        }
    else:
        _known(data, _FLAT, where)
        function = {key: value for key, value in data.items() if key != "type"}
    return {"type": "function", "function": _checked(function, where)}


def _checked(function: dict[str, Any], where: str) -> dict[str, Any]:
    if not isinstance(function.get("name"), str) or not function["name"]:
        raise RequestError(f"{where} has no name")
    if not _NAME.fullmatch(function["name"]):
        raise RequestError(
            f"{where}: the name {function['name']!r:.80} is not 1 to 64 letters, digits, _ and -",
        )
    for key, kind, wanted in (
        ("description", str, "a text"),
        ("parameters", Mapping, "a schema"),
        ("strict", bool, "true or false"),
    ):
        if function.get(key) is None:
            function.pop(key, None)
        elif not isinstance(function[key], kind):
            raise RequestError(f"{where}.{key} is not {wanted}")
    return function


def _known(data: Mapping[str, Any], known: set[str], where: str) -> None:
    for key, value in data.items():
        if key not in known and value is not None:
            raise RequestError(
                f"{where}: unknown field {key!r:.60}{did_you_mean(str(key), known)}",
                f"known: {', '.join(sorted(known))}",
            )
