"""Which keyword of a schema says what: found again from a value of a grammar."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from forwardpass.constraint.documents import Json
from forwardpass.constraint.expressions import Expr, Sort
from forwardpass.constraint.plans import Node

# Schemas that are looked through for a keyword, and parts of one expression.
_MOST = 64
_WITHIN = ("allOf", "anyOf", "oneOf", "then", "else", "if")


class Found(NamedTuple):
    """A keyword, what it is set to, and the JSON pointer to it."""

    keyword: str
    value: Json
    pointer: str


class Keywords:
    """Finds keywords in the schemas of a grammar; `nodes` are all its values."""

    def __init__(self, nodes: Iterable[Node]) -> None:
        self._roots: list[Json] = []
        for node in nodes:
            place = node.expr.place
            if place is not None and place.pointer == "":
                self._roots.append(place.schema)

    def places(self, nodes: Iterable[Node]) -> list[str]:
        """The pointers to the schemas that values are under, the shortest first."""
        found = {pointer for node in nodes for pointer, _ in _stated(node.expr)}
        return sorted(found, key=lambda pointer: (len(pointer), pointer))

    def find(self, nodes: Sequence[Node], *keywords: str) -> Found | None:
        """The first of some keywords in the schemas of values, or in what these refer to."""
        found = self.all(nodes, *keywords)
        return found[0] if found else None

    def all(self, nodes: Sequence[Node], *keywords: str) -> list[Found]:
        """All of some keywords, in the order that was asked for."""
        schemas = [found for node in nodes for found in self._reached(node.expr)]
        out: dict[str, Found] = {}
        for keyword in keywords:
            for pointer, schema in schemas:
                if keyword in schema and keyword not in out:
                    out[keyword] = Found(keyword, schema[keyword], f"{pointer}/{keyword}")
        return list(out.values())

    def _reached(self, expr: Expr) -> Iterator[tuple[str, Mapping[str, Json]]]:
        """The schemas of an expression with those that hold for the same value."""
        waiting: list[tuple[str, Json, Json]] = []
        for pointer, schema in _stated(expr):
            root = next((r for r in self._roots if _followed(r, pointer) is schema), None)
            waiting.append((pointer, schema, root))
        seen: set[int] = set()
        for pointer, schema, root in waiting:  # grows
            if not isinstance(schema, Mapping) or id(schema) in seen or len(seen) >= _MOST:
                continue
            seen.add(id(schema))
            yield pointer, schema
            reference = schema.get("$ref")
            if isinstance(reference, str) and reference.startswith("#") and "%" not in reference:
                waiting.append((reference[1:], _followed(root, reference[1:]), root))
            for keyword in _WITHIN:
                inner = schema.get(keyword)
                if isinstance(inner, list):
                    parts = ((f"{pointer}/{keyword}/{i}", one) for i, one in enumerate(inner))
                    waiting += [(*part, root) for part in parts]
                elif inner is not None:
                    waiting.append((f"{pointer}/{keyword}", inner, root))


def _stated(expr: Expr) -> list[tuple[str, Json]]:
    """Pointer and schema of every part of an expression that a schema states; negated ones not."""
    out: list[tuple[str, Json]] = []
    waiting = [expr]
    for count, one in enumerate(waiting):  # grows
        if one.place is not None:
            out.append((one.place.pointer, one.place.schema))
        if one.sort is not Sort.NOT and count < _MOST:
            waiting += one.parts
    return out


def _followed(schema: Json, pointer: str) -> Json:
    """What a pointer leads to; None where it leads nowhere."""
    for raw in pointer.split("/")[1:]:
        part = raw.replace("~1", "/").replace("~0", "~")
        if isinstance(schema, Mapping):
            schema = schema.get(part)
        elif isinstance(schema, list) and part.isdigit() and len(part) < 8:
            schema = schema[int(part)] if int(part) < len(schema) else None
        else:
            return None
    return schema
