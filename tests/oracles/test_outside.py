"""What llguidance lets through, held against Python's `re` and `json` over invented tokens.

Each language is finite and listed by what judges it, so that the masks are known: a token may come
where some text of the language goes on with it, and the answer may end where it is one.
"""

from __future__ import annotations

import itertools
import json
import random
import re
from collections.abc import Iterable
from typing import Any

import jsonschema
import numpy as np
import pytest

from forwardpass.constraint.guide import Allowed
from forwardpass.constraint.outside import (
    MOST_CHARACTERS,
    Kind,
    OutsideGuide,
    OutsideVocabulary,
    outside_grammar,
)
from forwardpass.errors import RequestError

BYTES: list[bytes | None] = [bytes([byte]) for byte in range(256)]
LONGER: list[bytes | None] = [
    *(b"ab", b"ba", b"aab", b'"a', b'a"', b'{"', b'":', b",", b"12", b"1,", b"true", b"}]"),
    *("é".encode(), "é".encode()[:1] + b"a", b"ab", b"", None, b"<tool>", b"</s>", b"<eot>"),
    b"\xff<ab>",
]
TEXTS = BYTES + LONGER
TOOL, END, TURN = (TEXTS.index(text) for text in (b"<tool>", b"</s>", b"<eot>"))
CONTROL, ENDS = {TOOL, END}, {END, TURN}
PLAIN = {i: text for i, text in enumerate(TEXTS) if text and i not in CONTROL | ENDS}


@pytest.fixture(scope="module")
def vocabulary() -> OutsideVocabulary:
    return OutsideVocabulary(TEXTS, CONTROL, ENDS)


def ids(allowed: Allowed) -> set[int]:
    assert allowed.words.dtype == np.uint32
    assert allowed.words.shape == (-(-len(TEXTS) // 32),)
    flags = np.unpackbits(allowed.words.view(np.uint8), bitorder="little")
    found = set(np.flatnonzero(flags).tolist())
    assert len(found) == allowed.count
    return found


def expected(language: Iterable[bytes], before: bytes) -> set[int]:
    """The ids that may follow `before`, by the list of all texts."""
    rests = {text[len(before) :] for text in language if text.startswith(before)}
    found = {i for i, text in PLAIN.items() if any(rest.startswith(text) for rest in rests)}
    return found | ENDS if b"" in rests else found


def walk(guide: OutsideGuide, language: set[bytes], chance: random.Random) -> bytes:
    """A random answer, every mask on its way held against the list."""
    written = b""
    while True:
        wanted = expected(language, written)
        assert ids(guide.allowed(chance.randrange(1, 99))) == wanted
        assert guide.done == (wanted == ENDS)
        refused = sorted(set(range(-1, len(TEXTS) + 2)) - wanted)
        for token in chance.sample(refused, 5):
            with pytest.raises(ValueError, match=f"token {token} is not allowed here"):
                guide.advance(token)
        token = chance.choice(sorted(wanted))
        guide.advance(token)
        if token in ENDS:
            assert guide.done
            assert ids(guide.allowed(1)) == ENDS
            return written
        written += PLAIN[token]


# A pattern with few texts, and characters and a length that are enough for all of them.
PATTERNS = [
    ("a?b", "ab", 2),
    ("(ab|ba){0,3}", "ab", 6),
    ("(?:a{2,3}|b)é?", "abé", 4),
    ("[ab12]{3}", "ab12", 3),
    ("", "a", 0),
    ("a/b", "a/b", 3),
    (r"a\/b|\\", "a/b\\", 3),
    ('"a"{1,2}', 'a"', 4),
    (r"\d\w?", "".join(map(chr, range(32, 127))) + "é٣", 2),
    ("\n|a", "a\n", 1),
]


@pytest.mark.parametrize(
    ("pattern", "characters", "longest"), PATTERNS, ids=lambda value: repr(value)
)
def test_masks_of_a_pattern_are_those_of_the_texts_that_re_matches(
    vocabulary: OutsideVocabulary, pattern: str, characters: str, longest: int
) -> None:
    texts = (
        "".join(text)
        for count in range(longest + 1)
        for text in itertools.product(characters, repeat=count)
    )
    language = {text.encode() for text in texts if re.fullmatch(pattern, text, re.ASCII)}
    assert language
    grammar = vocabulary.grammar("regex", pattern)
    for seed in range(8):
        assert walk(grammar.guide(), language, random.Random(seed)) in language


def compact(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


WORDS = ["ab", "ba", "é", ""]
SCHEMAS: list[tuple[dict[str, Any], list[object]]] = [
    ({"enum": [12, "ab", None, True, ["a"]]}, [12, "ab", None, True, ["a"]]),
    (
        {"type": "array", "items": {"enum": WORDS}, "maxItems": 2},
        [list(some) for count in range(3) for some in itertools.product(WORDS, repeat=count)],
    ),
    (
        {
            "type": "object",
            "properties": {"a": {"type": "boolean"}, "ab": {"enum": [1, 12]}},
            "required": ["a"],
            "additionalProperties": False,
        },
        [{"a": a} | b for a in (True, False) for b in ({}, {"ab": 1}, {"ab": 12})],
    ),
]


@pytest.mark.parametrize(("schema", "values"), SCHEMAS, ids=["enum", "array", "object"])
def test_masks_of_a_schema_are_those_of_its_values_as_json_writes_them(
    vocabulary: OutsideVocabulary, schema: dict[str, Any], values: list[object]
) -> None:
    assert all(jsonschema.Draft202012Validator(schema).is_valid(value) for value in values)
    language = set(map(compact, values))
    text = json.dumps(schema | {"x-guidance": {"whitespace_flexible": False}})
    grammar = vocabulary.grammar("json_schema", text)
    for seed in range(12):
        assert walk(grammar.guide(), language, random.Random(seed)) in language


def test_masks_of_a_lark_grammar_are_those_of_its_texts(vocabulary: OutsideVocabulary) -> None:
    text = 'start: sum\nsum: TERM ("+" TERM)?\nTERM: "a" | "ab" | "1" "2"?'
    terms = [b"a", b"ab", b"1", b"12"]
    language = {*terms, *(b"+".join(pair) for pair in itertools.product(terms, repeat=2))}
    grammar = vocabulary.grammar("lark", text)
    for seed in range(12):
        assert walk(grammar.guide(), language, random.Random(seed)) in language


def test_guides_of_one_grammar_do_not_move_each_other(vocabulary: OutsideVocabulary) -> None:
    grammar = vocabulary.grammar("regex", "a?b")
    first, second = grammar.guide(), grammar.guide()
    first.advance(TEXTS.index(b"a"))
    assert ids(first.allowed(9)) == {TEXTS.index(b"b")}
    assert TEXTS.index(b"a") in ids(second.allowed(9))


def test_it_says_that_it_cannot_close_in_time(vocabulary: OutsideVocabulary) -> None:
    grammar = vocabulary.grammar("regex", "[ab]{9}")
    assert not grammar.closes
    assert not grammar.guide().closes
    assert ids(grammar.guide().allowed(1)) == ids(grammar.guide().allowed(99))


@pytest.mark.parametrize("named", [f"<[{TOOL}]>", f"<[{END}]>", "<[*]>"])
def test_a_grammar_cannot_make_a_control_token_legal(
    vocabulary: OutsideVocabulary, named: str
) -> None:
    guide = vocabulary.grammar("lark", f'start: "a" ({named} | "b") "b"').guide()
    guide.advance(TEXTS.index(b"a"))
    assert not ids(guide.allowed(9)) & (CONTROL | ENDS)
    for token in CONTROL | ENDS:
        with pytest.raises(ValueError, match="is not allowed here"):
            guide.advance(token)
    guide.advance(TEXTS.index(b"b"))


def test_where_no_token_writes_the_next_byte_it_stops_instead_of_ending() -> None:
    texts = [b"a", b"b", b"</s>"]
    guide = outside_grammar("regex", "ax|bb", texts, [2], [2]).guide()
    guide.advance(0)
    for _ in range(2):
        with pytest.raises(RequestError, match="no token of this vocabulary goes on"):
            guide.allowed(9)
    with pytest.raises(RequestError, match="no token of this vocabulary goes on"):
        _ = guide.done


def test_a_limit_that_llguidance_meets_on_the_way_is_told(vocabulary: OutsideVocabulary) -> None:
    guide = vocabulary.grammar("lark", 'start: a{1,3000}\na: b{1,3000}\nb: "a" | "b"').guide()

    def go_on() -> None:
        for _ in range(300):
            guide.allowed(9)
            guide.advance(TEXTS.index(b"a"))

    with pytest.raises(RequestError) as told:
        go_on()
    assert "gave the grammar up" in told.value.fact
    assert "max is 2000" in " ".join(told.value.details)
    assert "<state>" not in str(told.value)
    with pytest.raises(RequestError, match="gave the grammar up"):
        guide.allowed(9)


@pytest.mark.parametrize(
    ("kind", "text", "words"),
    [
        ("lark", "start: foo", 'unknown name: "foo"'),
        ("lark", "start: <tool>", "tool"),
        ("lark", "start: <ab>", "ab"),
        ("lark", "", "no start rule found"),
        ("lark", "start: " + "(" * 40_000, "too deeply nested"),
        ("regex", "a(b", "unclosed group"),
        ("regex", "(?<=a)b", "look-around"),
        ("json_schema", '{"not": {}}', '"not"'),
        ("json_schema", "{", "is not JSON"),
        ("json_schema", '{} \nX: "a"', "is not JSON"),
        ("json_schema", "[" * 50_000, "is not JSON"),
        ("lark", "x" * (MOST_CHARACTERS + 1), "characters, more than 100,000"),
        ("lrk", "start: a", "did you mean lark"),
    ],
    ids=lambda value: value[:20],
)
def test_what_cannot_be_honoured_is_refused_in_its_own_words(
    vocabulary: OutsideVocabulary, kind: Kind, text: str, words: str
) -> None:
    with pytest.raises(RequestError) as told:
        vocabulary.grammar(kind, text)
    assert words in str(told.value)
    assert "backtrace" not in str(told.value)
    assert len(str(told.value)) < 4_000


def chain(count: int) -> str:
    return "start: r0\n" + "".join(f"r{i}: r{i + 1}\n" for i in range(count)) + f'r{count}: "a"'


def test_a_long_chain_of_rules_is_read_and_ends_no_process(vocabulary: OutsideVocabulary) -> None:
    guide = vocabulary.grammar("lark", chain(7_000)).guide()
    assert ids(guide.allowed(9)) == {TEXTS.index(b"a")}


def test_ids_outside_of_the_vocabulary_and_no_end_are_the_callers_mistakes() -> None:
    for control, ends in (([3], [2]), ([], [3]), ([-1], [2]), ([0], [])):
        with pytest.raises(ValueError, match="one ends"):
            OutsideVocabulary([b"a", b"b", b"</s>"], control, ends)
