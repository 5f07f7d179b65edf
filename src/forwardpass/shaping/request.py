"""`Shape`: what one request asks of its answer's shape, made into a grammar."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from forwardpass.constraint.grammar import Builder, Style
from forwardpass.constraint.scripts import Point, Words, ending, single
from forwardpass.constraint.states import Grammar
from forwardpass.errors import RequestError, SchemaError, did_you_mean
from forwardpass.shaping.calls import IdOf, Scripts
from forwardpass.text.calls.choice import ToolChoice, tool_choice_from
from forwardpass.text.calls.form import CallForm
from forwardpass.text.tools import strict_of, tools_from

KINDS = ("schema", "json_object", "regex", "choice", "lark")
ENGINES = ("own", "llguidance")
_ANY_OBJECT: dict[str, Any] = {"type": "object"}
_NO_CALLS = ToolChoice("none")
_NO_ARGUMENTS: dict[str, Any] = {"type": "object", "additionalProperties": False}


@dataclass(frozen=True)
class Shape:
    """A shape that was asked for: one of KINDS with what it says, or calls of tools.

    `loose` are the names of tools whose schema is not enforced, as they are not strict.
    """

    kind: str
    value: object
    style: Style
    tools: tuple[Mapping[str, Any], ...] = ()
    choice: ToolChoice = _NO_CALLS
    loose: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """Equal for equal shapes."""
        facts = [self.kind, self.value, vars_of(self.style), self.tools, self.loose]
        names = [self.choice.mode, *self.choice.names, self.choice.parallel]
        return json.dumps([*facts, names], ensure_ascii=False)

    def grammar(self, form: CallForm | None, id_of: IdOf, *, thinking: bool) -> Grammar:
        """The grammar of an answer of a model that writes calls, and its reasoning, in this form.

        Raises SchemaError with everything that is wrong with a schema, of a tool with its name.
        """
        builder = Builder(self.style)
        if self.kind != "tools":
            start = self._plain(builder)
            if form is not None:
                scripts = Scripts(builder, form, {}, id_of)
                start = scripts.reasoned(start, opened=thinking)
            return builder.grammar(start)
        assert form is not None
        nodes = {name: self._arguments(builder, name) for name in self.choice.names}
        scripts = Scripts(builder, form, nodes, id_of)
        return builder.grammar(scripts.start(self.choice, thinking=thinking))

    def _plain(self, builder: Builder) -> Point:
        if self.kind == "regex":
            return Point([Words(builder.pattern(str(self.value)), ending(), "regex")])
        if self.kind == "choice":
            assert isinstance(self.value, tuple)
            return Point([Words(builder.choice(self.value), ending(), "choice")])
        value = _ANY_OBJECT if self.kind == "json_object" else self.value
        return single(builder.value(value))

    def _arguments(self, builder: Builder, name: str) -> Any:
        """What the arguments of a tool may be: an object under its schema; any if it is loose."""
        function = next(t["function"] for t in self.tools if t["function"]["name"] == name)
        schema = function.get("parameters")
        if name in self.loose:
            schema = _ANY_OBJECT
        elif schema is None:
            schema = _NO_ARGUMENTS
        elif "type" not in schema:
            schema = {**schema, "type": "object"}
        try:
            return builder.value(schema)
        except SchemaError as error:
            raise RequestError(
                f"tool {name}: {error.fact}", *error.details, advice=error.advice
            ) from None


def vars_of(style: Style) -> list[object]:
    """The settings of a style."""
    return [style.blanks, style.key_order, style.assert_formats, style.repeated_names]


def shape_of(options: Mapping[str, Any]) -> Shape | None:
    """The shape that checked options ask for; None where any text will do.

    Raises RequestError for two shapes at once, and for what is no shape.
    """
    asked = [name for name in KINDS if options.get(name) not in (None, False)]
    tools = tools_from(list(options.get("tools") or ()) or None)
    choice = tool_choice_from(
        options.get("tool_choice"), tools, parallel=options.get("parallel_tool_calls")
    )
    if len(asked) > 1:
        raise RequestError(
            f"{asked[0]} and {asked[1]} were both asked for; an answer has one shape"
        )
    style = Style(key_order=options.get("key_order") or "schema")
    if not asked:
        if not tools:
            return None
        loose = tuple(t["function"]["name"] for t in tools if strict_of(t) is False)
        return Shape("tools", None, style, tools, choice, loose)
    if choice.mode == "required":
        raise RequestError(f"{asked[0]} and a call that is required: an answer has one shape")
    kind = asked[0]
    return Shape(kind, _READ[kind](options[kind]), style)


def engine_of(options: Mapping[str, Any]) -> str:
    """The engine that a request wants; RequestError for one that there is not."""
    engine = options.get("constraint") or "own"
    if engine not in ENGINES:
        raise RequestError(
            f"constraint = {engine!r:.60}{did_you_mean(str(engine), ENGINES)}",
            f"known: {', '.join(ENGINES)}",
        )
    return str(engine)


def _schema(value: object) -> object:
    if isinstance(value, bool | Mapping):
        return value
    raise RequestError(f"schema = {value!r:.60}: wanted a JSON Schema: an object, True or False")


def _regex(value: object) -> object:
    if isinstance(value, str):
        return value
    raise RequestError(f"regex = {value!r:.60}: wanted a regular expression as a text")


def _lark(value: object) -> object:
    if isinstance(value, str):
        return value
    raise RequestError(f"lark = {value!r:.60}: wanted a grammar as a text")


def _choice(value: object) -> object:
    is_list = isinstance(value, Sequence) and not isinstance(value, str | bytes)
    if is_list and value and all(isinstance(text, str) for text in value):
        return tuple(value)
    raise RequestError(f"choice = {value!r:.60}: wanted a list of texts")


_READ: dict[str, Callable[[object], object]] = {
    "schema": _schema,
    "regex": _regex,
    "choice": _choice,
    "lark": _lark,
    "json_object": lambda value: value,
}
