"""Grammars kept by what they were made from."""

from __future__ import annotations

import threading
from functools import partial
from typing import Any

import pytest

from forwardpass.constraint.compiled import Compiled, digest, size_of
from forwardpass.constraint.documents import Dialect
from forwardpass.constraint.grammar import Grammar, Style, text_grammar
from forwardpass.errors import RequestError, SchemaError

INTEGER = {"type": "integer"}


def test_the_same_schema_is_compiled_once_however_it_comes() -> None:
    cache = Compiled()
    first = cache.schema({"type": "object", "properties": {"a": {"enum": ["é", 1]}}})
    again = cache.schema({"type": "object", "properties": {"a": {"enum": ["é", 1]}}})
    assert again is first
    assert (cache.hits, cache.misses, len(cache)) == (1, 1, 1)


@pytest.mark.parametrize(
    ("other", "style", "dialect"),
    [
        ({"properties": {"b": True, "a": True}}, Style(), Dialect.DRAFT2020),
        ({"properties": {"a": True, "b": 1 > 2}}, Style(), Dialect.DRAFT2020),
        ({"properties": {"a": True, "b": True}}, Style("free"), Dialect.DRAFT2020),
        ({"properties": {"a": True, "b": True}}, Style(key_order="any"), Dialect.DRAFT2020),
        ({"properties": {"a": True, "b": True}}, Style(assert_formats=True), Dialect.DRAFT2020),
        ({"properties": {"a": True, "b": True}}, Style(), Dialect.DRAFT7),
    ],
)
def test_what_changes_the_texts_changes_the_grammar(
    other: Any, style: Style, dialect: Dialect
) -> None:
    cache = Compiled()
    first = cache.schema({"properties": {"a": True, "b": True}})
    assert cache.schema(other, style, dialect) is not first
    assert cache.hits == 0


def test_true_and_one_and_one_point_nought_are_told_apart() -> None:
    assert len({digest(value) for value in (True, 1, 1.0, "1", [1], None, {"1": 1})}) == 7


def test_a_refusal_is_kept_and_raised_anew_each_time() -> None:
    cache = Compiled()
    raised = []
    for _ in range(2):
        with pytest.raises(SchemaError) as found:
            cache.schema({"minimum": "3", "pattern": "("})
        raised.append(found.value)
    assert raised[0] is not raised[1]
    assert raised[0].problems == raised[1].problems
    assert (cache.hits, cache.misses) == (1, 1)
    with pytest.raises(SchemaError) as none:
        cache.schema({"type": "integer", "enum": ["a"]})
    assert none.value.unsatisfiable


def test_the_least_recently_used_goes_first() -> None:
    cache = Compiled(most=2)
    one, two = cache.schema({"const": 1}), cache.schema({"const": 2})
    assert cache.schema({"const": 1}) is one
    cache.schema({"const": 3})
    assert len(cache) == 2
    assert cache.schema({"const": 1}) is one
    assert cache.schema({"const": 2}) is not two


def test_a_grammar_that_grew_while_in_use_makes_room_and_is_made_anew() -> None:
    counted = {"type": "string", "pattern": "^[a-z]*$", "maxLength": 9_000}
    cache = Compiled(most_bytes=40_000_000)
    grown, small = cache.schema(counted), cache.schema(INTEGER)
    before = size_of(grown)
    assert cache.schema(counted) is grown
    assert grown.accepts(b'"' + b"ab" * 3_000 + b'"')
    assert size_of(grown) > before + 3_000 * 1_000
    anew = cache.schema(counted)
    assert anew is not grown
    assert grown.accepts(b'"abc"')
    assert cache.schema(INTEGER) is small
    assert cache.size < 1_000_000


def test_what_is_kept_stays_within_its_bytes_but_for_the_last() -> None:
    cache = Compiled(most_bytes=300_000)
    for i in range(20):
        cache.schema({"const": i})
        assert cache.size <= 300_000
    assert 1 <= len(cache) < 5
    tiny = Compiled(most_bytes=1)
    assert tiny.schema(INTEGER).accepts(b"1")
    assert len(tiny) == 1


def test_other_grammars_are_kept_by_what_they_are_made_from() -> None:
    cache = Compiled()
    made = [cache.get(["regex", p], partial(text_grammar, p)) for p in ("a+", "b+", "a+")]
    assert made[0] is made[2]
    assert made[0] is not made[1]
    with pytest.raises(RequestError, match="matches no text"):
        cache.get(["regex", "x"], lambda: text_grammar("a(?!b)b"))


def test_what_is_no_json_or_nests_without_end_is_refused_and_not_kept() -> None:
    endless: dict[str, Any] = {}
    endless["not"] = endless
    cache = Compiled()
    for schema in (endless, {"const": {1, 2}}):
        with pytest.raises((SchemaError, AssertionError, TypeError)):
            cache.schema(schema)
    assert len(cache) == 0
    with pytest.raises(SchemaError):
        cache.schema({"const": "\ud800"})


def test_many_threads_that_ask_for_few_schemas_all_get_what_they_asked_for() -> None:
    cache = Compiled(most=3)
    wrong: list[object] = []
    together = threading.Barrier(8)

    def ask(offset: int) -> None:
        together.wait()
        for i in range(40):
            name = "abcd"[(i + offset) % 4]
            try:
                grammar: Grammar = cache.schema({"properties": {"x": {"format": name}}})
                if f'"{name}"' not in grammar.warnings[0][1]:
                    wrong.append((name, grammar.warnings))
                cache.schema({"minimum": name})
                wrong.append("a wrong minimum was accepted")
            except SchemaError as error:
                if [problem.keyword for problem in error.problems] != ["minimum"]:
                    wrong.append(error)

    threads = [threading.Thread(target=ask, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert len(cache) <= 3
    assert cache.hits + cache.misses == 640
