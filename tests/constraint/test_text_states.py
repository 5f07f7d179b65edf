"""Inside JSON strings the C++ part goes from byte to byte as the grammar's own automaton does."""

from __future__ import annotations

from random import Random

import pytest

from forwardpass.constraint.frames import InString
from forwardpass.constraint.grammar import compile_schema
from forwardpass.constraint.strings import CLOSED, DEAD, Strings
from forwardpass.constraint.tables import Tables
from forwardpass.constraint.tokens import Tokens

SETS = [
    ".",
    "a",
    "[a-f0-9]",
    "\\d",
    "\\\\",
    '"',
    "/",
    "[^a]",
    "[\\u0000-\\u001f]",
    "[\\u00e9-\\u07ff]",
    "[\\u07f0-\\u0810]",
    "[一-龥]",
    "[\\ud000-\\uf000]",
    "[\\uff00-\\u{10010}]",
    "[\\u{1f600}-\\u{1f64f}]",
    "[\\u{10fc00}-\\u{10ffff}]",
    "\\p{L}",
    "[^\\u0800-\\uffff]",
]
WORDS = ["", "a", "é", "aé", "\n", '"', "\\", "😀", "😀😁", "\U0010ffff", "\ud7ff", "ﬀ", "abc"]
ALL_SORTS = {"within UTF-8", "between", "escape", "hexes", "backslash", "letter u", "low", "closed"}
MOST_STATES = 150


def random_pattern(rng: Random) -> str:
    def part(depth: int) -> str:
        if depth and rng.random() < 0.3:
            inner = "|".join(part(depth - 1) for _ in range(rng.choice((1, 2, 3))))
            return f"({inner})" + rng.choice(("", "?", "*", "{2,3}"))
        return rng.choice(SETS) + rng.choice(("", "", "?", "+", "{2}", "{0,40}"))

    return "^" + "".join(part(2) for _ in range(rng.randint(1, 3))) + "$"


def random_schema(rng: Random) -> dict[str, object]:
    words = rng.sample(WORDS, rng.randint(1, 5))
    schema: dict[str, object] = {"type": "string"}
    kind = rng.choice(("pattern", "pattern", "pattern", "words", "others", "lengths"))
    if kind == "pattern":
        schema["pattern"] = random_pattern(rng)
    if kind == "words":
        schema["enum"] = words
    if kind == "others":
        schema["not"] = {"enum": words}
    if kind == "lengths":
        schema |= {"minLength": rng.randint(0, 2), "maxLength": rng.randint(2, 4)}
    return schema


def sort_of(written: bytes) -> str:
    if not written or written[0] != 0x5C:
        return "within UTF-8" if written else "between"
    if len(written) <= 2:
        return "escape" if len(written) == 1 else "hexes"
    later = {6: "backslash", 7: "letter u"}
    return later.get(len(written), "hexes" if len(written) < 6 else "low")


def tokens_of(rng: Random) -> Tokens:
    """All bytes, and some tokens of several."""
    texts = [bytes([byte]) for byte in range(256)]
    texts += [bytes(rng.choices(range(0x80, 0xC0), k=2)) for _ in range(200)]
    texts += [b"\\u", b"u00", b"00", b"\\ud83d", b'a"', b'\x80"', b"\xe4\xb8", b"\x9f\x98"]
    return Tokens(list(dict.fromkeys(texts)), 600)


def opened(schema: object, tokens: Tokens) -> list[tuple[Tables, int]]:
    """Tables of a string, and its state after the quote; nothing where there is no such string."""
    grammar = compile_schema(schema)
    begun = grammar.start().feed(b'"')
    out = []
    for frame, _ in [] if begun is None else begun.positions:
        assert isinstance(frame, InString)
        tables = Tables(grammar.machine, grammar.closer(tokens.count), tokens)
        out.append((tables, frame.state))
    return out


def follow(rng: Random, tables: Tables, start: int, met: set[str], most: int) -> None:
    """Both from state to state, over every byte at each; those that come next in random order."""
    strings: Strings = tables.machine.strings
    native, size, seen, waiting = tables.native, tables.closer.size, {start}, [start]
    for _ in range(most):
        if not waiting:
            break
        state = waiting.pop(rng.randrange(len(waiting)))
        _, written = strings.written(state)
        met.add(sort_of(written))
        twin = tables.text_state(state)
        assert native.text_cost(twin) >= size(tables.closer.string(state))
        for byte in range(256):
            after, other = strings.step(state, byte), native.text_after(twin, byte)
            if after in (CLOSED, DEAD):
                assert other == after, (written, byte)
                met |= {"closed"} if after == CLOSED else set()
                continue
            assert other == tables.text_state(after), (written, byte)
            if after not in seen:
                seen.add(after)
                waiting.append(after)


def test_strings_go_the_same_way_byte_by_byte_and_cost_no_less_than_they_take() -> None:
    """From every state that is met, over all bytes: escapes, halves of pairs, overlong forms."""
    rng, met, languages = Random(7), set[str](), 0
    tokens = tokens_of(rng)
    while languages < 25:
        for tables, start in opened(random_schema(rng), tokens):
            follow(rng, tables, start, met, MOST_STATES)
            languages += 1
    assert met == ALL_SORTS


def test_every_state_of_a_few_words_goes_the_same_way() -> None:
    """Two words share the language in which their pairs begin, and differ in what these go on."""
    words = ["😀", "\U0010ffff", "\ud7ff", "\ue000!", "é", "ê", "\\"]
    rng, met = Random(3), set[str]()
    for tables, start in opened({"enum": words}, tokens_of(rng)):
        follow(rng, tables, start, met, 10_000)
    assert met == ALL_SORTS


def test_what_a_language_says_is_checked() -> None:
    from forwardpass._native import Masks, Trie

    class Wrong:
        said: object = (True, [])

        def move(self, state: int, byte: int) -> int:
            return -1

        def language(self, language: int) -> tuple[bool, list[tuple[int, int, int]]]:
            return self.said  # type: ignore[return-value]

        def language_cost(self, language: int) -> int:
            return 3

        def name(self, state: int, raw: bytes) -> int:
            return -1

    trie = tokens_of(Random(1)).trie
    assert isinstance(trie, Trie)
    grammar = Wrong()
    masks = Masks(trie, grammar)
    state = masks.text_state(5, b"")
    wrong = [(5, 4), (-1, 4), (0, 0x110000), (0xD700, 0xD800), (0xDFFF, 0xE000), (0, 0x10FFFF)]
    falling = [[(3, 9, 5), (9, 10, 5)], [(7, 9, 5), (3, 4, 5)]]
    for said in [[(*pair, 5)] for pair in wrong] + falling:
        grammar.said = True, said
        with pytest.raises(ValueError, match="rising ranges of code points"):
            masks.text_after(state, 0x61)
    for text in (None, (True, None), (1, 2, 3), [(0, 5)]):
        grammar.said = text
        with pytest.raises(ValueError, match="is wanted"):
            masks.text_after(state, 0x61)
    grammar.said = True, [(0x61, 0x61, 5), (0xE9, 0xE9, 5)]
    assert masks.text_after(state, 0x61) == state
    for no_place in (b"a", b'"', b"\xff", b"\xc3\xa9", b"\xc2", b"\\n", b"\\u01", b"\\x"):
        with pytest.raises(ValueError, match="do not begin a character"):
            masks.text_state(5, no_place)
    assert masks.text_cost(masks.text_state(5, b"\\u00")) == 2 + 3
    for none in (0, -1, 1 << 40):
        with pytest.raises(ValueError, match="none that is open"):
            masks.text_cost(none)


def test_a_byte_that_no_token_writes_costs_more_than_any_limit() -> None:
    texts = [bytes([byte]) for byte in range(256) if byte != 0xA9] + [b"\xc3\xa9"]
    tokens = Tokens(texts, 256)
    ((tables, state),) = opened({"type": "string", "pattern": "^é*$"}, tokens)
    within = tables.machine.strings.step(state, 0xC3)
    assert tables.native.text_cost(tables.text_state(within)) == 1 << 30
    assert tables.native.text_cost(tables.text_state(state)) == 1
