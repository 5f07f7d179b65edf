"""Probes: how a template takes calls, told by rendering conversations made for that.

Templates disagree: some write arguments with `tojson` and quote a text twice, some ask whether
they are a text, some only take a text; some show calls only in a message whose content is none.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from typing import Any, Literal

from forwardpass.errors import RequestError, TemplateError
from forwardpass.text.calls.pieces import Written
from forwardpass.text.template import ChatTemplate, Request

QUESTION, ANSWER = "the question", "the answer"
# Two calls with nothing in common, their arguments in one key each so that an order cannot differ.
FIRST = Written("first_probe", '{"alpha": "one \\"quoted\\" ü"}', "aaaabbbb1")
SECOND = Written("second_probe", '{"beta": [2, {"gamma": true}]}', "ccccdddd2")
_MOMENT = datetime(2025, 1, 2, 12)
_CACHED = 32


@dataclass(frozen=True, slots=True)
class Reading:
    """How a template takes calls in the history.

    `arguments`: as an object, as JSON text, or either with the same result. `no_text` is the
    content that a message without text must have for its calls to be shown. `several`: it
    shows every call of a message.
    """

    arguments: Literal["object", "text", "either"] = "object"
    no_text: str | None = ""
    several: bool = True


@dataclass(frozen=True)
class Probe:
    """A template and the texts that tokenizers give to templates (`bos_token` and the like)."""

    template: ChatTemplate
    special_tokens: Mapping[str, str] = field(default_factory=dict)

    def render(self, messages: Sequence[Mapping[str, object]], *, answer: bool = False) -> str:
        """The conversation with two tools on offer; `answer` adds the generation prompt."""
        request = Request(
            messages,
            _tools(),
            special_tokens={"bos_token": "", "eos_token": "", **self.special_tokens},
            add_generation_prompt=answer,
            now=lambda: _MOMENT,
        )
        return self.template.render(request)

    def calls(self, calls: Sequence[Written], reading: Reading, text: str = "") -> str | None:
        """A question and a message with these calls; None where the template fails or hides one."""
        as_text = reading.arguments == "text"
        message = {
            "role": "assistant",
            "content": text or reading.no_text,
            "tool_calls": [_call(call, as_text) for call in calls],
        }
        try:
            rendered = self.render([question(), message])
        except (TemplateError, RequestError):
            return None
        without = self.plain("") or ""  # the names stand in the list of tools too
        shown = all(rendered.count(call.name) > without.count(call.name) for call in calls)
        return rendered if shown else None

    def plain(self, text: str) -> str | None:
        """A question and an answer without calls; None where the template fails."""
        try:
            return self.render([question(), {"role": "assistant", "content": text}])
        except (TemplateError, RequestError):
            return None


@lru_cache(maxsize=_CACHED)
def reading_of(template: ChatTemplate) -> Reading:
    """How this template takes calls; what most do where it shows none at all."""
    probe = Probe(template)
    for no_text in ("", None):
        as_object = probe.calls([FIRST], Reading("object", no_text))
        as_text = probe.calls([FIRST], Reading("text", no_text))
        if as_object is None and as_text is None:
            continue
        kind: Literal["object", "text", "either"] = "object"
        if as_object is None:
            kind = "text"
        elif as_text == as_object:
            kind = "either"
        found = Reading(kind, no_text)
        several = probe.calls([FIRST, SECOND], found) is not None
        return Reading(kind, no_text, several)
    return Reading()


def question() -> dict[str, object]:
    """The message that every probe begins with."""
    return {"role": "user", "content": QUESTION}


def _call(call: Written, as_text: bool) -> dict[str, Any]:
    arguments = call.arguments if as_text else json.loads(call.arguments)
    return {
        "type": "function",
        "id": call.id,
        "function": {"name": call.name, "arguments": arguments},
    }


def _tools() -> list[dict[str, Any]]:
    """The tools of the probes, with every field that a template may ask for."""
    kinds: dict[str, dict[str, object]] = {
        FIRST.name: {"alpha": {"type": "string", "description": "A text."}},
        SECOND.name: {
            "beta": {"type": "array", "items": {"type": "string"}, "description": "Values."}
        },
    }
    return [
        {
            "type": "function",
            "function": {
                "name": name,
                "description": "A probe.",
                "parameters": {
                    "type": "object",
                    "properties": properties,
                    "required": list(properties),
                },
            },
        }
        for name, properties in kinds.items()
    ]
