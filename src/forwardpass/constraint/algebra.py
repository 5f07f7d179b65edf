"""Intersection, union and complement of normal forms.

A conjunction that can be seen to hold no value is dropped, so contradictions vanish and disjoint
unions become what they are; how deep the look goes is the caller's (`void`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import TypeVar

from forwardpass.constraint.expressions import Expr, Expressions
from forwardpass.constraint.forms import (
    Arrays,
    Form,
    Limit,
    Objects,
    SomeItems,
    SomeMembers,
    least,
    meet_evaluated,
    unique,
)
from forwardpass.constraint.lang import Kind, Lang
from forwardpass.constraint.numbers import ALL_NUMBERS, Numbers, unite
from forwardpass.constraint.regular import Languages
from forwardpass.constraint.searching import Search
from forwardpass.constraint.steps import Work

MOST_ALTERNATIVES = 256
Part = TypeVar("Part", Arrays, Objects)


class Unsupported(Exception):
    """What the normal form cannot say: keyword, reason, way out."""

    def __init__(self, keyword: str, reason: str, way_out: str = "") -> None:
        super().__init__(reason)
        self.keyword, self.reason, self.way_out = keyword, reason, way_out


class Algebra:
    """The operations on forms. `void` says of an expression that it surely holds no value."""

    def __init__(
        self,
        languages: Languages,
        search: Search,
        expressions: Expressions,
        void: Callable[[Expr], bool],
    ) -> None:
        self.languages, self.search, self.expressions = languages, search, expressions
        self.void = void
        self.steps = languages.steps
        self.any_array = Arrays(expressions.true)
        self.any_object = Objects(languages.empty)
        self.nothing = Form(False, frozenset(), (), languages.empty, (), ())
        self.everything = Form(
            True,
            frozenset([False, True]),
            (ALL_NUMBERS,),
            languages.all,
            (self.any_array,),
            (self.any_object,),
        )

    # ---- union and intersection --------------------------------------------------------

    def join(self, left: Form, right: Form) -> Form:
        """The values of either."""
        if left is self.nothing or right is self.nothing:
            return right if left is self.nothing else left
        self._spend_form(left, right)
        return Form(
            left.null or right.null,
            left.booleans | right.booleans,
            unite([*left.numbers, *right.numbers]),
            self.languages.alt((left.texts, right.texts)),
            self._absorbed((*left.arrays, *right.arrays), self.any_array),
            self._absorbed((*left.objects, *right.objects), self.any_object),
        )

    def _absorbed(self, parts: tuple[Part, ...], whole: Part) -> tuple[Part, ...]:
        parts = unique(parts)
        if whole in parts and all(part.evaluated == whole.evaluated for part in parts):
            return (whole,)
        _capped(len(parts))
        return parts

    def meet(self, left: Form, right: Form) -> Form:
        """The values of both."""
        if left is self.everything or right is self.everything:
            return right if left is self.everything else left
        self._spend_form(left, right)
        self._spend_numbers(left.numbers, right.numbers)
        numbers = [a.meet(b) for a in left.numbers for b in right.numbers]
        texts = self.languages.both((left.texts, right.texts))
        return Form(
            left.null and right.null,
            left.booleans & right.booleans,
            unite([n for n in numbers if n is not None]),
            texts if self.search.live(texts) else self.languages.empty,
            _product(left.arrays, right.arrays, self.any_array, self.meet_arrays),
            _product(left.objects, right.objects, self.any_object, self.meet_objects),
        )

    def meet_arrays(self, left: Arrays, right: Arrays) -> Arrays | None:
        """The arrays in both; None where there surely are none."""
        length = max(len(left.prefix), len(right.prefix))
        self.steps.spend(Work.ALTERNATIVES, 15 + 8 * length)
        both = self.expressions.all
        return self.checked_arrays(
            Arrays(
                both((left.rest, right.rest)),
                tuple(both((left.item(i), right.item(i))) for i in range(length)),
                max(left.low, right.low),
                least(left.high, right.high),
                unique((*left.some, *right.some)),
                left.unique or right.unique,
                meet_evaluated(left.evaluated, right.evaluated),
            )
        )

    def checked_arrays(self, arrays: Arrays) -> Arrays | None:
        """The same arrays, tidied; None where there surely are none."""
        arrays = self._none_of_some_items(arrays)
        high = arrays.high
        for i, item in enumerate((*arrays.prefix, arrays.rest)):
            if item is self.expressions.false:
                high = least(high, i)
                break
        if high is not None and (high < arrays.low or any(s.low > high for s in arrays.some)):
            return None
        looked_at = min(arrays.low, len(arrays.prefix) + 1, 16)
        if any(self.void(arrays.item(i)) for i in range(looked_at)):
            return None
        prefix = arrays.prefix[:high] if high is not None else arrays.prefix
        while prefix and prefix[-1] is arrays.rest:
            prefix = prefix[:-1]
        return replace(arrays, high=high, prefix=prefix)

    def _none_of_some_items(self, arrays: Arrays) -> Arrays:
        """`at most 0 of …` said of every item instead."""
        for some in arrays.some:
            if some.high == 0:
                arrays = self.from_index(arrays, some.start, self.expressions.negate(some.item))
        kept = tuple(s for s in arrays.some if s.high != 0)
        return replace(arrays, some=kept)

    def from_index(self, arrays: Arrays, start: int, item: Expr) -> Arrays:
        """The same with `item` asked of every item from `start` on."""
        both = self.expressions.all
        length = max(len(arrays.prefix), start)
        prefix = tuple(
            both((arrays.item(i), item)) if i >= start else arrays.item(i) for i in range(length)
        )
        return replace(arrays, prefix=prefix, rest=both((arrays.rest, item)))

    def meet_objects(self, left: Objects, right: Objects) -> Objects | None:
        """The objects in both; None where there surely are none."""
        sizes = (left.names, right.names, left.values, right.values, left.required, right.required)
        self.steps.spend(Work.ALTERNATIVES, 15 + sum(map(len, sizes)))
        names = dict(left.names)
        for name, value in right.names:
            known = names.get(name)
            names[name] = value if known is None else self.expressions.all((known, value))
        looked_at = None
        if not left.values and not right.values:
            # What one side alone says of a name that it requires was looked at before.
            ours, theirs = dict(left.names), dict(right.names)
            looked_at = [n for n in left.required if n in theirs]
            looked_at += [n for n in right.required if n in ours]
        return self.checked_objects(
            Objects(
                self.languages.alt((left.evaluated, right.evaluated)),
                tuple(names.items()),
                unique((*left.values, *right.values)),
                unique((*left.required, *right.required)),
                max(left.low, right.low),
                least(left.high, right.high),
                unique((*left.some, *right.some)),
            ),
            looked_at,
        )

    def _spend_form(self, left: Form, right: Form) -> None:
        parts = (
            left.numbers,
            right.numbers,
            left.arrays,
            right.arrays,
            left.objects,
            right.objects,
        )
        self.steps.spend(Work.ALTERNATIVES, 5 + sum(map(len, parts)))

    def _spend_numbers(self, left: Iterable[Numbers], right: Iterable[Numbers]) -> None:
        """What it takes to intersect each set of numbers with each."""
        ours, theirs = ([len(n.ranges) + 5 * len(n.never) for n in s] for s in (left, right))
        both = sum(ours) * len(theirs) + sum(theirs) * len(ours)
        self.steps.spend(Work.NUMBERS, 4 * both)

    def checked_objects(
        self, objects: Objects, looked_at: list[str] | None = None
    ) -> Objects | None:
        """The same objects, tidied; None where there surely are none.

        `looked_at`: the required names whose values are looked at, all where None.
        """
        values, some = list(objects.values), []
        for one in objects.some:
            if one.high == 0:
                values.append((one.names, self.expressions.negate(one.value)))
            elif one.names is not self.languages.empty and one.value is not self.expressions.false:
                some.append(one)
            elif one.low:
                return None
        kept = unique((n, v) for n, v in values if v is not self.expressions.true)
        kept = tuple((n, v) for n, v in kept if n is not self.languages.empty)
        high = objects.high
        if high is not None and (high < objects.low or high < len(objects.required)):
            return None
        if kept != objects.values or objects.some:
            objects = replace(objects, values=kept, some=tuple(some))
        names = objects.required if looked_at is None else looked_at
        known = dict(objects.names) if names else {}
        if any(self.void(self.member(known, objects, name)) for name in names):
            return None
        return objects

    def member(self, known: Mapping[str, Expr], objects: Objects, name: str) -> Expr:
        """All that holds for the value of one name; `known` are the names of the objects."""
        self.steps.spend(Work.ALTERNATIVES, len(objects.values))
        parts = [known[name]] if name in known else []
        parts += [value for names, value in objects.values if self.languages.matches(names, name)]
        return self.expressions.all(parts)

    # ---- complement --------------------------------------------------------------------

    def subtract(self, form: Form, other: Form) -> Form:
        """The values of one form that are not of the other.

        Each conjunction is cut only by those that it overlaps, so that disjoint ones stay whole.
        """
        self._spend_form(form, other)
        numbers = list(form.numbers)
        for one in other.numbers:
            others = one.others()
            self._spend_numbers(numbers, others)
            cut = [a.meet(b) for a in numbers for b in others]
            numbers = list(unite([n for n in cut if n is not None]))
        texts = self.languages.both((form.texts, self.languages.negate(other.texts)))
        return Form(
            form.null and not other.null,
            form.booleans - other.booleans,
            tuple(numbers),
            texts if self.search.live(texts) else self.languages.empty,
            _difference(form.arrays, other.arrays, self.meet_arrays, self.other_arrays),
            _difference(form.objects, other.objects, self.meet_objects, self.other_objects),
        )

    def negate(self, form: Form) -> Form:
        """All other values."""
        return self.subtract(self.everything, form)

    def other_arrays(self, arrays: Arrays) -> tuple[Arrays, ...]:
        """All arrays that are not these, as sets that may overlap."""
        if arrays.unique:
            raise Unsupported(
                "uniqueItems", "cannot be negated", "leave it out of not, oneOf and if"
            )
        out: list[Arrays | None] = []
        whole, negate = self.any_array, self.expressions.negate
        for i, item in enumerate(arrays.prefix):
            if item is not self.expressions.true:
                before = (self.expressions.true,) * i
                out.append(replace(whole, prefix=(*before, negate(item)), low=i + 1))
        if arrays.rest is not self.expressions.true:
            some = SomeItems(negate(arrays.rest), len(arrays.prefix), 1, None)
            out.append(replace(whole, some=(some,), low=some.start + 1))
        if arrays.low:
            out.append(replace(whole, high=arrays.low - 1))
        if arrays.high is not None:
            out.append(replace(whole, low=arrays.high + 1))
        for some in arrays.some:
            if some.low:
                fewer = replace(some, low=0, high=some.low - 1)
                out.append(replace(whole, some=(fewer,)))
            if some.high is not None:
                more = replace(some, low=some.high + 1, high=None)
                out.append(replace(whole, some=(more,), low=more.start + more.low))
        checked = (self.checked_arrays(one) for one in out if one is not None)
        return unique(one for one in checked if one is not None)

    def other_objects(self, objects: Objects) -> tuple[Objects, ...]:
        """All objects that are not these, as sets that may overlap."""
        out: list[Objects] = []
        whole, negate = self.any_object, self.expressions.negate
        for name, value in objects.names:
            if value is not self.expressions.true:
                out.append(replace(whole, names=((name, negate(value)),), required=(name,)))
        for names, value in objects.values:
            if names.kind is Kind.WORDS:
                for name in names.words:
                    out.append(replace(whole, names=((name, negate(value)),), required=(name,)))
            elif value is not self.expressions.true:
                out.append(
                    replace(whole, some=(SomeMembers(names, negate(value), 1, None),), low=1)
                )
        for name in objects.required:
            out.append(replace(whole, names=((name, self.expressions.false),)))
        if objects.low:
            out.append(replace(whole, high=objects.low - 1))
        if objects.high is not None:
            out.append(replace(whole, low=objects.high + 1))
        for some in objects.some:
            if some.low:
                out.append(replace(whole, some=(replace(some, low=0, high=some.low - 1),)))
            if some.high is not None:
                more = replace(some, low=some.high + 1, high=None)
                out.append(replace(whole, some=(more,), low=more.low))
        checked = (self.checked_objects(one) for one in out)
        return unique(one for one in checked if one is not None)

    def limits(self, texts: Lang, low: int, high: Limit) -> Lang:
        """The texts of `low` to `high` code points."""
        return self.languages.both((texts, self.languages.lengths(low, high)))


def _capped(count: int) -> None:
    if count > MOST_ALTERNATIVES:
        raise Unsupported(
            "(alternatives)",
            f"come to more than {MOST_ALTERNATIVES} when taken apart",
            "use fewer branches in anyOf, oneOf, not or if",
        )


def _difference(
    parts: tuple[Part, ...],
    others: tuple[Part, ...],
    meet: Callable[[Part, Part], Part | None],
    complement: Callable[[Part], tuple[Part, ...]],
) -> tuple[Part, ...]:
    """The union of conjunctions less another, each cut only by those that it overlaps."""
    out: dict[Part, None] = {}
    for part in parts:
        left: dict[Part, None] = {part: None}
        for other in others:
            cut: dict[Part, None] = {}
            for one in left:
                if meet(one, other) is None:
                    cut[one] = None
                    continue
                for outside in complement(other):
                    met = meet(one, outside)
                    if met is not None:
                        cut[met] = None
                _capped(len(cut))
            left = cut
        out.update(left)
        _capped(len(out))
    return tuple(out)


def _product(
    left: tuple[Part, ...],
    right: tuple[Part, ...],
    whole: Part,
    meet: Callable[[Part, Part], Part | None],
) -> tuple[Part, ...]:
    """The intersection of two unions of conjunctions."""
    if left == (whole,) or right == (whole,):
        return right if left == (whole,) else left
    out: dict[Part, None] = {}
    for a in left:
        for b in right:
            met = a if a == b else meet(a, b)
            if met is not None:
                out[met] = None
        _capped(len(out))
    return tuple(out)
