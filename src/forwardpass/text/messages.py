"""Conversations as people and programs send them, checked and brought into one shape.

A message that leaves here has a role from `ROLES`, its content as text, and calls of tools as
`{"type": "function", "function": {"name", "arguments"}}`. Whatever is not understood is refused by
name; a field that is null counts as absent.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from forwardpass.errors import RequestError, did_you_mean
from forwardpass.text.tools import tools_from

ROLES = ("system", "developer", "user", "assistant", "tool", "function", "ipython")
_FIELDS = {
    "role",
    "content",
    "name",
    "tool_calls",
    "tool_call_id",
    "reasoning_content",
    "reasoning",
    "thinking",
    "refusal",
}
# The names that reasoning goes by; the first is the one that templates read most.
_REASONING = ("reasoning_content", "thinking", "reasoning")
_CALL_FIELDS = {"id", "type", "function", "index"}
_FUNCTION_FIELDS = {"name", "arguments"}
_MAX_DEPTH = 64
_MAX_BYTES = 1 << 28


@dataclass(frozen=True)
class Conversation:
    """Messages and tools in the shape that templates expect."""

    messages: tuple[dict[str, Any], ...]
    tools: tuple[dict[str, Any], ...] = ()


def is_list(value: object) -> bool:
    """Whether a program passed several things: a list, a tuple or the like, and no text."""
    return isinstance(value, Sequence) and not isinstance(value, str | bytes)


def load_conversation(path: Path) -> Conversation:
    """The conversation in a JSON file: a list of messages, or {"messages": …, "tools": …}."""
    try:
        size = path.stat().st_size
        if size > _MAX_BYTES:
            raise RequestError(f"{path}: {size:,} bytes, more than the {_MAX_BYTES:,} allowed")
        data = json.loads(path.read_bytes(), parse_constant=_not_a_number)
    except OSError as error:
        raise RequestError(f"{path}: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise RequestError(f"{path}: not JSON: {error}"[:300]) from None
    return conversation_from(data, where=str(path))


def _not_a_number(name: str) -> None:
    raise ValueError(f"{name} is not a JSON number")


def conversation_from(data: object, *, where: str = "request") -> Conversation:
    """The conversation in parsed JSON."""
    tools: object = None
    if isinstance(data, Mapping):
        _known(data, {"messages", "tools"}, where)
        tools = data.get("tools")
        data = data.get("messages")
    if not isinstance(data, list) or not data:
        raise RequestError(f"{where}: messages is not a list with at least one message")
    check_values([data, tools], where)
    messages = tuple(_message(m, f"{where}: messages[{i}]") for i, m in enumerate(data))
    return Conversation(messages, tools_from(tools, where=where))


def user(text: str) -> dict[str, Any]:
    """One message from the user."""
    return {"role": "user", "content": text}


def system(text: str) -> dict[str, Any]:
    """One message from the system."""
    return {"role": "system", "content": text}


def assistant(text: str) -> dict[str, Any]:
    """One message from the model."""
    return {"role": "assistant", "content": text}


def _known(data: Mapping[str, Any], known: Iterable[str], where: str) -> None:
    for key, value in data.items():
        if key not in known and value is not None:
            raise RequestError(
                f"{where}: unknown field {key!r:.60}{did_you_mean(str(key), known)}",
                f"known: {', '.join(sorted(known))}",
            )


def check_values(value: object, where: str) -> None:
    """Refuses what JSON text cannot hold, and nesting that no template can walk."""
    waiting: list[tuple[object, int]] = [(value, 0)]
    while waiting:
        current, depth = waiting.pop()
        if depth > _MAX_DEPTH:
            raise RequestError(f"{where}: nested deeper than {_MAX_DEPTH}")
        if isinstance(current, str):
            check_text(current, where)
        elif isinstance(current, Mapping):
            waiting.extend((part, depth + 1) for pair in current.items() for part in pair)
        elif isinstance(current, (list, tuple)):
            waiting.extend((part, depth + 1) for part in current)
        elif isinstance(current, float) and not math.isfinite(current):
            raise RequestError(f"{where}: {current} is not a JSON number")
        elif current is not None and not isinstance(current, (bool, int, float)):
            raise RequestError(f"{where}: a {type(current).__name__} is not JSON")


def check_text(text: str, where: str) -> None:
    """Raises RequestError where the text holds half a surrogate pair."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise RequestError(
            f"{where}: half a surrogate pair at character {error.start:,} of {text[:20]!r}"
        ) from None


def _message(data: object, where: str) -> dict[str, Any]:
    if not isinstance(data, Mapping):
        raise RequestError(f"{where} is not an object")
    _known(data, _FIELDS, where)
    role = data.get("role")
    if role not in ROLES:
        near = did_you_mean(str(role), ROLES)
        raise RequestError(f"{where}.role = {role!r:.60}{near}", f"known: {', '.join(ROLES)}")
    message: dict[str, Any] = {"role": role}
    calls = data.get("tool_calls")
    content = data.get("content")
    if content is None and (role != "assistant" or (not calls and _reasoning(data) is None)):
        raise RequestError(f"{where}: a message from {role} without content")
    message["content"] = _content(content, f"{where}.content")
    for key in ("name", "tool_call_id", "refusal"):
        if data.get(key) is not None:
            message[key] = _text(data[key], f"{where}.{key}")
    if calls:
        if role != "assistant" or not isinstance(calls, list):
            raise RequestError(f"{where}.tool_calls: only a list, and only in an assistant message")
        message["tool_calls"] = [
            _call(call, f"{where}.tool_calls[{i}]") for i, call in enumerate(calls)
        ]
    reasoning = _reasoning(data)
    if reasoning is not None:
        text = _text(reasoning, f"{where}.reasoning_content")
        # Templates read it under either name.
        message["thinking"] = text
        message["reasoning_content"] = text
    return message


def _reasoning(data: Mapping[str, Any]) -> Any:
    return next((data[key] for key in _REASONING if data.get(key) is not None), None)


def _text(value: object, where: str) -> str:
    if not isinstance(value, str):
        raise RequestError(f"{where} is not a text")
    return value


def _content(content: object, where: str) -> str:
    """The text of a content: itself, or its text parts, a line break between two."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise RequestError(f"{where} is neither a text nor a list of parts")
    parts = []
    for place, part in enumerate(content):
        at = f"{where}[{place}]"
        if not isinstance(part, Mapping):
            raise RequestError(f"{at} is not an object")
        kind = part.get("type")
        if kind not in ("text", "input_text", "output_text"):
            raise RequestError(
                f"{at}: a part of type {kind!r:.60}; this model reads text only", "known: text"
            )
        _known(part, {"type", "text", "annotations", "cache_control"}, at)
        parts.append(_text(part.get("text"), f"{at}.text"))
    return "\n".join(parts)


def _call(data: object, where: str) -> dict[str, Any]:
    if not isinstance(data, Mapping):
        raise RequestError(f"{where} is not an object")
    _known(data, _CALL_FIELDS, where)
    function = data.get("function")
    if data.get("type", "function") != "function" or not isinstance(function, Mapping):
        raise RequestError(f"{where} is not a call of a function")
    _known(function, _FUNCTION_FIELDS, f"{where}.function")
    arguments = function.get("arguments")
    if arguments is None:
        arguments = {}
    if not isinstance(arguments, (str, Mapping)):
        raise RequestError(f"{where}.function.arguments is neither an object nor JSON text")
    call: dict[str, Any] = {
        "type": "function",
        "function": {
            "name": _text(function.get("name"), f"{where}.function.name"),
            "arguments": arguments if isinstance(arguments, str) else dict(arguments),
        },
    }
    if data.get("id") is not None:
        call["id"] = _text(data["id"], f"{where}.id")
    return call


def with_argument_objects(message: Mapping[str, Any]) -> dict[str, Any]:
    """The message with the arguments of its calls as objects where they are JSON text.

    On the wire they are text; a template that writes them with `tojson` would quote it twice.
    No text at all, which is how a call without arguments may arrive, is the empty object.
    """

    def as_object(arguments: object) -> object:
        if not isinstance(arguments, str):
            return arguments
        try:
            parsed = json.loads(arguments or "{}", parse_constant=_not_a_number)
        except (ValueError, RecursionError):
            return arguments
        if not isinstance(parsed, dict):
            return arguments
        check_values(parsed, "tool_calls.arguments")
        return parsed

    return _with_arguments(message, as_object)


def with_argument_text(message: Mapping[str, Any]) -> dict[str, Any]:
    """The message with the arguments of its calls as JSON text, for templates that join texts."""

    def as_text(arguments: object) -> object:
        if isinstance(arguments, str):
            return arguments or "{}"
        return json.dumps(arguments, ensure_ascii=False)

    return _with_arguments(message, as_text)


def _with_arguments(
    message: Mapping[str, Any], change: Callable[[object], object]
) -> dict[str, Any]:
    calls = message.get("tool_calls")
    if not calls:
        return dict(message)
    changed = []
    for call in calls:
        function = dict(call["function"])
        function["arguments"] = change(function["arguments"])
        changed.append({**call, "function": function})
    return {**message, "tool_calls": changed}
