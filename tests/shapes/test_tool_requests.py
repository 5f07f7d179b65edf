"""Calls of real models: what is asked of them, and that a call is always whole and allowed.

Run the large one by itself: `pytest -q -s -m large tests/shapes/test_tool_requests.py`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jsonschema
import pytest

import forwardpass as fp
from forwardpass.text.calls.parse import State
from shapes.tool_requests import NO_TOOL, REQUESTS, TOOLS, Request, tool

SMALL, LARGE = "smollm2-135m", "qwen2.5-coder-1.5b"
MOST = 96
BEGINNING = 24  # tokens that show whether a call begins
FREE = 40
ONE = {"parallel_tool_calls": False}


@dataclass(frozen=True)
class Real:
    """A real model: the large one writes its best on all requests, the small one, in every run,
    draws on a handful and is wrong in more ways."""

    alias: str
    model: fp.Model

    def answer(self, seed: int, words: str, names: Iterable[str], **options: Any) -> fp.Answer:
        large = self.alias == LARGE
        drawn: dict[str, Any] = {"temperature": 0} if large else {"temperature": 1.0, "seed": seed}
        return self.model.generate(words, tools=[*map(tool, names)], **options, **drawn)

    def some(self, listed: list[Any]) -> list[Any]:
        return listed if self.alias == LARGE else listed[1 :: len(listed) // 6]


@pytest.fixture(scope="module", params=[SMALL, pytest.param(LARGE, marks=pytest.mark.large)])
def real(request: pytest.FixtureRequest, model_path: Callable[[str], Path]) -> Iterator[Real]:
    with fp.load(model_path(request.param)) as model:
        yield Real(request.param, model)


def offered(request: Request) -> tuple[str, str]:
    """The tool that a request is about, and another one."""
    names = list(TOOLS)
    return request.tool, names[(names.index(request.tool) + 7) % len(names)]


def check(answer: fp.Answer, names: tuple[str, ...]) -> list[dict[str, Any]]:
    """The arguments of the calls, all of them whole, of these tools, and valid."""
    assert answer.held is not None
    assert answer.held.read is not None
    assert answer.held.read(answer.text).state is State.COMPLETE, answer.text
    for call in answer.tool_calls:
        assert call.name in names, answer.text
        jsonschema.validate(call.values(), TOOLS[call.name][1])
    return [call.values() for call in answer.tool_calls]


@pytest.mark.timeout(3_600)
def test_required_calls_are_whole_valid_and_of_a_tool_on_offer(real: Real) -> None:
    right_tool = right_values = calls = tokens = passes = 0
    drawn, started = real.some(REQUESTS), time.perf_counter()
    for seed, request in enumerate(drawn):
        names = offered(request)
        answer = real.answer(
            seed, request.text, names, tool_choice="required", max_tokens=MOST, **ONE
        )
        (values,) = check(answer, names)
        assert answer.content == ""
        called = answer.tool_calls[0].name
        right_tool += called == request.tool
        wanted = {name: values.get(name) for name in request.values}
        right = called == request.tool and wanted == request.values
        right_values += right
        if not right:
            print(f"  {request.text} -> {called} {answer.tool_calls[0].arguments}")
        calls, tokens = calls + 1, tokens + len(answer.steps)
        passes += answer.work.passes
    print(
        f"{real.alias}, required: {calls} of {len(drawn)} calls whole and valid, {right_tool} of"
        f" the right tool, {right_values} with the values asked for; {tokens} tokens in {passes}"
        f" passes, {time.perf_counter() - started:.0f} s"
    )
    assert calls == len(drawn)


@pytest.mark.timeout(3_600)
def test_with_none_no_request_is_answered_with_a_call(real: Real) -> None:
    for seed, request in enumerate(real.some(REQUESTS)):
        answer = real.answer(
            seed, request.text, [request.tool], tool_choice="none", max_tokens=BEGINNING
        )
        assert answer.tool_calls == ()
        assert "<tool_call>" not in answer.text
        assert answer.content == answer.text
        check(answer, ())


@pytest.mark.timeout(3_600)
def test_the_named_tool_is_called_though_another_one_would_do(real: Real) -> None:
    for seed, request in enumerate(real.some(REQUESTS)):
        names = offered(request)
        choice = {"type": "function", "function": {"name": names[1]}}
        answer = real.answer(seed, request.text, names, tool_choice=choice, max_tokens=MOST, **ONE)
        check(answer, names[1:])
        assert [call.name for call in answer.tool_calls] == [names[1]]


@pytest.mark.timeout(3_600)
def test_auto_leaves_no_broken_call_where_none_is_needed(real: Real) -> None:
    called = 0
    drawn = real.some(NO_TOOL)
    for seed, words in enumerate(drawn):
        request = REQUESTS[(seed * 7) % len(REQUESTS)]
        answer = real.answer(seed, words, [request.tool], tool_choice="auto", max_tokens=FREE)
        check(answer, (request.tool,))
        assert "tool_call>" not in answer.content, answer.text
        called += bool(answer.tool_calls)
    print(f"{real.alias}, auto: a tool called for {called} of {len(drawn)} requests without need")


def test_requests_are_what_they_say() -> None:
    assert (len(REQUESTS), len(NO_TOOL)) == (40, 20)
    assert len({request.text for request in REQUESTS}) == 40
    for request in REQUESTS:
        schema = TOOLS[request.tool][1]
        jsonschema.Draft202012Validator.check_schema(schema)
        for name, value in request.values.items():
            jsonschema.validate(value, schema["properties"][name])
