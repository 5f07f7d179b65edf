"""Each keyword that constrains one type by itself: what it says, read and checked.

A malformed value is a problem of its own; nothing is guessed, nothing is left out in silence.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from fractions import Fraction
from math import isfinite

from forwardpass.constraint import decimals, formats
from forwardpass.constraint.algebra import Algebra, Unsupported
from forwardpass.constraint.documents import Dialect, Document, Json, Place
from forwardpass.constraint.expressions import Expr
from forwardpass.constraint.forms import (
    Arrays,
    Evaluated,
    Form,
    Limit,
    Objects,
    SomeItems,
)
from forwardpass.constraint.lang import Lang, TooLarge
from forwardpass.constraint.numbers import LITERAL, Numbers
from forwardpass.constraint.pattern_language import language
from forwardpass.constraint.patterns import PatternError
from forwardpass.constraint.steps import Work

TYPES = ("null", "boolean", "number", "integer", "string", "array", "object")
MOST_PREFIX = 2_000
MOST_ASKED = 1_000_000
MOST_NAMES = 10_000


class Keywords:
    """Reads the assertions of one schema at a time into forms; problems go to `tell`."""

    def __init__(
        self,
        algebra: Algebra,
        document: Document,
        tell: Callable[[Place, str, str, str], None],
        warn: Callable[[Place, str, str], None],
        texts_of: Callable[[Expr], Lang],
        *,
        assert_formats: bool,
    ) -> None:
        self.algebra, self.document = algebra, document
        self.languages, self.expressions = algebra.languages, algebra.expressions
        self.tell, self.warn, self.texts_of = tell, warn, texts_of
        self.assert_formats = assert_formats
        self._patterns: dict[str, Lang] = {}

    def read(self, place: Place) -> Form:
        """The form of all assertions that stand at a place themselves."""
        schema = place.schema
        assert isinstance(schema, Mapping)
        form = self._types(place, schema)
        if "enum" in schema or "const" in schema:
            form = self.algebra.meet(form, self._values(place, schema))
        asked = Form(
            True,
            frozenset([False, True]),
            self._numbers(place, schema) if form.numbers else (),
            self._texts(place, schema) if form.texts is not self.languages.empty else form.texts,
            self._arrays(place, schema) if form.arrays else (),
            self._objects(place, schema) if form.objects else (),
        )
        return self.algebra.meet(form, asked)

    # ---- values of keywords ------------------------------------------------------------

    def count(self, place: Place, keyword: str) -> int | None:
        """A number of things; None where the keyword is absent or wrong (told)."""
        value = place.get(keyword)
        if value is None and keyword not in _keys(place):
            return None
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
            if keyword.startswith("min") and value > MOST_ASKED:
                self.tell(place, keyword, f"asks for more than {MOST_ASKED:,}", "ask for fewer")
            return min(value, MOST_ASKED) if keyword.startswith("min") else value
        self.tell(place, keyword, "is not a whole number from 0", "correct the schema")
        return None

    def number(self, place: Place, keyword: str) -> Fraction | None:
        """A number exactly as written; None where the keyword is absent or wrong (told)."""
        if keyword not in _keys(place):
            return None
        value = place.get(keyword)
        if isinstance(value, int | float) and not isinstance(value, bool) and _finite(value):
            return decimals.exact(value)
        self.tell(place, keyword, "is not a number", "correct the schema")
        return None

    def flag(self, place: Place, keyword: str) -> bool:
        """True or false; false where the keyword is absent or wrong (told)."""
        value = _keys(place).get(keyword, False)
        if not isinstance(value, bool):
            self.tell(place, keyword, "is not true or false", "correct the schema")
        return value is True

    def pattern(self, place: Place, keyword: str, pattern: Json) -> Lang:
        """All texts that a pattern is found in; every text where it is refused (told)."""
        if not isinstance(pattern, str):
            self.tell(place, keyword, "is not a text", "correct the schema")
            return self.languages.all
        known = self._patterns.get(pattern)
        if known is None:
            try:
                known = language(self.languages, pattern)
            except (PatternError, TooLarge) as problem:
                shown = pattern if len(pattern) <= 60 else pattern[:57] + "…"
                self.tell(place, keyword, f'"{shown}" {problem}', "rewrite the pattern")
                known = self.languages.all
            self._patterns[pattern] = known
        return known

    def sub(self, place: Place, *path: str) -> Expr:
        """The schema inside a place, as an expression."""
        inner = self.document.inside(place, *path)
        if not isinstance(inner.schema, Mapping | bool):
            where = f" at {path[1]:.60}" if len(path) > 1 else ""
            self.tell(place, path[0], f"holds what is no schema{where}", "correct the schema")
            return self.expressions.true
        return self.expressions.schema(inner)

    # ---- types and values --------------------------------------------------------------

    def _types(self, place: Place, schema: Mapping[str, Json]) -> Form:
        if "type" not in schema:
            return self.algebra.everything
        names = schema["type"]
        names = [names] if isinstance(names, str) else names
        if not isinstance(names, list) or not names or not all(name in TYPES for name in names):
            self.tell(place, "type", f"is not one of {', '.join(TYPES)}", "correct the schema")
            return self.algebra.everything
        if self.flag(place, "nullable"):
            names = [*names, "null"]
        whole = self.algebra.everything
        numbers: tuple[Numbers, ...] = ()
        if "number" in names:
            numbers = whole.numbers
        elif "integer" in names:
            form = LITERAL if place.dialect is Dialect.DRAFT4 else None
            numbers = (Numbers(step=Fraction(1), form=form),)
        return Form(
            "null" in names,
            whole.booleans if "boolean" in names else frozenset(),
            numbers,
            whole.texts if "string" in names else self.languages.empty,
            whole.arrays if "array" in names else (),
            whole.objects if "object" in names else (),
        )

    def _values(self, place: Place, schema: Mapping[str, Json]) -> Form:
        """The form of `enum` and `const`."""
        form = self.algebra.everything
        if "const" in schema and place.dialect >= Dialect.DRAFT6:
            form = self.value(schema["const"])
        values = schema.get("enum")
        if "enum" in schema:
            if not isinstance(values, list):
                self.tell(place, "enum", "is not a list", "correct the schema")
            else:
                form = self.algebra.meet(form, self.values(values))
        return form

    def values(self, values: list[Json]) -> Form:
        """The form of a finite set of values."""
        texts = self.languages.words(value for value in values if isinstance(value, str))
        found = [v for v in values if isinstance(v, int | float) and not isinstance(v, bool)]
        if not all(map(_finite, found)):
            raise Unsupported("enum", "holds a number that JSON does not know", "leave it out")
        self.algebra.steps.spend(Work.NUMBERS, 5 * len(found))
        points = decimals.points(found)
        form = Form(
            None in values,
            frozenset(value for value in values if isinstance(value, bool)),
            (Numbers(points),) if points else (),
            texts,
            (),
            (),
        )
        for value in values:
            if isinstance(value, list | dict):
                form = self.algebra.join(form, self.value(value))
        return form

    def value(self, value: Json) -> Form:
        """The form of one value."""
        nothing, false = self.algebra.nothing, self.expressions.false
        if isinstance(value, list | dict) and len(value) > MOST_PREFIX:
            raise Unsupported(
                "const", f"holds more than {MOST_PREFIX:,} parts in one list or object", "split it"
            )
        if isinstance(value, list):
            items = tuple(map(self.expressions.const, value))
            one = Arrays(false, items, len(items), len(items))
            return replace(nothing, arrays=(one,))
        if isinstance(value, dict):
            names = tuple((name, self.expressions.const(inner)) for name, inner in value.items())
            others = self.languages.negate(self.languages.words(value))
            return replace(
                nothing,
                objects=(Objects(self.languages.empty, names, ((others, false),), tuple(value)),),
            )
        return self.values([value])

    # ---- numbers and texts -------------------------------------------------------------

    def _numbers(self, place: Place, schema: Mapping[str, Json]) -> tuple[Numbers, ...]:
        ranges = decimals.EVERYTHING
        low, high = self.number(place, "minimum"), self.number(place, "maximum")
        above = below = False
        if place.dialect is Dialect.DRAFT4:
            above = schema.get("exclusiveMinimum") is True
            below = schema.get("exclusiveMaximum") is True
        else:
            over = self.number(place, "exclusiveMinimum")
            under = self.number(place, "exclusiveMaximum")
            if over is not None:
                ranges = decimals.meet(ranges, decimals.at_least(over, above=True))
            if under is not None:
                ranges = decimals.meet(ranges, decimals.at_most(under, below=True))
        if low is not None:
            ranges = decimals.meet(ranges, decimals.at_least(low, above=above))
        if high is not None:
            ranges = decimals.meet(ranges, decimals.at_most(high, below=below))
        step = self.number(place, "multipleOf")
        if step is not None and step <= 0:
            self.tell(place, "multipleOf", "is not above 0", "correct the schema")
            step = None
        return (Numbers(ranges, step),) if ranges else ()

    def _texts(self, place: Place, schema: Mapping[str, Json]) -> Lang:
        texts = self.languages.all
        if "pattern" in schema:
            texts = self.pattern(place, "pattern", schema["pattern"])
        low, high = self.count(place, "minLength"), self.count(place, "maxLength")
        if low is not None or high is not None:
            texts = self.algebra.limits(texts, low or 0, high)
        if "format" in schema:
            texts = self.languages.both((texts, self._format(place, schema)))
        return texts

    def _format(self, place: Place, schema: Mapping[str, Json]) -> Lang:
        name = schema["format"]
        if not isinstance(name, str):
            self.tell(place, "format", "is not a text", "correct the schema")
            return self.languages.all
        asserted = self.flag(place, "x-assert-format")
        if not (self.assert_formats or asserted):
            self.warn(place, "format", f'"{name}" is an annotation; x-assert-format enforces it')
            return self.languages.all
        pattern = formats.PATTERNS.get(name)
        if pattern is None:
            self.tell(place, "format", f'"{name}" cannot be asserted', "use a pattern")
            return self.languages.all
        return self.pattern(place, "format", pattern)

    # ---- arrays ------------------------------------------------------------------------

    def _arrays(self, place: Place, schema: Mapping[str, Json]) -> tuple[Arrays, ...]:
        prefix, rest, count = self._items(place, schema)
        low, high = self.count(place, "minItems") or 0, self.count(place, "maxItems")
        unique = self.flag(place, "uniqueItems")
        some, also = self._contains(place, schema)
        made = Arrays(rest, prefix, low, high, some, unique, Evaluated(count, also))
        checked = self.algebra.checked_arrays(made)
        return (checked,) if checked is not None else ()

    def _items(
        self, place: Place, schema: Mapping[str, Json]
    ) -> tuple[tuple[Expr, ...], Expr, Limit]:
        """The schemas of the first items, of all later ones, and how many are evaluated."""
        first, later = "prefixItems", "items"
        old = place.dialect < Dialect.DRAFT2020 or "prefixItems" not in schema
        if old and isinstance(schema.get("items"), list):
            first, later = "items", "additionalItems"
        elif place.dialect < Dialect.DRAFT2020:
            first = ""
        listed = schema.get(first, [])
        if not isinstance(listed, list) or len(listed) > MOST_PREFIX:
            self.tell(place, first, f"is not a list of at most {MOST_PREFIX}", "correct the schema")
            listed = []
        prefix = tuple(self.sub(place, first, str(i)) for i in range(len(listed)))
        if later not in schema:
            return prefix, self.expressions.true, len(prefix)
        return prefix, self.sub(place, later), None

    def _contains(
        self, place: Place, schema: Mapping[str, Json]
    ) -> tuple[tuple[SomeItems, ...], tuple[Expr, ...]]:
        if "contains" not in schema or place.dialect is Dialect.DRAFT4:
            return (), ()
        item = self.sub(place, "contains")
        low, high = 1, None
        if place.dialect >= Dialect.DRAFT2019:
            least = self.count(place, "minContains")
            low, high = 1 if least is None else least, self.count(place, "maxContains")
        also = (item,) if place.dialect >= Dialect.DRAFT2020 else ()
        if low == 0 and high is None:
            return (), also
        return (SomeItems(item, 0, low, high),), also

    # ---- objects -----------------------------------------------------------------------

    def _objects(self, place: Place, schema: Mapping[str, Json]) -> tuple[Objects, ...]:
        languages = self.languages
        names = self._named(place, "properties")
        values = [
            (self.pattern(place, "patternProperties", name), value)
            for name, value in self._named(place, "patternProperties")
        ]
        known = languages.alt((languages.words(n for n, _ in names), *(lang for lang, _ in values)))
        evaluated = known
        if "additionalProperties" in schema:
            value = self.sub(place, "additionalProperties")
            values.append((languages.negate(known), value))
            evaluated = languages.all
        if "propertyNames" in schema and place.dialect >= Dialect.DRAFT6:
            allowed = self.texts_of(self.sub(place, "propertyNames"))
            values.append((languages.negate(allowed), self.expressions.false))
        required = schema.get("required", [])
        if not isinstance(required, list) or not all(isinstance(n, str) for n in required):
            self.tell(place, "required", "is not a list of names", "correct the schema")
            required = []
        if len(required) > MOST_NAMES:
            self.tell(place, "required", f"has more than {MOST_NAMES:,} names", "use fewer")
            required = []
        made = Objects(
            evaluated,
            names,
            tuple(values),
            tuple(dict.fromkeys(required)),
            self.count(place, "minProperties") or 0,
            self.count(place, "maxProperties"),
        )
        checked = self.algebra.checked_objects(made)
        return (checked,) if checked is not None else ()

    def _named(self, place: Place, keyword: str) -> tuple[tuple[str, Expr], ...]:
        value = place.get(keyword)
        if value is None and keyword not in _keys(place):
            return ()
        if not isinstance(value, Mapping):
            self.tell(place, keyword, "is not a map of schemas", "correct the schema")
            return ()
        return tuple((name, self.sub(place, keyword, name)) for name in value)


def _finite(value: int | float) -> bool:
    return isinstance(value, int) or isfinite(value)


def _keys(place: Place) -> Mapping[str, Json]:
    assert isinstance(place.schema, Mapping)
    return place.schema
