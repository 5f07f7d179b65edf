"""What a call is written from: text, single ids, the tool's name, its arguments, an id."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

# What templates write as one mark: <tool_call>, <|im_end|>, [TOOL_CALLS]. Bounded, so that a
# text full of open brackets is searched in linear time.
_TAG = re.compile(r"<[^<>\s]{1,64}>|\[/?[A-Z_]{2,32}\]")


@dataclass(frozen=True, slots=True)
class Literal:
    """Text, written as it stands."""

    text: str


@dataclass(frozen=True, slots=True)
class Control:
    """One id of the tokenizer, by its text."""

    text: str


@dataclass(frozen=True, slots=True)
class Name:
    """The name of the tool, as it is: names need no escapes."""


@dataclass(frozen=True, slots=True)
class Arguments:
    """A JSON object under the tool's schema."""


@dataclass(frozen=True, slots=True)
class CallId:
    """An id that the model makes up; `pattern` is a regular expression for all of it."""

    pattern: str


Piece = Literal | Control | Name | Arguments | CallId
Fixed = Literal | Control
Pieces = tuple[Piece, ...]
FixedPieces = tuple[Fixed, ...]


@dataclass(frozen=True, slots=True)
class Written:
    """A call to be written: the arguments as JSON text."""

    name: str
    arguments: str
    id: str = ""


def written(pieces: Iterable[Piece], call: Written | None = None) -> str:
    """The text of pieces; what differs from call to call is left out without a call."""
    parts: list[str] = []
    for piece in pieces:
        match piece:
            case Literal(text) | Control(text):
                parts.append(text)
            case Name():
                parts.append(call.name if call else "")
            case Arguments():
                parts.append(call.arguments if call else "")
            case CallId():
                parts.append(call.id if call else "")
    return "".join(parts)


def units(text: str) -> list[str]:
    """The text as marks (`<tool_call>`, `[ARGS]`) and single characters, which nothing cuts."""
    found: list[str] = []
    at = 0
    for match in _TAG.finditer(text):
        found += text[at : match.start()]
        found.append(match.group())
        at = match.end()
    return found + list(text[at:])


def is_tag(unit: str) -> bool:
    """Whether a unit is a mark rather than a character."""
    return len(unit) > 1


def bound(pieces: Sequence[Piece], is_one_id: Callable[[str], bool]) -> Pieces:
    """The same text, a mark being a `Control` exactly where it is one id; texts joined."""
    made: list[Piece] = []
    for piece in pieces:
        if not isinstance(piece, Fixed):
            made.append(piece)
            continue
        for unit in units(piece.text):
            last = made[-1] if made else None
            if is_tag(unit) and is_one_id(unit):
                made.append(Control(unit))
            elif isinstance(last, Literal):
                made[-1] = Literal(last.text + unit)
            else:
                made.append(Literal(unit))
    return tuple(made)


def bound_fixed(pieces: FixedPieces, is_one_id: Callable[[str], bool]) -> FixedPieces:
    """`bound` for pieces that are all fixed."""
    return tuple(piece for piece in bound(pieces, is_one_id) if isinstance(piece, Fixed))


def literal(text: str) -> FixedPieces:
    """A text as pieces: none for no text."""
    return (Literal(text),) if text else ()
