"""How numbers are written: exact with separators, or short with a unit.

GB is 10⁹ bytes, FLOP is a count, FLOP/s a rate.
"""

from __future__ import annotations

_STEPS = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


def exact(count: int) -> str:
    """The whole number with thousands separators.

    >>> exact(8030261248)
    '8,030,261,248'
    """
    return f"{count:,}"


def short(value: float, unit: str = "", digits: int = 2) -> str:
    """The value with a decimal prefix and `digits` decimals.

    >>> short(12_191_675_904, "FLOP"), short(512, "B")
    ('12.19 GFLOP', '512 B')
    """
    for step, prefix in _STEPS:
        if abs(value) >= step:
            return f"{value / step:.{digits}f} {prefix}{unit}"
    number = f"{value:.0f}" if float(value).is_integer() else f"{value:.{digits}f}"
    return f"{number} {unit}".rstrip()


def size(byte_count: float, digits: int = 1) -> str:
    """Bytes as people read them.

    >>> size(98_362_432), size(35_560, 0)
    ('98.4 MB', '36 kB')
    """
    return short(byte_count, "B", digits)


def percent(part: float, whole: float, digits: int = 1) -> str:
    """The share of `whole` in per cent; a dash where there is no whole.

    >>> percent(6.5, 100)
    '6.5 %'
    """
    return f"{100 * part / whole:.{digits}f} %" if whole else "-"
