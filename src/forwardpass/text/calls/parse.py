"""An answer's text back into free text, reasoning and calls.

Nothing that a model writes raises. Reading is kinder than writing: blanks around literal text may
differ from the form, other known ways of writing a call are taken, and what cannot be read is
handed back as it stands. Each step reads from one place on and never looks back, so that a text
which grows can be read again from the last whole call.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Any

from forwardpass.text.calls.form import CallForm
from forwardpass.text.calls.pieces import (
    Arguments,
    CallId,
    Fixed,
    Name,
    Piece,
    Pieces,
    written,
)

_MAX_NAME = 256
_STRUCTURE = re.compile(r'"(?:[^"\\]|\\.)*+("?)|[{}\[\]]', re.DOTALL)


class State(Enum):
    """How an answer ended: whole, cut inside a call, or with a call that cannot be read."""

    COMPLETE = "complete"
    INCOMPLETE = "incomplete"
    BROKEN = "broken"


@dataclass(frozen=True, slots=True)
class Call:
    """A call as the model wrote it: the arguments are its text, JSON of one object."""

    name: str
    arguments: str
    id: str | None = None

    def values(self) -> dict[str, Any]:
        """The arguments as an object."""
        parsed: dict[str, Any] = json.loads(self.arguments)
        return parsed


@dataclass(frozen=True, slots=True)
class Answer:
    """What an answer's text says.

    `rest` is the text from where a call began that could not be read to its end: empty where
    `state` is complete. `unknown` are the names of called tools that were not on offer.
    """

    content: str
    calls: tuple[Call, ...] = ()
    reasoning: str | None = None
    state: State = State.COMPLETE
    rest: str = ""
    unknown: tuple[str, ...] = ()


def parse_calls(
    form: CallForm, text: str, *, names: Collection[str] | None = None, thinking: bool = False
) -> Answer:
    """The content, the reasoning and the calls in an answer.

    `text`: the answer, its control tokens by name. `names`: the tools on offer, for `unknown`;
    None leaves that empty. `thinking`: the prompt ended inside the reasoning.
    """
    reasoning, at, closed = _reasoning(form, text, thinking)
    if not closed:
        return Answer("", (), reasoning, State.INCOMPLETE)
    reader = _Reader(form, text, at)
    reader.read()
    unknown = () if names is None else (c.name for c in reader.calls if c.name not in names)
    return Answer(
        _content(form, reader.texts, bool(reader.calls or reader.rest), reasoning is not None),
        tuple(reader.calls),
        reasoning,
        reader.state,
        reader.rest,
        tuple(dict.fromkeys(unknown)),
    )


def _reasoning(form: CallForm, text: str, opened: bool) -> tuple[str | None, int, bool]:
    """The reasoning, where the rest begins, and whether the reasoning came to its end."""
    pair = form.thinking
    if pair is None:
        return None, 0, True
    begin = pair.begin.strip()
    lead = len(text) - len(text.lstrip())
    if text.startswith(begin, lead):
        start = lead + len(begin)
    elif opened:
        start = 0
    else:
        return None, 0, True
    end = text.find(pair.end, start)
    if end < 0:
        return text[start:].strip(), len(text), False
    return text[start:end].strip(), end + len(pair.end), True


def _content(form: CallForm, texts: Iterable[str], with_calls: bool, reasoned: bool) -> str:
    """Free text without the markup around it; blanks next to calls are not content."""
    joined = "".join(texts)
    dropped = [written(form.text), *form.dropped]
    for mark in dropped + list(form.end) * with_calls:
        joined = joined.replace(mark, "") if mark else joined
    for mark in form.end:
        joined = joined.removesuffix(mark)
    if with_calls:
        return joined.strip()
    return joined.lstrip() if reasoned else joined


class _Broken(Exception):
    """The text is not what the form has here."""


class _Cut(Exception):
    """The text ends before the form does."""


class _Reader:
    """Reads sections of calls and the free text around them."""

    def __init__(self, form: CallForm, text: str, at: int) -> None:
        self._form = form
        self._text = text
        self._at = at
        self.texts: list[str] = []
        self.calls: list[Call] = []
        self.state = State.COMPLETE
        self.rest = ""

    def read(self) -> None:
        """Reads to the end, or to the first call that cannot be read."""
        ways = [self._form.call, *self._form.also]
        starts = [_pattern(self._form.marker), *(_pattern(_lead(way)) for way in ways[1:])]
        marker = re.compile("|".join(f"(?:{start})" for start in starts if start) or "(?!)")
        first = self._at
        while True:
            found = self._next(marker, first)
            if found is None:
                self.texts.append(self._text[self._at :])
                return
            self.texts.append(self._text[self._at : found])
            self._at = found
            try:
                self._section()
            except (_Cut, _Broken) as fault:
                cut = isinstance(fault, _Cut)
                self.state = State.INCOMPLETE if cut else State.BROKEN
                self.rest = self._text[self._at :].lstrip()
                return

    def _next(self, marker: re.Pattern[str], first: int) -> int | None:
        """Where the next section begins. Without free text before calls, only at the start."""
        if self._form.text_before or self._at > first:
            found = marker.search(self._text, self._at)
        else:
            found = marker.match(self._text, _past_blanks(self._text, self._at))
        return None if found is None else found.start()

    def _section(self) -> None:
        """One section; `_at` stays where the first unread call begins."""
        form = self._form
        at = self._at
        for way in form.also:
            try:
                call, self._at = self._call(way, at)
            except (_Broken, _Cut):
                continue
            self.calls.append(call)
            return
        at = _fixed(self._text, at, form.before)
        while True:
            call, at = self._call(form.call, at)
            self.calls.append(call)
            self._at = at
            again = self._follows(form, at)
            if again is None:
                break
            self._at = at = again
        self._at = _fixed(self._text, at, form.after)

    def _follows(self, form: CallForm, at: int) -> int | None:
        """Where the next call of this section begins, if one does."""
        if not form.parallel:
            return None
        try:
            at = _fixed(self._text, at, form.between)
            _fixed(self._text, at, _lead(form.call))
        except (_Broken, _Cut):
            return None
        return at

    def _call(self, pieces: Pieces, at: int) -> tuple[Call, int]:
        name, arguments, call_id = "", "", None
        for place, piece in enumerate(pieces):
            match piece:
                case Name():
                    name, at = _until(self._text, at, pieces[place + 1 :])
                case Arguments():
                    arguments, at = _object(self._text, at)
                case CallId():
                    call_id, at = _id(self._text, at)
                case fixed:
                    at = _fixed(self._text, at, (fixed,))
        return Call(name, arguments, call_id), at


def _lead(pieces: Pieces) -> tuple[Fixed, ...]:
    """What a call begins with before anything differs from call to call."""
    lead: list[Fixed] = []
    for piece in pieces:
        if not isinstance(piece, Fixed):
            break
        lead.append(piece)
    return tuple(lead)


def _pattern(pieces: Iterable[Piece]) -> str:
    """A regular expression for fixed text, any blanks where it has some."""
    parts = written(pieces).split()
    return r"\s*+".join(re.escape(part) for part in parts)


def _past_blanks(text: str, at: int) -> int:
    while at < len(text) and text[at].isspace():
        at += 1
    return at


def _fixed(text: str, at: int, pieces: Iterable[Fixed]) -> int:
    """The place after fixed text, blanks on either side passed over."""
    for char in written(pieces):
        if char.isspace():
            continue
        at = _past_blanks(text, at)
        if at == len(text):
            raise _Cut
        if text[at] != char:
            raise _Broken
        at += 1
    return at


def _until(text: str, at: int, following: Pieces) -> tuple[str, int]:
    """A name: all up to the first character of what follows it, with no blank inside."""
    lead = written(_lead(following)).lstrip()
    stop = re.compile(re.escape(lead[0]) if lead else r"[\s{]")
    start = _past_blanks(text, at)
    found = stop.search(text, start, start + _MAX_NAME)
    if found is None:
        raise _Broken if len(text) - start >= _MAX_NAME else _Cut
    name = text[start : found.start()].rstrip()
    if len(name.split()) != 1:
        raise _Broken
    return name, found.start()


def _object(text: str, at: int) -> tuple[str, int]:
    """A JSON object as it stands in the text."""
    start = _past_blanks(text, at)
    if start == len(text):
        raise _Cut
    if text[start] != "{":
        raise _Broken
    depth = 0
    for match in _STRUCTURE.finditer(text, start):
        mark = match.group()
        if mark[0] == '"':
            if not match.group(1):
                raise _Cut
            continue
        depth += 1 if mark in "{[" else -1
        if depth == 0:
            value = text[start : match.end()]
            try:
                json.loads(value, parse_constant=_refused)
            except (ValueError, RecursionError):
                raise _Broken from None
            return value, match.end()
    raise _Cut


def _refused(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _id(text: str, at: int) -> tuple[str, int]:
    """An id, of any shape: what it is good for is to be the same in the result."""
    start = _past_blanks(text, at)
    found = re.compile(r"[\w.:-]{1,64}").match(text, start)
    if found is None:
        raise _Cut if start == len(text) else _Broken
    return found.group(), found.end()
