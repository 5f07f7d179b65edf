"""Rendering, held against transformers' own on the same template, variables and clock."""

from __future__ import annotations

import json
from datetime import datetime, tzinfo
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from transformers import PreTrainedTokenizerFast
from transformers.utils import chat_template_utils

from forwardpass.errors import TemplateError
from forwardpass.text.chat import Chat, messages_for
from forwardpass.text.from_folder import from_folder
from forwardpass.text.messages import conversation_from
from forwardpass.text.template import ChatTemplate, Request
from forwardpass.text.templates import Templates
from text.vocabularies import folder_with, trained_bpe

NOON = datetime(2024, 7, 26, 12)
SPECIAL = {"bos_token": "<|begin|>", "eos_token": "<|im_end|>"}
FOUR = (
    "Qwen-Qwen2.5-7B-Instruct",
    "Qwen-Qwen3-0.6B",
    "meta-llama-Llama-3.1-8B-Instruct",
    "google-gemma-2-2b-it",
)
REFUSES_SYSTEM = "google-gemma-2-2b-it"
_ALL = ("system", "tools", "tool results", "multi-turn", "non-ASCII")
_WITHOUT_TOOLS = ("system", "multi-turn", "non-ASCII")
# What each template cannot say, to transformers as to us; it says all else.
REFUSALS: dict[str, tuple[str, ...]] = {
    REFUSES_SYSTEM: ("system", "tool results"),  # by its own words
    "CohereForAI-c4ai-command-r-plus-tool_use": _WITHOUT_TOOLS,  # goes through `tools` unasked
    "NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use": _WITHOUT_TOOLS,  # the same
    "fireworks-ai-llama-3-firefunction-v2": _ALL,  # wants `functions`, a text, as an argument
    "llama-cpp-deepseek-r1": ("tools", "tool results"),  # writes a generator as JSON
    "Kimi-K2-Thinking": ("tool results",),  # appends to a list, which the sandbox forbids
}
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "description": 'The weather <now> & "soon" in Zürich',
            "parameters": {
                "type": "object",
                "properties": {
                    "city": {"type": "string", "description": "Which city"},
                    "unit": {"type": "string", "enum": ["c", "f"], "description": "Of heat"},
                },
                "required": ["city"],
            },
        },
    }
]
CALL = {
    "type": "function",
    "id": "abcdefghi",
    "function": {"name": "get_weather", "arguments": {"city": "Zürich", "days": 2}},
}


def says(role: str, content: str, **more: Any) -> dict[str, Any]:
    return {"role": role, "content": content, **more}


CONVERSATIONS: dict[str, dict[str, Any]] = {
    "system": {"messages": [says("system", "Be brief. "), says("user", " Hi there\n")]},
    "tools": {"messages": [says("user", "Weather in Zürich?")], "tools": TOOLS},
    "tool results": {
        "messages": [
            says("user", "Weather?"),
            says("assistant", "", tool_calls=[CALL]),
            says("tool", '{"t": 21}', name="get_weather", tool_call_id="abcdefghi"),
            says("assistant", "21 degrees."),
            says("user", "And tomorrow?"),
        ],
        "tools": TOOLS,
    },
    "multi-turn": {
        "messages": [
            says("user", "one"),
            says("assistant", "<think>\nhm\n</think>\n\ntwo"),
            says("user", "three"),
            says("assistant", "four", reasoning_content="because"),
            says("user", "five"),
        ]
    },
    "non-ASCII": {"messages": [says("user", "Ünïcödé 你好 🎉\n\n```py\nx = '<&>\"'\n```")]},
}
OWN = """\
{{- bos_token }}
{%- if tools %}{% for tool in tools %}
    {{- tool | tojson(indent=2) }}
{%- endfor %}{% endif %}
{%- for message in messages %}
    {%- if message.role == 'tool' %}{{ raise_exception('no tools') }}{% endif %}
    {%- generation %}
    {{- '<|im_start|>' + message.role + '\\n' + message.content | trim + eos_token }}
    {%- endgeneration %}
{%- endfor %}
{%- if enable_thinking is defined and not enable_thinking %}{{ '<think></think>' }}{% endif %}
{%- if add_generation_prompt %}{{ strftime_now('%d %B %Y') }}{% endif %}
"""


class Clock(datetime):
    @classmethod
    def now(cls, tz: tzinfo | None = None) -> Clock:
        return cls(NOON.year, NOON.month, NOON.day, NOON.hour, tzinfo=tz)


@pytest.fixture(autouse=True)
def _noon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat_template_utils, "datetime", Clock)


def sources(cases: Path | None) -> dict[str, str]:
    if cases is None:
        return dict.fromkeys(FOUR, OWN)
    return {path.stem: path.read_text("utf-8") for path in (cases / "templates").glob("*.jinja")}


parsed = cache(ChatTemplate)


def both(
    source: str, data: dict[str, Any], thinking: bool | None, **arguments: Any
) -> tuple[str | Exception, str | TemplateError]:
    """What transformers writes and what we write, or what each raises."""
    template = parsed(source)
    talk = conversation_from(data)
    messages = messages_for(template, talk)
    tools = list(talk.tools) or None
    names = template.thinking_arguments or ("enable_thinking",)
    if thinking is not None:
        arguments |= dict.fromkeys(names, thinking)
    theirs: str | Exception
    try:
        rendered, _ = chat_template_utils.render_jinja_template(
            conversations=[messages],
            tools=tools,
            chat_template=source,
            add_generation_prompt=True,
            **SPECIAL,
            **arguments,
        )
        theirs = rendered[0]
    except Exception as error:
        theirs = error
    request = Request(
        messages, tools, special_tokens=SPECIAL, arguments=arguments, now=lambda: NOON
    )
    try:
        return theirs, template.render(request)
    except TemplateError as error:
        return theirs, error


@pytest.mark.parametrize("thinking", [None, True, False])
@pytest.mark.parametrize("kind", CONVERSATIONS)
@pytest.mark.parametrize("name", FOUR)
def test_rendering_equals_transformers(
    name: str, kind: str, thinking: bool | None, cases: Path | None
) -> None:
    theirs, ours = both(sources(cases)[name], CONVERSATIONS[kind], thinking)
    if isinstance(theirs, Exception):
        assert isinstance(ours, TemplateError)
        assert str(ours).endswith(f"refuses the conversation: {theirs}")
    else:
        assert ours == theirs
    refused = cases is not None and name == REFUSES_SYSTEM and kind in ("system", "tool results")
    if cases is not None:
        assert isinstance(theirs, Exception) == refused


def test_a_template_without_a_system_role_refuses_as_transformers_does(cases: Path | None) -> None:
    source = "{{ raise_exception('System role not supported') }}"
    if cases is not None:
        source = sources(cases)[REFUSES_SYSTEM]
    theirs, ours = both(source, CONVERSATIONS["system"], None)
    assert str(theirs) == "System role not supported"
    assert str(ours).endswith("refuses the conversation: System role not supported")


def test_every_outside_template_renders_as_transformers_does(cases: Path | None) -> None:
    refused: dict[str, tuple[str, ...]] = {}
    for name, source in sources(cases).items():
        for kind, data in CONVERSATIONS.items():
            for thinking in (None, True, False):
                theirs, ours = both(source, data, thinking)
                if isinstance(theirs, Exception):
                    assert isinstance(ours, TemplateError), (name, kind)
                    if thinking is None:
                        refused[name] = (*refused.get(name, ()), kind)
                else:
                    assert ours == theirs, (name, kind, thinking)
    own = dict.fromkeys(FOUR, ("tool results",))
    assert refused == (own if cases is None else REFUSALS)


def test_a_template_that_wants_an_argument_renders_as_transformers_does_with_it(
    cases: Path | None,
) -> None:
    source = "{{ functions }}{{ messages[0].content }}"
    if cases is not None:
        source = sources(cases)["fireworks-ai-llama-3-firefunction-v2"]
    for data in CONVERSATIONS.values():
        theirs, ours = both(source, data, None, functions=json.dumps(TOOLS), datetime="noon")
        assert ours == theirs
        assert "get_weather" in str(ours)


def test_arguments_as_text_render_as_transformers_does_where_the_template_takes_text(
    cases: Path | None,
) -> None:
    """Where a template quotes what it gets, text becomes the object that it stands for."""
    text = {**CALL, "function": {"name": "get_weather", "arguments": '{"city":"Bern"}'}}
    data = {"messages": [says("user", "x"), says("assistant", "", tool_calls=[text])]}
    for name, source in sources(cases).items():
        if name not in FOUR[:2]:
            continue
        theirs, ours = both(source, data, None)
        assert ours == theirs
        if cases is not None:
            written = '{"city":"Bern"}' if name == FOUR[1] else '{"city": "Bern"}'
            assert written in str(ours)


@pytest.mark.parametrize("name", FOUR)
def test_the_ids_of_a_conversation_equal_transformers(
    name: str, cases: Path | None, tmp_path: Path
) -> None:
    source = sources(cases)[name]
    folder = folder_with(tmp_path, trained_bpe(), **SPECIAL)
    judge = PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json"), **SPECIAL)
    chat = Chat(from_folder(folder), Templates({"default": source}))
    for kind in ("multi-turn", "non-ASCII"):
        talk = conversation_from(CONVERSATIONS[kind])
        theirs = judge.apply_chat_template(
            messages_for(chat.templates.choose(), talk),
            chat_template=source,
            add_generation_prompt=True,
            return_dict=False,
        )
        assert list(chat.prompt(talk, now=lambda: NOON).ids) == theirs
