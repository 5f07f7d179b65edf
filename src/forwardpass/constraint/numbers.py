"""What a schema can ask of a number: intervals, a multiple, multiples that it must not be."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import chain, islice

from forwardpass.constraint import decimals
from forwardpass.constraint.decimals import (
    COUNTED,
    EVERYTHING,
    LARGEST,
    SMALLEST,
    Interval,
    Intervals,
)

LITERAL, WRITTEN_OUT = "literal", "written out"
_TRIED = 4_096
_MAGNITUDES = Interval(SMALLEST, False, LARGEST, False)


@dataclass(frozen=True, slots=True)
class Numbers:
    """A set of numbers, closed under intersection; the complement is a few such sets.

    `step`: every number is a multiple of it. `never`: and of none of these. `form` is lexical,
    for draft 4, in which 1.0 is no integer: LITERAL has neither point nor exponent, WRITTEN_OUT
    has one.
    """

    ranges: Intervals = EVERYTHING
    step: Fraction | None = None
    never: frozenset[Fraction] = frozenset()
    form: str | None = None

    @property
    def free(self) -> bool:
        """Whether every number of JSON is in it."""
        return self == ALL_NUMBERS

    def meet(self, other: Numbers) -> Numbers | None:
        """The numbers in both; None where there are none."""
        if self.form and other.form and self.form != other.form:
            return None
        step = _common(self.step, other.step)
        met = Numbers(
            decimals.meet(self.ranges, other.ranges),
            step,
            self.never | other.never,
            self.form or other.form,
        )
        return met if any_number(met) else None

    def others(self) -> list[Numbers]:
        """All other numbers, as sets that may overlap."""
        out = []
        if rest := decimals.outside(self.ranges):
            out.append(Numbers(rest))
        if self.step is not None:
            out.append(Numbers(never=frozenset([self.step])))
        out += [Numbers(step=step) for step in self.never]
        if self.form:
            out.append(Numbers(form=WRITTEN_OUT if self.form == LITERAL else LITERAL))
        return out

    def without(self, value: Fraction) -> Numbers:
        """The same but for one number."""
        hole = decimals.outside(decimals.point(value))
        return replace(self, ranges=decimals.meet(self.ranges, hole))

    def holds(self, value: Fraction) -> bool:
        """Whether the number is in it, however it is written."""
        if not decimals.holds(self.ranges, value):
            return False
        if self.step is not None and (value / self.step).denominator != 1:
            return False
        return all((value / step).denominator != 1 for step in self.never)


ALL_NUMBERS = Numbers()
INTEGERS = Numbers(step=Fraction(1))
WITHIN_REACH = Numbers((Interval(-LARGEST, False, LARGEST, False),))  # of 64-bit floats


def _common(left: Fraction | None, right: Fraction | None) -> Fraction | None:
    """The least number that is a multiple of both."""
    if left is None or right is None:
        return left if right is None else right
    scale = left.denominator * right.denominator
    return Fraction(
        math.lcm(left.numerator * right.denominator, right.numerator * left.denominator), scale
    )


def unite(sets: list[Numbers]) -> tuple[Numbers, ...]:
    """The same numbers in fewer sets: those that differ in their intervals alone become one."""
    if len(sets) == 1:
        return tuple(sets)
    alike: dict[tuple[object, ...], list[Numbers]] = {}
    for numbers in sets:
        alike.setdefault((numbers.step, numbers.never, numbers.form), []).append(numbers)
    out = []
    for first, *others in alike.values():
        more = tuple(interval for numbers in others for interval in numbers.ranges)
        out.append(replace(first, ranges=decimals.join(first.ranges, more)) if others else first)
    return (ALL_NUMBERS,) if ALL_NUMBERS in out else tuple(out)


def positive(numbers: Numbers) -> Intervals:
    """The intervals above zero, within the magnitudes that are honoured."""
    return tuple(_honoured(numbers, numbers.ranges))


def negative(numbers: Numbers) -> Intervals:
    """The intervals below zero, mirrored to above it."""
    return tuple(_honoured(numbers, _mirrored(numbers)))


def _mirrored(numbers: Numbers) -> Iterator[Interval]:
    return (
        Interval(
            None if i.high is None else -i.high,
            i.high_open,
            None if i.low is None else -i.low,
            i.low_open,
        )
        for i in reversed(numbers.ranges)
    )


def _honoured(numbers: Numbers, ranges: Iterable[Interval]) -> Iterator[Interval]:
    """Intervals above zero; multiples only as far as 64-bit floats count by ones, points apart."""
    counted = numbers.never or numbers.step not in (None, 1)
    for one in ranges:
        interval = one.meet(_MAGNITUDES)
        if interval is not None and counted and interval.low != interval.high:
            interval = interval.meet(Interval(SMALLEST, False, COUNTED, False))
        if interval is not None:
            yield _told_apart(interval)


def _told_apart(interval: Interval) -> Interval:
    """The same without numbers that a reader of 64-bit floats takes for an end left out.

    Below 1 comes 0.99999999999999999, which is read as 1.
    """
    low, high = interval.low, interval.high
    assert low is not None
    assert high is not None
    if interval.low_open and low < COUNTED:
        low = max(low, _halfway(float(low), math.inf))
    if interval.high_open and high < COUNTED:
        high = min(high, _halfway(float(high), 0.0))
    if low >= high:
        return interval
    return Interval(low, interval.low_open, high, interval.high_open)


def _halfway(end: float, towards: float) -> Fraction:
    return (Fraction(end) + Fraction(math.nextafter(end, towards))) / 2


def zero(numbers: Numbers) -> bool:
    """Whether zero is in the set."""
    return not numbers.never and decimals.holds(numbers.ranges, Fraction(0))


def whole_step(numbers: Numbers) -> Fraction | None:
    """The step of what can be written: a literal is whole."""
    return _common(numbers.step, Fraction(1)) if numbers.form == LITERAL else numbers.step


def any_number(numbers: Numbers) -> bool:
    """Whether there is any number in the set that can be written with finitely many digits."""
    if zero(numbers) or numbers.free:
        return True
    sides = chain(_honoured(numbers, numbers.ranges), _honoured(numbers, _mirrored(numbers)))
    return any(found(interval, numbers) for interval in sides)


def found(interval: Interval, numbers: Numbers) -> bool:
    """Whether a number of the interval (above zero, bounded) has the right multiples."""
    return pick(interval, numbers) is not None


def pick(interval: Interval, numbers: Numbers) -> Fraction | None:
    """A number of the interval with the right multiples, or None where there is none."""
    low, high = interval.low, interval.high
    assert low is not None
    assert high is not None
    step = whole_step(numbers)
    if step is None:
        if low == high:
            allowed = all((low / one).denominator != 1 for one in numbers.never)
            return low if allowed else None
        return _between(interval, low, high, numbers)
    first, last = _counts(interval, step)
    spans = _spans(numbers, step)
    if 1 in spans:
        return None
    for count in range(first, min(last, first + _TRIED) + 1):
        if all(count % span for span in spans):
            return count * step
    return None


def _between(
    interval: Interval, low: Fraction, high: Fraction, numbers: Numbers
) -> Fraction | None:
    """A decimal within an interval that is more than a point: there always is one."""
    scale = 1
    while True:
        # Whole numbers, not fractions: of long digits there are many scales without any decimal.
        first = low.numerator * scale // low.denominator
        last = high.numerator * scale // high.denominator
        for count in range(first, min(first + 39, last) + 1):
            value = Fraction(count, scale)
            if interval.holds(value) and all(
                (value / one).denominator != 1 for one in numbers.never
            ):
                return value
        scale *= 10


def cardinality(numbers: Numbers, limit: int) -> int:
    """How many numbers are in the set, or `limit` where there are at least that many."""
    total = int(zero(numbers))
    step = whole_step(numbers)
    for interval in (*positive(numbers), *negative(numbers)):
        if total >= limit:
            break
        if step is None or interval.low == interval.high:
            some = pick(interval, numbers) is not None
            total += 0 if not some else 1 if interval.low == interval.high else limit
        else:
            first, last = _counts(interval, step)
            spans = _spans(numbers, step)
            if 1 in spans or first > last:
                continue
            if spans:
                counts = range(first, min(last, first + _TRIED * limit) + 1)
                left = (count for count in counts if all(count % span for span in spans))
                total += sum(1 for _ in islice(left, limit))
            else:
                total += last - first + 1
    return min(total, limit)


def _counts(interval: Interval, step: Fraction) -> tuple[int, int]:
    """The first and last k of which k·step lies in an interval (bounded); none if first > last."""
    low, high = interval.low, interval.high
    assert low is not None
    assert high is not None
    first, last = math.ceil(low / step), math.floor(high / step)
    if interval.low_open and first * step == low:
        first += 1
    if interval.high_open and last * step == high:
        last -= 1
    return first, last


def _spans(numbers: Numbers, step: Fraction) -> list[int]:
    """Which multiples of the step are ruled out: every n-th, for each n."""
    common = (_common(step, one) for one in numbers.never)
    return [int(one / step) for one in common if one is not None]
