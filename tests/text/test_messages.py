from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from forwardpass.errors import RequestError, TemplateError
from forwardpass.text.chat import Chat, report, text_prompt
from forwardpass.text.messages import (
    assistant,
    conversation_from,
    load_conversation,
    system,
    user,
    with_argument_objects,
)
from forwardpass.text.templates import Templates
from text.vocabularies import folder_with, small, trained_bpe

CALL = {"type": "function", "id": "c1", "function": {"name": "f", "arguments": '{"a": 1}'}}
WEATHER = {
    "name": "weather",
    "description": "The weather.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
}


def refusal(data: Any) -> str:
    with pytest.raises(RequestError) as caught:
        conversation_from(data)
    return str(caught.value)


def test_a_file_holds_messages_or_messages_with_tools(tmp_path: Path) -> None:
    path = tmp_path / "talk.json"
    messages = [system("s"), user("u"), assistant("a")]
    path.write_text(json.dumps(messages))
    assert list(load_conversation(path).messages) == messages
    tools = [{"type": "function", "function": WEATHER}]
    path.write_text(json.dumps({"messages": messages, "tools": tools}))
    loaded = load_conversation(path)
    assert list(loaded.messages) == messages
    assert list(loaded.tools) == tools


@pytest.mark.parametrize("text", ["{", "[NaN]", "[" * 100_000, "3", '"a"', "[]", "{}"])
def test_a_file_that_is_no_conversation_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "t.json").write_text(text)
    with pytest.raises(RequestError, match=r"t\.json"):
        load_conversation(tmp_path / "t.json")
    with pytest.raises(RequestError, match="No such file"):
        load_conversation(tmp_path / "none.json")


def test_text_parts_are_joined_and_nulls_are_absent() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    data = [{"role": "user", "content": parts, "name": None, "audio": None}]
    assert conversation_from(data).messages == (user("a\nb"),)


@pytest.mark.parametrize("form", ["nested", "flat", "schema"])
def test_tools_of_every_form_become_one(form: str) -> None:
    rest = {key: WEATHER[key] for key in ("name", "description")}
    forms: dict[str, dict[str, Any]] = {
        "nested": {"type": "function", "function": WEATHER},
        "flat": {"type": "function", **WEATHER},
        "schema": {**rest, "input_schema": WEATHER["parameters"]},
    }
    data = {"messages": [user("x")], "tools": [forms[form]]}
    (tool,) = conversation_from(data).tools
    assert tool == {"type": "function", "function": WEATHER}
    assert list(tool["function"]) == list(WEATHER)


@pytest.mark.parametrize(
    ("data", "says"),
    [
        ([{"role": "usr", "content": "x"}], "messages[0].role = 'usr'  (did you mean user?)"),
        ([{"role": None, "content": "x"}], "messages[0].role = None"),
        ([{"role": "user"}], "a message from user without content"),
        ([{"role": "assistant"}], "a message from assistant without content"),
        (
            [{"role": "user", "contents": "x", "content": "x"}],
            "unknown field 'contents'  (did you mean content?)",
        ),
        ([{"role": "user", "content": 3}], "neither a text nor a list of parts"),
        (
            [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}],
            "content[0]: a part of type 'image_url'; this model reads text only",
        ),
        ([{"role": "user", "content": [{"type": "text", "text": 1}]}], "content[0].text is not"),
        ([{"role": "user", "content": ["x"]}], "content[0] is not an object"),
        ([{"role": "user", "content": "x\ud800"}], "half a surrogate pair"),
        ([{"role": "user", "content": "x", "tool_calls": [CALL]}], "only in an assistant message"),
        ([{"role": "assistant", "tool_calls": [{}]}], "tool_calls[0] is not a call of a function"),
        (
            [{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": 1}}]}],
            "arguments is neither an object nor JSON text",
        ),
        (["x"], "messages[0] is not an object"),
        ({"messages": [user("x")], "tool": []}, "unknown field 'tool'  (did you mean tools?)"),
        ({"messages": [user("x")], "tools": {}}, "tools is not a list"),
        ({"messages": [user("x")], "tools": [{"type": "web_search"}]}, "type 'web_search'"),
        ({"messages": [user("x")], "tools": [{"function": {}}]}, "tools[0] has no name"),
        ({"messages": [user("x")], "tools": [WEATHER, WEATHER]}, "two tools are called 'weather'"),
        (
            {"messages": [user("x")], "tools": [{**WEATHER, "descripton": "x"}]},
            "unknown field 'descripton'  (did you mean description?)",
        ),
        ({"messages": [user("x")], "tools": [{**WEATHER, "parameters": 3}]}, "is not a schema"),
        ({"messages": [user("x")], "tools": [{**WEATHER, "x\ud800": 3}]}, "half a surrogate"),
    ],
)
def test_what_is_not_understood_is_refused_by_name(data: Any, says: str) -> None:
    assert says in refusal(data)


def test_what_nests_too_deep_is_refused() -> None:
    deep: Any = "x"
    for _ in range(100):
        deep = {"a": deep}
    call = {"function": {"name": "f", "arguments": deep}}
    assert "nested deeper" in refusal([{"role": "assistant", "tool_calls": [call]}])


def test_reasoning_is_read_under_every_name_it_has() -> None:
    for name in ("reasoning_content", "reasoning", "thinking"):
        (message,) = conversation_from([{**assistant("a"), name: "hm"}]).messages
        assert message["reasoning_content"] == message["thinking"] == "hm"


def test_arguments_become_objects_where_they_are_json_of_one() -> None:
    (message,) = conversation_from([{"role": "assistant", "tool_calls": [CALL]}]).messages
    assert message["content"] == ""
    call = with_argument_objects(message)["tool_calls"][0]
    assert call["function"]["arguments"] == {"a": 1}
    for text in ("{", "[1]", '{"a": NaN}', "[" * 100_000):
        broken = {**CALL, "function": {"name": "f", "arguments": text}}
        (message,) = conversation_from([{"role": "assistant", "tool_calls": [broken]}]).messages
        assert with_argument_objects(message)["tool_calls"][0]["function"]["arguments"] == text


def chat_with(source: str) -> Chat:
    return Chat(small(), Templates({"default": source}, name="m"))


LOOP = "{% for m in messages %}{{ m.content }}"


def test_what_a_template_would_drop_is_refused() -> None:
    lists = "{{ tools }}" + LOOP + "{% endfor %}"
    talk = conversation_from([user("x"), {"role": "assistant", "tool_calls": [CALL]}])
    with pytest.raises(RequestError, match="no place for tool_calls"):
        chat_with(lists).prompt(talk)
    with pytest.raises(RequestError, match="no place for documents"):
        chat_with(lists).prompt(conversation_from([user("x")]), documents=[{"text": "d"}])


def test_a_message_that_a_template_leaves_out_is_refused() -> None:
    chat = chat_with("{% for m in messages if m.role == 'user' %}{{ m.content }}{% endfor %}")
    chat.prompt(conversation_from([user("x")]))
    with pytest.raises(RequestError, match=r"left out messages\[1\]: it has no role 'tool'"):
        chat.prompt(conversation_from([user("x"), {"role": "tool", "content": "21"}]))


def test_a_developer_is_the_system_where_the_template_does_not_know_one() -> None:
    data = [{"role": "developer", "content": "x"}]
    said = "{% for m in messages %}{{ m.role }}: {{ m.content }}{% endfor %}"
    assert chat_with(said).prompt(conversation_from(data)).text == "system: x"
    known = said + "{# developer #}"
    assert chat_with(known).prompt(conversation_from(data)).text == "developer: x"


def test_thinking_sets_the_argument_that_the_template_reads() -> None:
    for name in ("enable_thinking", "thinking"):
        chat = chat_with("{{ 'on' if NAME else 'off' }}".replace("NAME", name))
        talk = conversation_from([user("x")])
        assert chat.prompt(talk, thinking=True).text == "on"
        assert chat.prompt(talk, thinking=False).text == "off"
    with pytest.raises(RequestError, match="m cannot switch thinking on or off"):
        chat_with(LOOP + "{% endfor %}").prompt(talk, thinking=True)


def test_a_model_without_a_template_says_what_to_do(tmp_path: Path) -> None:
    templates = Templates.from_folder(folder_with(tmp_path, trained_bpe()))
    assert not templates
    with pytest.raises(TemplateError, match="no chat template") as caught:
        Chat(small(), templates).prompt(conversation_from([user("x")]))
    assert "--raw" in str(caught.value)
    assert "--template FILE" in str(caught.value)


def test_tools_choose_the_template_made_for_them(tmp_path: Path) -> None:
    listed = [
        {"name": "default", "template": "plain"},
        {"name": "tool_use", "template": "{{ tools | length }} tools"},
    ]
    folder = folder_with(tmp_path, trained_bpe(), chat_template=listed)
    keys = {"tokenizer.chat_template": "plain"}
    keys["tokenizer.chat_template.tool_use"] = "{{ tools | length }} tools"
    talk = conversation_from({"messages": [user("x")], "tools": [WEATHER]})
    for templates in (Templates.from_folder(folder), Templates.from_gguf(keys)):
        assert templates.names == ("default", "tool_use")
        chat = Chat(small(), templates)
        assert chat.prompt(talk).text == "1 tools"
        assert chat.prompt(conversation_from([user("x")])).text == "plain"
        assert chat.prompt(talk, template="tool_use").text == "1 tools"
        with pytest.raises(RequestError, match="there is no template 'tools'"):
            chat.prompt(talk, template="tools")


def test_a_template_file_wins_over_the_config(tmp_path: Path) -> None:
    folder = folder_with(tmp_path, trained_bpe(), chat_template="old")
    assert Templates.from_folder(folder).choose().source == "old"
    (folder / "chat_template.jinja").write_text("new é", "utf-8")
    assert Templates.from_folder(folder).choose().source == "new é"
    assert Templates.from_file(folder / "chat_template.jinja").choose().source == "new é"
    (folder / "chat_template.jinja").write_bytes(b"\xff")
    with pytest.raises(TemplateError, match="not UTF-8"):
        Templates.from_folder(folder)


def test_the_report_of_a_text_adds_up() -> None:
    tokenizer = small()
    prompt = text_prompt(tokenizer, "a<|im_end|>", control=True)
    data = report(tokenizer, prompt)
    assert data["total"] == len(data["tokens"]) == sum(s["tokens"] for s in data["sections"])
    assert data["sections"] == [{"name": "text", "tokens": 2}]
    assert data["tokens"][1] == {
        "id": tokenizer.find("<|im_end|>"),
        "text": "<|im_end|>",
        "control": True,
    }
