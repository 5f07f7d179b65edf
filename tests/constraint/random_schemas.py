"""Random small schemas and values, drawn by hypothesis: every keyword, often in odd company."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

NAMES = ["a", "b", "c", "ab"]
SCALARS = [None, True, False, 0, 1, 2, -1, 3, 1.5, 10, "", "a", "b", "ab", "abc", "1"]

values = st.recursive(
    st.sampled_from(SCALARS),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(NAMES), inner, max_size=3)
    ),
    max_leaves=5,
)

_names = st.lists(st.sampled_from(NAMES), max_size=2, unique=True)
_types = ["object", "array", "string", "integer", "number", "boolean", "null"]
_LEAVES: dict[str, st.SearchStrategy[Any]] = {
    "type": st.one_of(
        st.sampled_from(_types), st.lists(st.sampled_from(_types), min_size=1, unique=True)
    ),
    "minimum": st.integers(-2, 3),
    "maximum": st.integers(-1, 5),
    "exclusiveMinimum": st.integers(-1, 2),
    "multipleOf": st.sampled_from([1, 2, 0.5, 1.5, 3]),
    "minLength": st.integers(0, 2),
    "maxLength": st.integers(0, 3),
    "pattern": st.sampled_from(["^a", "b$", "a|b", "^[ab]*$", ".", "^..$", "c"]),
    "enum": st.lists(values, min_size=1, max_size=4),
    "const": values,
    "minItems": st.integers(0, 2),
    "maxItems": st.integers(0, 3),
    "uniqueItems": st.booleans(),
    "minProperties": st.integers(0, 2),
    "maxProperties": st.integers(0, 3),
    "required": _names,
    "dependentRequired": st.dictionaries(st.sampled_from(NAMES), _names, max_size=2),
}


def _with_parts(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    some = st.lists(inner, min_size=1, max_size=3)
    parts = {
        "properties": st.dictionaries(st.sampled_from(NAMES), inner, max_size=2),
        "patternProperties": st.dictionaries(st.sampled_from(["^a", "b", "."]), inner, max_size=1),
        "additionalProperties": inner,
        "propertyNames": st.sampled_from([{"maxLength": 1}, {"pattern": "^a"}, {"enum": ["a"]}]),
        "items": inner,
        "prefixItems": some,
        "contains": inner,
        "minContains": st.integers(0, 2),
        "maxContains": st.integers(1, 2),
        "allOf": some,
        "anyOf": some,
        "oneOf": some,
        "not": inner,
        "if": inner,
        "then": inner,
        "else": inner,
        "dependentSchemas": st.dictionaries(st.sampled_from(NAMES), inner, max_size=1),
        "unevaluatedProperties": inner,
        "unevaluatedItems": inner,
    }
    return _drawn({**_LEAVES, **parts}, 4)


@st.composite
def _drawn(draw: st.DrawFn, keywords: dict[str, st.SearchStrategy[Any]], most: int) -> Any:
    chosen = draw(st.lists(st.sampled_from(sorted(keywords)), max_size=most, unique=True))
    return {keyword: draw(keywords[keyword]) for keyword in chosen}


schemas = st.recursive(
    st.one_of(st.booleans(), _drawn(_LEAVES, 3), _drawn(_LEAVES, 3)), _with_parts, max_leaves=6
)
