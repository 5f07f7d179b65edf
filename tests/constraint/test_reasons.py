"""Why a token may not come: the place, what is legal there, and the rule that a byte breaks."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from forwardpass.constraint.grammar import Builder, Style, compile_schema, text_grammar
from forwardpass.constraint.masks import Masker
from forwardpass.constraint.reasons import Reasons
from forwardpass.constraint.scripts import Control, Literal, Point, Value, Words, ending
from forwardpass.constraint.states import Grammar
from forwardpass.constraint.tokens import Tokens, ids_of, is_set
from forwardpass.formats import read_gguf
from forwardpass.formats.source import MappedFile
from forwardpass.text.from_gguf import from_gguf

BEGUN = ["b", "g", "k", "l", "m", "p", "t", "ml", "pi", "ts", "kg", "tb", "bu", "pie", "piece"]
UNITS = ["g", "kg", "ml", "l", "tsp", "tbsp", "piece", "bunch"]
SHOPPING = {
    "type": "object",
    "properties": {
        "items": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "name": {"type": "string"},
                    "quantity": {"type": "number"},
                    "unit": {"enum": UNITS},
                },
                "required": ["name", "quantity", "unit"],
                "additionalProperties": False,
            },
        }
    },
    "required": ["items"],
    "additionalProperties": False,
}
ITEM = "/properties/items/items"
BASIL = '{"items": [{"name": "basil", "quantity":'
LISTED = {"type": "array", "items": {"type": "string"}, "uniqueItems": True}
NAMES = {"type": "object", "properties": {"a": {}, "b": {}}, "additionalProperties": False}
THREE = {"type": "object", "properties": {"a": {}, "b": {}, "c": {}}, "additionalProperties": False}
REFERRED = {
    "type": "object",
    "properties": {"u": {"$ref": "#/$defs/unit"}},
    "$defs": {"unit": {"type": "string", "maxLength": 2}},
}


def reasons_of(schema: object) -> Reasons:
    return Reasons(compile_schema(schema))


# schema, what is written, the token: the byte and rule, the keyword's place
REFUSED = [
    (SHOPPING, BASIL, ' "', "byte 2: number, not string", f"{ITEM}/properties/quantity/type"),
    (SHOPPING, BASIL, "  1", "byte 2: at most one blank", ""),
    (SHOPPING, BASIL, " \n1", "byte 2: no line break may stand here", ""),
    (SHOPPING, BASIL, " a", "byte 2: no number begins so", ""),
    (SHOPPING, BASIL, " -}", "byte 3: a digit must follow", ""),
    (SHOPPING, BASIL, "01", "byte 2: no digit after a leading 0", ""),
    (SHOPPING, BASIL, "1.,", "byte 3: a digit must follow", ""),
    (SHOPPING, BASIL, "1]", "byte 2: a comma or } must follow", ""),
    (
        *(SHOPPING, BASIL + '1, "unit": "', "pieces"),
        *("byte 6: none of the 8 values", f"{ITEM}/properties/unit/enum"),
    ),
    (SHOPPING, BASIL, "1}", 'byte 2: required "unit" is missing', f"{ITEM}/required"),
    (
        *(SHOPPING, BASIL, '1, "used', "byte 6: no such name (additionalProperties)"),
        f"{ITEM}/additionalProperties",
    ),
    (SHOPPING, BASIL, '1, "name', 'byte 5: "name" is written already', ""),
    (
        *(SHOPPING, '{"items": [{"', "unit", 'byte 1: required "name" comes before'),
        f"{ITEM}/required",
    ),
    (SHOPPING, '{"items"', "[", "byte 1: a colon must follow", ""),
    (SHOPPING, "{", " ", "byte 1: no blank may stand here", ""),
    (SHOPPING, "{", "x", "byte 1: a name in quotes must come", ""),
    (SHOPPING, '{"items": []', ", ", "byte 1: no further name is allowed", "/additionalProperties"),
    (SHOPPING, '{"items": []}', "\n", "byte 1: the text has ended", ""),
    (SHOPPING, '{"items": []}', "x", "byte 1: the text has ended", ""),
    (SHOPPING, '{"items": [', ",", "byte 1: an item must come", ""),
    ({"items": {"type": "integer"}, "type": "array"}, "[", "1.5]", "byte 4: no integer",
     "/items/type"),
    ({"type": ["integer", "null"]}, "", "[", "byte 1: integer or null, not array", "/type"),
    ({"maximum": 20, "type": "integer"}, "", "21", "byte 2: not within maximum 20", "/maximum"),
    ({"minimum": 0, "type": "number"}, "", "-1", "byte 2: not within minimum 0", "/minimum"),
    ({"multipleOf": 5, "type": "integer", "maximum": 9}, "", "7",
     "byte 1: no number within maximum 9, multipleOf 5 begins so", "/multipleOf"),
    ({"enum": [1, 2, "x"]}, "", "3", "byte 1: none of the 3 values", "/enum"),
    ({"const": "yes"}, '"', "no", 'byte 1: only "yes" is allowed', "/const"),
    ({"enum": [True, "x"]}, "", "f", "byte 1: only true is allowed", "/enum"),
    ({"type": "boolean"}, "t", "ry", 'byte 2: must go on with "ue"', ""),
    ({"type": "string", "maxLength": 3}, '"ab', "cd", "byte 2: longer than maxLength 3",
     "/maxLength"),
    ({"type": "string", "minLength": 3}, '"', 'ä"', "byte 3: shorter than minLength 3",
     "/minLength"),
    ({"type": "string", "pattern": "^[a-f]+$"}, '"', "beg", "byte 3: does not fit the pattern",
     "/pattern"),
    ({"type": "string"}, '"a', "b\n", "byte 2: a control character has to be escaped", ""),
    ({"type": "string"}, '"', "\\x", "byte 2: no character is written so", ""),
    ({"type": "array", "minItems": 2}, "[1", "]", "byte 1: fewer than minItems 2", "/minItems"),
    ({"type": "array", "maxItems": 1}, "[1", ", ", "byte 1: more than maxItems 1", "/maxItems"),
    ({"type": "array", "contains": {"const": 1}}, "[2", "]",
     "byte 1: an item that contains asks for is missing", "/contains"),
    ({"type": "array", "prefixItems": [{}], "items": False}, "[1", ",",
     "byte 1: more than maxItems 1", ""),
    (LISTED, '["a", "', 'a"', "byte 2: an item like it is there already (uniqueItems)",
     "/uniqueItems"),
    ({"type": "object", "minProperties": 1}, "{", "}", "byte 1: fewer than minProperties 1",
     "/minProperties"),
    ({"type": "object", "maxProperties": 1}, '{"a": 1', ",", "byte 1: more than maxProperties 1",
     "/maxProperties"),
    (THREE, '{"b": 1, "', "a", 'byte 1: "a" comes earlier in the order of the schema', ""),
    (REFERRED, '{"u": "', "abc", "byte 3: longer than maxLength 2", "/$defs/unit/maxLength"),
]  # fmt: skip


@pytest.mark.parametrize(("schema", "written", "token", "rule", "pointer"), REFUSED)
def test_a_refusal_names_the_byte_the_rule_and_where_the_schema_says_so(
    schema: object, written: str, token: str, rule: str, pointer: str
) -> None:
    reasons = reasons_of(schema)
    spot = reasons.start().feed(written.encode())
    assert spot is not None
    refusal = reasons.refusal(spot, token.encode())
    assert (str(refusal), refusal.pointer) == (rule, pointer)


@pytest.mark.parametrize(
    ("schema", "written", "place", "stated", "legal"),
    [
        (SHOPPING, "", "(root)", "", "{"),
        (SHOPPING, "{", "(root)", "", "the name items"),
        (SHOPPING, BASIL, "/items/0/quantity", f"{ITEM}/properties/quantity",
         "a number or a blank"),
        (SHOPPING, BASIL + " -", "/items/0/quantity", f"{ITEM}/properties/quantity", "a digit"),
        (SHOPPING, BASIL + "1", "/items/0/quantity", f"{ITEM}/properties/quantity",
         "a digit, ., an exponent or ,"),
        (SHOPPING, BASIL + '1, "unit": "', "/items/0/unit", f"{ITEM}/properties/unit",
         "one of 8 values: bunch, g, kg, l, …"),
        (SHOPPING, BASIL + '1, "unit": "t', "/items/0/unit", f"{ITEM}/properties/unit",
         "one of 2 values: tbsp, tsp"),
        (SHOPPING, BASIL + '1, "unit": "g"}, {"na', "/items/1 (name)", ITEM, "the name name"),
        (SHOPPING, BASIL + '1, "unit": "g"}', "/items", "/properties/items", ", or ]"),
        (SHOPPING, '{"items": []}', "(end)", None, "the end"),
        ({"type": "string"}, '"a', "(root)", "", "the end of the text or any character"),
        ({"type": "string", "pattern": "^[a-c]$"}, '"', "(root)", "", "a character of [a-c]"),
        (NAMES, "{", "(root)", "", "one of 2 names: a, b or }"),
        ({"prefixItems": [{"type": "null"}, {"const": True}]}, "[null, ", "/1",
         "/prefixItems/1", "true"),
    ],
)  # fmt: skip
def test_a_spot_says_where_it_is_and_what_is_legal(
    schema: object, written: str, place: str, stated: str | None, legal: str
) -> None:
    reasons = reasons_of(schema)
    spot = reasons.start().feed(written.encode())
    assert spot is not None
    assert (reasons.place(spot), reasons.schema_place(spot)) == (place, stated)
    assert reasons.legal(spot) == legal


def test_pointers_count_items_where_the_grammar_no_longer_does() -> None:
    reasons = reasons_of({"type": "array", "items": {"type": "object"}})
    spot = reasons.start().feed(b'[{}, {}, {}, {"a~/b": [1, [], "x]", 2')
    assert spot is not None
    assert reasons.place(spot) == "/3/a~0~1b/3"


def call_grammar() -> Grammar:
    """`<call>` (id 7), a value, `</call>`."""
    builder = Builder()
    value = builder.value(SHOPPING)
    last, end = Point(), ending()
    last.edges.append(Literal(b"</call>", end))
    begun = Point([Value(value, last, "add")])
    return builder.grammar(Point([Control(7, begun)]))


def test_a_wrapper_is_told_apart_from_the_value_in_it() -> None:
    reasons = Reasons(call_grammar(), {7: "<call>", 8: "<other>"}.__getitem__)
    start = reasons.start()
    assert (reasons.place(start), reasons.legal(start)) == ("(wrapper)", "<call>")
    assert str(reasons.refusal(start, b"```")) == "byte 1: must begin <call>"
    assert reasons.refusal(start, None).rule == "a control token is no text here"
    begun = start.control(7)
    assert begun is not None
    assert start.control(8) is None
    assert reasons.place(begun) == "(root)"
    behind = begun.feed(b'{"items": []}')
    assert behind is not None
    assert (reasons.place(behind), reasons.legal(behind)) == ("(wrapper)", '"</call>"')
    within = behind.feed(b"</c")
    assert within is not None
    assert str(reasons.refusal(within, b"all]")) == 'byte 4: must go on with ">"'


def test_free_texts_and_choices_have_reasons_of_their_own() -> None:
    choice = Reasons(text_grammar(choice=["red", "green", "grey"]))
    spot = choice.start().feed(b"gre")
    assert spot is not None
    assert (choice.place(spot), choice.legal(spot)) == ("(text)", "one of 2 values: green, grey")
    assert str(choice.refusal(spot, b"yx")) == "byte 2: none of the texts to choose from"
    pattern = Reasons(text_grammar(pattern="[0-9]{2}"))
    assert str(pattern.refusal(pattern.start(), b"1a")) == (
        "byte 2: does not fit the text that is asked for"
    )
    free = Builder()
    words = Reasons(free.grammar(Point([Words(free.languages.all, ending())])))
    assert words.legal(words.start()) == "any character or the end"


def test_a_token_that_the_grammar_lets_in_cannot_be_closed_in_time() -> None:
    reasons = reasons_of(SHOPPING)
    spot = reasons.start().feed(BASIL.encode())
    assert spot is not None
    assert str(reasons.refusal(spot, b" 12")) == "too few tokens left to close"
    assert reasons.end_refusal().rule == "the text may not end here"


ANYTHING = [
    SHOPPING, LISTED, NAMES, REFERRED, True,
    {"anyOf": [{"type": "object", "required": ["a"]}, {"type": "array", "uniqueItems": True,
                                                      "contains": {"type": "integer"}}]},
    {"patternProperties": {"^a": {"type": "number", "multipleOf": 0.5}}, "maxProperties": 3},
    {"type": "object", "properties": {"kind": {"const": "x"}}, "dependentRequired": {"a": ["b"]},
     "propertyNames": {"maxLength": 4}},
]  # fmt: skip
PIECES = [b'"', b"{", b"}", b"[", b"]", b", ", b": ", b"a", b'"a', b'"items"', b"1", b"0", b".5",
          b"e", b"-", b"true", b"nul", b" ", b"\\u", b"00e4", b"\xc3", b"\xa4", b"\xff", b"\n",
          b'"unit": "', b"pieces", b'"quantity"', b"name", b"kind"]  # fmt: skip


@pytest.mark.parametrize("style", [Style(), Style("free", "any"), Style("compact")], ids=str)
@pytest.mark.parametrize("schema", ANYTHING, ids=range(len(ANYTHING)))
def test_the_byte_of_a_refusal_is_the_first_that_the_grammar_does_not_take(
    schema: object, style: Style
) -> None:
    rng = Random(11)
    reasons = Reasons(compile_schema(schema, style))
    for _ in range(8):
        spot = reasons.start()
        for _ in range(25):
            allowed = spot.state.allowed_bytes()
            structure = [byte for byte in allowed if byte < 0x80] or allowed
            token = rng.choice(PIECES) + rng.choice(PIECES)
            taken = 0
            while taken < len(token) and spot.state.feed(token[: taken + 1]) is not None:
                taken += 1
            refusal = reasons.refusal(spot, token)
            assert refusal.byte == (0 if taken == len(token) else taken + 1)
            assert refusal.rule
            assert reasons.place(spot)
            assert reasons.legal(spot) != ""
            if not structure:
                break
            after = spot.advance(rng.choice(list(structure)))
            assert after is not None
            spot = after


def vocabulary(cases: Path | None) -> Tokens:
    """That of Qwen2, with a row a token; a few tokens of it where there are no outside cases."""
    if cases is None:
        longer = [*(unit.encode() for unit in BEGUN if len(unit) > 1), b" -", b' "', b" a"]
        return Tokens([*(bytes([byte]) for byte in range(256)), *longer, b"pieces", b"\\u"], 0)
    path = cases / "vocab" / "ggml-vocab-qwen2.gguf"
    tokenizer = from_gguf(read_gguf(MappedFile(path)).metadata, name="qwen2")
    ids = range(tokenizer.vocab_size)
    return Tokens([None if tokenizer.is_control(i) else tokenizer.token_bytes(i) for i in ids], 0)


@pytest.mark.parametrize(
    ("written", "legal"),
    [
        (BASIL, [*"0123456789", " ", "-", " -"]),
        (BASIL + '1, "unit": "', BEGUN),
    ],
)
def test_the_legal_tokens_of_a_real_vocabulary_and_why_all_others_are_not(
    written: str, legal: list[str], cases: Path | None
) -> None:
    grammar = compile_schema(SHOPPING)
    reasons, tokens = Reasons(grammar), vocabulary(cases)
    spot = reasons.start().feed(written.encode())
    assert spot is not None
    allowed = Masker(grammar, tokens).mask(spot.state).words
    texts = {tokens.text(token) for token in ids_of(allowed).tolist()}
    # A letter may also be written as an escape: JSON, though no model of note does that.
    assert {text for text in texts if b"\\" not in text} == {text.encode() for text in legal}
    for token in range(0, tokens.size, max(tokens.size // 2_000, 1)):
        text = tokens.text(token)
        if text:
            refused = reasons.refusal(spot, text).byte > 0
            assert refused != is_set(allowed, token), text
