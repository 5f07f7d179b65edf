"""Which name may come next in an object, and what it takes with it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from forwardpass.constraint.frames import LISTED, InObject, Phase
from forwardpass.constraint.lang import Lang
from forwardpass.constraint.plans import Counts, ObjectPlan, Option
from forwardpass.constraint.room import added, object_open
from forwardpass.constraint.searching import Search

MOST_KEYS = 4_096

# Before the number of a kind: any name of that kind that is not written yet, whichever it is.
# No name begins so, since half a surrogate pair is no text.
_SOME = "\ud800"


def some_name(kind: int) -> str:
    """Stands for a fresh name of a kind of others where it does not matter which."""
    return f"{_SOME}{kind}"


def is_blind(frame: InObject) -> bool:
    """Whether the object has a name that is not known."""
    return any(name.startswith(_SOME) for name in frame.others)


class Names:
    """Names in the order of the schema (each one that is not required may be passed over), all
    others after them; or in any order. No name comes twice, unless `repeated` allows it where an
    object says nothing of its names."""

    def __init__(self, search: Search, *, any_order: bool, repeated: bool = False) -> None:
        self.search, self.languages = search, search.languages
        self.any_order = any_order
        self.repeated = repeated

    def languages_of(self, frame: InObject) -> tuple[tuple[int, Lang], ...]:
        """The names that may come next, such that the object can still be completed: the listed
        ones, and each kind of others."""
        key = (frame.mask, frame.others, frame.counts)
        known = frame.plan.keys.get(key)
        if known is None:
            found = self._languages(frame)
            if len(frame.plan.keys) > MOST_KEYS:
                frame.plan.keys.clear()
            known = frame.plan.keys[key] = tuple((k, x) for k, x in found if self.search.live(x))
        return known

    def _languages(self, frame: InObject) -> Iterator[tuple[int, Lang]]:
        plan, mask = frame.plan, frame.mask
        used = self._used(plan, frame.others)
        named = []
        for i in self._listed(frame):
            taken = mask | 1 << i
            if self._any_open(frame, plan.options[i], taken, used):
                named.append(plan.names[i])
        yield LISTED, self.languages.words(named)
        for k, one in enumerate(plan.others):
            more = tuple(count + (i == k) for i, count in enumerate(used))
            if self._any_open(frame, one.options, mask, more):
                fresh = self.languages.negate(self.languages.words(frame.others))
                yield k, self.languages.both((one.names, fresh))

    def _listed(self, frame: InObject) -> Iterator[int]:
        """The listed names whose turn it may be."""
        plan, mask = frame.plan, frame.mask
        if self.any_order:
            yield from (i for i in range(len(plan.names)) if not mask >> i & 1)
        elif not frame.others:
            for i in range(mask.bit_length(), len(plan.names)):
                yield i
                if plan.required >> i & 1:
                    return

    def taken(self, frame: InObject, name: str) -> Iterator[InObject]:
        """The object after a name, once for each way to count its value."""
        plan, mask, others = frame.plan, frame.mask, frame.others
        if name in plan.index:
            mask |= 1 << plan.index[name]
            options = plan.options[plan.index[name]]
        else:
            if not (self.repeated and plan.simple and not plan.names):
                others |= {name}
            options = plan.others[self._kind(plan, name)].options
        used = self._used(plan, others)
        for option in options:
            counts = added(frame.counts, option.counts)
            if option.node.alive and self._open(plan, mask, counts, used):
                yield replace(
                    frame,
                    phase=Phase.NAMED,
                    mask=mask,
                    others=others,
                    counts=counts,
                    value=option.node,
                )

    def _kind(self, plan: ObjectPlan, name: str) -> int:
        if name.startswith(_SOME):
            return int(name[1:])
        return next(
            i for i, one in enumerate(plan.others) if self.languages.matches(one.names, name)
        )

    def _used(self, plan: ObjectPlan, others: frozenset[str]) -> Counts:
        """How many names of each kind of others are written."""
        used = [0] * len(plan.others)
        for name in others:
            used[self._kind(plan, name)] += 1
        return tuple(used)

    def _any_open(self, frame: InObject, options: list[Option], mask: int, used: Counts) -> bool:
        return any(
            option.node.alive
            and self._open(frame.plan, mask, added(frame.counts, option.counts), used)
            for option in options
        )

    def _open(self, plan: ObjectPlan, mask: int, counts: Counts, used: Counts) -> bool:
        """Whether the object can be completed after what is used up."""
        gone = mask
        if not self.any_order:
            passed = len(plan.names) if any(used) else mask.bit_length()
            gone = (1 << passed) - 1
        if plan.required & gone & ~mask:
            return False
        members = mask.bit_count() + sum(used)
        return plan.simple or object_open(plan, gone, members, counts, used)
