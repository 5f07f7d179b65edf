"""`Spot`: a state with its trail, and what every part of the reasons asks of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

from forwardpass.constraint.forms import Form
from forwardpass.constraint.frames import Around, InArray, InObject
from forwardpass.constraint.plans import Node, Option
from forwardpass.constraint.reasons_path import START, Level, Trail
from forwardpass.constraint.reasons_schema import Keywords
from forwardpass.constraint.scripts import Control, Literal, Point, Value, points
from forwardpass.constraint.states import Grammar, State

SHOWN_TEXT = 24


@dataclass(frozen=True, slots=True)
class Spot:
    """A place in a text: the state of the grammar, and the trail that leads there."""

    state: State
    trail: Trail = START

    def advance(self, byte: int) -> Spot | None:
        """The spot after one more byte, or None where the grammar refuses it."""
        after = self.state.advance(byte)
        return None if after is None else Spot(after, self.trail.advance(byte, after))

    def feed(self, text: bytes) -> Spot | None:
        """The spot after a run of bytes, or None where one of them is refused."""
        spot: Spot | None = self
        for byte in text:
            if spot is None:
                return None
            spot = spot.advance(byte)
        return spot

    def control(self, token: int) -> Spot | None:
        """The spot after a control token, or None where none of that id may stand."""
        after = self.state.advance_control(token)
        return None if after is None else Spot(after)


class Broken(NamedTuple):
    """A rule that a byte breaks; of several readings the one of the lowest rank is told."""

    rank: int
    rule: str
    keyword: str = ""
    pointer: str = ""


class Values:
    """The values of a grammar: what stands where, and what its schema says there.

    `control` names a control token by its id.
    """

    def __init__(self, grammar: Grammar, control: Callable[[int], str]) -> None:
        self.machine, self.control = grammar.machine, control
        self.keywords = Keywords(grammar.nodes)
        self._before: dict[Point, list[Node]] = {}
        for point in points(grammar.point):
            for edge in point.edges:
                if isinstance(edge, Value):
                    self._before.setdefault(edge.to, []).append(edge.node)

    def around(self, around: Around, levels: tuple[Level, ...]) -> list[Node]:
        """What may stand in an open container, at the item or member that the trail is at."""
        options: Iterable[Option] = ()
        if isinstance(around, Point):
            return self._before.get(around, [])
        if isinstance(around, InArray) and levels:
            options = around.plan.at(levels[-1].index)
        elif isinstance(around, InObject) and levels and levels[-1].name is not None:
            plan, name = around.plan, levels[-1].name
            if name in plan.index:
                options = plan.options[plan.index[name]]
            else:
                matches = self.machine.languages.matches
                kinds = (one.options for one in plan.others if matches(one.names, name))
                options = next(kinds, [])
        return [option.node for option in options if option.node.alive]

    def kinds(self, nodes: Iterable[Node]) -> list[str]:
        """The types of JSON that values may be of."""
        out: dict[str, None] = {}
        for node in nodes:
            form = node.form
            whole = all(one.step is not None and one.step % 1 == 0 for one in form.numbers)
            for name, there in (
                ("string", self.machine.search.live(form.texts)),
                ("integer" if whole else "number", bool(form.numbers)),
                ("boolean", bool(form.booleans)),
                ("null", form.null),
                ("array", bool(node.arrays)),
                ("object", bool(node.objects)),
            ):
                if there:
                    out[name] = None
        if "number" in out:
            out.pop("integer", None)
        return list(out)


def words_of(forms: Iterable[Form]) -> list[str] | None:
    """The texts of forms where each of them lists its own; None where one does not."""
    out: dict[str, None] = {}
    for form in forms:
        if not form.texts.words:
            return None
        out |= dict.fromkeys(form.texts.words)
    return list(out)


def quoted(text: str | bytes) -> str:
    """A text as a person reads it, cut where it is long."""
    text = text.decode("utf-8", "replace") if isinstance(text, bytes) else text
    text = text.replace("\n", "\\n")
    return f'"{text}"' if len(text) <= SHOWN_TEXT else f'"{text[: SHOWN_TEXT - 1]}…"'


def begins(points_at: Iterable[Point]) -> tuple[list[bytes], list[int]]:
    """The literal texts and control tokens that may come next in a script."""
    edges = [edge for point in points_at for edge in point.edges]
    texts = [edge.text for edge in edges if isinstance(edge, Literal)]
    return texts, [edge.token for edge in edges if isinstance(edge, Control)]


def joined(parts: list[str]) -> str:
    """`a, b or c`."""
    *most, last = parts
    return f"{', '.join(most)} or {last}" if most else last
