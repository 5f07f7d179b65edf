"""Control tokens that a template glues from pieces, and the marks that keep users from it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from forwardpass.text.messages import ROLES
from forwardpass.text.template import Request

# Strings that templates compare with words of their own, from fixed sets.
_STRUCTURE = frozenset({"role", "type"})


def glued_tokens(literals: Iterable[str], control: Sequence[str]) -> list[str]:
    """The control tokens that some of the texts and roles make when put together.

    Such a token begins with the end of one text and ends with the beginning of another, with
    nothing, a role or a whole text between them.
    """
    texts = set(literals)
    longest = max(map(len, control), default=0)
    tails = {text[-size:] for text in texts for size in range(1, min(longest, len(text)) + 1)}
    heads = {text[:size] for text in texts for size in range(1, min(longest, len(text)) + 1)}
    between = {"", *ROLES, *texts}
    found = []
    for token in control:
        ends = [at for at in range(1, len(token)) if token[at:] in heads]
        starts = [at for at in range(1, len(token)) if token[:at] in tails]
        if any(token[a:b] in between for a in starts for b in ends if a <= b):
            found.append(token)
    return found


def marked(request: Request, tokens: Sequence[str], mark: str) -> Request:
    """The request with `mark` in every user's string that could be part of one of `tokens`."""

    def inside(value: Any) -> Any:
        if isinstance(value, str):
            return _marked_text(value, tokens, mark)
        if isinstance(value, dict):
            return {
                inside(key): part if key in _STRUCTURE and isinstance(part, str) else inside(part)
                for key, part in value.items()
            }
        if isinstance(value, (list, tuple)):
            return [inside(part) for part in value]
        return value

    return replace(
        request,
        messages=[_marked_message(dict(message), inside) for message in request.messages],
        tools=inside(request.tools),
        documents=inside(request.documents),
        arguments={name: inside(value) for name, value in request.arguments.items()},
    )


def _marked_message(message: dict[str, Any], inside: Any) -> dict[str, Any]:
    # The fields of a message are ours; their values are the user's, but for the role.
    return {key: part if key == "role" else inside(part) for key, part in message.items()}


def _marked_text(text: str, tokens: Sequence[str], mark: str) -> str:
    places: set[int] = set()
    for token in tokens:
        at = text.find(token)
        while at >= 0:
            places.add(at + 1)
            at = text.find(token, at + 1)
        for size in range(1, len(token)):
            # A piece at an end: the mark goes between its outermost character and the rest, so
            # that it never stands outside white space that the template may trim.
            if text.endswith(token[:size]):
                places.add(len(text) - size + 1)
            if text.startswith(token[size:]):
                places.add(len(token) - size - 1)
        if text and text in token:
            places.add(len(text) - len(text.lstrip()))
    for place in sorted(places, reverse=True):
        text = text[:place] + mark + text[place:]
    return text
