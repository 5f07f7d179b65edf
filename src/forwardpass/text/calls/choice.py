"""ToolChoice: whether tools are called, and which, in the forms that interfaces use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from forwardpass.errors import RequestError, did_you_mean

Mode = Literal["none", "auto", "required"]
# What each interface calls the modes.
_MODES: dict[str, Mode] = {
    "none": "none",
    "auto": "auto",
    "required": "required",
    "any": "required",
}
_TEXTS = ("none", "auto", "required")
_KINDS = ("function", "allowed_tools", "auto", "any", "tool", "none")


@dataclass(frozen=True, slots=True)
class ToolChoice:
    """Which tools an answer may call: those in `names`, at least one of them if `required`.

    `parallel`: more than one call in an answer, where the model's form has that.
    With `none` the prompt lists the tools as it does otherwise, so that the same conversation
    keeps its cached prefix and a history of calls its meaning; the answer cannot hold a call.
    """

    mode: Mode
    names: tuple[str, ...] = ()
    parallel: bool = True


def tool_choice_from(
    data: object,
    tools: Sequence[Mapping[str, Any]],
    *,
    parallel: bool | None = None,
    where: str = "request",
) -> ToolChoice:
    """The choice in `tool_choice`, of `tools` as `tools_from` gives them.

    Read are `"none"`, `"auto"`, `"required"`; `{"type": "function"}` and `"allowed_tools"`, with
    the inner object or without; `{"type": "auto" | "any" | "tool" | "none"}` with
    `disable_parallel_tool_use`. None is `auto` where there are tools. `parallel` is what a field
    of its own said. Errors: RequestError for an unknown form, field or tool.
    """
    offered = tuple(str(tool["function"]["name"]) for tool in tools)
    at = f"{where}: tool_choice"
    mode, names, told = _read("auto" if data is None else data, offered, at)
    if told is not None and parallel is not None and told != parallel:
        raise RequestError(f"{at}: disable_parallel_tool_use and parallel_tool_calls disagree")
    several = told if told is not None else parallel is not False
    if not offered and data is None:
        mode = "none"
    if mode == "none":
        return ToolChoice("none", (), several)
    if mode == "required" and not names:
        raise RequestError(f"{at}: a call is required, but no tools are offered")
    return ToolChoice(mode, names, several)


def _read(
    data: object, offered: tuple[str, ...], at: str
) -> tuple[Mode, tuple[str, ...], bool | None]:
    """Mode, names, and whether calls may be parallel if that was said."""
    if isinstance(data, str):
        if data not in _TEXTS:
            raise RequestError(
                f"{at} = {data!r:.60}{did_you_mean(data, _TEXTS)}", f"known: {', '.join(_TEXTS)}"
            )
        return _MODES[data], offered, None
    if not isinstance(data, Mapping):
        raise RequestError(f"{at} is neither a text nor an object")
    kind = data.get("type")
    if kind == "function":
        _known(data, {"type", "function", "name"}, at)
        return "required", (_named(data, offered, at),), None
    if kind == "allowed_tools":
        return (*_allowed(data, offered, at), None)
    if kind not in _KINDS:
        near = did_you_mean(str(kind), _KINDS)
        raise RequestError(f"{at}.type = {kind!r:.60}{near}", f"known: {', '.join(_KINDS)}")
    _known(data, {"type", "name", "disable_parallel_tool_use"}, at)
    told = data.get("disable_parallel_tool_use")
    if told is not None and not isinstance(told, bool):
        raise RequestError(f"{at}.disable_parallel_tool_use is neither true nor false")
    several = None if told is None else not told
    if kind == "tool":
        return "required", (_named(data, offered, at),), several
    if data.get("name") is not None:
        raise RequestError(f"{at}: a name is for the type tool, not for {kind}")
    return _MODES[kind], offered, several


def _allowed(
    data: Mapping[str, Any], offered: tuple[str, ...], at: str
) -> tuple[Mode, tuple[str, ...]]:
    if "allowed_tools" in data:
        _known(data, {"type", "allowed_tools"}, at)
        inner, at = data["allowed_tools"], f"{at}.allowed_tools"
        if not isinstance(inner, Mapping):
            raise RequestError(f"{at} is not an object")
        _known(inner, {"mode", "tools"}, at)
    else:
        inner = data
        _known(inner, {"type", "mode", "tools"}, at)
    mode, listed = inner.get("mode", "auto"), inner.get("tools")
    if mode not in ("auto", "required"):
        raise RequestError(f"{at}.mode = {mode!r:.60}", "known: auto, required")
    if not isinstance(listed, list) or not listed:
        raise RequestError(f"{at}.tools is not a list with at least one tool")
    names = [_named(tool, offered, f"{at}.tools[{i}]") for i, tool in enumerate(listed)]
    chosen = frozenset(names)
    return _MODES[mode], tuple(name for name in offered if name in chosen)


def _named(data: object, offered: tuple[str, ...], at: str) -> str:
    """The name in an object that points to a tool, if that tool is on offer."""
    if not isinstance(data, Mapping):
        raise RequestError(f"{at} is not an object")
    inner = data.get("function", data)
    name = inner.get("name") if isinstance(inner, Mapping) else None
    if not isinstance(name, str):
        raise RequestError(f"{at} names no tool")
    if name not in offered:
        raise RequestError(
            f"{at}: there is no tool {name!r:.60}{did_you_mean(name, offered)}",
            f"offered: {', '.join(offered) or 'none'}"[:500],
        )
    return name


def _known(data: Mapping[str, Any], known: set[str], at: str) -> None:
    for key, value in data.items():
        if key not in known and value is not None:
            raise RequestError(
                f"{at}: unknown field {key!r:.60}{did_you_mean(str(key), known)}",
                f"known: {', '.join(sorted(known))}",
            )
