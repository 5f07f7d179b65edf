"""Sets of numbers as disjoint intervals with exact ends: what minimum, maximum and enum allow."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction

# The largest magnitude and the smallest that a constrained number may have, zero apart. Beyond
# them a reader that stores 64-bit floats sees infinity or zero, and the constraint is lost.
LARGEST_EXPONENT = 308
LARGEST = Fraction(10**LARGEST_EXPONENT)
COUNTED = Fraction(2**53)
SMALLEST = Fraction(1, 10 ** (LARGEST_EXPONENT - 1))


def exact(value: int | float | Decimal) -> Fraction:
    """The number as it is written: 0.1 is one tenth.

    >>> exact(0.1)
    Fraction(1, 10)
    """
    return Fraction(value) if isinstance(value, int) else Fraction(Decimal(repr(value)))


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
    found = (a.meet(b) for a in left for b in right)
    return _ordered([interval for interval in found if interval is not None])


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
    out = EVERYTHING
    for interval in intervals:
        below = above = ()  # type: Intervals
        if interval.low is not None:
            below = at_most(interval.low, below=not interval.low_open)
        if interval.high is not None:
            above = at_least(interval.high, above=not interval.high_open)
        out = meet(out, (*below, *above))
    return out


def holds(intervals: Intervals, value: Fraction) -> bool:
    return any(interval.holds(value) for interval in intervals)


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
