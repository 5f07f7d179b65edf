"""`forwardpass tokens MODEL`: the tokens of a text, or of a whole request by section."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from forwardpass.cli.account import plural
from forwardpass.cli.answering import PromptFile, TemplateOptions, prompt_text
from forwardpass.cli.console import as_json, columns, data, visible
from forwardpass.cli.groups import with_groups
from forwardpass.cli.options import AcceptUnknown, Json, Pre
from forwardpass.cli.options import Model as Reference
from forwardpass.cli.progress import TerminalProgress
from forwardpass.errors import RequestError, TemplateError
from forwardpass.text.messages import load_conversation
from forwardpass.units import exact

if TYPE_CHECKING:
    from forwardpass.text.chat import Chat, ChatPrompt
    from forwardpass.text.tokenizer import Tokenizer


@with_groups
def command(
    model: Reference,
    template: TemplateOptions,
    text: Annotated[
        str | None,
        typer.Argument(metavar="TEXT", help="a text; without it, --file or standard input"),
    ] = None,
    file: PromptFile = None,
    messages: Annotated[
        Path | None,
        typer.Option("--messages", metavar="FILE", help="a JSON list of messages, or with tools"),
    ] = None,
    pre: Pre = None,
    accept_unknown: AcceptUnknown = None,
    json: Json = False,
) -> None:
    """Counts and shows tokens: of a text as it is, or of a request as `run` would send it."""
    from forwardpass.loading import load_text
    from forwardpass.text.chat import report, text_prompt

    if messages is not None and (text is not None or file is not None):
        raise RequestError("a text and --messages were both given")
    if messages is None and (template.thinking or template.template_arg or template.template):
        raise RequestError("--thinking, --template-arg and --template need --messages")
    words = prompt_text(text, file) if messages is None else ""
    tokenizer, chat = load_text(
        model,
        template=template.template,
        pre=pre,
        accept_unknown=accept_unknown or (),
        progress=TerminalProgress(),
    )
    if messages is None:
        prompt = text_prompt(tokenizer, words, control=template.control_tokens)
    elif chat is None:
        raise TemplateError(
            f"{model} has no chat template, so it cannot take messages",
            advice="--template FILE brings one",
        )
    else:
        prompt = _request(chat, messages, template)
    if json:
        as_json(report(tokenizer, prompt))
    else:
        _show(tokenizer, prompt)


def _request(chat: Chat, messages: Path, template: TemplateOptions) -> ChatPrompt:
    options = template.chosen()
    return chat.prompt(
        load_conversation(messages),
        control=options.get("control_tokens", False),
        thinking=options.get("thinking"),
        arguments=options.get("template_args") or {},
    )


def _show(tokenizer: Tokenizer, prompt: ChatPrompt) -> None:
    total = len(prompt.ids)
    if len(prompt.sections) > 1:
        rows = [(section.name, exact(section.tokens)) for section in prompt.sections]
        for line in columns([*rows, ("together", exact(total))], "<>"):
            data(line)
    else:
        data(plural(total, "token"))
    data()
    shown = [(str(i), visible(tokenizer.token_text(i)), _kind(tokenizer, i)) for i in prompt.ids]
    for line in columns(shown, "><<"):
        data(line)


def _kind(tokenizer: Tokenizer, token: int) -> str:
    return "control" if tokenizer.is_control(token) else ""
