"""What `explain` and the chat's `/why` and `/take` share: an answer that can be looked at, and
another that goes on from one of its tokens."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from forwardpass.cli.console import patience, visible
from forwardpass.errors import RequestError
from forwardpass.units import exact

if TYPE_CHECKING:
    from forwardpass.model import Generation, Model
    from forwardpass.options import Limits
    from forwardpass.sampling.settings import SamplingSettings
    from forwardpass.text.tokenizer import Tokenizer
    from forwardpass.trace.trace import Trace

ROWS = 40  # tokens of an answer that are shown unasked
MOST_NAMED = 8  # tokens that an error names


def branch(
    going: Generation,
    place: int,
    token: int,
    settings: SamplingSettings | None = None,
    limits: Limits | None = None,
) -> Generation:
    """An answer to the same prompt: the same tokens before `place`, there `token`, then on.

    Under the settings and limits of the answer, or under others, with the answer's seed where
    the settings have none of their own.

    Raises RequestError where the answer has no such place, or may not come as far.
    """
    ids = [step.id for step in going.steps]
    if not 0 <= place < len(ids):
        has = f"has tokens 0 to {exact(len(ids) - 1)}" if len(ids) > 1 else "has one token, 0"
        raise RequestError(f"there is no token {place}: the answer {has}")
    allowed = limits or going.limits
    if place >= allowed.max_tokens:
        most = exact(allowed.max_tokens)
        raise RequestError(
            f"token {exact(place)} is out of reach: max_tokens = {most} ends the answer before it"
        )
    from forwardpass.model import Generation

    chosen = settings or going.settings
    seed = going.settings.seed.value
    if chosen.seed.source == "engine default" and seed is not None and not chosen.greedy:
        chosen = chosen.with_seed(seed, "engine default")
    going_on = replace(allowed, take={**dict(enumerate(ids[:place])), place: token})
    model = going.model
    with patience("reading the prompt"):
        read = model.runner.prefill(going.prompt.ids)
    return Generation(model, going.prompt, chosen, read, going_on)


def token_named(model: Model, text: str, option: str) -> int:
    """The token id that a person names: by its number, or by the exact text of one token.

    Raises RequestError for a number outside the vocabulary, and for a text that is no token,
    naming the tokens that it is made of.
    """
    rows, tokenizer = model.description.config.vocab_size, model.tokenizer
    if text.isascii() and text.isdigit():
        if len(text) > 20 or int(text) >= rows:
            raise RequestError(
                f"{option} {text}: token id {text} is outside the vocabulary of {exact(rows)}"
            )
        return int(text)
    ids = tokenizer.encode(text)
    if len(ids) == 1 and _is(tokenizer, ids[0], text):
        return ids[0]
    found = tokenizer.find(text)
    if found is not None and _is(tokenizer, found, text):
        return found
    whole = (i for i in range(tokenizer.vocab_size) if _is(tokenizer, i, text))
    if (token := next(whole, None)) is not None:
        return token
    named = ", ".join(f"{i} {visible(model.token_text(i))}" for i in ids[:MOST_NAMED])
    more = ", …" if len(ids) > MOST_NAMED else ""
    raise RequestError(
        f"{option} {visible(text)}: no token is exactly this text",
        *([f"it is {len(ids)} tokens: {named}{more}"] if ids else []),
        advice="forwardpass tokens MODEL TEXT shows the ids of a text",
    )


def token_ids(model: Model, texts: Sequence[str] | None, option: str) -> tuple[int, ...]:
    """The token ids that an option names, each once. Errors: as `token_named`."""
    return tuple(dict.fromkeys(token_named(model, text, option) for text in texts or ()))


def _is(tokenizer: Tokenizer, token: int, text: str) -> bool:
    return tokenizer.token_bytes(token) == text.encode()


def explain_lines(
    trace: Trace, tokens: Sequence[int], rows: int = ROWS, top: int | None = None
) -> Iterator[str]:
    """The answer token by token, its text, and some of its tokens stage by stage.

    `top`: how many of the best of both distributions are listed for each of those. Raises
    RequestError, behind the first table, for a token that the answer has not.
    """
    from forwardpass.cli.explain_tables import best_table, stage_table

    if not trace.steps:
        return
    yield from _token_table(trace, rows)
    if trace.text:
        yield trace.text.rstrip("\n")
    if trace.masks is not None:
        from forwardpass.cli.explain_masks import verdict_lines

        yield ""
        yield from verdict_lines(trace, trace.masks)
    for number in tokens:
        lines = stage_table(trace, number)
        yield ""
        yield from lines
        if top is not None:
            yield ""
            yield from best_table(trace, number, top)


def _token_table(trace: Trace, rows: int, hint: str | None = None) -> list[str]:
    """A line a token: of an answer that a grammar held, what that allowed."""
    if trace.masks is not None:
        from forwardpass.cli.explain_masks import mask_table

        return mask_table(trace, trace.masks, rows, hint)
    from forwardpass.cli.explain_tables import answer_table

    return answer_table(trace, rows, hint)


def why_lines(trace: Trace, number: int | None) -> Iterator[str]:
    """The answer token by token; with a number, that token stage by stage. Errors: as `step_at`."""
    from forwardpass.cli.explain_tables import stage_table

    if number is None:
        yield from _token_table(trace, ROWS, "/why N shows one")
    else:
        yield from stage_table(trace, number)
