"""Numbers as they are written: after each byte, whether the text can still become one of a set.

Exact, with exponents: what is known so far is a sign and digits S (f of them behind the point), so
the numbers that can still be written are those from 10^k·S up to 10^k·(S + 1), for every k.
States are numbers, made when they are reached; every one of them can still be completed.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction

from forwardpass.constraint.decimals import (
    LARGEST_EXPONENT,
    Interval,
    Intervals,
    exponents,
    high_of,
    low_of,
    power_of,
    whole_from,
)
from forwardpass.constraint.numbers import (
    LITERAL,
    WRITTEN_OUT,
    Numbers,
    found,
    negative,
    pick,
    positive,
    zero,
)

DEAD = -1
_START, _MINUS, _ZERO, _WHOLE, _POINT, _BEHIND, _E, _SIGN, _EXPONENT = range(9)
_ENDS = (_ZERO, _WHOLE, _BEHIND, _EXPONENT)
_AFTER_DIGITS = (_ZERO, _WHOLE, _BEHIND)
_MOST_DIGITS = LARGEST_EXPONENT + 2


class _Asked:
    """A set of numbers with what is read off it all the time; one object for each set."""

    def __init__(self, numbers: Numbers) -> None:
        self.numbers, self.form, self.step = numbers, numbers.form, numbers.step
        self.free, self.zero = numbers.free, zero(numbers)
        ends = (end for i in numbers.ranges for end in (i.low, i.high) if end is not None)
        # Where only the sign of a whole number matters, its digits do not.
        self.fine = numbers.step == 1 and not numbers.never and all(end == 0 for end in ends)
        self.sides = positive(numbers), negative(numbers)
        self.ends = tuple([high_of(one) for one in side] for side in self.sides)


@dataclass(frozen=True, slots=True)
class _Facts:
    """The set and what is written so far."""

    asked: _Asked
    phase: int = _START
    minus: bool = False
    digits: int = 0
    behind: int = 0  # how many of the digits stand behind the point
    down: bool = False  # a negative exponent
    exponent: str = ""


class Numerals:
    """The automaton of all sets of numbers of a grammar."""

    def __init__(self) -> None:
        self._numbers: dict[_Facts, int] = {}
        self._facts: list[_Facts] = []
        self._steps: dict[int, int] = {}
        self._done: dict[int, bool] = {}
        self._asked: dict[Numbers, _Asked] = {}
        self._starts: dict[int, int] = {}
        self._lock = threading.Lock()

    @property
    def size(self) -> int:
        """How many states have been made."""
        return len(self._facts)

    def numbers(self, state: int) -> Numbers:
        """The set that a state is about."""
        return self._facts[state].asked.numbers

    def start(self, numbers: Numbers) -> int:
        """The state before the first byte (of a set that has a number in it)."""
        known = self._starts.get(id(numbers))
        if known is not None:
            return known
        with self._lock:
            asked = self._asked.setdefault(numbers, _Asked(numbers))
            known = self._number(_Facts(asked))
            if asked.numbers is numbers:  # kept alive, so its identity stays its own
                self._starts[id(numbers)] = known
        return known

    def _number(self, facts: _Facts) -> int:
        known = self._numbers.get(facts)
        if known is None:
            known = self._numbers[facts] = len(self._facts)
            self._facts.append(facts)
        return known

    def step(self, state: int, byte: int) -> int:
        """The state after one more byte, or DEAD."""
        key = state << 8 | byte
        known = self._steps.get(key)
        if known is not None:
            return known
        with self._lock:
            facts = _next(self._facts[state], byte)
            alive = facts is not None and (facts.asked.free or self._possible(facts))
            known = self._number(_simplified(facts)) if facts is not None and alive else DEAD
            self._steps[key] = known
        return known

    def done(self, state: int) -> bool:
        """Whether the number may end here."""
        known = self._done.get(state)
        if known is None:
            known = self._done[state] = self._ends(self._facts[state])
        return known

    def _ends(self, facts: _Facts) -> bool:
        if facts.phase not in _ENDS:
            return False
        if facts.asked.free:
            return True
        if facts.asked.form == WRITTEN_OUT and facts.phase in (_ZERO, _WHOLE):
            return False
        if not facts.digits:
            return facts.asked.zero
        power = int(facts.exponent[:9] or "0") * (-1 if facts.down else 1)
        return any(low <= power <= high for low, high in self._powers(facts))

    # ---- what can still be written -----------------------------------------------------

    def _side(self, facts: _Facts) -> Intervals:
        return facts.asked.sides[facts.minus]

    def _possible(self, facts: _Facts) -> bool:
        if facts.phase in (_E, _SIGN, _EXPONENT):
            return self._possible_exponent(facts)
        asked = facts.asked
        if facts.digits == 0:
            if facts.phase == _ZERO and asked.form == LITERAL:
                return asked.zero
            return asked.zero or any(found(i, asked.numbers) for i in self._side(facts))
        if len(str(facts.digits)) > _MOST_DIGITS + facts.behind:
            return False
        return self._scaled(facts) is not None

    def _scaled(self, facts: _Facts) -> Fraction | None:
        """A right number that lies in 10^k·[S, S + 1) for any k, the largest first, or None.

        Only those k are looked at for which an interval is near: there may be thousands of them.
        """
        side, ends = self._side(facts), facts.asked.ends[facts.minus]
        digits, step = facts.digits, facts.asked.step
        least = 0 if facts.asked.form == LITERAL else None
        power = power_of(ends[-1] / digits) if ends else -1
        while ends and (least is None or power >= least):
            start = digits * Fraction(10) ** power
            value = self._begun(facts, power)
            if value is not None:
                return value
            if step is not None and (digits + 1) * Fraction(10) ** power <= step:
                return None
            at = bisect_left(ends, start)
            if at < len(ends) and low_of(side[at]) < start:
                power -= 1
            elif at:
                power = power_of(ends[at - 1] / digits)
            else:
                return None
        return None

    def _begun(self, facts: _Facts, power: int) -> Fraction | None:
        """A right number in 10^power·[S, S + 1), or None."""
        scale = Fraction(10) ** power
        start, stop = facts.digits * scale, (facts.digits + 1) * scale
        side = self._side(facts)
        for at in range(bisect_left(facts.asked.ends[facts.minus], start), len(side)):
            if low_of(side[at]) >= stop:
                break
            met = side[at].meet(Interval(start, False, stop, True))
            value = None if met is None else pick(met, facts.asked.numbers)
            if value is not None:
                return value
        return None

    def _powers(self, facts: _Facts) -> Iterator[tuple[int, int]]:
        """Ranges of exponents with which what is written is a right number (not zero)."""
        value = Fraction(facts.digits, 10**facts.behind)
        least, most = _multiples(facts.asked.numbers, value)
        side, ends = self._side(facts), facts.asked.ends[facts.minus]
        power = power_of(ends[-1] / value) if ends else 0
        at = len(ends)
        while at:
            here = value * Fraction(10) ** power
            at = bisect_left(ends, here)
            if at < len(ends) and low_of(side[at]) <= here:
                first, last = exponents(side[at], value)
                power = min(first, power) - 1
                first, last = max(first, least), min(last, most)
                if first <= last:
                    yield first, last
                at = len(ends) if low_of(side[0]) < here else 0
            elif at:
                power = power_of(ends[at - 1] / value)

    def _possible_exponent(self, facts: _Facts) -> bool:
        if facts.asked.form == LITERAL:
            return False
        if not facts.digits:
            return facts.asked.zero and len(facts.exponent) < 4
        return any(_exponent(facts, *powers) is not None for powers in self._powers(facts))

    # ---- the way out -------------------------------------------------------------------

    def finish(self, state: int) -> bytes:
        """Bytes that complete the number, few of them."""
        if self.done(state):
            return b""
        for byte in b"0123456789":
            after = self.step(state, byte)
            if after != DEAD and self.done(after):
                return bytes([byte])
        facts = self._facts[state]
        if facts.asked.free:
            return b"0"
        if facts.phase in (_E, _SIGN, _EXPONENT):
            return self._finish_exponent(facts)
        if facts.digits:
            return _ending(facts, self._nearby(facts))
        if facts.phase == _START and not self._side(facts) and not facts.asked.zero:
            return b"-" + self.finish(self.step(state, 0x2D))
        if facts.asked.zero:
            return _ending(facts, Fraction(0))
        values = (pick(interval, facts.asked.numbers) for interval in self._side(facts))
        value = next((value for value in values if value is not None), None)
        if value is None:  # the positive side has no right number
            return b"-" + self.finish(self.step(state, 0x2D))
        return _ending(facts, value)

    def _nearby(self, facts: _Facts) -> Fraction:
        """A right number that begins with the digits, with few more of them where it can be."""
        for power in (*range(12), *range(-1, -12, -1)):
            if power >= 0 or facts.asked.form != LITERAL:
                value = self._begun(facts, power)
                if value is not None:
                    return value
        found = self._scaled(facts)
        assert found is not None
        return found

    def _finish_exponent(self, facts: _Facts) -> bytes:
        for first, last in self._powers(facts) if facts.digits else ((0, 0),):
            power = _exponent(facts, first, last)
            if power is not None:
                sign = "-" if power < 0 and facts.phase == _E else ""
                written = len(facts.exponent.lstrip("0"))
                return (sign + str(abs(power))[written:]).encode()
        raise AssertionError("a state of numbers without a way out")


def _ending(facts: _Facts, value: Fraction) -> bytes:
    """The rest of a number whose digits so far are the first digits of this value."""
    whole, power = value, 0
    while whole.denominator != 1:
        whole, power = whole * 10, power - 1
    digits = str(whole.numerator)
    kept = digits.rstrip("0") or "0"
    if facts.asked.form == LITERAL:
        return digits[len(str(facts.digits)) if facts.digits else 0 :].encode()
    power += len(digits) - len(kept)
    if facts.phase in (_START, _MINUS) and 0 <= power <= 2 and facts.asked.form is None:
        return (kept + "0" * power).encode()
    written = len(str(facts.digits)) if facts.digits else 0
    if len(kept) < written:
        power -= written - len(kept)
        kept += "0" * (written - len(kept))
    rest = kept[written:]
    if facts.phase == _ZERO:
        rest, behind = "." + kept, len(kept)
    elif facts.phase in (_POINT, _BEHIND):
        if not rest and facts.phase == _POINT:
            rest, power = "0", power - 1
        behind = facts.behind + len(rest)
    else:
        behind = 0
    power += behind
    return (rest + (f"e{power}" if power or facts.asked.form else "")).encode()


def _exponent(facts: _Facts, first: int, last: int) -> int | None:
    """An exponent of the range that begins as written, near zero where it can be, or None."""
    if facts.phase == _E:
        return min(max(first, 0), last)
    low, high = (-last, -first) if facts.down else (first, last)
    written = facts.exponent.lstrip("0")
    if not written:
        return None if high < 0 else _signed(facts, max(low, 0))
    for span in (1, 10, 100, 1_000, 10_000):
        start = int(written) * span
        if start > high:
            return None
        if start + span > low:
            return _signed(facts, max(low, start))
    return None


def _signed(facts: _Facts, exponent: int) -> int:
    return -exponent if facts.down else exponent


def _multiples(numbers: Numbers, value: Fraction) -> tuple[int, int]:
    """The range of exponents that make a right multiple of the value."""
    least, most = -1_000_000, 1_000_000
    if numbers.step is not None:
        least = whole_from(value / numbers.step)
    for step in numbers.never:
        most = min(most, whole_from(value / step) - 1)
    return least, most


def _next(facts: _Facts, byte: int) -> _Facts | None:
    """What is written after one more byte of a JSON number, or None where it is none."""
    phase = facts.phase
    digit = byte - 0x30
    if 0 <= digit <= 9:
        if phase in (_START, _MINUS):
            return replace(facts, phase=_WHOLE if digit else _ZERO, digits=digit)
        if phase == _WHOLE:
            return replace(facts, digits=facts.digits * 10 + digit)
        if phase in (_POINT, _BEHIND):
            digits = facts.digits * 10 + digit
            return replace(facts, phase=_BEHIND, digits=digits, behind=facts.behind + 1)
        if phase in (_E, _SIGN, _EXPONENT):
            return replace(facts, phase=_EXPONENT, exponent=facts.exponent + chr(byte))
        return None
    if byte == 0x2D and phase == _START:
        return replace(facts, phase=_MINUS, minus=True)
    if byte == 0x2E and phase in (_ZERO, _WHOLE):
        return None if facts.asked.form == LITERAL else replace(facts, phase=_POINT)
    if byte in (0x45, 0x65) and phase in _AFTER_DIGITS:
        return replace(facts, phase=_E)
    if byte in (0x2B, 0x2D) and phase == _E:
        return replace(facts, phase=_SIGN, down=byte == 0x2D)
    return None


def _simplified(facts: _Facts) -> _Facts:
    """The same future with less written down, so that alike states are one."""
    if facts.asked.free:
        return _Facts(facts.asked, facts.phase)
    if facts.phase == _EXPONENT and facts.exponent.startswith("0"):
        facts = replace(facts, exponent=facts.exponent.lstrip("0") or "0")
    if facts.digits and facts.asked.fine:
        return replace(facts, digits=_whole_shape(facts.digits))
    return facts


def _whole_shape(digits: int) -> int:
    """Another number of as many digits and zeros at its end; a power of ten only for one."""
    text = str(digits)
    kept = text.rstrip("0")
    return int(("1" if kept == "1" else "2" * len(kept)) + "0" * (len(text) - len(kept)))
