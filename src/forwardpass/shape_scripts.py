"""Scripts of whole answers: reasoning, free text, calls of tools in a model's form, values.

A script is the graph of points that `constraint/scripts.py` describes, built from its end to its
start. A mark that is one id of the tokenizer may be written with that id, or with other tokens of
the same text, as models do.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from forwardpass.constraint import charsets
from forwardpass.constraint.grammar import Builder
from forwardpass.constraint.lang import Lang
from forwardpass.constraint.plans import Node
from forwardpass.constraint.scripts import Control, Edge, Literal, Point, Value, Words, ending
from forwardpass.text.calls.form import CallForm, Thinking
from forwardpass.text.calls.pieces import (
    Arguments,
    CallId,
    Fixed,
    Name,
    Piece,
    Pieces,
    bound_fixed,
    literal,
    written,
)
from forwardpass.text.calls.pieces import Control as Mark

# What may stand between the reasoning and what comes after it.
_AFTER_REASONING = ("", "\n", "\n\n")
_LAST_BLANK = 0x3000
# White space as those see it who read calls back and pass over it.
_BLANKS = charsets.make((c, c) for c in range(_LAST_BLANK + 1) if chr(c).isspace())


@dataclass(frozen=True, slots=True, eq=False)
class Offered:
    """A tool that may be called, and the value that its arguments are."""

    name: str
    arguments: Node


class Scripts:
    """Builds scripts from the parts of one grammar; `id_of` gives the one id of a text, if any."""

    def __init__(self, builder: Builder, id_of: Callable[[str], int | None]) -> None:
        self._builder, self._languages, self._id_of = builder, builder.languages, id_of

    def fixed(self, parts: Sequence[Fixed], to: Point) -> Point:
        """Exactly these pieces, then `to`."""
        for piece in reversed(parts):
            to = self._piece(piece, None, to)
        return to

    def calls(self, form: CallForm, tools: Sequence[Offered], *, several: bool) -> Point:
        """A section of calls of these tools, after which the text ends."""
        after = Point()
        start = self._call(form.call, tools, after)
        last = self.fixed(form.after, ending())
        after.edges, after.final = list(last.edges), last.final
        if several and form.parallel:
            after.edges += self.fixed(form.between, start).edges
        return self.fixed(form.before, start)

    def text(self, form: CallForm, calls: Point | None) -> Point:
        """Free text that writes no call, then the end or, where the form has that, the calls;
        where it has not, how the answer begins decides what it is."""
        if not form.text_before:
            free = self.fixed(form.text, Point([Words(self._no_call_first(form), ending())]))
            return free if calls is None else either(free, calls)
        joint = Point(final=True) if calls is None else Point(calls.edges, final=True)
        free = self.fixed(form.text, Point([Words(self._no_call(form), joint)]))
        return either(free, calls) if calls is not None and form.text else free

    def value(self, node: Node, form: CallForm | None) -> Point:
        """One JSON value, behind what the form puts before free text."""
        return self._answer(Value(node, ending()), form)

    def words(self, lang: Lang, form: CallForm | None) -> Point:
        """One text of a language, behind what the form puts before free text."""
        return self._answer(Words(lang, ending()), form)

    def thought(self, pair: Thinking, opened: bool, then: Point) -> Point:
        """Reasoning, then the rest; where it is not `opened` yet, it may be left out."""
        # Anything but another text before the end mark: how the mark is cut into ids is free.
        rest = Point([Words(self._languages.words(_AFTER_REASONING), then)])
        end = self.fixed(self.marks(pair.end), rest)
        inside = Point([Words(self._without([self._languages.words([pair.end])]), end)])
        return inside if opened else either(self.fixed(self.marks(pair.begin), inside), then)

    def marks(self, text: str) -> tuple[Fixed, ...]:
        """A text as pieces, its marks as ids where they are."""
        return bound_fixed(literal(text), lambda mark: self._id_of(mark) is not None)

    # ---- the parts ---------------------------------------------------------------------

    def _answer(self, edge: Value | Words, form: CallForm | None) -> Point:
        return self.fixed(() if form is None else form.text, Point([edge]))

    def _call(self, parts: Pieces, tools: Sequence[Offered], to: Point) -> Point:
        own = next(i for i, piece in enumerate(parts) if isinstance(piece, Name | Arguments))
        edges: list[Edge] = []
        for tool in tools:
            point = to
            for piece in reversed(parts[own:]):
                point = self._piece(piece, tool, point)
            edges += point.edges
        point = Point(edges)
        for piece in reversed(parts[:own]):
            point = self._piece(piece, None, point)
        return point

    def _piece(self, piece: Piece, tool: Offered | None, to: Point) -> Point:
        if isinstance(piece, CallId):
            return Point([Words(self._builder.pattern(piece.pattern, "the id of a call"), to)])
        if isinstance(piece, Name | Arguments):
            assert tool is not None
            if isinstance(piece, Name):
                return Point([Literal(tool.name.encode(), to)])
            return Point([Value(tool.arguments, to, tool.name)])
        edges: list[Edge] = [Literal(piece.text.encode(), to)]
        if isinstance(piece, Mark) and (token := self._id_of(piece.text)) is not None:
            edges.append(Control(token, to))
        return Point(edges)

    def _without(self, marks: Sequence[Lang]) -> Lang:
        """All texts in which none of these stands."""
        languages = self._languages
        held = languages.cat(languages.all, languages.alt(marks), languages.all)
        return languages.negate(held)

    def _no_call(self, form: CallForm) -> Lang:
        return self._without([self._spaced(text) for text in beginnings(form)])

    def _no_call_first(self, form: CallForm) -> Lang:
        languages = self._languages
        begun = languages.alt(self._spaced(text) for text in beginnings(form))
        return languages.negate(languages.cat(self._blanks, begun, languages.all))

    def _spaced(self, text: str) -> Lang:
        """A text with any blanks where it has some: what reads calls takes that for the same."""
        languages = self._languages
        parts = [languages.words([part]) for part in text.split()]
        return languages.cat(*parts[:1], *(x for part in parts[1:] for x in (self._blanks, part)))

    @property
    def _blanks(self) -> Lang:
        return self._languages.repeat(self._languages.chars(_BLANKS), 0, None)


def either(one: Point, other: Point) -> Point:
    """What begins at one point or at the other."""
    return Point([*one.edges, *other.edges], final=one.final or other.final)


def beginnings(form: CallForm) -> list[str]:
    """The texts with which a call begins, in every way in which one is read."""
    found = [written(form.marker)]
    for way in form.also:
        lead = next((i for i, piece in enumerate(way) if not isinstance(piece, Fixed)), len(way))
        found.append(written(way[:lead]))
    return [text for text in dict.fromkeys(found) if text.strip()]


# NOTE from the lead to the helper who writes this file (remove it): your shaping.py and
# shape_scripts.py stay. generate.py is done (guide=..., forced runs, StepMask in trace/step.py,
# answer_limit): use it as it is, do not rewrite it; model.py, answer.py, options.py are yours.
# forced_run needs guide.masker and guide.state: give SharedGuide those (or a `run(encode, left)`).
