"""What each part of a request costs: every token of a prompt in exactly one section.

Where the strings of a conversation ended up is found by rendering it a second time with an
invisible pair of characters around each string and around each JSON text made of one of its
objects. If that rendering, the characters taken out, is the prompt itself, the places are exact.
If the template looked at the strings and decided otherwise, they are searched for, in order.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from forwardpass.errors import ForwardpassError
from forwardpass.text.guard import Guard, characters
from forwardpass.text.template import Request

TOOLS, TEMPLATE, BEGIN = "tools", "template", "begin"
_MARKS = range(0xF0000, 0xFFFFE)  # plane 15, private use
# Between two pieces of tool definitions, so much text of the template belongs to them.
_GAP = 400
_KEPT = frozenset({"role", "type"})
# A call's own keys, which a template looks up.
_CALL_KEYS = frozenset({"id", "type", "function", "name", "arguments"})


@dataclass(frozen=True)
class Section:
    """One part of a request and its number of tokens."""

    name: str
    tokens: int


@dataclass(frozen=True)
class Span:
    """A stretch of the prompt's text that came from one section."""

    start: int
    end: int
    name: str


def message_name(place: int, message: Mapping[str, Any]) -> str:
    """The section that a message counts for: `system`, or its number and role."""
    role = message["role"]
    return "system" if role in ("system", "developer") else f"message {place + 1} ({role})"


def section_names(request: Request) -> list[str]:
    """The sections of a request in the order of a report."""
    names = [message_name(i, message) for i, message in enumerate(request.messages)]
    first = [TOOLS] if request.tools else []
    system = ["system"] if "system" in names else []
    return [*first, *system, *(name for name in names if name != "system"), TEMPLATE]


def counted(
    spans: Sequence[Span], starts: Sequence[int], added: int, names: Sequence[str]
) -> tuple[Section, ...]:
    """The tokens of each section: a token belongs where its first character came from.

    `starts` are those characters; `added` tokens (BOS) have none and count for the template.
    """
    totals = dict.fromkeys(names, 0)
    totals[TEMPLATE] += added
    begins = [span.start for span in spans]
    for start in starts:
        place = bisect_right(begins, start) - 1
        inside = place >= 0 and start < spans[place].end
        totals[spans[place].name if inside else TEMPLATE] += 1
    return tuple(Section(name, tokens) for name, tokens in totals.items())


def spans_of(guard: Guard, request: Request, text: str) -> list[Span]:
    """The stretches of the prompt `text` that came from tools and messages, in order."""
    spans = _probed(guard, request, text)
    if spans is None:
        spans = _searched(request, text)
    return _with_gaps(spans)


def _probed(guard: Guard, request: Request, text: str) -> list[Span] | None:
    used = characters(guard.template, request)
    free = (char for char in map(chr, _MARKS) if char not in used)
    marks = _Marks(free)
    try:
        probe = marks.around(request)
        rendered = guard.render(probe, take_out=marks.names, wrap_json=marks.wrap_json)
    except (ForwardpassError, StopIteration):
        return None
    if rendered.text != text:
        return None
    spans: list[Span] = []
    open_at: list[tuple[str, int]] = []
    for place, char in rendered.marks:
        name = marks.names[char]
        if char in marks.opening:
            open_at.append((name, place))
        elif not open_at or open_at[-1][0] != name:
            return None  # the template cut a string in two
        else:
            start = open_at.pop()[1]
            if not open_at and place > start:
                spans.append(Span(start, place, name))
    return None if open_at else spans


class _Marks:
    """A pair of characters for each section, and the request with them put around its strings."""

    def __init__(self, free: Iterator[str]) -> None:
        self._free = free
        self._pairs: dict[str, tuple[str, str]] = {}
        self._objects: dict[int, str] = {}
        self.names: dict[str, str] = {}
        self.opening: set[str] = set()

    def around(self, request: Request) -> Request:
        tools = None
        if request.tools is not None:
            tools = [self._tool(tool) for tool in request.tools]
            self._objects[id(tools)] = TOOLS
        return replace(
            request,
            messages=[
                self._message(message, message_name(i, message))
                for i, message in enumerate(request.messages)
            ],
            tools=tools,
        )

    def wrap_json(self, value: object, text: str) -> str:
        name = self._objects.get(id(value))
        return text if name is None else self._wrapped(text, name)

    def _wrapped(self, text: str, name: str) -> str:
        """The text with its section's pair inside the white space that a template may trim."""
        core = text.strip()
        if not core:
            return text
        if name not in self._pairs:
            self._pairs[name] = pair = next(self._free), next(self._free)
            self.names |= dict.fromkeys(pair, name)
            self.opening.add(pair[0])
        before, after = self._pairs[name]
        start = text.index(core)
        return text[:start] + before + core + after + text[start + len(core) :]

    def _message(self, message: Mapping[str, Any], name: str) -> dict[str, Any]:
        made = {
            key: value if key == "role" else self._value(value, name)
            for key, value in message.items()
        }
        self._objects[id(made)] = name
        return made

    def _value(self, value: Any, name: str) -> Any:
        if isinstance(value, str):
            return self._wrapped(value, name)
        made: Any = value
        if isinstance(value, Mapping):
            made = {
                key if key in _CALL_KEYS else self._wrapped(key, name): part
                if key in _KEPT
                else self._value(part, name)
                for key, part in value.items()
            }
        elif isinstance(value, (list, tuple)):
            made = [self._value(part, name) for part in value]
        else:
            return value
        self._objects[id(made)] = name
        return made

    def _tool(self, value: Any, key: str = "") -> Any:
        """A tool definition with its names and descriptions marked, kinds and values left."""
        made: Any = value
        if isinstance(value, str):
            return self._wrapped(value, TOOLS) if key in ("name", "description") else value
        if isinstance(value, Mapping):
            if key == "properties":
                made = {self._wrapped(k, TOOLS): self._tool(v) for k, v in value.items()}
            else:
                made = {k: self._tool(v, k) for k, v in value.items()}
        elif isinstance(value, (list, tuple)):
            named = key == "required"
            made = [
                self._wrapped(v, TOOLS) if named and isinstance(v, str) else self._tool(v)
                for v in value
            ]
        else:
            return value
        self._objects[id(made)] = TOOLS
        return made


def _searched(request: Request, text: str) -> list[Span]:
    """The places of the conversation's strings, looked for from the front."""
    spans: list[Span] = []
    at = 0
    for tool in request.tools or ():
        found = _find(text, _tool_texts(tool), at)
        if found:
            at = found[1]
            spans.append(Span(*found, TOOLS))
    at = 0
    for place, message in enumerate(request.messages):
        name = message_name(place, message)
        start = at
        for part in _message_texts(message):
            found = _find(text, part, start)
            if found and not any(s.start < found[1] and found[0] < s.end for s in spans):
                spans.append(Span(*found, name))
                at = max(at, found[1])
    return sorted(spans, key=lambda span: span.start)


def _find(text: str, variants: Sequence[str], at: int) -> tuple[int, int] | None:
    for variant in variants:
        start = text.find(variant, at) if variant else -1
        if start >= 0:
            return start, start + len(variant)
    return None


def _tool_texts(tool: Mapping[str, Any]) -> list[str]:
    function = tool.get("function", tool)
    texts = [
        json.dumps(value, ensure_ascii=False, indent=indent)
        for value in (tool, function)
        for indent in (None, 4, 2)
    ]
    return [*texts, str(function.get("description", "")), str(function.get("name", ""))]


def _message_texts(message: Mapping[str, Any]) -> Iterator[list[str]]:
    for key in ("reasoning_content", "content"):
        value = message.get(key)
        if isinstance(value, str) and value.strip():
            # A template may show only what follows the reasoning.
            last = value.rsplit("</think>", 1)[-1]
            quoted = json.dumps(value, ensure_ascii=False)[1:-1]
            yield [value, value.strip(), quoted, last.strip()]
    for call in message.get("tool_calls", ()):
        function = call["function"]
        yield [function["name"]]
        arguments = function["arguments"]
        if isinstance(arguments, str):
            yield [arguments, json.dumps(arguments, ensure_ascii=False)]
        else:
            yield [json.dumps(arguments, ensure_ascii=False, indent=i) for i in (None, 4, 2)]


def _with_gaps(spans: list[Span]) -> list[Span]:
    """The spans in order, those of tool definitions joined over what stands between them."""
    joined: list[Span] = []
    for span in sorted(spans, key=lambda span: span.start):
        last = joined[-1] if joined else None
        if last is not None and last.name == span.name == TOOLS and span.start - last.end <= _GAP:
            joined[-1] = Span(last.start, span.end, TOOLS)
        else:
            joined.append(span)
    return joined
