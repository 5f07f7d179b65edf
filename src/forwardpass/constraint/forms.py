"""The normal form of a schema: for each type of JSON the valid values, closed under all operations.

Null, booleans and texts are one set each; numbers, arrays and objects are unions of
conjunctions. A conjunction of arrays or objects holds expressions for what is inside, so that
recursion is finite.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TypeVar

from forwardpass.constraint.expressions import Expr
from forwardpass.constraint.lang import Lang
from forwardpass.constraint.numbers import Numbers

T = TypeVar("T")
Limit = int | None  # an upper limit; None is no limit


@dataclass(frozen=True, slots=True)
class SomeItems:
    """At least `low` and at most `high` of the items from `start` on are valid under `item`."""

    item: Expr
    start: int
    low: int
    high: Limit


@dataclass(frozen=True, slots=True)
class SomeMembers:
    """At least `low` and at most `high` members have such a name and such a value."""

    names: Lang
    value: Expr
    low: int
    high: Limit


@dataclass(frozen=True, slots=True)
class Evaluated:
    """The items that a conjunction has evaluated: the first `count` (None: all), and all those
    that are valid under one of `also`."""

    count: Limit = 0
    also: tuple[Expr, ...] = ()


@dataclass(frozen=True, slots=True)
class Arrays:
    """Arrays whose items are valid under `prefix` in turn, all later ones under `rest`."""

    rest: Expr
    prefix: tuple[Expr, ...] = ()
    low: int = 0
    high: Limit = None
    some: tuple[SomeItems, ...] = ()
    unique: bool = False
    evaluated: Evaluated = Evaluated()

    def item(self, index: int) -> Expr:
        return self.prefix[index] if index < len(self.prefix) else self.rest


@dataclass(frozen=True, slots=True)
class Objects:
    """Objects in which a member of each name is valid under all that holds for that name.

    `names` and `values` say it for one name, a set of names; `required` keeps its order.
    """

    evaluated: Lang
    names: tuple[tuple[str, Expr], ...] = ()
    values: tuple[tuple[Lang, Expr], ...] = ()
    required: tuple[str, ...] = ()
    low: int = 0
    high: Limit = None
    some: tuple[SomeMembers, ...] = ()


@dataclass(frozen=True, slots=True)
class Form:
    """All valid values, by their type."""

    null: bool
    booleans: frozenset[bool]
    numbers: tuple[Numbers, ...]
    texts: Lang
    arrays: tuple[Arrays, ...]
    objects: tuple[Objects, ...]


def least(left: Limit, right: Limit) -> Limit:
    """The smaller of two upper limits."""
    if left is None or right is None:
        return left if right is None else right
    return min(left, right)


def unique(parts: Iterable[T]) -> tuple[T, ...]:
    """The parts in their order, each once."""
    return tuple(dict.fromkeys(parts))


def meet_evaluated(left: Evaluated, right: Evaluated) -> Evaluated:
    """What either has evaluated."""
    count = None
    if left.count is not None and right.count is not None:
        count = max(left.count, right.count)
    return Evaluated(count, unique((*left.also, *right.also)))


def without_evaluation(form: Form, nothing: Lang) -> Form:
    """The same values, of which nothing counts as evaluated."""
    return replace(
        form,
        arrays=unique(replace(a, evaluated=Evaluated()) for a in form.arrays),
        objects=unique(replace(o, evaluated=nothing) for o in form.objects),
    )
