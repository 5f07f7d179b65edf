"""`Price`: what a machine costs for some time, as it was typed."""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import floor, log10

from forwardpass.errors import RequestError

_UNITS = {
    "s": (1, "a second"),
    "min": (60, "a minute"),
    "h": (3_600, "an hour"),
    "hr": (3_600, "an hour"),
    "hour": (3_600, "an hour"),
    "d": (86_400, "a day"),
    "day": (86_400, "a day"),
}
_PRICE = re.compile(
    r"(?P<before>[^\W\d_]{0,3}[^\w\s.,/+-]?)\s*(?P<number>[0-9]{1,12}(?:\.[0-9]{1,12})?)\s*"
    r"(?P<after>[^\W\d_]{0,3}[^\w\s.,/+-]?)\s*/\s*(?P<unit>[a-z]+)"
)


@dataclass(frozen=True)
class Price:
    """`amount` for `seconds`; `text` is the amount as typed, with whatever currency stood there."""

    amount: float
    seconds: int
    text: str
    words: str
    before: str = ""
    after: str = ""

    def of(self, seconds: float) -> float:
        """What so many seconds cost."""
        return self.amount * seconds / self.seconds

    def shown(self, amount: float) -> str:
        """An amount to two digits, in the currency that was typed."""
        return f"{self.before}{significant(amount)}{' ' if self.after else ''}{self.after}"


def price(text: str) -> Price:
    """The price in a text such as `2.00/h` or `$2/h`.

    Errors: RequestError for anything else.
    """
    found = _PRICE.fullmatch(text.strip())
    if found is None or found["unit"] not in _UNITS:
        raise RequestError(f'"{text:.40}" is no price', "for example 2.00/h, $2.00/h or 0.0005/s")
    seconds, words = _UNITS[found["unit"]]
    typed = text.strip().rpartition("/")[0].strip()
    return Price(float(found["number"]), seconds, typed, words, found["before"], found["after"])


def significant(value: float, digits: int = 2) -> str:
    """A positive number rounded to so many digits, without an exponent.

    >>> significant(0.000942), significant(3.14), significant(1234.5)
    ('0.00094', '3.1', '1,234')
    """
    if value <= 0:
        return "0"
    decimals = max(0, digits - 1 - floor(log10(value)))
    return f"{value:,.{decimals}f}"
