"""Patterns as languages, held against Python's `re` where both mean the same, and their limits."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forwardpass.constraint.pattern_language import language
from forwardpass.constraint.patterns import PatternError
from forwardpass.constraint.regular import Languages
from forwardpass.constraint.searching import Search

ATOMS = ["a", "b", ".", "[ab]", "[^a]", "\\d", "\\w", "(?:ab)", "(?:c{2})", "(a|bc)", "-", "\\."]


def patterns() -> st.SearchStrategy[str]:
    atom = st.builds(
        lambda atom, repeat: atom + repeat,
        st.sampled_from(ATOMS),
        st.sampled_from(["", "", "*", "+", "?", "{0,2}", "{2,}", "*?"]),
    )
    run = st.lists(atom, min_size=1, max_size=4).map("".join)
    anchored = st.builds(
        lambda before, run, after: before + run + after,
        st.sampled_from(["", "^", "(?!b)", "^(?=.a)"]),
        run,
        st.sampled_from(["", "$"]),
    )
    return st.lists(anchored, min_size=1, max_size=2).map("|".join)


TEXTS = st.text("abc1-.", max_size=7)


def found(pattern: str, text: str) -> bool:
    """What Python's `re` says of an ECMA-262 pattern: there `$` is the very end, and more
    characters end a line."""
    instead = {".": r"[^\n\r\u2028\u2029]", "$": r"\Z"}
    translated = re.sub(r"\\.|[.$]", lambda part: instead.get(part[0], part[0]), pattern)
    return bool(re.search(translated, text, re.ASCII))


@settings(max_examples=300, deadline=None)
@given(patterns(), st.lists(TEXTS, max_size=8))
def test_a_pattern_is_found_where_re_finds_it(pattern: str, texts: list[str]) -> None:
    languages = Languages()
    known = language(languages, pattern)
    for text in texts:
        assert languages.matches(known, text) == found(pattern, text)


@settings(max_examples=200, deadline=None)
@given(patterns(), patterns(), st.integers(0, 3), TEXTS)
def test_languages_are_closed_under_the_boolean_operations(
    left: str, right: str, low: int, text: str
) -> None:
    languages = Languages()
    a, b = language(languages, left), language(languages, right)
    in_a, in_b = (found(pattern, text) for pattern in (left, right))
    lengths = languages.lengths(low, low + 2)
    kept = languages.both((languages.negate(b), a, lengths))
    assert languages.matches(kept, text) == (in_a and not in_b and low <= len(text) <= low + 2)
    assert languages.matches(languages.alt((a, languages.negate(b))), text) == (in_a or not in_b)
    search = Search(languages)
    shortest = search.shortest(kept)
    assert (shortest is None) == (not search.live(kept))
    if shortest is not None:
        assert languages.matches(kept, shortest)
        assert found(left, shortest)
        assert not found(right, shortest)


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        ("^(a|b)[12]$", ["a1", "a2", "b1", "b2"]),
        ("^x{2,3}$", ["xx", "xxx"]),
        ("^(?!b)[abc]$", ["a", "c"]),
        ("^((?!ab)[ab]){2}$", ["aa", "ba", "bb"]),
    ],
)
def test_a_finite_language_can_be_listed(pattern: str, words: list[str]) -> None:
    languages = Languages()
    search = Search(languages)
    found = language(languages, pattern)
    listed = search.finite(found, 10)
    assert listed is not None
    assert sorted(listed) == words
    assert search.count(found, 10) == len(words)
    assert search.finite(found, len(words) - 1) is None


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        ("(a)\\1", "back reference"),
        ("(?<=a)b", "looks behind"),
        ("\\bword", "word boundary"),
        ("a\\Z", "does not know (\\Z)"),
        ("(a", "without its )"),
        ("[a", "without its ]"),
        ("a{3,2}", "from 3 to 2"),
        ("*a", "nothing before"),
        ("\\p{Klingon}", "Klingon"),
        ("(?i)a", "does not know"),
        ("(" * 60_000 + "a" + ")" * 60_000, "characters long"),
        ("(" * 500 + "a" + ")" * 500, "deeper than 100"),
        ("a{99999999}", "more than"),
    ],
)
def test_a_pattern_that_cannot_be_honoured_is_refused_with_its_place(
    pattern: str, reason: str
) -> None:
    with pytest.raises(PatternError, match=re.escape(reason)):
        language(Languages(), pattern)


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("^(a{1000}){1000}$", "a" * 50),
        ("^a{1000000}$", "a" * 50),
        ("^(a+)+$", "a" * 40 + "b"),
        ("^(a|a)*$", "a" * 200),
        ("(x+x+)+y", "x" * 200),
        ("^(.*a.{30})$", "ab" * 40),
    ],
)
def test_hostile_patterns_are_read_without_being_unrolled(pattern: str, text: str) -> None:
    languages = Languages()
    search = Search(languages)
    started = time.process_time()
    at = language(languages, pattern)
    for char in text:
        at = languages.step(at, ord(char))
        search.live(at)
    print(f"{pattern}: {(time.process_time() - started) * 1e3:.1f} ms")
    # Not a time but a size: states stay few however often a part repeats.
    assert len(languages._table) < 5_000


def test_unicode_categories_are_whole_sets_of_code_points() -> None:
    languages = Languages()
    upper = language(languages, "^\\p{Lu}$")
    assert languages.matches(upper, "Ä")
    assert languages.matches(upper, "𝔸")
    assert not languages.matches(upper, "ä")
    assert languages.matches(language(languages, "^\\P{Letter}$"), "1")
