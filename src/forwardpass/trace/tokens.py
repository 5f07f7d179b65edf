"""`TokenNote`: what a trace says of a token, and what follows from it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from forwardpass.text.stream import TextStream


@dataclass(frozen=True, slots=True)
class TokenNote:
    """A token as shown to people, and its bytes (none for a control token)."""

    text: str
    bytes: bytes


def no_token(token: int) -> str:
    """What a row of scores is called that stands for no token: tables may have more rows."""
    return f"[no token {token}]"


def token_text(token: int, notes: Mapping[int, TokenNote]) -> str:
    """A token as shown to people; one that no note explains as `[token 123]`."""
    return notes[token].text if token in notes else f"[token {token}]"


def text_of(tokens: Iterable[int], notes: Mapping[int, TokenNote], whole: bool) -> str:
    """The text of `tokens`, as an answer gives it; one that no note explains as `[token 123]`.

    `whole`: no more tokens come, so a character that is not finished becomes U+FFFD.
    """

    def shown(token: int) -> bytes:
        note = notes.get(token)
        return token_text(token, notes).encode() if note is None else note.bytes

    stream = TextStream(shown)
    pieces = [stream.push(token) for token in tokens]
    return "".join(pieces) + (stream.finish() if whole else "")


def breakers_among(
    tokens: Iterable[int], notes: Mapping[int, TokenNote], texts: Sequence[str]
) -> frozenset[int]:
    """Those of `tokens` that hold one of `texts`: a repeat ends at them (DRY).

    As `text.breakers` finds them in a whole vocabulary: by bytes, control tokens by their names.
    """
    wanted = [text.encode() for text in texts]

    def data(token: int) -> bytes:
        note = notes[token]
        named = not note.bytes and note.text != no_token(token)
        return note.text.encode() if named else note.bytes

    return frozenset(token for token in set(tokens) if any(text in data(token) for text in wanted))
