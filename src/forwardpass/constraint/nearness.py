"""Languages that are the same as far as one token goes.

A limit that no token can reach makes no difference to what the next token may be; without it, the
states of a long text are few and what is known of them serves again.
"""

from __future__ import annotations

from forwardpass.constraint.lang import Kind, Lang
from forwardpass.constraint.regular import Languages


def near(languages: Languages, lang: Lang, reach: int) -> Lang:
    """A language in which the same `reach` characters can come, and of which as few complete it.

    The language itself where that cannot be told.
    """
    if lang.plain:
        return _unlimited(languages, lang, reach)
    if lang.kind is Kind.BOTH and len(lang.parts) == 2:
        bounds, other = lang.parts
        if not _is_length(languages, bounds):
            bounds, other = other, bounds
        if (
            _is_length(languages, bounds)
            and other.plain
            and bounds.low == 0
            and bounds.high is not None
            and bounds.high > reach + _owed(other)
        ):
            return _unlimited(languages, other, reach)
    return lang


def _is_length(languages: Languages, lang: Lang) -> bool:
    return lang.kind is Kind.REPEAT and lang.parts[0] is languages.any_char


def _unlimited(languages: Languages, lang: Lang, reach: int) -> Lang:
    """A plain language without the repetitions that are too many to be reached."""
    if lang.kind is Kind.CAT:
        return languages.cat(*(_unlimited(languages, part, reach) for part in lang.parts))
    if lang.kind is Kind.ALT:
        return languages.alt(_unlimited(languages, part, reach) for part in lang.parts)
    if lang.kind is Kind.REPEAT:
        far = lang.high is None or lang.high > reach
        inner = _unlimited(languages, lang.parts[0], reach)
        return languages.repeat(inner, lang.low, None if far else lang.high)
    return lang


def _owed(lang: Lang) -> int:
    """The most characters that it can take to complete a plain language, wherever one stands."""
    if lang.kind is Kind.CAT:
        first, second = lang.parts
        return max(_owed(first) + second.least, _owed(second))
    if lang.kind is Kind.ALT:
        return max(map(_owed, lang.parts))
    if lang.kind is Kind.REPEAT:
        return _owed(lang.parts[0]) + lang.low * lang.parts[0].least
    return max(map(len, lang.words), default=1)
