"""Nothing legal is refused: valid instances, in whatever tokens, pass the masks token by token."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from itertools import permutations
from pathlib import Path
from random import Random
from typing import Any

import pytest

import forwardpass as fp
from constraint.judge import Judge
from constraint.test_maskbench import schemas
from constraint.test_suite import OWN_REPORTS, OWN_SYNTAX
from constraint.variants import SCALARS, near
from constraint.vocabularies import ENDS, small
from forwardpass.constraint.grammar import Style, compile_schema, json_grammar
from forwardpass.constraint.guide import Guide
from forwardpass.constraint.masks import Masker
from forwardpass.constraint.tokens import Tokens, is_set
from forwardpass.errors import SchemaError

SEED = 11
PLENTY = 1 << 20  # tokens that may still come
INSTANCES = 10
Split = Callable[[str], list[int]]


def random_split(tokens: Tokens, text: bytes, rng: Random) -> list[int]:
    """A text in tokens, each drawn from all with which the rest begins."""
    out, place = [], 0
    while place < len(text):
        ends = range(place + 1, min(place + 24, len(text)) + 1)
        token = rng.choice([t for end in ends for t in tokens.trie.find(text[place:end])])
        out.append(token)
        place += len(tokens.texts[token] or b"")
    return out


def refused(masker: Masker, ends: Iterable[int], ids: list[int]) -> str:
    """Where the masks refuse a text in these tokens, or nothing."""
    guide = Guide(masker, ends)
    for place, token in enumerate(ids):
        if not is_set(guide.allowed(PLENTY).words, token):
            return f"token {place}: {masker.tokens.texts[token]!r}"
        guide.advance(token)
    allowed = guide.allowed(PLENTY).words
    return "" if all(is_set(allowed, end) for end in guide.ends) else "the end"


def valid(case: dict[str, Any], rng: Random) -> Iterator[Any]:
    """Valid instances of a schema: given ones, and what lies near them."""
    judge, found = Judge(case["schema"]), 0
    given = [test["data"] for test in case["tests"]] or [{}, [], *SCALARS]
    for value in near(given, rng, 200):
        if found < INSTANCES and not judge.fault(json.dumps(value)):
            found += 1
            yield value


def check(
    cases: Path | None, count: int, tokens: Tokens, ends: Iterable[int], split: Split
) -> tuple[int, int]:
    """How many schemas, each with ten instances, and how many instances were found to pass."""
    rng = Random(SEED)
    listed = schemas(cases)
    done = instances = 0
    for case in rng.sample(listed, len(listed)):
        try:
            grammar = compile_schema(case["schema"], Style("one", "any"))
        except SchemaError:
            continue
        if done == count:
            break
        values = [*valid(case, rng)]
        if cases and len(values) < INSTANCES:
            continue
        masker = Masker(grammar, tokens)
        done += 1
        for value in values:
            text = json.dumps(value, ensure_ascii=rng.random() < 0.5)
            instances += 1
            for ids in (split(text), random_split(tokens, text.encode(), rng)):
                assert b"".join(tokens.texts[i] or b"" for i in ids) == text.encode()
                assert not refused(masker, ends, ids), (case["id"], text)
    print(f"seed {SEED}: {instances} instances of {done} schemas")
    return done, instances


def test_valid_instances_pass_in_an_invented_vocabulary(cases: Path | None) -> None:
    tokens = small()
    done, _ = check(cases, 40, tokens, ENDS, lambda text: tokens.write(text.encode()))
    assert done == 40 or not cases


@pytest.mark.parametrize("count", [100, pytest.param(300, marks=pytest.mark.large)])
def test_valid_instances_pass_as_a_real_tokenizer_writes_them(
    cases: Path | None, model_path: Callable[[str], Path], count: int
) -> None:
    with fp.load(model_path("smollm2-135m")) as model:
        known = model.tokenizer
        ids = range(known.vocab_size)
        texts = [None if known.is_control(i) else known.token_bytes(i) for i in ids]
        tokens = Tokens(texts, model.description.config.vocab_size)
        ends = [i for i in ids if known.is_control(i)][:2]
        done, instances = check(cases, count, tokens, ends, known.encode)
    if cases:
        assert done == count
        assert instances == INSTANCES * done


def test_names_in_the_order_of_the_schema_may_be_left_out_but_not_turned_round() -> None:
    names = ["a", "b", "name", "id"]
    schema = {"properties": {name: {"type": "integer"} for name in names}, "required": ["b"]}
    masker, rng = Masker(compile_schema(schema, Style("one")), small()), Random(SEED)
    for length in range(1, 5):
        for chosen in permutations(names, length):
            text = json.dumps(dict.fromkeys(chosen, 12)).encode()
            legal = "b" in chosen and sorted(chosen, key=names.index) == [*chosen]
            for ids in (small().write(text), random_split(small(), text, rng)):
                assert (refused(masker, ENDS, ids) == "") == legal, text


def test_reported_and_syntax_cases_come_out_right_token_by_token(cases: Path | None) -> None:
    """The same cases that `test_suite.py` asks byte by byte."""
    listed: list[tuple[Masker, bytes, bool]] = []
    reports, syntax = OWN_REPORTS, OWN_SYNTAX
    if cases:
        folder = cases / "constraint"
        reports = json.loads((folder / "reports.json").read_text("utf-8"))
        syntax = json.loads((folder / "json-syntax" / "test_parsing.json").read_text("utf-8"))
    for report in reports:
        masker = Masker(compile_schema(report["schema"], Style("one", "any")), small())
        listed += [(masker, text.encode(), True) for text in report["accept"]]
        listed += [(masker, text.encode(), False) for text in report["reject"]]
    bare = Masker(json_grammar(), small())
    for case in syntax:
        text = case["text"].encode() if "text" in case else bytes.fromhex(case["hex"])
        if case["expect"] != "either" and len(text) < 10_000:
            listed.append((bare, text, case["expect"] == "accept"))
    rng = Random(SEED)
    for masker, text, expected in listed:
        for ids in (small().write(text), random_split(small(), text, rng)):
            assert (refused(masker, ENDS, ids) == "") == expected, text
