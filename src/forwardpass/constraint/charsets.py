"""Sets of code points as sorted ranges: the alphabet of all string languages.

A set is a tuple of `(first, last)` pairs, ascending, neither touching nor overlapping. Surrogates
(U+D800 to U+DFFF) belong to no set: JSON text that holds one alone is never valid here.
"""

from __future__ import annotations

import functools
import unicodedata
from collections.abc import Iterable

CharSet = tuple[tuple[int, int], ...]

LAST = 0x10FFFF
EMPTY: CharSet = ()
ANY: CharSet = ((0, 0xD7FF), (0xE000, LAST))
DIGIT: CharSet = ((0x30, 0x39),)
WORD: CharSet = ((0x30, 0x39), (0x41, 0x5A), (0x5F, 0x5F), (0x61, 0x7A))
# ECMA-262 WhiteSpace and LineTerminator: \s
SPACE: CharSet = (
    (0x09, 0x0D),
    (0x20, 0x20),
    (0xA0, 0xA0),
    (0x1680, 0x1680),
    (0x2000, 0x200A),
    (0x2028, 0x2029),
    (0x202F, 0x202F),
    (0x205F, 0x205F),
    (0x3000, 0x3000),
    (0xFEFF, 0xFEFF),
)
LINE_ENDS: CharSet = ((0x0A, 0x0A), (0x0D, 0x0D), (0x2028, 0x2029))


def make(ranges: Iterable[tuple[int, int]]) -> CharSet:
    """The set of all code points in the ranges, in whatever order; surrogates left out."""
    out: list[tuple[int, int]] = []
    for first, last in sorted(ranges):
        if out and first <= out[-1][1] + 1:
            if last > out[-1][1]:
                out[-1] = (out[-1][0], last)
        else:
            out.append((first, last))
    if out and out[-1][1] >= 0xD800 and any(f <= 0xDFFF and s >= 0xD800 for f, s in out):
        return intersection(tuple(out), ANY)
    return tuple(out)


def single(code: int) -> CharSet:
    return ((code, code),)


def union(left: CharSet, right: CharSet) -> CharSet:
    return make((*left, *right))


def intersection(left: CharSet, right: CharSet) -> CharSet:
    out = []
    i = j = 0
    while i < len(left) and j < len(right):
        first, last = max(left[i][0], right[j][0]), min(left[i][1], right[j][1])
        if first <= last:
            out.append((first, last))
        if left[i][1] < right[j][1]:
            i += 1
        else:
            j += 1
    return tuple(out)


def complement(chars: CharSet) -> CharSet:
    out = []
    start = 0
    for first, last in chars:
        if start < first:
            out.append((start, first - 1))
        start = last + 1
    if start <= LAST:
        out.append((start, LAST))
    return intersection(tuple(out), ANY)


def size(chars: CharSet) -> int:
    return sum(last - first + 1 for first, last in chars)


def contains(chars: CharSet, code: int) -> bool:
    return any(first <= code <= last for first, last in chars)


NOT_DIGIT, NOT_WORD, NOT_SPACE = complement(DIGIT), complement(WORD), complement(SPACE)
DOT = complement(LINE_ENDS)

# Long names of general categories, as \p{…} takes them.
LONG_NAMES = {
    "Letter": "L",
    "Cased_Letter": "LC",
    "Uppercase_Letter": "Lu",
    "Lowercase_Letter": "Ll",
    "Titlecase_Letter": "Lt",
    "Modifier_Letter": "Lm",
    "Other_Letter": "Lo",
    "Mark": "M",
    "Combining_Mark": "M",
    "Nonspacing_Mark": "Mn",
    "Spacing_Mark": "Mc",
    "Enclosing_Mark": "Me",
    "Number": "N",
    "Decimal_Number": "Nd",
    "digit": "Nd",
    "Letter_Number": "Nl",
    "Other_Number": "No",
    "Punctuation": "P",
    "punct": "P",
    "Connector_Punctuation": "Pc",
    "Dash_Punctuation": "Pd",
    "Open_Punctuation": "Ps",
    "Close_Punctuation": "Pe",
    "Initial_Punctuation": "Pi",
    "Final_Punctuation": "Pf",
    "Other_Punctuation": "Po",
    "Symbol": "S",
    "Math_Symbol": "Sm",
    "Currency_Symbol": "Sc",
    "Modifier_Symbol": "Sk",
    "Other_Symbol": "So",
    "Separator": "Z",
    "Space_Separator": "Zs",
    "Line_Separator": "Zl",
    "Paragraph_Separator": "Zp",
    "Other": "C",
    "Control": "Cc",
    "cntrl": "Cc",
    "Format": "Cf",
    "Private_Use": "Co",
    "Unassigned": "Cn",
}


@functools.cache
def _categories() -> dict[str, CharSet]:
    """Each two-letter general category as a set: one pass over all code points, made once."""
    found: dict[str, list[tuple[int, int]]] = {}
    start, current = 0, unicodedata.category("\0")
    for code in range(1, LAST + 2):
        category = unicodedata.category(chr(code)) if code <= LAST else ""
        if category != current:
            found.setdefault(current, []).append((start, code - 1))
            start, current = code, category
    return {name: make(ranges) for name, ranges in found.items()}


def category(name: str) -> CharSet | None:
    """The set of a general category (`L`, `Lu`, `Letter`, …), or None for a name not known."""
    if name == "Any":
        return ANY
    if name == "ASCII":
        return ((0, 0x7F),)
    short = LONG_NAMES.get(name, name)
    if short == "LC":
        parts = ["Lu", "Ll", "Lt"]
    else:
        parts = [found for found in _categories() if found.startswith(short) and short]
    if not parts or len(short) > 2:
        return None
    return make(pair for part in parts for pair in _categories()[part])
