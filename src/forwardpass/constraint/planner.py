"""From expressions to plans: every kind of value that can be reached, and which of them exist."""

from __future__ import annotations

from itertools import product

from forwardpass.constraint.algebra import Unsupported
from forwardpass.constraint.expressions import Expr, Sort
from forwardpass.constraint.forms import Arrays, Form, Objects
from forwardpass.constraint.keywords import MOST_NAMES
from forwardpass.constraint.lang import Lang, TooLarge
from forwardpass.constraint.normal import Normalizer
from forwardpass.constraint.numbers import cardinality
from forwardpass.constraint.plans import (
    MANY,
    ArrayPlan,
    Node,
    ObjectPlan,
    Option,
    Others,
)
from forwardpass.constraint.room import array_open, object_open, zeros
from forwardpass.constraint.steps import Exhausted, Work

MOST_NODES = 20_000
MOST_CLASSES = 128
MOST_DIFFERENT = 10_000
MOST_COUNTED = 6


class Planner:
    """Makes the nodes of everything that can be reached from a schema."""

    def __init__(self, normalizer: Normalizer) -> None:
        self.normal = normalizer
        self.languages, self.search = normalizer.languages, normalizer.search
        self.expressions = normalizer.expressions
        self.nodes: dict[Expr, Node] = {}
        self._waiting: list[Node] = []

    def plan(self, root: Expr) -> Node:
        """The node of the root, with all that it leads to; dead parts are marked.

        Where it takes too many steps, that is told, and what is returned is of no use.
        """
        node, steps = Node(root, self.normal.algebra.everything), self.languages.steps
        steps.begin(self.normal.document.schemas)
        try:
            node = self.node(root)
            while self._waiting:
                self._fill(self._waiting.pop())
            self._mark_alive()
        except (Exhausted, Unsupported) as problem:
            self.normal.stop(problem.keyword, problem.reason, problem.way_out)
        except TooLarge as problem:
            self.normal.stop("(texts)", str(problem), Work.TEXTS.value)
        finally:
            steps.end()
        return node

    def node(self, expr: Expr) -> Node:
        known = self.nodes.get(expr)
        if known is None:
            if len(self.nodes) >= MOST_NODES:
                raise Unsupported(
                    "(size)", f"leads to more than {MOST_NODES:,} kinds of value", "make it smaller"
                )
            known = self.nodes[expr] = Node(expr, self.normal.form(expr))
            self._waiting.append(known)
        return known

    def _fill(self, node: Node) -> None:
        outer = self.normal.place = self.normal.at(node.expr)
        try:
            node.arrays = [self._array(arrays) for arrays in node.form.arrays]
            node.objects = [self._object(objects) for objects in node.form.objects]
        except Unsupported as problem:
            self.normal.tell(outer, problem.keyword, problem.reason, problem.way_out)
        except TooLarge as problem:
            self.normal.tell(outer, "(texts)", str(problem), Work.TEXTS.value)

    def _options(self, value: Expr, asked: list[tuple[Expr, bool, bool]]) -> list[Option]:
        """Every way to count or not to count for each obligation (schema, applies, limited)."""
        out = []
        self.languages.steps.spend(Work.ALTERNATIVES, 15 << sum(applies for _, applies, _ in asked))
        for chosen in product(*([0, 1] if applies else [0] for _, applies, _ in asked)):
            parts = [value]
            for (schema, applies, limited), counted in zip(asked, chosen, strict=True):
                if counted:
                    parts.append(schema)
                elif applies and limited:
                    parts.append(self.expressions.negate(schema))
            expr = self.expressions.all(parts)
            if expr is not self.expressions.false:
                out.append(Option(self.node(expr), chosen))
        return out

    # ---- arrays ------------------------------------------------------------------------

    def _array(self, arrays: Arrays) -> ArrayPlan:
        if len(arrays.some) > MOST_COUNTED:
            raise Unsupported(
                "contains",
                f"is asked for more than {MOST_COUNTED} times over one array",
                "ask for fewer",
            )
        length = max([len(arrays.prefix), *(some.start for some in arrays.some)])
        options = []
        for i in range(length + 1):
            asked = [(s.item, s.start <= i, s.high is not None) for s in arrays.some]
            options.append(self._options(arrays.item(i), asked))
        plan = ArrayPlan(
            arrays,
            options,
            MANY if arrays.high is None else arrays.high,
            tuple(s.low for s in arrays.some),
            tuple(MANY if s.high is None else s.high for s in arrays.some),
        )
        if arrays.unique:
            self._check_unique(plan)
        return plan

    def _check_unique(self, plan: ArrayPlan) -> None:
        """Refuse where whether items can differ is more than a count."""
        arrays = plan.arrays
        low = max([arrays.low, *(some.low for some in arrays.some)])
        if low > MOST_DIFFERENT:
            reason = f"asks for more than {MOST_DIFFERENT:,} items that differ"
            raise Unsupported("uniqueItems", reason, "ask for fewer")
        for i, options in enumerate(plan.options):
            for option in options:
                form = option.node.form
                if not all(map(_extends_items, form.arrays)) or not all(
                    map(_extends_members, form.objects)
                ):
                    raise Unsupported(
                        "uniqueItems",
                        "over arrays or objects of limited size cannot be kept",
                        "leave it out, or let the items be texts, numbers or an enum",
                    )
                last = i == len(plan.options) - 1
                needed = low if last else min(i + 1, low)
                if arrays.some and needed and self.cardinality(form, needed) < needed:
                    raise Unsupported(
                        "uniqueItems", "with contains leaves too few values", "leave one out"
                    )

    def cardinality(self, form: Form, limit: int) -> int:
        """How many values a form has, or `limit` where there are at least that many."""
        total = int(form.null) + len(form.booleans)
        if form.arrays or form.objects:
            return limit
        for numbers in form.numbers:
            total += cardinality(numbers, limit)
        return min(limit, total + self.search.count(form.texts, limit))

    # ---- objects -----------------------------------------------------------------------

    def _object(self, objects: Objects) -> ObjectPlan:
        if len(objects.some) > MOST_COUNTED:
            raise Unsupported(
                "(members)",
                f"are counted in more than {MOST_COUNTED} ways at once",
                "negate fewer patternProperties, additionalProperties or propertyNames",
            )
        values = dict(objects.names)
        names = list(dict.fromkeys([*values, *objects.required]))
        if len(names) > MOST_NAMES:
            raise Unsupported("properties", f"has more than {MOST_NAMES:,} names", "use fewer")
        self.languages.steps.spend(Work.TEXTS, len(names) * len(objects.values))
        options = []
        for name in names:
            parts = [values[name]] if name in values else []
            for lang, value in objects.values:
                if self.languages.matches(lang, name):
                    parts.append(value)
            asked = [
                (s.value, self.languages.matches(s.names, name), s.high is not None)
                for s in objects.some
            ]
            options.append(self._options(self.expressions.all(parts), asked))
        required = set(objects.required)
        return ObjectPlan(
            objects,
            names,
            options,
            sum(1 << i for i, name in enumerate(names) if name in required),
            self._others(objects, names),
            tuple(s.low for s in objects.some),
            tuple(MANY if s.high is None else s.high for s in objects.some),
        )

    def _others(self, objects: Objects, names: list[str]) -> list[Others]:
        """The names that are not listed, apart by what holds for their values."""
        classes: list[tuple[Lang, tuple[Expr, ...], tuple[bool, ...]]] = [
            (self.languages.negate(self.languages.words(names)), (), ())
        ]
        for lang, value in objects.values:
            classes = self._split(classes, lang, (value,), None)
        for some in objects.some:
            classes = self._split(classes, some.names, (), True)
        out: dict[tuple[Expr, tuple[bool, ...]], list[Lang]] = {}
        for lang, values, applies in classes:
            out.setdefault((self.expressions.all(values), applies), []).append(lang)
        made = []
        for (value, applies), langs in out.items():
            if value is self.expressions.false:
                continue
            asked = [
                (s.value, a, s.high is not None) for s, a in zip(objects.some, applies, strict=True)
            ]
            lang = self.languages.alt(langs)
            needed = 1 + objects.low + sum(s.low for s in objects.some)
            capacity = self.search.count(lang, needed)
            made.append(
                Others(lang, self._options(value, asked), MANY if capacity >= needed else capacity)
            )
        return made

    def _split(
        self,
        classes: list[tuple[Lang, tuple[Expr, ...], tuple[bool, ...]]],
        lang: Lang,
        values: tuple[Expr, ...],
        applies: bool | None,
    ) -> list[tuple[Lang, tuple[Expr, ...], tuple[bool, ...]]]:
        """Each class in two: the names in a language and those outside it."""
        out = []
        for names, known, flags in classes:
            inside = self.languages.both((names, lang))
            outside = self.languages.both((names, self.languages.negate(lang)))
            yes = flags if applies is None else (*flags, True)
            no = flags if applies is None else (*flags, False)
            if self.search.live(inside):
                out.append((inside, (*known, *values), yes))
            if self.search.live(outside):
                out.append((outside, known, no))
        if len(out) > MOST_CLASSES:
            raise Unsupported(
                "patternProperties", f"overlap in more than {MOST_CLASSES} ways", "use fewer"
            )
        return out

    # ---- which values exist ------------------------------------------------------------

    def _mark_alive(self) -> None:
        """The least fixpoint: a value exists only where a finite one does."""
        waiting = []
        for node in self.nodes.values():
            form = node.form
            node.alive = bool(
                form.null or form.booleans or form.numbers or self.search.live(form.texts)
            )
            if not node.alive:
                waiting.append(node)
        waiting.reverse()
        while True:
            found = [n for n in waiting if self._has_container(n)]
            if not found:
                break
            waiting = [n for n in waiting if not n.alive]
        for node in self.nodes.values():
            for plan in node.arrays:
                self._limit(plan)
            node.arrays = [p for p in node.arrays if array_open(p, 0, zeros(p.least))]
            node.objects = [p for p in node.objects if object_open(p)]

    def _has_container(self, node: Node) -> bool:
        for array in node.arrays:
            self._limit(array)
            if array_open(array, 0, zeros(array.least)):
                node.alive = True
                return True
        node.alive = any(object_open(p) for p in node.objects)
        return node.alive

    def _limit(self, plan: ArrayPlan) -> None:
        """An array ends before the first item for which there is no value."""
        arrays = plan.arrays
        plan.high = MANY if arrays.high is None else arrays.high
        for i in range(len(plan.options)):
            if not plan.at(i):
                plan.high = min(plan.high, i)
                break
        if plan.unique and arrays.low and not self._enough_values(plan):
            plan.high = -1

    def _enough_values(self, plan: ArrayPlan) -> bool:
        """Whether items that differ can be found for the least length, one after another."""
        for i in range(min(plan.arrays.low, len(plan.options))):
            last = i == len(plan.options) - 1
            needed = plan.arrays.low if last else i + 1
            if all(self.cardinality(o.node.form, needed) < needed for o in plan.at(i)):
                return False
        return True


def _extends_items(arrays: Arrays) -> bool:
    """Whether any such array can be made longer, whatever it holds."""
    return arrays.high is None and not arrays.unique and arrays.rest.sort is Sort.TRUE


def _extends_members(objects: Objects) -> bool:
    """Whether any such object can take one more member, whatever it holds."""
    return objects.high is None and not objects.values
