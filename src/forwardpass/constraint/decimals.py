"""Sets of numbers as disjoint intervals with exact ends: what minimum, maximum and enum allow."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction

# The largest magnitude and the smallest that a constrained number may have, zero apart. Beyond
# them a reader that stores 64-bit floats sees infinity or zero, and the constraint is lost.
LARGEST_EXPONENT = 308
LARGEST = Fraction(10**LARGEST_EXPONENT)
COUNTED = Fraction(2**53)
_FAR = 10 ** (LARGEST_EXPONENT + 92)
SMALLEST = Fraction(1, 10 ** (LARGEST_EXPONENT - 1))


def points(values: Iterable[int | float]) -> Intervals:
    """Exactly these numbers."""
    # Sorting Fractions is slow; they are nearly in order where the plain values are.
    found = [exact(value) for value in sorted(values)]
    return join(tuple(Interval(value, False, value, False) for value in found), ())


def exact(value: int | float | Decimal) -> Fraction:
    """The number as it is written: 0.1 is one tenth.

    >>> exact(0.1)
    Fraction(1, 10)

    An integer far beyond what is honoured stands for all such, so that arithmetic stays cheap.
    """
    if isinstance(value, int):
        if value.bit_length() > _FAR.bit_length():
            value = _FAR if value > 0 else -_FAR
        return Fraction(value)
    return Fraction(Decimal(repr(value)))


@dataclass(frozen=True, slots=True, order=True)
class Interval:
    """All numbers from `low` to `high`; None is no limit; `…_open` leaves the end itself out."""

    low: Fraction | None
    low_open: bool
    high: Fraction | None
    high_open: bool

    def holds(self, value: Fraction) -> bool:
        if self.low is not None and (value < self.low or (self.low_open and value == self.low)):
            return False
        return not (
            self.high is not None and (value > self.high or (self.high_open and value == self.high))
        )

    def meet(self, other: Interval) -> Interval | None:
        """The numbers in both, or None where there are none."""
        low, low_open = self.low, self.low_open
        if low is None or (other.low is not None and (other.low, other.low_open) > (low, low_open)):
            low, low_open = other.low, other.low_open
        high, high_open = self.high, self.high_open
        if high is None or (
            other.high is not None and (other.high, not other.high_open) < (high, not high_open)
        ):
            high, high_open = other.high, other.high_open
        if (
            low is not None
            and high is not None
            and (low > high or (low == high and (low_open or high_open)))
        ):
            return None
        return Interval(low, low_open, high, high_open)


Intervals = tuple[Interval, ...]
EVERYTHING: Intervals = (Interval(None, True, None, True),)


def point(value: Fraction) -> Intervals:
    return (Interval(value, False, value, False),)


def at_least(value: Fraction, *, above: bool = False) -> Intervals:
    return (Interval(value, above, None, True),)


def at_most(value: Fraction, *, below: bool = False) -> Intervals:
    return (Interval(None, True, value, below),)


def meet(left: Intervals, right: Intervals) -> Intervals:
    """The numbers in both sets."""
    if left is EVERYTHING or right is EVERYTHING:
        return right if left is EVERYTHING else left
    out: list[Interval] = []
    i = j = 0
    while i < len(left) and j < len(right):
        met = left[i].meet(right[j])
        if met is not None:
            out.append(met)
        # The one that ends first meets nothing further: both sets are in order.
        if _end(left[i]) < _end(right[j]):
            i += 1
        else:
            j += 1
    return tuple(out)


def join(left: Intervals, right: Intervals) -> Intervals:
    """The numbers in either set."""
    out: list[Interval] = []
    for interval in _ordered([*left, *right]):
        if out and _touch(out[-1], interval):
            out[-1] = _span(out[-1], interval)
        else:
            out.append(interval)
    return EVERYTHING if tuple(out) == EVERYTHING else tuple(out)


def outside(intervals: Intervals) -> Intervals:
    """All other numbers."""
    out = []
    start: Fraction | None = None
    start_open = True
    for interval in intervals:
        if interval.low is not None:
            out.append(Interval(start, start_open, interval.low, not interval.low_open))
        if interval.high is None:
            return tuple(out)
        start, start_open = interval.high, not interval.high_open
    out.append(Interval(start, start_open, None, True))
    return EVERYTHING if len(out) == 1 and start is None else tuple(out)


def holds(intervals: Intervals, value: Fraction) -> bool:
    return any(interval.holds(value) for interval in intervals)


def _end(interval: Interval) -> tuple[bool, Fraction, bool]:
    """Where an interval ends, in an order in which no limit comes last."""
    return interval.high is None, interval.high or Fraction(0), not interval.high_open


def _ordered(intervals: list[Interval]) -> Intervals:
    def key(interval: Interval) -> tuple[bool, Fraction, bool]:
        return interval.low is not None, interval.low or Fraction(0), interval.low_open

    return tuple(sorted(intervals, key=key))


def _touch(left: Interval, right: Interval) -> bool:
    """Whether an interval that starts no earlier leaves no number in between."""
    if left.high is None or right.low is None or right.low < left.high:
        return True
    return right.low == left.high and not (right.low_open and left.high_open)


def _span(left: Interval, right: Interval) -> Interval:
    if left.high is None or right.high is None:
        return Interval(left.low, left.low_open, None, True)
    if (right.high, not right.high_open) > (left.high, not left.high_open):
        return Interval(left.low, left.low_open, right.high, right.high_open)
    return left


def low_of(interval: Interval) -> Fraction:
    assert interval.low is not None
    return interval.low


def high_of(interval: Interval) -> Fraction:
    assert interval.high is not None
    return interval.high


def exponents(interval: Interval, value: Fraction) -> tuple[int, int]:
    """The first and last exponent that bring a value into an interval; none if first > last."""
    low, high = low_of(interval), high_of(interval)
    last = power_of(high / value)
    if interval.high_open and value * Fraction(10) ** last == high:
        last -= 1
    first = -power_of(value / low)
    if interval.low_open and value * Fraction(10) ** first == low:
        first += 1
    return first, last


def power_of(ratio: Fraction) -> int:
    """The largest k with 10^k ≤ ratio.

    >>> power_of(Fraction(999)), power_of(Fraction(1, 10))
    (2, -1)
    """
    guess = math.floor((ratio.numerator.bit_length() - ratio.denominator.bit_length()) * 0.30103)
    while Fraction(10) ** guess > ratio:
        guess -= 1
    while Fraction(10) ** (guess + 1) <= ratio:
        guess += 1
    return guess


def whole_from(ratio: Fraction) -> int:
    """The least k for which 10^k times the ratio is whole; a million where there is none."""
    rest, twos, fives = ratio.denominator, 0, 0
    while rest % 2 == 0:
        rest, twos = rest // 2, twos + 1
    while rest % 5 == 0:
        rest, fives = rest // 5, fives + 1
    if rest != 1:
        return 1_000_000
    if twos or fives:
        return max(twos, fives)
    text = str(ratio.numerator)
    return len(text.rstrip("0")) - len(text)
