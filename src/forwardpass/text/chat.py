"""Chat: a conversation to the prompt of a model, and what each part of it costs."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from itertools import pairwise
from typing import Any

from forwardpass.errors import RequestError, TemplateError
from forwardpass.text.calls.form import CallForm
from forwardpass.text.calls.plain import told_in_words
from forwardpass.text.calls.probe import Reading, reading_of
from forwardpass.text.calls.recognise import call_form
from forwardpass.text.guard import Guard, Rendered, strings_of
from forwardpass.text.messages import (
    Conversation,
    check_text,
    with_argument_objects,
    with_argument_text,
)
from forwardpass.text.sections import BEGIN, Section, counted, section_names, spans_of
from forwardpass.text.template import ChatTemplate, Request
from forwardpass.text.templates import Templates
from forwardpass.text.tokenizer import Tokenizer
from forwardpass.text.tools import shown


@dataclass(frozen=True)
class ChatPrompt:
    """The prompt of a conversation: its ids, its text, and its ids counted by section."""

    ids: tuple[int, ...]
    text: str
    _count: Callable[[], tuple[Section, ...]] = field(repr=False, compare=False)

    @cached_property
    def sections(self) -> tuple[Section, ...]:
        """Tools, system, each message, template; they add up to the number of ids."""
        return self._count()


def text_prompt(tokenizer: Tokenizer, text: str, *, control: bool = False) -> ChatPrompt:
    """A raw prompt without a template, its sections `text` and, for BOS, `begin`."""
    ids = tokenizer.encode(text, control=control)
    whole = tokenizer.with_bos(ids)
    sections = [Section("text", len(ids))]
    if len(whole) > len(ids):
        sections.append(Section(BEGIN, len(whole) - len(ids)))
    return ChatPrompt(tuple(whole), text, lambda: tuple(sections))


def report(tokenizer: Tokenizer, prompt: ChatPrompt) -> dict[str, Any]:
    """What `tokens --json` prints: the total, the sections, and each token."""
    return {
        "total": len(prompt.ids),
        "sections": [{"name": part.name, "tokens": part.tokens} for part in prompt.sections],
        "tokens": [
            {"id": i, "text": tokenizer.token_text(i), "control": tokenizer.is_control(i)}
            for i in prompt.ids
        ],
    }


class Chat:
    """A tokenizer with the chat templates of its model."""

    def __init__(self, tokenizer: Tokenizer, templates: Templates) -> None:
        self.tokenizer = tokenizer
        self.templates = templates
        self._guards: dict[str, Guard] = {}
        self._forms: dict[str, CallForm] = {}

    def prompt(
        self,
        conversation: Conversation,
        *,
        control: bool = False,
        thinking: bool | None = None,
        arguments: Mapping[str, object] | None = None,
        documents: Sequence[Mapping[str, object]] | None = None,
        template: str | None = None,
        add_generation_prompt: bool = True,
        now: Callable[[], datetime] = datetime.now,
    ) -> ChatPrompt:
        """The prompt that a model is given for a conversation.

        `control=True` lets control tokens in the user's text be control tokens. `thinking` sets
        the template's own argument for it; `arguments` sets others. `template` names one of
        several. BOS comes first exactly once where the tokenizer asks for it.
        Errors: RequestError for what the template has no place for, TemplateError from it.
        """
        chosen = self.templates.choose(bool(conversation.tools), template)
        values = self._arguments(chosen, thinking, arguments or {})
        if _needs_words(chosen, conversation):
            form = self.call_form(template, with_tools=bool(conversation.tools))
            conversation = told_in_words(chosen, conversation, form)
        request = Request(
            messages=messages_for(chosen, conversation),
            tools=shown(conversation.tools) or None,
            documents=documents,
            special_tokens=self.tokenizer.special_tokens,
            arguments=values,
            add_generation_prompt=add_generation_prompt,
            now=now,
        )
        _check_places(chosen, request)
        rendered = self._render(chosen, request, control)
        _check_present(chosen, request, rendered.text)
        encoded = self.tokenizer.encode_parts(rendered.text, rendered.parts)
        ids = self.tokenizer.with_bos(encoded.ids)
        added = len(ids) - len(encoded.ids)

        def count() -> tuple[Section, ...]:
            spans = spans_of(self._guard(chosen), request, rendered.text)
            return counted(spans, encoded.starts, added, section_names(request))

        return ChatPrompt(tuple(ids), rendered.text, count)

    @cached_property
    def eos_ids(self) -> tuple[int, ...]:
        """The ids that end an answer: the tokenizer's, and the one that ends a turn here.

        That one is the control token that the template puts right after an assistant's text; some
        files do not list it.
        """
        return tuple(dict.fromkeys([*self.tokenizer.eos_ids, *self._turn_end_ids()]))

    def call_form(self, template: str | None = None, *, with_tools: bool = True) -> CallForm:
        """How the model writes calls of tools, its marks bound to ids of the tokenizer.

        Errors: RequestError where the template writes calls in a way that cannot be enforced.
        """
        chosen = self.templates.choose(with_tools, template)
        if chosen.name not in self._forms:
            form = call_form(chosen, self.tokenizer.special_tokens)
            self._forms[chosen.name] = form.bound_to(self._is_one_id)
        return self._forms[chosen.name]

    def _is_one_id(self, text: str) -> bool:
        """Whether the template's `text` becomes one id, a control token or an added one."""
        token_id = self.tokenizer.find(text)
        return token_id is not None and self.tokenizer.encode(text, control=True) == [token_id]

    def _turn_end_ids(self) -> tuple[int, ...]:
        answer = "the answer"
        talk = (
            {"role": "user", "content": "the question"},
            {"role": "assistant", "content": answer},
        )
        try:
            rendered = self._guard(self.templates.choose()).render(
                Request(
                    talk,
                    special_tokens=self.tokenizer.special_tokens,
                    add_generation_prompt=False,
                )
            )
        except (TemplateError, RequestError):
            return ()
        for part, after in pairwise(rendered.parts):
            text = rendered.text[part.start : part.end].rstrip()
            if part.control is None and text.endswith(answer) and after.control is not None:
                return (after.control.id,)
        return ()

    def _guard(self, template: ChatTemplate) -> Guard:
        if template.name not in self._guards:
            self._guards[template.name] = Guard(template, self.tokenizer.control_tokens)
        return self._guards[template.name]

    def _render(self, template: ChatTemplate, request: Request, control: bool) -> Rendered:
        if not control:
            return self._guard(template).render(request)
        text = template.render(request)
        return Rendered(text, tuple(self.tokenizer.split(text, control=True)))

    @staticmethod
    def _arguments(
        template: ChatTemplate, thinking: bool | None, arguments: Mapping[str, object]
    ) -> dict[str, object]:
        values = dict(arguments)
        template.check_arguments(values)
        for value in strings_of(values):
            check_text(value, "template argument")
        if thinking is not None:
            names = template.thinking_arguments
            if not names:
                listed = ", ".join(template.arguments) or "none"
                raise RequestError(
                    f"{template.name} cannot switch thinking on or off",
                    f"it reads: {listed}",
                )
            for name in names:
                if name in values:
                    raise RequestError(
                        f"thinking and the template's argument {name} were both given",
                        advice="they are one switch; leave one of them out",
                    )
            values.update(dict.fromkeys(names, thinking))
        return values


def messages_for(template: ChatTemplate, conversation: Conversation) -> list[dict[str, Any]]:
    """The messages as this template reads them.

    Errors: RequestError for several calls in a message of which the template shows the first.
    """
    messages = list(conversation.messages)
    if any("tool_calls" in message for message in messages):
        reading = reading_of(template)
        messages = [_with_calls(template, reading, i, m) for i, m in enumerate(messages)]
    if "developer" not in template.source:
        messages = [
            {**message, "role": "system"} if message["role"] == "developer" else message
            for message in messages
        ]
    return messages


def _with_calls(
    template: ChatTemplate, reading: Reading, place: int, message: dict[str, Any]
) -> dict[str, Any]:
    """A message whose calls the template reads; any other as it is."""
    if "tool_calls" not in message:
        return message
    if len(message["tool_calls"]) > 1 and not reading.several:
        raise RequestError(
            f"{template.name} has place for one call in a message; "
            f"messages[{place}] has {len(message['tool_calls'])}",
            advice="send each call in a message of its own, its result after it",
        )
    if reading.arguments == "text" or (reading.arguments == "either" and not _whole(message)):
        message = with_argument_text(message)
    elif reading.arguments == "object":
        message = with_argument_objects(message)
    return {**message, "content": message["content"] or reading.no_text}


def _whole(message: Mapping[str, Any]) -> bool:
    """Whether every call of a message has arguments; an empty text stands for none."""
    return all(call["function"]["arguments"] != "" for call in message["tool_calls"])


def _needs_words(template: ChatTemplate, conversation: Conversation) -> bool:
    """Whether tools or calls must be told in words, the template having no place for them."""
    if conversation.tools:
        return not template.reads("tools")
    calls = any("tool_calls" in message for message in conversation.messages)
    return calls and not template.reads("tools") and "tool_calls" not in template.source


def _check_places(template: ChatTemplate, request: Request) -> None:
    """Refuses what the template would drop in silence."""
    wanted = {
        "documents": bool(request.documents) and not template.reads("documents"),
        "tool_calls": "tool_calls" not in template.source
        and any(message.get("tool_calls") for message in request.messages),
    }
    for name, missing in wanted.items():
        if missing:
            raise RequestError(
                f"{template.name} has no place for {name}",
                advice="leave them out, or bring a template that knows them with --template FILE",
            )


def _check_present(template: ChatTemplate, request: Request, text: str) -> None:
    """Refuses a message whose role the template does not know and whose text it left out."""
    for place, message in enumerate(request.messages):
        if message["role"] in ("user", "assistant"):
            continue
        content = str(message["content"]).strip()
        quoted = json.dumps(content, ensure_ascii=False)[1:-1]
        known = message["role"] in template.literals
        if content and not known and content not in text and quoted not in text:
            raise RequestError(
                f"{template.name} left out messages[{place}]: it has no role {message['role']!r}"
            )
