"""The choice of tools, in every form that interfaces send it."""

from __future__ import annotations

from typing import Any

import pytest

from forwardpass.errors import RequestError
from forwardpass.text.calls.choice import ToolChoice, tool_choice_from
from forwardpass.text.tools import shown, strict_of, tools_from

TOOLS = tools_from([{"name": name, "input_schema": {}} for name in ("weather", "search", "mail")])
ALL = ("weather", "search", "mail")


def pointing(name: str) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name}}


def allowed(mode: str, *names: str) -> dict[str, Any]:
    return {"mode": mode, "tools": [pointing(name) for name in names]}


@pytest.mark.parametrize(
    ("data", "choice"),
    [
        (None, ToolChoice("auto", ALL)),
        ("none", ToolChoice("none")),
        ("auto", ToolChoice("auto", ALL)),
        ("required", ToolChoice("required", ALL)),
        (pointing("search"), ToolChoice("required", ("search",))),
        ({"type": "function", "name": "search"}, ToolChoice("required", ("search",))),
        (
            {"type": "allowed_tools", "allowed_tools": allowed("auto", "mail", "weather")},
            ToolChoice("auto", ("weather", "mail")),
        ),
        (
            {"type": "allowed_tools", **allowed("required", "mail", "mail")},
            ToolChoice("required", ("mail",)),
        ),
        ({"type": "auto"}, ToolChoice("auto", ALL)),
        ({"type": "any"}, ToolChoice("required", ALL)),
        ({"type": "any", "disable_parallel_tool_use": True}, ToolChoice("required", ALL, False)),
        ({"type": "auto", "disable_parallel_tool_use": False}, ToolChoice("auto", ALL)),
        ({"type": "tool", "name": "mail"}, ToolChoice("required", ("mail",))),
        ({"type": "none"}, ToolChoice("none")),
    ],
)
def test_every_form_becomes_one(data: Any, choice: ToolChoice) -> None:
    assert tool_choice_from(data, TOOLS) == choice


def test_a_field_of_its_own_may_say_that_calls_are_not_parallel() -> None:
    assert not tool_choice_from("auto", TOOLS, parallel=False).parallel
    assert tool_choice_from(None, TOOLS, parallel=True).parallel
    with pytest.raises(RequestError, match="disagree"):
        tool_choice_from({"type": "any", "disable_parallel_tool_use": True}, TOOLS, parallel=True)


def test_without_tools_nothing_is_called() -> None:
    assert tool_choice_from(None, ()) == ToolChoice("none")
    assert tool_choice_from("auto", ()) == ToolChoice("auto")
    with pytest.raises(RequestError, match="a call is required, but no tools are offered"):
        tool_choice_from("required", ())


@pytest.mark.parametrize(
    ("data", "says"),
    [
        ("requierd", "'requierd'  (did you mean required?)"),
        ("any", "known: none, auto, required"),
        (3, "neither a text nor an object"),
        ({}, "tool_choice.type = None"),
        ({"type": "alowed_tools"}, "(did you mean allowed_tools?)"),
        (pointing("serch"), "there is no tool 'serch'  (did you mean search?)"),
        ({"type": "tool", "name": "x"}, "offered: weather, search, mail"),
        ({"type": "tool"}, "names no tool"),
        ({"type": "function", "function": "search"}, "names no tool"),
        ({"type": "auto", "name": "mail"}, "a name is for the type tool"),
        ({"type": "any", "disable_parallel_tool_use": 1}, "neither true nor false"),
        ({"type": "any", "parallel": 1}, "unknown field 'parallel'"),
        ({"type": "allowed_tools", "allowed_tools": []}, "allowed_tools is not an object"),
        ({"type": "allowed_tools", **allowed("none", "mail")}, "mode = 'none'"),
        ({"type": "allowed_tools", **allowed("auto")}, "tools is not a list with at least one"),
        ({"type": "allowed_tools", **allowed("auto", "mial")}, "tools[0]: there is no tool 'mial'"),
        ({"type": "allowed_tools", "mode": "auto", "tools": ["mail"]}, "tools[0] is not an object"),
    ],
)
def test_what_is_not_understood_is_refused_by_name(data: Any, says: str) -> None:
    with pytest.raises(RequestError) as caught:
        tool_choice_from(data, TOOLS)
    assert says in str(caught.value)


@pytest.mark.parametrize("name", ["a b", "", "x" * 65, "naïve", "a.b", "f\n", "a/b"])
def test_a_tool_whose_name_could_not_be_called_is_refused(name: str) -> None:
    with pytest.raises(RequestError, match=r"tools\[0\]"):
        tools_from([{"name": name}])
    assert tools_from([{"name": "x" * 64}, {"name": "Aa_-9"}])


def test_strict_is_kept_as_said_and_not_shown_to_the_model() -> None:
    said: list[dict[str, Any]] = [{"strict": True}, {"strict": False}, {"strict": None}, {}]
    tools = tools_from(
        [{"name": f"flat{i}", **strict} for i, strict in enumerate(said)]
        + [{"function": {"name": f"in{i}", **strict}} for i, strict in enumerate(said)]
        + [{"name": f"s{i}", "input_schema": {}, **strict} for i, strict in enumerate(said)]
    )
    assert [strict_of(tool) for tool in tools] == [True, False, None, None] * 3
    assert all("strict" not in tool["function"] for tool in shown(tools))
    assert [tool["function"]["name"] for tool in shown(tools)][:2] == ["flat0", "flat1"]
    with pytest.raises(RequestError, match="strict is not true or false"):
        tools_from([{"name": "f", "strict": "yes"}])
