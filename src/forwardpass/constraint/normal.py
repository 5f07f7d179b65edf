"""From an expression over schemas to its normal form: every applicator of JSON Schema.

allOf intersects, anyOf unites, not complements, oneOf is this one and none of the others,
if/then/else is (if and then) or (not if and else), dependent* the same way. What a conjunction
has evaluated travels with it where an unevaluated* keyword asks for it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from itertools import combinations

from forwardpass.constraint.algebra import Algebra, Unsupported
from forwardpass.constraint.documents import Dialect, Document, Json, Place, ReferenceProblem
from forwardpass.constraint.expressions import Expr, Expressions, Sort
from forwardpass.constraint.forms import Evaluated, Form, Objects, without_evaluation
from forwardpass.constraint.keywords import Keywords
from forwardpass.constraint.lang import Lang, TooLarge
from forwardpass.constraint.regular import Languages
from forwardpass.constraint.searching import Search
from forwardpass.constraint.spelling import idle
from forwardpass.constraint.steps import Exhausted
from forwardpass.errors import SchemaProblem

DEEPEST_LOOK = 5
MOST_TRACKED = 8
MOST_PROBLEMS = 100
MOST_OPEN = 100  # schemas that are read inside one another


Reader = Callable[[Place, Form, bool], Form]


class _Circular(Exception):
    """A look ahead came back to a schema that is being read: it cannot tell."""


class Normalizer:
    """The forms of all expressions of one document, made when they are asked for."""

    def __init__(
        self, document: Document, *, assert_formats: bool = False, search: Search | None = None
    ) -> None:
        self.document = document
        self.problems: dict[SchemaProblem, None] = {}
        self.warnings: dict[tuple[str, str], None] = {}
        self.search = search or Search(Languages())
        self.languages = self.search.languages
        self.expressions = Expressions()
        self.algebra = Algebra(self.languages, self.search, self.expressions, self.void)
        self.keywords = Keywords(
            self.algebra,
            document,
            self.tell,
            self.warn,
            lambda expr: self.form(expr).texts,
            assert_formats=assert_formats,
        )
        self._forms: dict[Expr, Form] = {
            self.expressions.true: self.algebra.everything,
            self.expressions.false: self.algebra.nothing,
        }
        self._open: set[Expr] = set()
        self._void: dict[Expr, bool] = {}
        self._depth = 0
        self.place = document.root
        for place, name, why in idle(document.places):
            self.warn(place, name, why)

    def tell(self, place: Place, keyword: str, reason: str, way_out: str = "") -> None:
        """Note a problem; the walk goes on, so that all are found at once.

        Raises Exhausted at the 100th, for a walk that meets them without end.
        """
        self.problems[SchemaProblem(place.pointer, keyword, reason, way_out)] = None
        if len(self.problems) == MOST_PROBLEMS:
            reason = f"are {MOST_PROBLEMS} so far, and no more are looked for"
            raise Exhausted("(problems)", reason, "correct these first")

    def stop(self, keyword: str, reason: str, way_out: str = "") -> None:
        """Note why the walk ends where it is."""
        self.problems[SchemaProblem(self.place.pointer, keyword, reason, way_out)] = None

    def warn(self, place: Place, keyword: str, text: str) -> None:
        if len(self.warnings) < MOST_PROBLEMS:
            self.warnings[place.pointer, f"{keyword} {text}"] = None

    # ---- expressions -------------------------------------------------------------------

    def form(self, expr: Expr) -> Form:
        """The normal form of an expression."""
        found = self._forms.get(expr)
        if found is None:
            if expr in self._open:
                if self._depth:
                    raise _Circular
                self.tell(self.place, "$ref", "refers to itself with no value in between",
                          "let it lead through a property or an item")  # fmt: skip
                return self.algebra.everything
            if len(self._open) >= MOST_OPEN:
                raise Unsupported(
                    "(size)", f"nests more than {MOST_OPEN} schemas in one value", "flatten it"
                )
            self._open.add(expr)
            try:
                found = self._made(expr)
            finally:
                self._open.discard(expr)
            self._forms[expr] = found
        return found

    def _made(self, expr: Expr) -> Form:
        outer = self.place
        if expr.place is not None:
            self.place = expr.place
        try:
            made = self._combined(expr)
            self.place = outer
            return made
        except Unsupported as problem:
            self.tell(self.place, problem.keyword, problem.reason, problem.way_out)
        except TooLarge as problem:
            self.tell(self.place, "(size)", str(problem), "use simpler patterns")
        except RecursionError:
            self.tell(self.place, "(size)", "nests too deep to be followed", "flatten it")
        self.place = outer
        return self.algebra.everything

    def _combined(self, expr: Expr) -> Form:
        if expr.sort is Sort.SCHEMA:
            assert expr.place is not None
            return self._schema(expr.place, tracked=expr.tracked)
        if expr.sort is Sort.CONST:
            return self.keywords.value(expr.value)
        if expr.sort is Sort.NOT:
            return self.algebra.negate(self.form(expr.parts[0]))
        form = self.form(expr.parts[0])
        join = self.algebra.meet if expr.sort is Sort.ALL else self.algebra.join
        for part in expr.parts[1:]:
            form = join(form, self.form(part))
        return form

    def void(self, expr: Expr) -> bool:
        """Whether an expression surely holds no value; looks a few levels deep."""
        if expr.sort in (Sort.TRUE, Sort.FALSE, Sort.CONST):
            return expr.sort is Sort.FALSE
        known = self._void.get(expr)
        if known is not None:
            return known
        # A schema by itself is rarely empty: what contradicts itself are combinations.
        if expr.sort is Sort.SCHEMA or expr in self._open or self._depth >= DEEPEST_LOOK:
            return False
        self._depth += 1
        try:
            found = self._void[expr] = self.holds_nothing(self.form(expr))
            return found
        except _Circular:
            return False
        finally:
            self._depth -= 1

    def holds_nothing(self, form: Form) -> bool:
        """Whether a form has no value left (as far as it is taken apart)."""
        return not (
            form.null
            or form.booleans
            or form.numbers
            or form.arrays
            or form.objects
            or self.search.live(form.texts)
        )

    # ---- one schema --------------------------------------------------------------------

    def _schema(self, place: Place, *, tracked: bool) -> Form:
        schema = place.schema
        assert isinstance(schema, Mapping)
        if "$ref" in schema and place.dialect < Dialect.DRAFT2019:
            return self.form(self._reference(place, "$ref", tracked=tracked))
        modern = place.dialect >= Dialect.DRAFT2019
        asks = modern and ("unevaluatedItems" in schema or "unevaluatedProperties" in schema)
        form = self._narrowed(place, self.algebra.everything, tracked or asks)
        if asks:
            form = self._unevaluated(place, schema, form)
        return form if tracked else without_evaluation(form, self.languages.empty)

    def _narrowed(self, place: Place, form: Form, tracked: bool) -> Form:
        """What is left of a form under the keywords of a schema, unevaluated* apart."""
        form = self.algebra.meet(form, self.keywords.read(place))
        for keyword, read in self._applicators(place):
            if keyword in _keys(place):
                form = read(place, form, tracked)
        return form

    def _applicators(self, place: Place) -> list[tuple[str, Reader]]:
        """The readers of all keywords that apply in place; each narrows what it is given."""
        found: list[tuple[str, Reader]] = [
            ("$ref", self._ref),
            ("allOf", self._all_of),
            ("not", self._not),
            ("dependencies", partial(self._dependents, "dependencies")),
            ("anyOf", self._any_of),
            ("oneOf", self._one_of),
        ]
        if place.dialect >= Dialect.DRAFT7:
            found.append(("if", self._if))
        if place.dialect >= Dialect.DRAFT2019:
            found += [
                ("$recursiveRef", self._recursive),
                ("dependentRequired", partial(self._dependents, "dependentRequired")),
                ("dependentSchemas", partial(self._dependents, "dependentSchemas")),
            ]
        if place.dialect >= Dialect.DRAFT2020:
            found.append(("$dynamicRef", self._dynamic))
        return found

    def _inner(self, place: Place, *path: str, tracked: bool = False) -> Expr:
        expr = self.keywords.sub(place, *path)
        return self.expressions.schema(expr.place, tracked=tracked) if expr.place else expr

    def _listed(self, place: Place, keyword: str, *, tracked: bool = False) -> list[Expr]:
        value = place.get(keyword)
        if not isinstance(value, list) or not value:
            self.tell(place, keyword, "is not a list of schemas", "correct the schema")
            return []
        return [self._inner(place, keyword, str(i), tracked=tracked) for i in range(len(value))]

    def _reference(self, place: Place, keyword: str, *, tracked: bool) -> Expr:
        reference = place.get(keyword)
        if not isinstance(reference, str):
            self.tell(place, keyword, "is not a text", "correct the schema")
            return self.expressions.true
        try:
            return self.expressions.schema(self.document.resolve(place, reference), tracked=tracked)
        except ReferenceProblem as problem:
            self.tell(place, keyword, problem.reason, problem.way_out)
            return self.expressions.true

    def _ref(self, place: Place, form: Form, tracked: bool) -> Form:
        other = self.form(self._reference(place, "$ref", tracked=tracked))
        return self.algebra.meet(form, other)

    def _recursive(self, place: Place, form: Form, tracked: bool) -> Form:
        return self._scoped(place, form, "$recursiveRef", "", tracked)

    def _dynamic(self, place: Place, form: Form, tracked: bool) -> Form:
        name = str(place.get("$dynamicRef")).partition("#")[2]
        return self._scoped(place, form, "$dynamicRef", name, tracked)

    def _scoped(self, place: Place, form: Form, keyword: str, name: str, tracked: bool) -> Form:
        if len(self.document.dynamic.get(name, [])) > 1:
            raise Unsupported(keyword, "depends on where it is read from", "use $ref")
        return self.algebra.meet(form, self.form(self._reference(place, keyword, tracked=tracked)))

    # ---- in-place applicators ----------------------------------------------------------

    def _all_of(self, place: Place, form: Form, tracked: bool) -> Form:
        """Each part narrows what the parts before it left, the plain ones first."""
        narrowing = []
        for part in self._listed(place, "allOf", tracked=tracked):
            if part.place is not None and _cuts(part.place):
                narrowing.append(part.place)
            else:
                form = self.algebra.meet(form, self.form(part))
        for inner in narrowing:
            form = self._narrowed(inner, form, tracked)
        return form

    def _any_of(self, place: Place, form: Form, tracked: bool) -> Form:
        parts = self._listed(place, "anyOf", tracked=tracked)
        if not parts:
            return form
        return self._united([self.algebra.meet(form, self.form(part)) for part in parts], tracked)

    def _united(self, forms: list[Form], tracked: bool) -> Form:
        """The union; where evaluation is tracked, with every way to be in several at once."""
        if tracked and len(forms) > MOST_TRACKED:
            raise Unsupported(
                "anyOf",
                f"has more than {MOST_TRACKED} branches under an unevaluated* keyword",
                "use fewer, or additionalProperties in each",
            )
        form = self.algebra.nothing
        for count in range(len(forms) if tracked else 1, 0, -1):
            for chosen in combinations(forms, count):
                met = chosen[0]
                for other in chosen[1:]:
                    met = self.algebra.meet(met, other)
                form = self.algebra.join(form, met)
        return form

    def _one_of(self, place: Place, form: Form, tracked: bool) -> Form:
        parts = self._listed(place, "oneOf", tracked=tracked)
        branches = [self.form(part) for part in parts]
        out = self.algebra.nothing
        for i, branch in enumerate(branches):
            one = self.algebra.meet(form, branch)
            for j, other in enumerate(branches):
                if i != j:
                    one = self.algebra.subtract(one, other)
            out = self.algebra.join(out, one)
        return out if branches else form

    def _not(self, place: Place, form: Form, tracked: bool) -> Form:
        return self.algebra.subtract(form, self.form(self._inner(place, "not")))

    def _if(self, place: Place, form: Form, tracked: bool) -> Form:
        schema = place.schema
        assert isinstance(schema, Mapping)
        if not tracked and "then" not in schema and "else" not in schema:
            return form
        condition = self.form(self._inner(place, "if", tracked=tracked))
        yes = self.algebra.meet(form, condition)
        no = self.algebra.subtract(form, condition)
        if "then" in schema:
            yes = self.algebra.meet(yes, self.form(self._inner(place, "then", tracked=tracked)))
        if "else" in schema:
            no = self.algebra.meet(no, self.form(self._inner(place, "else", tracked=tracked)))
        return self.algebra.join(yes, no)

    # ---- what a name brings with it ----------------------------------------------------

    def _dependents(self, keyword: str, place: Place, form: Form, tracked: bool) -> Form:
        value = place.get(keyword)
        if not isinstance(value, Mapping):
            self.tell(place, keyword, "is not a map", "correct the schema")
            return form
        for name in value:
            asked = self._dependent(place, keyword, name, value[name], tracked)
            form = self.algebra.meet(form, asked)
        return form

    def _dependent(self, place: Place, keyword: str, name: str, asked: Json, tracked: bool) -> Form:
        """Objects without the name, or with it and all that it asks for."""
        algebra = self.algebra
        absent = replace(algebra.any_object, names=((name, self.expressions.false),))
        present = replace(algebra.any_object, required=(name,))
        if isinstance(asked, str) and place.dialect < Dialect.DRAFT2019:
            asked = [asked]
        if isinstance(asked, list):
            names = [one for one in asked if isinstance(one, str)]
            present = replace(present, required=tuple(dict.fromkeys([name, *names])))
            if len(names) < len(asked):
                self.tell(place, keyword, "is not a list of names", "correct the schema")
            return replace(algebra.everything, objects=(absent, present))
        inner = self.form(self._inner(place, keyword, name, tracked=tracked))
        with_name = replace(algebra.nothing, objects=(present,))
        without = replace(algebra.everything, objects=(absent,))
        return algebra.join(without, algebra.meet(with_name, inner))

    # ---- unevaluated* ------------------------------------------------------------------

    def _unevaluated(self, place: Place, schema: Mapping[str, Json], form: Form) -> Form:
        algebra = self.algebra
        if "unevaluatedItems" in schema:
            item = self.keywords.sub(place, "unevaluatedItems")
            arrays = []
            for one in form.arrays:
                done = one.evaluated
                if done.count is not None:
                    rest = self.expressions.any((item, *done.also))
                    one = algebra.from_index(one, done.count, rest)
                checked = algebra.checked_arrays(replace(one, evaluated=Evaluated(None)))
                arrays += [checked] if checked is not None else []
            form = replace(form, arrays=tuple(dict.fromkeys(arrays)))
        if "unevaluatedProperties" in schema:
            value = self.keywords.sub(place, "unevaluatedProperties")
            objects: list[Objects] = []
            for obj in form.objects:
                left: Lang = self.languages.negate(obj.evaluated)
                made = replace(
                    obj, values=(*obj.values, (left, value)), evaluated=self.languages.all
                )
                fine = algebra.checked_objects(made)
                objects += [fine] if fine is not None else []
            form = replace(form, objects=tuple(dict.fromkeys(objects)))
        return form

    def at(self, expr: Expr) -> Place:
        """The place to name when something about an expression is told."""
        while expr.place is None and expr.parts:
            expr = expr.parts[0]
        return expr.place or self.document.root


def _keys(place: Place) -> Mapping[str, Json]:
    assert isinstance(place.schema, Mapping)
    return place.schema


def _cuts(place: Place) -> bool:
    """Whether a schema is best read knowing what else holds: it has complements inside."""
    keys = _keys(place).keys()
    kept_apart = {"$ref", "unevaluatedProperties", "unevaluatedItems"}
    return not keys.isdisjoint({"oneOf", "not", "if"}) and keys.isdisjoint(kept_apart)
