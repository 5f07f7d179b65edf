"""JSON out of a file that nobody vouches for: no duplicate keys, no NaN, no endless numbers."""

from __future__ import annotations

import json
import math
from collections import Counter

from forwardpass.errors import FormatError
from forwardpass.formats.source import quoted

# A whole number of 64 bits has at most 20 digits.
_MAX_DIGITS = 20


def parse_object(text: bytes, where: str, *, infinity: bool = False) -> dict[str, object]:
    """The JSON object that `text` is; `where` begins an error.

    `infinity` reads the word that Python writes for it, as some published configs have it.
    Errors: `FormatError` for text that is not UTF-8 or not JSON, a key given twice, NaN or
    Infinity, whole numbers beyond 64 bits, nesting too deep, or a value other than an object.
    """

    def unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
        found = dict(pairs)
        if len(found) < len(pairs):
            (twice, _), *_ = Counter(key for key, _ in pairs).most_common(1)
            raise FormatError(f"{where}: the key {quoted(twice)} is given twice")
        return found

    def whole(digits: str) -> int:
        if len(digits) > _MAX_DIGITS:
            raise FormatError(f"{where}: a number of {len(digits)} digits: {quoted(digits)}")
        return int(digits)

    def real(digits: str) -> float:
        number = float(digits)
        if math.isinf(number):
            raise FormatError(f"{where}: a number beyond every float64: {quoted(digits)}")
        return number

    def word(constant: str) -> float:
        if infinity and constant == "Infinity":
            return math.inf
        raise FormatError(f"{where}: {constant} is not JSON")

    try:
        value = json.loads(
            text.decode(),
            object_pairs_hook=unique,
            parse_int=whole,
            parse_float=real,
            parse_constant=word,
        )
    except RecursionError as error:
        raise FormatError(f"{where}: nested too deep") from error
    except ValueError as error:
        raise FormatError(f"{where}: not valid JSON: {error}") from error
    if not isinstance(value, dict):
        raise FormatError(f"{where}: a JSON object was wanted, found {type(value).__name__}")
    return value
