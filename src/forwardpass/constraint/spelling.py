"""Keywords that do nothing where they stand: misspelt ones, and those of another draft.

The standard ignores what it does not know, so these are warnings. Names far from any keyword that
could refuse a value are taken for the annotations that they most likely are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from forwardpass.constraint.documents import Dialect, Place
from forwardpass.constraint.expressions import ASSERTING

# Annotations of the standard and of common tools; never taken for a misspelt keyword.
_OTHERS = """
    $schema $id id $anchor $dynamicAnchor $recursiveAnchor $comment $defs definitions $vocabulary
    title description default examples example deprecated readOnly writeOnly nullable discriminator
    contentEncoding contentMediaType contentSchema xml externalDocs x-assert-format note notes
"""
KNOWN = ASSERTING | frozenset(_OTHERS.split())
MOST_UNKNOWN = 1_000  # names in one document that are held against all keywords
_LONGEST = max(map(len, ASSERTING)) + 2

# The first dialect that knows a keyword; all others are known from draft 4 on.
_SINCE = {
    **dict.fromkeys(("const", "contains", "propertyNames"), Dialect.DRAFT6),
    **dict.fromkeys(("if", "then", "else"), Dialect.DRAFT7),
    **dict.fromkeys(
        (
            "$recursiveRef",
            "dependentRequired",
            "dependentSchemas",
            "minContains",
            "maxContains",
            "unevaluatedItems",
            "unevaluatedProperties",
        ),
        Dialect.DRAFT2019,
    ),
    **dict.fromkeys(("$dynamicRef", "prefixItems"), Dialect.DRAFT2020),
}


def idle(places: Iterable[Place]) -> Iterator[tuple[Place, str, str]]:
    """Each name that does nothing in a schema though it looks as if it should: place, name, why."""
    left = MOST_UNKNOWN
    for place in places:
        if not isinstance(place.schema, Mapping):
            continue
        if place.dialect < Dialect.DRAFT2019 and "$ref" in place.schema:
            ignored = [name for name in place.schema if name in ASSERTING and name != "$ref"]
            for name in ignored:
                yield place, name, f"does nothing beside $ref in {place.dialect.title}"
            continue
        for name in place.schema:
            since = _SINCE.get(name, place.dialect)
            if since > place.dialect:
                yield place, name, f"does nothing in {place.dialect.title}: use {since.title}"
            elif name not in KNOWN and left:
                left -= 1
                if (near := nearest(name)) is not None:
                    yield place, name, f"is no keyword and does nothing (did you mean {near}?)"


def nearest(name: str) -> str | None:
    """The keyword that a name was most likely meant to be, or None.

    >>> nearest("requierd"), nearest("minlength"), nearest("colour")
    ('required', 'minLength', None)
    """
    if len(name) > _LONGEST or name.startswith(("x-", "_")):
        return None
    plain = name.lower().strip("$")
    for keyword in sorted(ASSERTING):
        if keyword.lower().strip("$") == plain:
            return keyword
    best, least = None, 1 + (1 if len(plain) < 8 else 2)
    for keyword in sorted(ASSERTING):
        other = keyword.lower().strip("$")
        if len(other) < 4 or abs(len(other) - len(plain)) >= least:
            continue
        if len(set(other) ^ set(plain)) <= 4 and (found := distance(plain, other)) < least:
            best, least = keyword, found
    return best


def distance(left: str, right: str) -> int:
    """Letters to insert, drop, change or swap with their neighbour to make one of the other."""
    before, above = list[int](), list(range(len(right) + 1))
    for i, a in enumerate(left, 1):
        row = [i]
        for j, b in enumerate(right, 1):
            least = min(above[j] + 1, row[j - 1] + 1, above[j - 1] + (a != b))
            if i > 1 and j > 1 and a == right[j - 2] and left[i - 2] == b:
                least = min(least, before[j - 2] + 1)
            row.append(least)
        before, above = above, row
    return above[-1]
