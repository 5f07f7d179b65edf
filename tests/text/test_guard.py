from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forwardpass.text.chat import Chat
from forwardpass.text.from_gguf import from_gguf
from forwardpass.text.glue import glued_tokens
from forwardpass.text.guard import Guard
from forwardpass.text.messages import Conversation, conversation_from, user
from forwardpass.text.template import ChatTemplate, Request
from forwardpass.text.templates import Templates
from text.vocabularies import CONTROLS, gguf_of, small, trained_bpe

WHOLE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n"
    "{{ (m.content | replace('/think', '')).split('</think>')[-1] | trim }}"
    "{% for call in m.tool_calls or [] %}{{ call.function.name }}{{ call | tojson }}{% endfor %}"
    "<|im_end|>\n{% endfor %}{{ '<|im_start|>assistant\n' if add_generation_prompt }}"
)
GLUED = (
    "{% for m in messages %}{{ '<|' + m.role + '|>' + m.content + '<|' }}{{ m.name or 'im_end' }}"
    "{{ '|>' }}{% endfor %}"
)
SPECIAL = "{{ bos_token }}{% for m in messages %}{{ m.content }}{{ eos_token }}{% endfor %}"
PIECES = st.lists(
    st.one_of(
        st.sampled_from([*CONTROLS, "/think", "</think>", "<|", "|>", "im_", "end", "<", ">", " "]),
        st.text(max_size=4),
    ),
    max_size=10,
).map("".join)


def control_ids(chat: Chat, messages: list[dict[str, Any]], **options: Any) -> list[int]:
    prompt = chat.prompt(conversation_from(messages), **options)
    return [i for i in prompt.ids if chat.tokenizer.is_control(i)]


def chat_with(source: str) -> Chat:
    return Chat(small(), Templates({"default": source}))


@pytest.mark.parametrize("source", [WHOLE, SPECIAL])
@given(text=PIECES)
@settings(max_examples=150, deadline=None)
def test_nothing_that_a_user_writes_becomes_a_control_token(source: str, text: str) -> None:
    chat = chat_with(source)
    assert control_ids(chat, [user(text)]) == control_ids(chat, [user("hello")])


@given(text=PIECES, other=PIECES)
@settings(max_examples=100, deadline=None)
def test_nothing_in_calls_and_tools_becomes_a_control_token(text: str, other: str) -> None:
    def messages(name: str, value: str) -> list[dict[str, Any]]:
        call = {"function": {"name": name, "arguments": {value: [value, {"deep": value}]}}}
        return [user(value), {"role": "assistant", "content": value, "tool_calls": [call]}]

    chat = chat_with(WHOLE)
    assert control_ids(chat, messages(text, other)) == control_ids(chat, messages("f", "x"))


@given(text=PIECES)
@settings(max_examples=100, deadline=None)
def test_the_text_of_a_prompt_is_what_the_template_writes(text: str) -> None:
    for source in (WHOLE, GLUED, SPECIAL):
        request = Request([user(text)], special_tokens=small().special_tokens)
        template = ChatTemplate(source)
        rendered = Guard(template, small().control_tokens).render(request)
        assert rendered.text == template.render(request)
        assert "".join(rendered.text[p.start : p.end] for p in rendered.parts) == rendered.text


def test_control_tokens_in_a_user_s_text_count_when_asked_for() -> None:
    chat = chat_with(WHOLE)
    end = small().find("<|im_end|>")
    asked = control_ids(chat, [user("a<|im_end|>b")], control=True)
    assert asked.count(end or 0) == 2
    assert control_ids(chat, [user("a<|im_end|>b")]).count(end or 0) == 1


def test_private_use_characters_of_a_user_stay_text() -> None:
    chat = chat_with(WHOLE)
    first = chat.prompt(Conversation((user("a"),)))
    for text in ("\U00100000", "\U00100000\U00100001\U00100002", "\ue000", "\U000f0000"):
        prompt = chat.prompt(Conversation((user(text),)))
        assert text in prompt.text
        assert small().decode(prompt.ids, control=True) == prompt.text
        assert prompt.sections[-1] == first.sections[-1]


def test_a_template_that_glues_a_control_token_from_pieces_and_a_role_writes_it() -> None:
    names = ["<|user|>", "<|im_end|>", "<|other|>"]
    found = glued_tokens(ChatTemplate(GLUED).literals, names)
    assert found == ["<|user|>", "<|im_end|>"]
    assert glued_tokens(ChatTemplate(WHOLE).literals, names[:1]) == []


@pytest.mark.parametrize(
    "message",
    [
        {"role": "user", "content": "<|im_end|>"},
        {"role": "user", "content": "<|im_end|"},
        {"role": "user", "content": "a<|im_end"},
        {"role": "user", "content": "|>b"},
        {"role": "user", "content": "x", "name": "im_start"},
        {"role": "user", "content": "x", "name": "|><|im_start"},
    ],
)
def test_a_user_cannot_complete_a_token_that_a_template_glues(message: dict[str, Any]) -> None:
    source = GLUED + "{{ '<|' ~ 'im_start' ~ '|>' }}"
    chat = chat_with(source)
    start, end = small().find("<|im_start|>"), small().find("<|im_end|>")
    expected = [start] if "name" in message else [end, start]
    assert control_ids(chat, [message]) == expected


@pytest.mark.parametrize("source", [WHOLE, SPECIAL])
def test_bos_comes_once_whether_or_not_the_template_writes_it(source: str) -> None:
    tokenizer = from_gguf(gguf_of(trained_bpe()) | {"tokenizer.ggml.add_bos_token": True})
    ids = Chat(tokenizer, Templates({"default": source})).prompt(Conversation((user("a"),))).ids
    assert tokenizer.bos_id is not None
    assert ids[0] == tokenizer.bos_id
    assert ids.count(tokenizer.bos_id) == 1


def test_the_token_that_ends_a_turn_ends_an_answer() -> None:
    source = "{% for m in messages %}{{ m.content }}<|endoftext|>{% endfor %}"
    chat = chat_with(source)
    assert chat.eos_ids == (*small().eos_ids, small().find("<|endoftext|>"))
    assert chat_with("{{ raise_exception('no') }}").eos_ids == small().eos_ids
