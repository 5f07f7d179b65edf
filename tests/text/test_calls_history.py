"""Calls and results in a conversation: every template gets them as it reads them, or refuses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from forwardpass.errors import RequestError, TemplateError
from forwardpass.text.calls.probe import Reading, reading_of
from forwardpass.text.chat import Chat, messages_for
from forwardpass.text.messages import conversation_from, system, user
from forwardpass.text.template import ChatTemplate
from forwardpass.text.templates import Templates
from text.call_templates import LISTLESS, OWN
from text.vocabularies import small

VALUES = {"city": 'Zürich "HB"', "days": 2, "deep": {"list": [True, 1.5]}}
TOOL = {
    "name": "weather_of",
    "description": "The weather.",
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string", "description": "Which city."}},
        "required": ["city"],
    },
}
# Those that cannot show calls: no place for them, or failing of themselves.
CANNOT = {
    "ibm-granite-granite-3.3-2B-Instruct",
    "LFM2-8B-A1B",
    "LFM2.5-Instruct",
    "Kimi-K2-Thinking",  # appends to a list, which no sandbox allows
    "llama-cpp-deepseek-r1",  # writes a generator as JSON
    "fireworks-ai-llama-3-firefunction-v2",  # wants its tools as an argument of its own
}
TEXT_ONLY = {"deepseek-ai-DeepSeek-R1-Distill-Llama-8B": Reading("text", None)}
KEPT = {
    "GigaChat3-10B-A1.8B",
    "NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use",
    "Qwen-Qwen3-0.6B",
    "ibm-granite-granite-4.1",
    "mistralai-Ministral-3-14B-Reasoning-2512",
    "upstage-Solar-Open-100B",
}


def sources(cases: Path | None) -> dict[str, str]:
    if cases is None:
        return {name: source for name, (source, _) in OWN.items()}
    paths = (cases / "templates").glob("*.jinja")
    return {path.stem: path.read_text("utf-8") for path in paths}


def called(arguments: object, count: int = 1) -> dict[str, Any]:
    calls = [
        {"id": f"abcdefgh{i}", "function": {"name": "weather_of", "arguments": arguments}}
        for i in range(count)
    ]
    return {"role": "assistant", "content": None, "tool_calls": calls}


def talk(arguments: object) -> dict[str, Any]:
    result = {"role": "tool", "content": "21 degrees", "tool_call_id": "abcdefgh0"}
    messages = [user("Well?"), called(arguments), {**result, "name": "weather_of"}]
    return {"messages": messages, "tools": [TOOL]}


def chat_with(source: str) -> Chat:
    return Chat(small(), Templates({"default": source}, name="m"))


def test_arguments_as_text_and_as_object_render_the_same(cases: Path | None) -> None:
    failed = set()
    for name, source in sources(cases).items():
        chat = chat_with(source)
        texts = []
        for arguments in (VALUES, json.dumps(VALUES, ensure_ascii=False)):
            try:
                texts.append(chat.prompt(conversation_from(talk(arguments))).text)
            except (RequestError, TemplateError):
                failed.add(name)
        if name not in failed:
            assert texts[0] == texts[1], name
            assert "weather_of" in texts[0].rpartition("Well?")[2], name
            assert "HB" in texts[0], name
            assert '\\"city\\"' not in texts[0], name
            assert "21 degrees" in texts[0], name
    assert failed == (set() if cases is None else CANNOT)


def test_how_a_template_takes_arguments_is_told_from_what_it_writes(cases: Path | None) -> None:
    readings = {name: reading_of(ChatTemplate(text)) for name, text in sources(cases).items()}
    if cases is None:
        assert {name for name, reading in readings.items() if not reading.several} == {"one"}
        return
    assert {n: readings[n] for n in TEXT_ONLY} == TEXT_ONLY
    assert {n for n, reading in readings.items() if reading.arguments == "either"} == KEPT
    assert {n for n, reading in readings.items() if reading.arguments == "text"} == set(TEXT_ONLY)


def test_text_is_kept_as_it_was_written_where_the_template_takes_it() -> None:
    each = "{{ tools }}{% for m in messages %}{% for c in m.tool_calls %}%s{% endfor %}{% endfor %}"
    name = "{{ c.function.name }} "
    either = "{% set a = c.function.arguments %}{{ a if a is string else a | tojson }}"
    written = '{"a":1}'
    for show, shown in (
        (either, written),
        ("{{ c.function.arguments | tojson }}", '{"a": 1}'),
        ("{{ c.function.arguments + '' }}", written),
    ):
        template = ChatTemplate(each.replace("%s", name + show))
        data = conversation_from([user("x"), called(written)])
        messages = messages_for(template, data)
        rendered = chat_with(template.source).prompt(data).text
        assert rendered.endswith(f"weather_of {shown}")
        assert data.messages[1]["tool_calls"][0]["function"]["arguments"] == written
        assert messages[0] == user("x")
        # A call without arguments may arrive as no text at all.
        empty = conversation_from([user("x"), called("")])
        assert chat_with(template.source).prompt(empty).text.endswith("weather_of {}")


def test_a_template_that_joins_texts_gets_objects_as_text() -> None:
    source = (
        "{{ tools }}{% for m in messages %}{% for c in m.tool_calls if m.content is none %}"
        "{{ c.function.name + c.function.arguments }}{% endfor %}{% endfor %}"
    )
    assert reading_of(ChatTemplate(source)) == Reading("text", None)
    data = conversation_from([user("x"), called({"a": "ü"})])
    assert chat_with(source).prompt(data).text.endswith('weather_of{"a": "ü"}')


def test_calls_that_a_template_would_hide_are_refused() -> None:
    source = (
        "{{ tools }}{% for m in messages if m.tool_calls %}{{ m.tool_calls[0].function.name }}"
        "{{ m.tool_calls[0].function.arguments | tojson }}{% endfor %}"
    )
    assert not reading_of(ChatTemplate(source)).several
    chat_with(source).prompt(conversation_from([user("x"), called({})]))
    with pytest.raises(RequestError, match=r"one call in a message; messages\[1\] has 2"):
        chat_with(source).prompt(conversation_from([user("x"), called({}, count=2)]))


def test_a_template_without_tools_is_told_them_in_words() -> None:
    chat = chat_with(LISTLESS)
    assert chat.call_form().prompted
    text = chat.prompt(conversation_from(talk(VALUES))).text
    head, _, rest = text.partition("Well?")
    assert json.dumps(TOOL) in head
    assert '{"name": "NAME", "arguments": {"ARGUMENT": VALUE}}' in head
    call = chat.call_form().write([])  # nothing stands around the calls of this form
    assert call == ""
    values = json.dumps(VALUES, ensure_ascii=False)
    assert f'{{"name": "weather_of", "arguments": {values}}}<|im_end|>' in rest
    assert "<|im_start|>user\nResult of weather_of:\n21 degrees<|im_end|>" in rest
    # The same words with tools that say whether they are strict: that is not for the model.
    strict = talk(VALUES)
    strict["tools"] = [{**TOOL, "strict": True}]
    assert chat.prompt(conversation_from(strict)).text == text


def test_the_words_go_to_the_system_where_a_template_knows_one() -> None:
    source = LISTLESS.replace("raise_exception('no system')", "''")
    data = {"messages": [user("x")], "tools": [TOOL]}
    text = chat_with(source).prompt(conversation_from(data)).text
    assert text.startswith("<|im_start|>system\nYou may use tools.")
    assert text.endswith("<|im_start|>user\nx<|im_end|>\n")
    data["messages"] = [system("Be brief."), user("x")]
    text = chat_with(source).prompt(conversation_from(data)).text
    assert text.startswith("<|im_start|>system\nBe brief.\n\nYou may use tools.")


def test_results_and_what_is_asked_next_are_one_turn_of_the_user() -> None:
    results = [
        {"role": "tool", "content": text, "tool_call_id": f"abcdefgh{i}"}
        for i, text in enumerate(("first", "second"))
    ]
    data = [user("x"), called({}, count=2), *results, user("and now?")]
    text = chat_with(LISTLESS).prompt(conversation_from(data)).text
    assert text.endswith(
        "<|im_start|>user\nResult of weather_of:\nfirst\n\n"
        "Result of weather_of:\nsecond\n\nand now?<|im_end|>\n"
    )


def test_calls_in_words_say_their_tool_and_never_change_the_conversation() -> None:
    data = conversation_from(talk(VALUES))
    before = json.dumps([data.messages, data.tools])
    chat_with(LISTLESS).prompt(data)
    assert json.dumps([data.messages, data.tools]) == before
