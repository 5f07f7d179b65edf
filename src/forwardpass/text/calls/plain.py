"""Tools for a model whose template lists none: told in words, in the system message.

The form of calls is then `PLAIN`, `{"name": …, "arguments": {…}}` and nothing else in the answer,
or the one in which the template shows calls. With `PLAIN` a history of calls is written as the
text of messages, and results are given by the user.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from forwardpass.errors import RequestError, TemplateError
from forwardpass.text.calls.form import CallForm
from forwardpass.text.calls.known import PLAIN
from forwardpass.text.calls.pieces import Written
from forwardpass.text.messages import Conversation
from forwardpass.text.template import ChatTemplate, Request

_RESULT_ROLES = ("tool", "function", "ipython")
_BETWEEN = "\n\n"


def told_in_words(
    template: ChatTemplate, conversation: Conversation, form: CallForm
) -> Conversation:
    """The conversation without tools, these told in its system message."""
    messages = list(conversation.messages)
    if form.name == PLAIN.name:
        messages = _as_text(messages, form)
    if conversation.tools:
        messages = _with_words(template, messages, instructions(conversation.tools, form))
    return Conversation(tuple(messages))


def instructions(tools: Sequence[Mapping[str, Any]], form: CallForm) -> str:
    """What the model is told: the tools, one a line, and how a call of one is written."""
    lines = [
        json.dumps(
            {key: value for key, value in tool["function"].items() if key != "strict"},
            ensure_ascii=False,
        )
        for tool in tools
    ]
    example = form.write([Written("NAME", '{"ARGUMENT": VALUE}', "ID")])
    alone = "" if form.text_before else ", and nothing else"
    return (
        "You may use tools. Here they are, one a line: the name of each, what it is for and the "
        "JSON Schema of its arguments.\n\n"
        + "\n".join(lines)
        + f"\n\nTo use a tool, write this in your answer{alone}:\n\n{example}\n\n"
        "The next message then brings its result. Where no tool is needed, answer in words."
    )


def _with_words(
    template: ChatTemplate, messages: list[dict[str, Any]], words: str
) -> list[dict[str, Any]]:
    """The words at the end of the system message, or where that cannot be, before the question."""
    first = messages[0]
    if first["role"] in ("system", "developer"):
        return [{**first, "content": first["content"] + _BETWEEN + words}, *messages[1:]]
    if _takes_system(template):
        return [{"role": "system", "content": words}, *messages]
    for place, message in enumerate(messages):
        if message["role"] == "user":
            told = {**message, "content": words + _BETWEEN + message["content"]}
            return [*messages[:place], told, *messages[place + 1 :]]
    raise RequestError(f"{template.name}: no message from system or user to tell the tools in")


@lru_cache(maxsize=32)
def _takes_system(template: ChatTemplate) -> bool:
    words = "words of the system"
    talk = ({"role": "system", "content": words}, {"role": "user", "content": "a question"})
    try:
        text = template.render(Request(talk, special_tokens={"bos_token": "", "eos_token": ""}))
    except (TemplateError, RequestError):
        return False
    return words in text


def _as_text(messages: Sequence[dict[str, Any]], form: CallForm) -> list[dict[str, Any]]:
    """Calls as the text of their message, results as messages from the user, turns in turn."""
    made: list[dict[str, Any]] = []
    names: dict[str, str] = {}
    for message in messages:
        told = dict(message)
        calls = told.pop("tool_calls", ())
        if calls:
            names |= {call["id"]: call["function"]["name"] for call in calls if "id" in call}
            texts = [form.write([_written(form, call)]) for call in calls]
            told["content"] = _BETWEEN.join(filter(None, [told["content"], "\n".join(texts)]))
        elif told["role"] in _RESULT_ROLES:
            name = told.get("name") or names.get(told.get("tool_call_id", ""), "the tool")
            told = {"role": "user", "content": f"Result of {name}:\n{told['content']}"}
        last = made[-1] if made else None
        if last is not None and last["role"] == told["role"] == "user":
            last["content"] += _BETWEEN + told["content"]
        else:
            made.append(told)
    return made


def _written(form: CallForm, call: Mapping[str, Any]) -> Written:
    arguments = call["function"]["arguments"]
    text = arguments if isinstance(arguments, str) else form.arguments_text(arguments)
    return Written(call["function"]["name"], text or "{}", call.get("id", ""))
