from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from forwardpass.text.chat import Chat, ChatPrompt, report
from forwardpass.text.messages import conversation_from
from forwardpass.text.sections import _searched, section_names
from forwardpass.text.template import ChatTemplate, Request
from forwardpass.text.templates import Templates
from text.vocabularies import small

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "description": "Weather of a place, in Zürich too",
            "parameters": {
                "type": "object",
                "properties": {"city": {"type": "string", "description": "where"}},
                "required": ["city"],
            },
        },
    },
    {
        "type": "function",
        "function": {
            "name": "add",
            "description": "Adds two numbers",
            "parameters": {
                "type": "object",
                "properties": {"a": {"type": "number", "description": "one"}},
            },
        },
    },
]
CALL = {"type": "function", "function": {"name": "get_weather", "arguments": {"city": "Zürich"}}}
TALK: list[dict[str, Any]] = [
    {"role": "system", "content": "Be brief and kind."},
    {"role": "user", "content": "  Weather in Zürich, please?\n"},
    {"role": "assistant", "content": "", "tool_calls": [CALL]},
    {"role": "tool", "content": "sunny, 21 degrees"},
    {"role": "assistant", "content": "It is sunny."},
    {"role": "user", "content": "Thanks. And the sum of 2 and 3?"},
]
OWN = (
    "{% if tools %}Tools: {% for t in tools %}{{ t | tojson }}\n{% endfor %}{% endif %}"
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content | trim }}"
    "{% for c in m.tool_calls or [] %}{{ c.function | tojson }}{% endfor %}<|im_end|>\n{% endfor %}"
    "<|im_start|>assistant\n"
)
# Whether the template writes calls of tools.
FIVE = {
    "Qwen-Qwen2.5-7B-Instruct": True,
    "Qwen-Qwen3-0.6B": True,
    "meta-llama-Llama-3.1-8B-Instruct": True,
    "NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use": True,
    "ibm-granite-granite-3.3-2B-Instruct": False,
}


def prompt_of(source: str, messages: list[dict[str, Any]], tools: Any = TOOLS) -> ChatPrompt:
    chat = Chat(small(), Templates({"default": source}))
    talk = conversation_from({"messages": messages, "tools": tools})
    return chat.prompt(talk, now=lambda: datetime(2024, 7, 26))


def counts(prompt: ChatPrompt) -> dict[str, int]:
    return {section.name: section.tokens for section in prompt.sections}


@pytest.mark.parametrize("name", FIVE)
def test_the_sections_add_up_to_the_prompt(name: str, cases: Path | None) -> None:
    source = OWN if cases is None else (cases / "templates" / f"{name}.jinja").read_text("utf-8")
    with_calls = cases is None or FIVE[name]
    talk = TALK if with_calls else [m for m in TALK if "tool_calls" not in m]
    prompt = prompt_of(source, talk)
    found = counts(prompt)
    users = [message for message in talk if message["role"] == "user"]
    assert sum(found.values()) == len(prompt.ids)
    assert list(found)[:2] == ["tools", "system"]
    assert list(found)[-1] == "template"
    assert len(found) == len(talk) + 2
    assert all(tokens > 0 for tokens in found.values())
    for message in users:
        section = f"message {talk.index(message) + 1} (user)"
        alone = len(small().encode(message["content"].strip()))
        assert abs(found[section] - alone) <= 2
    # Tool definitions as written, give or take the template's frame around them.
    written = [len(small().encode(json.dumps(tool, ensure_ascii=False))) for tool in TOOLS]
    assert 0.5 * sum(written) < found["tools"] < 4 * sum(written)


def test_every_token_is_where_its_first_character_came_from() -> None:
    prompt = prompt_of(OWN, TALK)
    tokenizer = small()
    definitions = "\n".join(json.dumps(tool, ensure_ascii=False) for tool in TOOLS)
    assert definitions in prompt.text
    call = json.dumps(CALL["function"], ensure_ascii=False)
    expected = {
        "tools": definitions,
        "system": "Be brief and kind.",
        "message 2 (user)": "Weather in Zürich, please?",
        "message 3 (assistant)": call,
        "message 4 (tool)": "sunny, 21 degrees",
        "message 5 (assistant)": "It is sunny.",
        "message 6 (user)": "Thanks. And the sum of 2 and 3?",
    }
    found = counts(prompt)
    for name, text in expected.items():
        assert abs(found[name] - len(tokenizer.encode(text))) <= 2, name


def test_a_template_that_cuts_a_message_in_two_is_searched() -> None:
    source = (
        "{% for m in messages %}<|im_start|>{{ m.content.split('</think>')[-1] | trim }}"
        "<|im_end|>{% endfor %}"
    )
    talk = [
        {"role": "user", "content": "one two"},
        {"role": "assistant", "content": "<think>\nlong thought\n</think>\n\nfour five six"},
        {"role": "user", "content": "seven"},
    ]
    prompt = prompt_of(source, talk, None)
    found = counts(prompt)
    assert sum(found.values()) == len(prompt.ids)
    assert found["message 2 (assistant)"] == len(small().encode("four five six"))
    assert found["template"] == 6


def test_a_template_that_looks_at_a_message_s_start_is_searched() -> None:
    source = (
        "{% for m in messages %}{% if m.content.startswith('!') %}#{% endif %}"
        "{{ m.content }}\n{% endfor %}"
    )
    prompt = prompt_of(source, [{"role": "user", "content": "!go"}], None)
    assert prompt.text == "#!go\n"
    assert counts(prompt) == {
        "message 1 (user)": len(small().encode("!go")),
        "template": len(prompt.ids) - len(small().encode("!go")),
    }


def test_searching_finds_what_marking_finds() -> None:
    talk = conversation_from({"messages": TALK, "tools": TOOLS})
    request = Request(talk.messages, talk.tools)
    text = ChatTemplate(OWN).render(request)
    found = {span.name: text[span.start : span.end] for span in _searched(request, text)}
    assert set(found) == set(section_names(request)) - {"template"}
    assert found["system"] == "Be brief and kind."
    assert found["tools"] == json.dumps(TOOLS[1], ensure_ascii=False)


def test_the_report_of_a_request_holds_sections_and_tokens() -> None:
    prompt = prompt_of(OWN, TALK)
    data = report(small(), prompt)
    assert data["total"] == len(prompt.ids) == sum(s["tokens"] for s in data["sections"])
    assert [token["id"] for token in data["tokens"]] == list(prompt.ids)
    assert {token["text"] for token in data["tokens"] if token["control"]} == {
        "<|im_start|>",
        "<|im_end|>",
    }
