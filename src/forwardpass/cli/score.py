"""`forwardpass score MODEL TEXT`: how likely the model finds a text, token by token."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from forwardpass.cli.account import engine_lines, plural, work_words
from forwardpass.cli.answering import EngineOptions, PromptFile, TemplateOptions, prompt_text
from forwardpass.cli.console import as_json, columns, data, note, patience, visible
from forwardpass.cli.groups import with_groups
from forwardpass.cli.options import Json
from forwardpass.cli.options import Model as Reference
from forwardpass.errors import RequestError, TemplateError
from forwardpass.text.messages import load_conversation
from forwardpass.units import exact

if TYPE_CHECKING:
    from forwardpass.model import Model
    from forwardpass.scoring import Scoring

UNUSED_STRIDE = "without effect where the text fits into the context: stride"
SHOWN = 24  # tokens that are shown; of a longer text, the least likely ones


@with_groups
def command(
    model: Reference,
    template: TemplateOptions,
    engine: EngineOptions,
    text: Annotated[
        str | None,
        typer.Argument(metavar="TEXT", help="a text; without it, --file or standard input"),
    ] = None,
    file: PromptFile = None,
    messages: Annotated[
        Path | None,
        typer.Option("--messages", metavar="FILE", help="score a conversation instead of a text"),
    ] = None,
    stride: Annotated[
        int | None,
        typer.Option(
            "--stride", metavar="N", help="read a text beyond the context in windows N tokens apart"
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Scores a text: the log probability of each token, perplexity, bits a byte."""
    from forwardpass.scoring import scoring

    if messages is not None and (text is not None or file is not None):
        raise RequestError("a text and --messages were both given")
    if messages is None and (template.thinking or template.template_arg or template.template):
        raise RequestError("--thinking, --template-arg and --template need --messages")
    words = prompt_text(text, file) if messages is None else ""
    with engine.load(model, template.template) as loaded:
        ids = _ids(loaded, words, messages, template)
        # A template may open with the same token where the file does not ask for it.
        bos = loaded.tokenizer.bos_id if loaded.tokenizer.add_bos else None
        own = ids if bos is None else ids[1:]
        going = scoring(loaded.runner, own, bos=bos, stride=stride)
        unused = stride is not None and going.windows.stride is None
        stopped = False
        try:
            with patience("scoring the text"):
                for _ in going:
                    pass
        except KeyboardInterrupt:
            stopped = True
        if json:
            as_json({**json_score(loaded, going), **({"note": UNUSED_STRIDE} if unused else {})})
        else:
            _show(loaded, going)
            if unused:
                note(UNUSED_STRIDE)
        if stopped:
            raise KeyboardInterrupt


def _ids(
    model: Model, text: str, messages: Path | None, template: TemplateOptions
) -> tuple[int, ...]:
    options = template.chosen()
    control = options.get("control_tokens", False)
    if messages is None:
        return tuple(model.tokenizer.encode_prompt(text, control=control))
    if model.chat is None:
        raise TemplateError(
            f"{model.description.label} has no chat template, so it cannot take messages",
            advice="--template FILE brings one",
        )
    return model.chat.prompt(
        load_conversation(messages),
        control=control,
        thinking=options.get("thinking"),
        arguments=options.get("template_args") or {},
        add_generation_prompt=False,
    ).ids


def json_score(model: Model, going: Scoring) -> dict[str, object]:
    """The keys of `score --json`."""
    byte_count = _bytes(model, going)
    return {
        "tokens": [
            {
                "id": token,
                "token": model.token_text(token),
                "bytes": list(_own_bytes(model, token)),
                "logprob": logprob,
            }
            for token, logprob in zip(going.ids, going.logprobs, strict=True)
        ],
        "bos": going.bos,
        "scored": going.scored,
        "bytes": byte_count,
        "sum": going.sum,
        "perplexity": going.perplexity,
        "bits_per_byte": going.bits_a_byte(byte_count),
        "windows": {
            "count": going.windows.count,
            "length": going.windows.length,
            "stride": going.windows.stride,
        },
        "work": model.account(going.passes).as_dict(),
    }


def _own_bytes(model: Model, token: int) -> bytes:
    tokenizer = model.tokenizer
    known = token < tokenizer.vocab_size and not tokenizer.is_control(token)
    return tokenizer.token_bytes(token) if known else b""


def _bytes(model: Model, going: Scoring) -> int:
    """Bytes of the scored tokens; control tokens have none."""
    pairs = zip(going.ids, going.logprobs, strict=True)
    return sum(len(_own_bytes(model, token)) for token, logprob in pairs if logprob is not None)


def _show(model: Model, going: Scoring) -> None:
    byte_count = _bytes(model, going)
    data(
        f"{plural(len(going.ids), 'token')}, {exact(going.scored)} scored"
        f"{_unscored(going)} · {plural(byte_count, 'byte')}"
    )
    data()
    for line in _lines(model, going):
        data(line)
    perplexity, bits = going.perplexity, going.bits_a_byte(byte_count)
    summary = [f"log probability {going.sum:.2f}"]
    summary += [] if perplexity is None else [f"perplexity {perplexity:.2f}"]
    summary += [] if bits is None else [f"{bits:.3f} bits a byte"]
    data()
    data(" · ".join(summary))
    if going.windows.count > 1:
        seen = going.windows.length - (going.windows.stride or 0)
        data(
            f"{exact(going.windows.count)} windows of up to {exact(going.windows.length)} tokens, "
            f"stride {exact(going.windows.stride or 0)}: each token"
        )
        data(f"beyond the first window is scored after at least {exact(seen)} others")
    note(f"{work_words(model.account(going.passes))}")
    for line in engine_lines(model):
        note(line)


def _unscored(going: Scoring) -> str:
    if going.bos is not None:
        return f" behind {plural(1, 'token')} that begins every text"
    return " (nothing is before the first)"


def _lines(model: Model, going: Scoring) -> list[str]:
    """Every token with its place, or the least likely ones of a long text."""
    known = [
        (place, logprob) for place, logprob in enumerate(going.logprobs) if logprob is not None
    ]
    title = "token"
    if len(going.ids) > SHOWN:
        known = sorted(known, key=lambda pair: pair[1])[:SHOWN]
        title = f"the {len(known)} least likely tokens"
    rows = [("place", "logprob", "probability", title)]
    if len(going.ids) <= SHOWN and going.logprobs[0] is None:
        rows.append(("0", "", "", _token(model, going.ids[0])))
    rows += [
        (
            exact(place),
            f"{logprob:.3f}",
            f"{math.exp(logprob):.4f}",
            _token(model, going.ids[place]),
        )
        for place, logprob in known
    ]
    return [f"  {line}" for line in columns(rows, ">>><")]


def _token(model: Model, token: int) -> str:
    return visible(model.token_text(token))
