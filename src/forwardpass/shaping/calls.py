"""The way a model writes calls of tools (`text/calls`), as a script of the grammar."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from forwardpass.constraint.grammar import Builder
from forwardpass.constraint.lang import Lang
from forwardpass.constraint.plans import Node
from forwardpass.constraint.scripts import Control, Edge, Literal, Point, Value, Words, ending
from forwardpass.text.calls import pieces as text_pieces
from forwardpass.text.calls.choice import ToolChoice
from forwardpass.text.calls.form import CallForm
from forwardpass.text.calls.pieces import FixedPieces, Pieces, written

IdOf = Callable[[str], int | None]


class Scripts:
    """Scripts of one form; every part of them is made by one builder.

    `nodes` has what each tool's arguments may be. `id_of` gives the id of a mark that is one.
    """

    def __init__(
        self, builder: Builder, form: CallForm, nodes: Mapping[str, Node], id_of: IdOf
    ) -> None:
        self.builder, self.form, self.nodes, self._id_of = builder, form, nodes, id_of

    def start(self, choice: ToolChoice, *, thinking: bool) -> Point:
        """Where an answer begins. `thinking`: the prompt ended inside the reasoning."""
        if choice.mode == "required":
            begin = self._section(choice, ending())
        elif choice.mode == "none":
            begin = self._text(ending(), self._without_marker())
        else:
            begin = self._auto(choice)
        return self.reasoned(begin, opened=thinking)

    def _auto(self, choice: ToolChoice) -> Point:
        section = self._section(choice, ending())
        if not self.form.text_before:
            text = self._text(ending(), self._not_like_a_call())
            return Point([*section.edges, *text.edges], text.final)
        behind = Point(section.edges, final=True)
        return self._text(behind, self._without_marker())

    def reasoned(self, to: Point, *, opened: bool) -> Point:
        """What may come before an answer where the model has a form for its reasoning."""
        marks = self.form.thinking
        if marks is None:
            return to
        end = self._fixed(text_pieces.bound_fixed(text_pieces.literal(marks.end), self._is_id), to)
        inside = Point([Words(self._without(marks.end), end, "reasoning")])
        if opened:
            return inside
        begin = text_pieces.bound_fixed(text_pieces.literal(marks.begin), self._is_id)
        return Point([*self._fixed(begin, inside).edges, *to.edges], to.final)

    # ---- calls -------------------------------------------------------------------------

    def _section(self, choice: ToolChoice, end: Point) -> Point:
        form = self.form
        behind = Point(self._fixed(form.after, end).edges, final=not form.after and end.final)
        call = self._call(choice.names, behind)
        if form.parallel and choice.parallel:
            behind.edges.extend(self._fixed(form.between, call).edges)
        return self._fixed(form.before, call)

    def _call(self, names: tuple[str, ...], to: Point) -> Point:
        """One call of one of the tools: what comes before the name is written once for all."""
        pieces = self.form.call
        place = next(i for i, p in enumerate(pieces) if isinstance(p, text_pieces.Name))
        named = Point()
        for name in names:
            rest = self._pieces(pieces[place + 1 :], to, name)
            named.edges.append(Literal(name.encode(), rest))
        return self._pieces(pieces[:place], named, "")

    def _pieces(self, pieces: Pieces, to: Point, name: str) -> Point:
        for piece in reversed(pieces):
            to = Point(self._edges(piece, to, name))
        return to

    def _fixed(self, pieces: FixedPieces, to: Point) -> Point:
        return self._pieces(pieces, to, "")

    def _edges(self, piece: text_pieces.Piece, to: Point, name: str) -> list[Edge]:
        match piece:
            case text_pieces.Literal(text):
                return [Literal(text.encode(), to)]
            case text_pieces.Control(text):
                token = self._id_of(text)
                written_out: list[Edge] = [Literal(text.encode(), to)]
                return written_out if token is None else [Control(token, to), *written_out]
            case text_pieces.CallId(pattern):
                return [Words(self.builder.pattern(pattern, "call id"), to, "call id")]
            case text_pieces.Arguments():
                return [Value(self.nodes[name], to, name)]
            case text_pieces.Name():
                return [Literal(name.encode(), to)]

    # ---- free text ---------------------------------------------------------------------

    def _text(self, to: Point, lang: Lang) -> Point:
        return self._fixed(self.form.text, Point([Words(lang, to, "text")]))

    def _without(self, mark: str) -> Lang:
        """All texts that do not contain a mark."""
        languages = self.builder.languages
        mark = mark.strip() or mark
        return languages.negate(
            languages.cat(languages.all, languages.words([mark]), languages.all)
        )

    def _without_marker(self) -> Lang:
        """Free text of a model whose calls begin with a mark, wherever that stands."""
        if not self.form.text_before:
            return self._not_like_a_call()
        return self._without(written(self.form.marker))

    def _not_like_a_call(self) -> Lang:
        """Free text where the beginning of an answer says whether it is a call."""
        languages = self.builder.languages
        begun = written(self.form.marker).lstrip()
        like = languages.cat(
            languages.repeat(languages.chars(((9, 10), (13, 13), (32, 32))), 0, None),
            languages.words([begun]),
            languages.all,
        )
        return languages.negate(like)

    def _is_id(self, text: str) -> bool:
        return self._id_of(text) is not None
