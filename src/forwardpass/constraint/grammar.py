"""A schema as a grammar over bytes: what may come next, and whether the text may end.

grammar = compile_schema({"type": "object", "properties": {"a": {"type": "integer"}}})
state = grammar.start()
for byte in b'{"a": 1}':
    state = state.advance(byte)     # None as soon as a byte is refused
state.complete                      # True
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from forwardpass.constraint.algebra import Exhausted, Unsupported
from forwardpass.constraint.closing import Closer
from forwardpass.constraint.documents import (
    KNOWN_DIALECTS,
    Dialect,
    Document,
    Json,
    ReferenceProblem,
    dialect_of,
)
from forwardpass.constraint.frames import Position
from forwardpass.constraint.machine import COMPACT, FREE, ONE, Blanks, Machine
from forwardpass.constraint.normal import Normalizer
from forwardpass.constraint.planner import Planner
from forwardpass.constraint.plans import Node
from forwardpass.constraint.scripts import Point, single
from forwardpass.errors import RequestError, SchemaError, SchemaProblem, did_you_mean

BLANKS = {"compact": COMPACT, "one": ONE, "free": FREE}
ORDERS = ("schema", "any")
MOST_POSITIONS = 256


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


class State:
    """A place in the text: a set of parallel positions, each with its stack; immutable."""

    __slots__ = ("_hash", "machine", "positions")

    def __init__(self, machine: Machine, positions: frozenset[Position]) -> None:
        self.machine, self.positions = machine, positions
        self._hash = hash(positions)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, State)
            and self.machine is other.machine
            and self.positions == other.positions
        )

    def advance(self, byte: int) -> State | None:
        """The state after one more byte, or None where the grammar refuses it."""
        step = self.machine.step
        after = {new for position in self.positions for new in step(position, byte)}
        if not after:
            return None
        if len(after) > MOST_POSITIONS:
            # Each can be completed by itself, so some may be let go; the ones kept are stable.
            after = set(sorted(after, key=hash)[:MOST_POSITIONS])
        return State(self.machine, frozenset(after))

    def feed(self, text: bytes) -> State | None:
        """The state after a run of bytes, or None where one of them is refused."""
        state: State | None = self
        for byte in text:
            if state is None:
                return None
            state = state.advance(byte)
        return state

    @property
    def complete(self) -> bool:
        """Whether the text may end here."""
        return any(map(self.machine.done, self.positions))

    def allowed_bytes(self) -> bytes:
        """All bytes that may come next, ascending."""
        return bytes(byte for byte in range(256) if self.advance(byte) is not None)


class Grammar:
    """All texts that are valid JSON under one schema, in one style.

    `warnings` are what the schema says that is not enforced, each with its JSON pointer.
    """

    def __init__(
        self,
        machine: Machine,
        point: Point,
        nodes: list[Node],
        warnings: tuple[tuple[str, str], ...],
    ) -> None:
        self.machine, self.point, self.warnings = machine, point, warnings
        self.nodes = nodes

    def start(self) -> State:
        """The state before the first byte."""
        return State(self.machine, frozenset([self.machine.start(self.point)]))

    @cached_property
    def closer(self) -> Closer:
        """The short completions of all values; made when first asked for."""
        return Closer(self.machine, self.nodes, self.point)

    def closing(self, state: State) -> bytes:
        """Few bytes that complete the text of a state (none where it is complete)."""
        if state.complete:
            return b""
        rests = (
            b"".join(p for p in self.closer.rest(one) if isinstance(p, bytes))
            for one in state.positions
        )
        return min(rests, key=lambda rest: (len(rest), rest))

    def accepts(self, text: bytes) -> bool:
        """Whether the whole text is valid."""
        state = self.start().feed(text)
        return state is not None and state.complete


def compile_schema(
    schema: Json, style: Style = Style(), default: Dialect = Dialect.DRAFT2020
) -> Grammar:
    """The grammar of a JSON Schema. Raises SchemaError with everything that is wrong with it."""
    try:
        document = Document(schema, _dialect(schema, default))
    except ReferenceProblem as problem:
        found = SchemaProblem("", "$schema", problem.reason, problem.way_out)
        raise SchemaError([found]) from None
    normalizer = Normalizer(document, assert_formats=style.assert_formats)
    planner = Planner(normalizer)
    try:
        root = planner.plan(normalizer.expressions.schema(document.root))
    except Unsupported as problem:
        normalizer.tell(document.root, problem.keyword, problem.reason, problem.way_out)
    except Exhausted:
        normalizer.tell(
            normalizer.place,
            "(alternatives)",
            "take too long to be taken apart",
            "use fewer branches in anyOf, oneOf, not or if",
        )
    if normalizer.problems:
        raise SchemaError(list(normalizer.problems))
    if not root.alive:
        nothing = SchemaProblem("", "(schema)", "is valid for no value", "correct the schema")
        raise SchemaError([nothing], unsatisfiable=True)
    blanks: Blanks = BLANKS[style.blanks]
    machine = Machine(
        normalizer.search,
        blanks,
        any_order=style.key_order == "any",
        repeated=style.repeated_names,
    )
    nodes = list(planner.nodes.values())
    return Grammar(machine, single(root), nodes, tuple(normalizer.warnings))


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
