"""Where a text stands in a grammar, and the grammar: all texts of a script, byte by byte."""

from __future__ import annotations

from functools import cached_property

from forwardpass.constraint.closing import Closer
from forwardpass.constraint.frames import Position
from forwardpass.constraint.machine import Machine
from forwardpass.constraint.plans import Node
from forwardpass.constraint.scripts import Control, Point
from forwardpass.constraint.values import Measure

MOST_POSITIONS = 256


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

    def advance_control(self, token: int) -> State | None:
        """The state after a control token, or None where none of that id may stand."""
        found = [new for one in self.positions for new in self.machine.step_control(one, token)]
        return State(self.machine, frozenset(found)) if found else None

    def controls(self) -> dict[int, list[Point]]:
        """The control tokens that may come next, each with the points that it leads to."""
        out: dict[int, list[Point]] = {}
        for position in self.positions:
            for point in self.machine.standing(position):
                for edge in point.edges:
                    if isinstance(edge, Control):
                        out.setdefault(edge.token, []).append(edge.to)
        return out

    @property
    def complete(self) -> bool:
        """Whether the text may end here."""
        return any(map(self.machine.done, self.positions))

    def allowed_bytes(self) -> bytes:
        """All bytes that may come next, ascending."""
        return bytes(byte for byte in range(256) if self.advance(byte) is not None)


class Grammar:
    """All texts of one script; of a schema, all that are valid JSON under it, in one style.

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

    def closer(self, measure: Measure) -> Closer:
        """The short completions of everything, in a measure of the caller's."""
        return Closer(self.machine, self.nodes, self.point, measure)

    @cached_property
    def _closer(self) -> Closer:
        return self.closer(len)

    def closing(self, state: State) -> bytes:
        """Few bytes that complete the text of a state (none where it is complete)."""
        if state.complete:
            return b""
        rests = (
            b"".join(p for p in self._closer.rest(one) if isinstance(p, bytes))
            for one in state.positions
        )
        return min(rests, key=lambda rest: (len(rest), rest))

    def accepts(self, text: bytes) -> bool:
        """Whether the whole text is valid."""
        state = self.start().feed(text)
        return state is not None and state.complete
