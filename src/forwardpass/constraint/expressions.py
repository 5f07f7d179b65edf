"""Schemas combined: all of, any of, none of. Combinations are kept as they are until they are read.

So recursion stays finite: what a property holds is an expression over places of the document, and
equal expressions are one object.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum

from forwardpass.constraint.documents import Json, Place

# Keywords that can make a value invalid, or that count in what a schema evaluates.
_ASSERTING = """
    $ref $dynamicRef $recursiveRef type enum const allOf anyOf oneOf not if then else
    dependentSchemas dependentRequired dependencies multipleOf minimum maximum exclusiveMinimum
    exclusiveMaximum minLength maxLength pattern format items prefixItems additionalItems
    contains minContains maxContains minItems maxItems uniqueItems properties patternProperties
    additionalProperties propertyNames required minProperties maxProperties unevaluatedItems
    unevaluatedProperties
"""
ASSERTING = frozenset(_ASSERTING.split())


class Sort(IntEnum):
    TRUE = 0
    FALSE = 1
    SCHEMA = 2
    CONST = 3
    ALL = 4
    ANY = 5
    NOT = 6


class Expr:
    """One combination of schemas.

    `tracked`: what a schema evaluates must be known, because an unevaluated* keyword asks for it.
    """

    __slots__ = ("parts", "place", "rank", "sort", "tracked", "value")

    def __init__(self, sort: Sort, rank: int) -> None:
        self.sort = sort
        self.rank = rank
        self.parts: tuple[Expr, ...] = ()
        self.place: Place | None = None
        self.tracked = False
        self.value: Json = None


class Expressions:
    """The table of all expressions of one grammar."""

    def __init__(self) -> None:
        self._table: dict[object, Expr] = {}
        self.true = self._made(Sort.TRUE, ("true",))
        self.false = self._made(Sort.FALSE, ("false",))

    def _made(self, sort: Sort, key: object) -> Expr:
        made = self._table[key] = Expr(sort, len(self._table))
        return made

    def schema(self, place: Place, *, tracked: bool = False) -> Expr:
        """The values that are valid under the schema at a place."""
        if place.schema is False:
            return self.false
        if place.schema is True:
            return self.true
        if isinstance(place.schema, dict) and ASSERTING.isdisjoint(place.schema):
            return self.true
        key = (Sort.SCHEMA, place.pointer, tracked)
        found = self._table.get(key)
        if found is None:
            found = self._made(Sort.SCHEMA, key)
            found.place, found.tracked = place, tracked
        return found

    def const(self, value: Json) -> Expr:
        """The one value."""
        key = (Sort.CONST, canonical(value))
        found = self._table.get(key)
        if found is None:
            found = self._made(Sort.CONST, key)
            found.value = value
        return found

    def all(self, parts: Iterable[Expr]) -> Expr:
        """The values valid under every part."""
        return self._joined(Sort.ALL, parts, self.true, self.false)

    def any(self, parts: Iterable[Expr]) -> Expr:
        """The values valid under any part."""
        return self._joined(Sort.ANY, parts, self.false, self.true)

    def _joined(self, sort: Sort, parts: Iterable[Expr], neutral: Expr, ruling: Expr) -> Expr:
        flat: set[Expr] = set()
        for part in parts:
            flat.update(part.parts if part.sort is sort else (part,))
        flat.discard(neutral)
        if ruling in flat or any(p.sort is Sort.NOT and p.parts[0] in flat for p in flat):
            return ruling
        if len(flat) <= 1:
            return flat.pop() if flat else neutral
        ordered = tuple(sorted(flat, key=lambda part: part.rank))
        key = (sort, ordered)
        found = self._table.get(key)
        if found is None:
            found = self._made(sort, key)
            found.parts = ordered
        return found

    def negate(self, part: Expr) -> Expr:
        """The values not valid under it."""
        if part.sort is Sort.NOT:
            return part.parts[0]
        if part is self.true or part is self.false:
            return self.false if part is self.true else self.true
        key = (Sort.NOT, part)
        found = self._table.get(key)
        if found is None:
            found = self._made(Sort.NOT, key)
            found.parts = (part,)
        return found


def canonical(value: Json) -> object:
    """A key that is equal for equal JSON values: 1 and 1.0 are one, 1 and true are not."""
    if value is None or isinstance(value, bool | str):
        return (type(value).__name__, value)
    if isinstance(value, int | float):
        return ("number", value)
    if isinstance(value, list):
        return ("array", tuple(map(canonical, value)))
    assert isinstance(value, dict)
    return ("object", frozenset((key, canonical(inner)) for key, inner in value.items()))
