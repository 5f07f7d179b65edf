"""Can an open array or object still be completed? Asked before anything is let in.

What is left to place is a set of supplies: a required name is one that must be used, an optional
name or a kind of other names one that may be used so many times. Each use has ways, vectors that
say which obligations it counts for. The search is exact within its budget; beyond the budget the
answer is no, which refuses and never loosens.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from forwardpass.constraint.plans import MANY, ArrayPlan, Counts, ObjectPlan, Option

Ways = frozenset[Counts]
BUDGET = 4_000


def zeros(least: Counts) -> Counts:
    return (0,) * len(least)


def added(counts: Counts, more: Counts) -> Counts:
    return tuple(a + b for a, b in zip(counts, more, strict=True)) if more else counts


def within(counts: Counts, most: Counts) -> bool:
    return all(a <= b for a, b in zip(counts, most, strict=True))


def reached(counts: Counts, least: Counts) -> bool:
    return all(a >= b for a, b in zip(counts, least, strict=True))


def ways(options: Iterable[Option]) -> Ways:
    """How values that exist may count."""
    return frozenset(option.counts for option in options if option.node.alive)


def array_open(plan: ArrayPlan, index: int, counts: Counts) -> bool:
    """Whether an array of `index` items, which counted so far as `counts`, can be completed."""
    low, high = plan.arrays.low, plan.high
    if max(index, low) > high or not within(counts, plan.most):
        return False
    if not plan.least or (index >= low and reached(counts, plan.least)):
        return True
    if index < len(plan.options) - 1:
        following = ways(plan.at(index))
        return any(array_open(plan, index + 1, added(counts, way)) for way in following)
    search = _Search(plan.least, plan.most, [])
    kinds = ((ways(plan.at(index)), high - index),)
    return search.enough(counts, 0, kinds, max(low - index, 0), high - index)


def object_open(
    plan: ObjectPlan, gone: int = 0, members: int = 0, counts: Counts = (), used: Counts = ()
) -> bool:
    """Whether an object can be completed.

    `gone` has a bit for each name that was written or passed over, `members` is how many there
    are, `used` how many names of each kind of others.
    """
    counts = counts or zeros(plan.least)
    needed: list[Ways] = []
    optional: Counter[Ways] = Counter()
    for i, options in enumerate(plan.options):
        if not gone >> i & 1:
            if plan.required >> i & 1:
                needed.append(ways(options))
            else:
                optional[ways(options)] += 1
    high = MANY if plan.objects.high is None else plan.objects.high
    size = members + len(needed)
    if size > high or not all(needed):
        return False
    for i, one in enumerate(plan.others):
        optional[ways(one.options)] += one.capacity - (used[i] if used else 0)
    kinds = tuple((way, room) for way, room in optional.items() if way and room > 0)
    if not plan.least:
        return size + sum(room for _, room in kinds) >= plan.objects.low
    search = _Search(plan.least, plan.most, needed)
    return search.enough(counts, 0, kinds, max(plan.objects.low - size, 0), high - size)


Kinds = tuple[tuple[Ways, int], ...]


class _Search:
    """A search for uses that meet every obligation; what must be used comes first."""

    def __init__(self, least: Counts, most: Counts, musts: list[Ways]) -> None:
        self.least, self.most, self.musts = least, most, musts
        self.failed: set[object] = set()
        self.left = BUDGET

    def enough(self, counts: Counts, must: int, kinds: Kinds, fewest: int, slots: int) -> bool:
        """Whether `fewest` to `slots` further uses can bring the counts within their limits."""
        key = (counts, must, kinds, fewest, slots)
        if key in self.failed or self.left <= 0 or fewest > slots:
            return False
        self.left -= 1
        found = within(counts, self.most) and self._tried(counts, must, kinds, fewest, slots)
        if not found:
            self.failed.add(key)
        return found

    def _tried(self, counts: Counts, must: int, kinds: Kinds, fewest: int, slots: int) -> bool:
        if must < len(self.musts):
            tried = sorted(self.musts[must], key=sum, reverse=True)
            return any(
                self.enough(added(counts, way), must + 1, kinds, fewest, slots) for way in tried
            )
        unmet = [i for i, (a, b) in enumerate(zip(counts, self.least, strict=True)) if a < b]
        neutral = zeros(counts)
        if not unmet and sum(room for way, room in kinds if neutral in way) >= fewest:
            return True
        for k, (choices, room) in enumerate(kinds):
            for way in sorted(choices, key=sum, reverse=True):
                if not any(way) or (unmet and not way[unmet[0]]):
                    continue
                for times in self._times(counts, way, min(room, slots), fewest):
                    more = tuple(a + b * times for a, b in zip(counts, way, strict=True))
                    rest = (*kinds[:k], (choices, room - times), *kinds[k + 1 :])
                    if self.enough(more, must, rest, max(fewest - times, 0), slots - times):
                        return True
        return False

    def _times(self, counts: Counts, way: Counts, room: int, fewest: int) -> list[int]:
        """How many uses to try at once: up to what is owed, and one."""
        facts = zip(counts, way, self.least, self.most, strict=True)
        used = [(least - a, most - a) for a, b, least, most in facts if b]
        owed = [debt for debt, _ in used if debt > 0] or [fewest]
        many = min(room, min(owed), *(left for _, left in used))
        return [] if many < 1 else [many] if many == 1 else [many, 1]
