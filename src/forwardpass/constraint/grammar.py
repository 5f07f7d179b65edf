"""Grammars from schemas, patterns and choices: what may come next, and whether the text may end.

grammar = compile_schema({"type": "object", "properties": {"a": {"type": "integer"}}})
state = grammar.start()
for byte in b'{"a": 1}':
    state = state.advance(byte)     # None as soon as a byte is refused
state.complete                      # True
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from forwardpass.constraint.documents import (
    KNOWN_DIALECTS,
    Dialect,
    Document,
    Json,
    ReferenceProblem,
    dialect_of,
)
from forwardpass.constraint.lang import Lang, TooLarge
from forwardpass.constraint.machine import COMPACT, FREE, ONE, Machine
from forwardpass.constraint.normal import Normalizer
from forwardpass.constraint.pattern_language import whole
from forwardpass.constraint.patterns import PatternError
from forwardpass.constraint.planner import Planner
from forwardpass.constraint.plans import Node
from forwardpass.constraint.regular import Languages
from forwardpass.constraint.scripts import Point, Words, ending, single
from forwardpass.constraint.searching import Search
from forwardpass.constraint.states import Grammar, State
from forwardpass.constraint.steps import Exhausted
from forwardpass.errors import RequestError, SchemaError, SchemaProblem, did_you_mean

__all__ = ["Builder", "Grammar", "State", "Style", "compile_schema", "json_grammar"]

BLANKS = {"compact": COMPACT, "one": ONE, "free": FREE}
ORDERS = ("schema", "any")


@dataclass(frozen=True, slots=True)
class Style:
    """How the text is laid out.

    `blanks`: none (compact), at most one after `:` and `,` (one), up to eight in each gap (free).
    `key_order`: as in the schema, or any. `assert_formats`: `format` is enforced everywhere.
    `repeated_names`: an object of which the schema says nothing may hold a name twice.
    """

    blanks: str = "one"
    key_order: str = "schema"
    assert_formats: bool = False
    repeated_names: bool = False

    def __post_init__(self) -> None:
        for name, value, offered in (
            ("blanks", self.blanks, BLANKS),
            ("key_order", self.key_order, ORDERS),
        ):
            if value not in offered:
                raise RequestError(
                    f"{name} = {value}{did_you_mean(value, offered)}",
                    advice=f"Choose one of {', '.join(offered)}.",
                )


class Builder:
    """Makes the parts of one grammar: values under schemas, and languages of plain text.

    All parts share one machine, so they can stand in one script (`scripts.py`).
    """

    def __init__(self, style: Style = Style()) -> None:
        self.style = style
        self.search = Search(Languages())
        self.languages = self.search.languages
        self.machine = Machine(
            self.search,
            BLANKS[style.blanks],
            any_order=style.key_order == "any",
            repeated=style.repeated_names,
        )
        self._nodes: list[Node] = []
        self._warnings: list[tuple[str, str]] = []

    @property
    def warnings(self) -> tuple[tuple[str, str], ...]:
        """What the schemas so far say that is not enforced, each with its JSON pointer."""
        return tuple(self._warnings)

    def value(self, schema: Json, default: Dialect = Dialect.DRAFT2020) -> Node:
        """A JSON value under a schema. Raises SchemaError with everything that is wrong with it."""
        try:
            document = Document(schema, _dialect(schema, default))
        except ReferenceProblem as problem:
            found = SchemaProblem("", "$schema", problem.reason, problem.way_out)
            raise SchemaError([found]) from None
        normalizer = Normalizer(
            document, assert_formats=self.style.assert_formats, search=self.search
        )
        planner = Planner(normalizer)
        root = planner.plan(normalizer.expressions.schema(document.root))
        if normalizer.problems:
            raise SchemaError(list(normalizer.problems))
        if not root.alive:
            nothing = SchemaProblem("", "(schema)", "is valid for no value", "correct the schema")
            raise SchemaError([nothing], unsatisfiable=True)
        self._nodes += planner.nodes.values()
        self._warnings += normalizer.warnings
        return root

    def pattern(self, pattern: str, where: str = "regex") -> Lang:
        """All texts that a regular expression (ECMA-262) matches as a whole.

        Raises RequestError for one that cannot be honoured or that nothing matches.
        """
        self.languages.steps.begin()
        try:
            lang = whole(self.languages, pattern)
            if self.search.live(lang):
                return lang
        except (PatternError, TooLarge, Exhausted) as problem:
            raise RequestError(f"{where} {pattern!r:.60} {problem}") from None
        finally:
            self.languages.steps.end()
        raise RequestError(f"{where} {pattern!r:.60} matches no text")

    def choice(self, texts: Iterable[str]) -> Lang:
        """Any one of the texts. Raises RequestError where there is none, or half a surrogate."""
        wanted = list(texts)
        lang = self.languages.words(wanted)
        if not wanted or len(lang.words) != len(set(wanted)):
            raise RequestError(
                "choice: wanted at least one text, and none with half a surrogate pair"
            )
        return lang

    def grammar(self, start: Point) -> Grammar:
        """The grammar of a script whose parts were made here."""
        return Grammar(self.machine, start, self._nodes, self.warnings)


def compile_schema(
    schema: Json, style: Style = Style(), default: Dialect = Dialect.DRAFT2020
) -> Grammar:
    """The grammar of a JSON Schema. Raises SchemaError with everything that is wrong with it."""
    builder = Builder(style)
    return builder.grammar(single(builder.value(schema, default)))


def text_grammar(pattern: str | None = None, choice: Iterable[str] = ()) -> Grammar:
    """The grammar of a plain text: all that a pattern matches, or one of several texts.

    Errors: as `Builder.pattern`, `Builder.choice`.
    """
    builder = Builder()
    lang = builder.choice(choice) if pattern is None else builder.pattern(pattern)
    return builder.grammar(Point([Words(lang, ending())]))


def _dialect(schema: Json, default: Dialect) -> Dialect:
    if not isinstance(schema, dict | bool):
        raise ReferenceProblem("is an object or true or false", "correct the schema")
    named = schema.get("$schema") if isinstance(schema, dict) else None
    if named is None:
        return default
    dialect = dialect_of(named)
    if dialect is None:
        raise ReferenceProblem(
            f'= "{named}" is a dialect not known here', f"name {KNOWN_DIALECTS}, or leave it out"
        )
    return dialect


def json_grammar(blanks: str = "free") -> Grammar:
    """All JSON texts (RFC 8259), whatever they hold; a name may come twice in an object."""
    return compile_schema(True, Style(blanks, "any", repeated_names=True))
