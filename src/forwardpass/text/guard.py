"""Keeps a user's text from becoming a control token, whatever the template does with it.

The control tokens that a template writes stand in its own source. Each of those is replaced there
by a character that occurs nowhere in the conversation, before rendering. What comes out as such a
character is the template's; everything else, however it was cut, trimmed or glued, is text. The
user's strings are not touched, so the rendering is what it would have been.

A template may also glue a control token from pieces, as in `'<|' + message.role + '|>'`. For the
tokens that its own texts and the roles can make, and only for those, the user's strings get an
invisible mark wherever they could be part of one; an unmarked token in the result was glued by
the template.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jinja2

from forwardpass.text.glue import glued_tokens, marked
from forwardpass.text.splitter import Part, Splitter
from forwardpass.text.template import ChatTemplate, Request
from forwardpass.text.vocabulary import ControlToken

_STANDS = range(0x100000, 0x10FFFE)  # plane 16, private use: stand for control tokens
# Halves of surrogate pairs: no token has one, and the library takes no text with one.
_HALVES = re.compile("([\ud800-\udfff]+)")
_MARKS = range(0xE000, 0xF900)  # private use, written \uXXXX where JSON escapes it


@dataclass(frozen=True)
class Rendered:
    """A rendered prompt and its cut into text and control tokens.

    `marks` are the characters that were asked to be taken out, and where each had stood.
    """

    text: str
    parts: tuple[Part, ...]
    marks: tuple[tuple[int, str], ...] = ()


class Guard:
    """A template bound to the control tokens of a tokenizer."""

    def __init__(self, template: ChatTemplate, control: Sequence[ControlToken]) -> None:
        self.template = template
        self._control = {token.text: token for token in control}
        self._glued = [self._control[text] for text in self._texts_glued()]
        self._stands: _StandIns | None = None

    def _texts_glued(self) -> list[str]:
        find = _StandIns(self._control, frozenset())
        return glued_tokens(map(find, self.template.literals), list(self._control))

    def render(
        self,
        request: Request,
        *,
        take_out: Collection[str] = (),
        wrap_json: Callable[[object, str], str] | None = None,
    ) -> Rendered:
        """The prompt of a conversation, control tokens told apart from text.

        `take_out`: characters that the caller put into the strings, to be reported and removed.
        """
        used = characters(self.template, request)
        stands = self._stands
        if stands is None or stands.meets(used):
            stands = _StandIns(self._control, used)
            stands.compile(self.template)
            self._stands = stands
        special = {role: stands(text) for role, text in request.special_tokens.items()}
        request = replace(request, special_tokens=special)
        mark = ""
        if self._glued:
            strings = list(strings_of(request.variables()))
            mark = next(c for c in map(chr, _MARKS) if c not in used and not _escaped(c, strings))
            request = marked(request, [token.text for token in self._glued], mark)
        text = self.template.run(stands.compiled, request, wrap_json=wrap_json)
        if mark:
            text = text.replace(_escape(mark), mark)
        return self._cut(text, stands, {mark, *take_out} - {""}, set(take_out))

    def _cut(self, text: str, stands: _StandIns, drop: set[str], report: set[str]) -> Rendered:
        spellings = [(char, self._control[name]) for char, name in stands.names.items()]
        spellings += [(token.text, token) for token in self._glued]
        inner = re.compile("[" + re.escape("".join([*drop, *stands.names])) + "]|\\Z")
        pieces: list[str] = []
        parts: list[Part] = []
        marks: list[tuple[int, str]] = []
        at = 0
        for part in Splitter(spellings).split(text):
            start, place = at, part.start
            for match in inner.finditer(text, part.start, part.end):
                char = match.group()
                for piece in (text[place : match.start()], stands.names.get(char, "")):
                    pieces.append(piece)
                    at += len(piece)
                if char in report:
                    marks.append((at, char))
                place = match.end()
            if at == start:
                continue
            if part.control is None and parts and parts[-1].control is None:
                parts[-1] = Part(parts[-1].start, at, None)
            else:
                parts.append(Part(start, at, part.control))
        return Rendered("".join(pieces), tuple(parts), tuple(marks))


class _StandIns:
    """Replaces control tokens in a template's texts by characters that are not in `used`."""

    compiled: jinja2.Template

    def __init__(self, control: Mapping[str, ControlToken], used: Collection[str]) -> None:
        bare = [(text, ControlToken(token.id, text)) for text, token in control.items()]
        self._finder = Splitter(bare)
        self._free = (char for char in map(chr, _STANDS) if char not in used)
        self._chars: dict[str, str] = {}
        self.names: dict[str, str] = {}

    def __call__(self, text: str) -> str:
        return "".join(map(self._replaced, _HALVES.split(text)))

    def _replaced(self, text: str) -> str:
        if _HALVES.fullmatch(text):
            return text
        pieces = []
        for part in self._finder.split(text):
            piece = text[part.start : part.end]
            if part.control is not None:
                if piece not in self._chars:
                    self._chars[piece] = next(self._free)
                    self.names[self._chars[piece]] = piece
                piece = self._chars[piece]
            pieces.append(piece)
        return "".join(pieces)

    def compile(self, template: ChatTemplate) -> None:
        self.compiled = template.compile(self)

    def meets(self, used: set[str]) -> bool:
        return not used.isdisjoint(self.names)


def characters(template: ChatTemplate, request: Request) -> set[str]:
    """Every character of a template and of what it is rendered with."""
    return set(template.source).union(*template.literals, *strings_of(request.variables()))


def strings_of(value: Any) -> Iterator[str]:
    """Every string in a JSON value, keys too."""
    waiting = [value]
    while waiting:
        current = waiting.pop()
        if isinstance(current, str):
            yield current
        elif isinstance(current, Mapping):
            waiting.extend(current.keys())
            waiting.extend(current.values())
        elif isinstance(current, (list, tuple)):
            waiting.extend(current)


def _escape(char: str) -> str:
    return f"\\u{ord(char):04x}"


def _escaped(char: str, strings: Iterable[str]) -> bool:
    return any(_escape(char) in text.lower() for text in strings)
