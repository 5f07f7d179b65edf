"""A schema document: which dialect holds where, and what a reference leads to.

Nothing is fetched: a reference outside the document is a problem with its way out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum
from urllib.parse import unquote, urldefrag, urljoin

Json = object

MOST_VALUES = 300_000
MOST_TEXT = 4_000_000
MOST_SCHEMAS = 15_000
DEEPEST = 200


class Dialect(IntEnum):
    """Drafts of JSON Schema, in order."""

    DRAFT4 = 4
    DRAFT6 = 6
    DRAFT7 = 7
    DRAFT2019 = 8
    DRAFT2020 = 9

    @property
    def title(self) -> str:
        """As people write it."""
        return {8: "2019-09", 9: "2020-12"}.get(self, f"draft {int(self)}")


_DIALECTS = {
    "json-schema.org/draft-04/schema": Dialect.DRAFT4,
    "json-schema.org/draft-06/schema": Dialect.DRAFT6,
    "json-schema.org/draft-07/schema": Dialect.DRAFT7,
    "json-schema.org/draft/2019-09/schema": Dialect.DRAFT2019,
    "json-schema.org/draft/2020-12/schema": Dialect.DRAFT2020,
    "json-schema.org/schema": Dialect.DRAFT2020,
}
KNOWN_DIALECTS = "2020-12, 2019-09, draft-07, draft-06 or draft-04"

# Keywords that hold a schema, a list of schemas, a map of schemas.
_ONE = (
    "not if then else items additionalItems additionalProperties contains propertyNames"
    " unevaluatedItems unevaluatedProperties contentSchema"
)
_MANY = "allOf anyOf oneOf prefixItems items"
_NAMED = "properties patternProperties $defs definitions dependentSchemas dependencies"
ONE, MANY, NAMED = (frozenset(words.split()) for words in (_ONE, _MANY, _NAMED))


class ReferenceProblem(Exception):
    """A reference or dialect that cannot be followed: reason and way out."""

    def __init__(self, reason: str, way_out: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.way_out = way_out


def dialect_of(name: Json) -> Dialect | None:
    """The dialect that a `$schema` names, or None for one not known."""
    if not isinstance(name, str):
        return None
    bare = name.strip().removesuffix("#").removesuffix("/")
    return _DIALECTS.get(bare.removeprefix("https://").removeprefix("http://"))


@dataclass(frozen=True, slots=True, eq=False)
class Place:
    """One schema in the document; two places are the same only if they are one object."""

    schema: Json
    pointer: str
    base: str
    dialect: Dialect

    def get(self, keyword: str) -> Json:
        return self.schema.get(keyword) if isinstance(self.schema, Mapping) else None


class Document:
    """All places of one schema document, found by pointer, identifier and anchor."""

    def __init__(self, schema: Json, default: Dialect = Dialect.DRAFT2020) -> None:
        self.size = _measured(schema)
        self._places: dict[str, Place] = {}
        self._roots: dict[str, Place] = {}
        self._anchors: dict[tuple[str, str], Place] = {}
        self.dynamic: dict[str, list[Place]] = {}
        self.problems: list[tuple[Place, str, ReferenceProblem]] = []
        self.root = self._place(schema, "", "", default)
        self._roots.setdefault("", self.root)
        self._index()
        self.schemas = len(self._places)

    @property
    def places(self) -> Iterable[Place]:
        """All schemas that stand in the document, and those that were referred to so far."""
        return self._places.values()

    def _place(self, schema: Json, pointer: str, base: str, dialect: Dialect) -> Place:
        known = self._places.get(pointer)
        if known is not None:
            return known
        if isinstance(schema, Mapping) and "$schema" in schema:
            dialect = dialect_of(schema["$schema"]) or dialect
        base = urljoined(base, _identifier(schema, dialect))
        place = self._places[pointer] = Place(schema, pointer, base, dialect)
        return place

    def _index(self) -> None:
        """Find every identifier and anchor; places are made on the way."""
        waiting = [self.root]
        seen: set[str] = set()
        while waiting:
            place = waiting.pop()
            if place.pointer in seen:
                continue
            seen.add(place.pointer)
            if len(self._places) > MOST_SCHEMAS:
                raise ReferenceProblem(f"holds more than {MOST_SCHEMAS:,} schemas", "use fewer")
            schema = place.schema
            if not isinstance(schema, Mapping):
                continue
            if _identifier(schema, place.dialect) or place is self.root:
                self._roots.setdefault(place.base, place)
            self._anchor(place, schema)
            waiting += self.children(place)

    def _anchor(self, place: Place, schema: Mapping[str, Json]) -> None:
        names = []
        if place.dialect >= Dialect.DRAFT2019:
            names = [schema.get("$anchor"), schema.get("$dynamicAnchor")]
            dynamic = schema.get("$dynamicAnchor")
            if isinstance(dynamic, str):
                self.dynamic.setdefault(dynamic, []).append(place)
            if schema.get("$recursiveAnchor") is True:
                self.dynamic.setdefault("", []).append(place)
        elif "$ref" not in schema:
            word = schema.get("id" if place.dialect is Dialect.DRAFT4 else "$id")
            names = [word[1:] if isinstance(word, str) and word.startswith("#") else None]
        for name in names:
            if isinstance(name, str):
                self._anchors.setdefault((place.base, name), place)

    def children(self, place: Place) -> Iterator[Place]:
        """The schemas that stand directly inside one, in the order of the document."""
        schema = place.schema
        assert isinstance(schema, Mapping)
        for keyword, value in schema.items():
            if keyword in NAMED and isinstance(value, Mapping):
                for name, inner in value.items():
                    if isinstance(inner, Mapping | bool):
                        yield self.inside(place, keyword, name)
            elif keyword in MANY and isinstance(value, list):
                for i in range(len(value)):
                    yield self.inside(place, keyword, str(i))
            elif keyword in ONE and isinstance(value, Mapping | bool):
                yield self.inside(place, keyword)

    def inside(self, place: Place, *path: str) -> Place:
        """The schema at a path inside another."""
        pointer, value = place.pointer, place.schema
        for part in path:
            pointer += "/" + part.replace("~", "~0").replace("/", "~1")
            if isinstance(value, Mapping):
                value = value[part]
            else:
                assert isinstance(value, list)
                value = value[int(part)]
        return self._place(value, pointer, place.base, place.dialect)

    def resolve(self, place: Place, reference: str) -> Place:
        """What a reference leads to. Raises ReferenceProblem."""
        whole = urljoined(place.base, reference)
        base, fragment = urldefrag(whole)
        root = self._roots.get(base)
        if root is None:
            raise ReferenceProblem(
                f'= "{_shown(reference)}" would have to be fetched',
                "copy it into $defs and refer to that",
            )
        fragment = unquote(fragment)
        if not fragment:
            return root
        if not fragment.startswith("/"):
            anchor = self._anchors.get((base, fragment))
            if anchor is None:
                raise ReferenceProblem(
                    f'= "{_shown(reference)}" names no anchor here', "add the anchor"
                )
            return anchor
        return self._follow(root, fragment, reference)

    def _follow(self, root: Place, pointer: str, reference: str) -> Place:
        place, value = root, root.schema
        at = root.pointer
        for raw in pointer[1:].split("/"):
            part = raw.replace("~1", "/").replace("~0", "~")
            if isinstance(value, Mapping) and part in value:
                value = value[part]
            elif isinstance(value, list) and part.isdigit() and int(part) < len(value):
                value = value[int(part)]
            else:
                raise ReferenceProblem(
                    f'= "{_shown(reference)}" leads nowhere', "correct the pointer"
                )
            at += "/" + raw
            if isinstance(value, Mapping) and _identifier(value, place.dialect):
                place = self._place(value, at, place.base, place.dialect)
        if not isinstance(value, Mapping | bool):
            raise ReferenceProblem(
                f'= "{_shown(reference)}" leads to no schema', "correct the pointer"
            )
        return self._place(value, at, place.base, place.dialect)


def _identifier(schema: Json, dialect: Dialect) -> str:
    """The identifier that makes a schema a resource of its own, or an empty string."""
    if not isinstance(schema, Mapping):
        return ""
    word = schema.get("id" if dialect is Dialect.DRAFT4 else "$id")
    if not isinstance(word, str) or (dialect < Dialect.DRAFT2019 and "$ref" in schema):
        return ""
    return urldefrag(word)[0]


def _shown(reference: str) -> str:
    return reference if len(reference) <= 80 else reference[:79] + "…"


def urljoined(base: str, reference: str) -> str:
    """A reference against its base; also where the base is a URN, which cannot be joined."""
    if not reference:
        return base
    if reference.startswith("#"):
        return urldefrag(base)[0] + reference
    try:
        return urljoin(base, reference)
    except ValueError:
        return reference


def _measured(schema: Json) -> int:
    """How many values a document holds. Raises ReferenceProblem beyond the limits."""
    count = text = 0
    level: list[Json] = [schema]
    for _ in range(DEEPEST + 1):
        following: list[Json] = []
        for value in level:
            count += 1
            if isinstance(value, str):
                text += len(value)
            elif isinstance(value, Mapping):
                text += sum(map(len, value))
                following += value.values()
            elif isinstance(value, list):
                following += value
            if count > MOST_VALUES or text > MOST_TEXT:
                raise ReferenceProblem(
                    f"holds more than {MOST_VALUES:,} values or {MOST_TEXT:,} characters",
                    "make it smaller",
                )
        if not following:
            return count
        level = following
    raise ReferenceProblem(f"nests deeper than {DEEPEST}", "flatten it")
