"""From the options of a request to what its answer may be: `Shapes` of a model, a `Shape` each.

shape = shapes.of(options, conversation, prompt)   # None where nothing was asked for
shape.check(max_tokens)                             # refuses a limit that is too small
guide = shape.guide()                               # one an answer
"""

from __future__ import annotations

import json
import re
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from forwardpass.answer import Held
from forwardpass.constraint.compiled import Compiled
from forwardpass.constraint.grammar import Builder, Style
from forwardpass.constraint.guide import Guide
from forwardpass.constraint.masks import Masker
from forwardpass.constraint.outside import OutsideGrammar, OutsideGuide, OutsideVocabulary
from forwardpass.constraint.plans import Node
from forwardpass.constraint.scripts import Point
from forwardpass.constraint.states import Grammar
from forwardpass.constraint.tokens import Tokens
from forwardpass.engine.turns import Turns
from forwardpass.errors import ContextError, RequestError, SchemaError, SchemaProblem
from forwardpass.options import Options, shape_named
from forwardpass.shape_scripts import Offered, Scripts
from forwardpass.text.calls.choice import ToolChoice, tool_choice_from
from forwardpass.text.calls.form import CallForm, Thinking
from forwardpass.text.calls.parse import Answer as Parsed
from forwardpass.text.calls.parse import parse_calls
from forwardpass.text.calls.pieces import Control as Mark
from forwardpass.text.calls.pieces import Piece
from forwardpass.text.calls.recognise import thinking_of
from forwardpass.text.tokenizer import Tokenizer
from forwardpass.text.tools import strict_of
from forwardpass.trace.masking import mask_notes
from forwardpass.trace.masks import MaskNotes
from forwardpass.trace.step import Step

if TYPE_CHECKING:
    from forwardpass.text.chat import Chat

Tool = Mapping[str, Any]

# Maskers that are kept, each with masks of up to 32 MB.
MOST_MASKERS = 8
# Ids that files reserve: they stand for no text, whatever they are called.
_RESERVED = re.compile(r"\[PAD\d+\]|\[UNUSED_?\d+\]|<\|?(?:unused|reserved)[^>]*>", re.IGNORECASE)
_CUT = "llguidance cannot close in time: at the limit of tokens the answer is cut"
_JSON_OBJECT = {"type": "object"}
_NO_ARGUMENTS = {"type": "object", "additionalProperties": False}


@dataclass(frozen=True, eq=False)
class Shape:
    """What an answer may be: the grammar that it is kept within, and how it is read back.

    `ends` are all ids that end it. `held` is what the finished answer tells of it.
    """

    made: Masker | OutsideGrammar
    turns: Turns
    ends: frozenset[int]
    held: Held

    def guide(self) -> Guide | OutsideGuide:
        """Keeps one answer within the grammar; those of one grammar move on in `turns`."""
        made = self.made
        return made.guide() if isinstance(made, OutsideGrammar) else Guide(made, self.ends)

    def check(self, max_tokens: int, room: int) -> None:
        """Refuses a limit within which nothing complete can be written; `room` is what the context
        has left for the answer."""
        if not isinstance(self.made, Masker):
            return
        with self.turns:
            guide = Guide(self.made, self.ends)
            guide.check(max_tokens)
            least = guide.least
        if 0 < room < least:
            raise ContextError(
                f"the prompt leaves {room:,} tokens of the context: the shortest complete answer "
                f"takes {least:,}",
                advice="--context makes it longer, if memory and model allow",
            )

    def notes(
        self, steps: Sequence[Step], limit: int, name: Callable[[int], str]
    ) -> MaskNotes | None:
        """What the grammar said at each step of an answer of at most `limit` tokens; None where it
        is not ours. `name` names a control token."""
        if not isinstance(self.made, Masker):
            return None
        with self.turns:
            return mask_notes(Guide(self.made, self.ends), steps, limit, name)


def _is_reserved(text: bytes) -> bool:
    return _RESERVED.fullmatch(text.decode("utf-8", "replace")) is not None


class Shapes:
    """The shapes of one model: its tokens, and what was compiled for it."""

    def __init__(self, tokenizer: Tokenizer, chat: Chat | None, rows: int) -> None:
        self._tokenizer, self._chat, self._rows = tokenizer, chat, rows
        self._compiled = Compiled()
        self._maskers: OrderedDict[Grammar, tuple[Masker, Turns]] = OrderedDict()
        self._turns = Turns()
        self._outside: dict[frozenset[int], OutsideVocabulary] = {}

    def of(self, options: Options, tools: Sequence[Tool], prompt: str | None) -> Shape | None:
        """The shape that checked options ask for; None for one that may be any text.

        `tools` are those on offer, as loaded; `prompt` is the text that the template made, None
        where there is none. Errors: SchemaError with all that is wrong, RequestError.
        """
        named = shape_named(options)
        if named is None and not tools:
            return None
        ends = self._ends(prompt is not None)
        if named == "lark" or options.get("constraint") == "llguidance":
            return self._of_outside(named or "", options, ends)
        choice = tool_choice_from(
            options.get("tool_choice"), tools, parallel=options.get("parallel_tool_calls")
        )
        if choice.mode == "required" and named is not None:
            raise RequestError(f"{named} and required tools: an answer is a call or has the shape")
        form, thinking = self._forms(prompt is not None, bool(tools))
        if choice.mode != "none" and form is not None:
            ends |= {i for i in map(self._id_of, form.end) if i is not None}
        asked = _Asked(options, named, choice, tuple(tools), form, thinking, prompt or "")
        grammar = self._compiled.get(asked.content(), lambda: asked.grammar(self._id_of))
        masker, turns = self._masker(grammar)
        warnings = (*(_words(*one) for one in grammar.warnings), *asked.notes())
        return Shape(masker, turns, ends, Held(warnings, True, asked.reader(), bool(tools)))

    def _masker(self, grammar: Grammar) -> tuple[Masker, Turns]:
        with self._turns:
            kept = self._maskers.get(grammar)
            if kept is None:
                kept = Masker(grammar, self.tokens), Turns()
                self._maskers[grammar] = kept
                if len(self._maskers) > MOST_MASKERS:
                    self._maskers.popitem(last=False)
            self._maskers.move_to_end(grammar)
            return kept

    def _of_outside(self, named: str, options: Options, ends: frozenset[int]) -> Shape:
        if ends not in self._outside:
            texts = [*self.tokens.texts, *[None] * (self._rows - len(self.tokens.texts))]
            self._outside[ends] = OutsideVocabulary(texts, [], ends)
        vocabulary = self._outside[ends]
        if named == "lark":
            made = vocabulary.grammar("lark", options.get("lark") or "")
        elif named == "regex":
            made = vocabulary.grammar("regex", options.get("regex") or "")
        else:
            schema = _JSON_OBJECT if named == "json_object" else options.get("schema")
            made = vocabulary.grammar("json_schema", json.dumps(schema))
        return Shape(made, Turns(), ends, Held((*made.warnings, _CUT), False, None, False))

    # ---- the model's tokens ------------------------------------------------------------

    @cached_property
    def tokens(self) -> Tokens:
        """The tokens that are text: no control tokens, none that a form of calls or of reasoning
        writes as one id, none that end an answer, none reserved."""
        tokenizer = self._tokenizer
        never = {*self._ends(True), *self._ends(False), *self._marks()}
        never.update(token.id for token in tokenizer.control_tokens)
        texts: list[bytes | None] = [*tokenizer.all_bytes()]
        for i, text in enumerate(texts):
            reserved = text and text[:1] in b"[<" and _is_reserved(text)
            if i in never or reserved:
                texts[i] = None
        return Tokens(texts, self._rows)

    def _marks(self) -> Iterable[int]:
        for tools in (False, True):
            form, thinking = self._forms(True, tools, strict=False)
            pieces: list[Piece] = []
            if form is not None:
                pieces += (*form.call, *form.marker, *form.before, *form.after, *form.between)
                pieces += (*form.text, *map(Mark, form.end))
            if thinking is not None:
                scripts = Scripts(Builder(), self._id_of)
                pieces += (*scripts.marks(thinking.begin), *scripts.marks(thinking.end))
            found = (self._id_of(piece.text) for piece in pieces if isinstance(piece, Mark))
            yield from (i for i in found if i is not None)

    def _ends(self, chat: bool) -> frozenset[int]:
        if chat and self._chat is not None:
            return frozenset(self._chat.eos_ids)
        return frozenset(self._tokenizer.eos_ids)

    def _id_of(self, text: str) -> int | None:
        """The id that a text always is as a whole."""
        token = self._tokenizer.find(text)
        whole = token is not None and self._tokenizer.encode(text, control=True) == [token]
        return token if whole else None

    def _forms(
        self, chat: bool, tools: bool, *, strict: bool = True
    ) -> tuple[CallForm | None, Thinking | None]:
        """How calls are written, if that can be told, and what is around reasoning.

        `strict`: with tools, RequestError where calls cannot be enforced.
        """
        if self._chat is None or not chat:
            return None, None
        try:
            form = self._chat.call_form(with_tools=tools)
        except RequestError:
            if tools and strict:
                raise
            return None, thinking_of(self._chat.templates.choose(tools))
        return form, form.thinking


@dataclass(frozen=True)
class _Asked:
    """All that the shape of an answer depends on."""

    options: Options
    named: str | None
    choice: ToolChoice
    tools: tuple[Tool, ...]
    form: CallForm | None
    pair: Thinking | None
    prompt: str

    @property
    def _thinks(self) -> str:
        """Whether reasoning is open, may be opened, or there is none."""
        if self.pair is None or self.prompt.rstrip().endswith(self.pair.end.rstrip()):
            return "no"
        return "open" if self.pair.opened_by(self.prompt) else "may"

    def content(self) -> list[Any]:
        """As JSON, for the cache."""
        options, choice = self.options, self.choice
        given = None if self.named is None else options.get(self.named)
        told = [
            [t["function"]["name"], t["function"].get("parameters"), self._is_strict(t)]
            for t in self.tools
        ]
        form, key_order = repr((self.form, self.pair)), options.get("key_order")
        called = [choice.mode, list(choice.names), choice.parallel]
        shape = [self.named, list(given) if isinstance(given, tuple) else given]
        return [*shape, key_order, told, called, form, self._thinks]

    def grammar(self, id_of: Callable[[str], int | None]) -> Grammar:
        """The grammar of the whole answer."""
        builder = Builder(Style(key_order=self.options.get("key_order") or "schema"))
        scripts = Scripts(builder, id_of)
        start = self._start(builder, scripts)
        if self.pair is not None and self._thinks != "no":
            start = scripts.thought(self.pair, self._thinks == "open", start)
        return builder.grammar(start)

    def _start(self, builder: Builder, scripts: Scripts) -> Point:
        form, calls = self.form, None
        if self.choice.mode != "none":
            assert form is not None
            offered = self._offered(builder)
            calls = scripts.calls(form, offered, several=self.choice.parallel)
            if self.choice.mode == "required":
                return calls
        if self.named is None:
            assert form is not None
            return scripts.text(form, calls)
        shaped = self._shaped(builder, scripts)
        if calls is None:
            return shaped
        return Point([*shaped.edges, *calls.edges], final=shaped.final)

    def _shaped(self, builder: Builder, scripts: Scripts) -> Point:
        options, form = self.options, self.form
        if self.named == "regex":
            return scripts.words(builder.pattern(options.get("regex") or ""), form)
        if self.named == "choice":
            return scripts.words(builder.choice(options.get("choice") or ()), form)
        schema = _JSON_OBJECT if self.named == "json_object" else _plain(options.get("schema"))
        return scripts.value(builder.value(schema), form)

    def _offered(self, builder: Builder) -> list[Offered]:
        """The tools that may be called. Raises SchemaError for all problems of all of them."""
        offered: list[Offered] = []
        problems: list[SchemaProblem] = []
        for tool in self.tools:
            function = tool["function"]
            if function["name"] not in self.choice.names:
                continue
            schema = function.get("parameters", _NO_ARGUMENTS)
            try:
                node = builder.value(_as_object(schema) if self._is_strict(tool) else _JSON_OBJECT)
                _check_object(node)
                offered.append(Offered(function["name"], node))
            except SchemaError as error:
                problems += [
                    replace(one, pointer=f"tool {function['name']}, {one.pointer or '/'}")
                    for one in error.problems
                ]
        if problems:
            raise SchemaError(problems)
        return offered

    def _is_strict(self, tool: Tool) -> bool:
        told, asked = strict_of(tool), self.options.get("strict")
        return told if told is not None else asked is not False

    def notes(self) -> list[str]:
        """What the request itself leaves open."""
        loose = [
            t["function"]["name"]
            for t in self.tools
            if t["function"]["name"] in self.choice.names and not self._is_strict(t)
        ]
        return [f"tool {name} is not strict: its arguments are JSON, its schema is not enforced"
                for name in loose]  # fmt: skip

    def reader(self) -> Callable[[str], Parsed]:
        """Reads the text of an answer back into reasoning, content and calls."""
        form = self.form or CallForm("none", (), (), thinking=self.pair)
        if not self.tools:
            form = replace(form, marker=(), also=())  # what looks like a call is content
        names = tuple(tool["function"]["name"] for tool in self.tools)
        opened = self._thinks == "open"

        def read(text: str) -> Parsed:
            return parse_calls(form, text, names=names, thinking=opened)

        return read


def _plain(schema: Any) -> Any:
    return dict(schema) if isinstance(schema, Mapping) else schema


def _as_object(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The schema of arguments, which are objects whatever else it lets in."""
    kind = schema.get("type")
    if kind is None or (isinstance(kind, list) and "object" in kind):
        return {**schema, "type": "object"}
    return dict(schema)


def _check_object(node: Node) -> None:
    form = node.form
    if node.arrays or form.null or form.booleans or form.numbers or form.texts.kind:
        problem = SchemaProblem("", "type", "lets in what is no object", 'say "type": "object"')
        raise SchemaError([problem])


def _words(pointer: str, text: str) -> str:
    return f"{pointer or '/'}: {text}"
