"""An invented vocabulary: every byte, what JSON often has across its boundaries, some words."""

from __future__ import annotations

from functools import cache

from forwardpass.constraint.tokens import Tokens

BOUNDARIES = r"""
{" [" [{ {{ [[ [[[ [{" {"a": {"name": {"a":1 {"a":{" "} "] "}, "}] "}} }} ]] }] }}} ]]] ]} ": ":"
":{ ":[ ":1 ":true "a" "a": a" a": a":1," "b" "b": "name" name" name": id": type": "," ","b":"
","" "]," "}," },{ },{" ],[ ],[1 }," }," ]," 1, 12 123 1] 1} ,1 ,"x" 0, 0] 0. .5 e1 E+ -1 1e []
{} [], {}, [[]] {{}} [{}] "" "", "": "x","y" x" true false null tr ue se ll
true, false} null] ,true ,null :null \u \u00 \ud8 \udc 0041 0041" \" \"" \\ \n ["a","b"] ":[{" "}]}
""".split()  # noqa: SIM905
SPACED = [
    ": ", ", ", '": ', '", "', '": "', '": {"', '": [', ": 1", ", 1", '"}, {"', "}, {", "], [",
    "  ", "   ", "    ", "\n\n", "\n  ", " \t", ",\n", ":\n", '",\n  "', " {", ' "', " [", " }",
    " 1", '" :', '", ', ", {", ': "', ': {"a": 1}', ": true,", " \r\n",
]  # fmt: skip
WORDS = """
the and name id type value data url http date time 2024 -01 T00 :00 0000 00 10 100 999 user item
list of in to an on at is it er ing ed es re st en ti or ar al le ab abc aa aaa bb xx
""".split()  # noqa: SIM905
PAIRS = [a + b for a in "aeiostnr" for b in "aeioustnrdl"]
CHARACTERS = ["é", "ß", "—", "日", "本", "日本", "😀", 'é"', '"é', "\u2028"]


@cache
def small() -> Tokens:
    """About 600 tokens: two control tokens first, ids without a token at the end."""
    texts = [BOUNDARIES, SPACED, WORDS, PAIRS, CHARACTERS]
    distinct = dict.fromkeys(text.encode() for some in texts for text in some)
    single = [bytes([byte]) for byte in range(256)]
    known: list[bytes | None] = [None, None, *single, *(t for t in distinct if len(t) > 1)]
    return Tokens([*known, None], len(known) + 7)


ENDS = (0, 1)  # the control tokens of `small` that end an answer
