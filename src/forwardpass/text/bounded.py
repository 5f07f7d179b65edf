"""Jinja's operators, filters and text methods, each asking the budget before it makes anything."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from jinja2.filters import FILTERS
from jinja2.runtime import Undefined

from forwardpass.errors import TemplateError
from forwardpass.text.budget import Budget

MAX_ARGUMENT = 10_000  # of a width, a count of columns, …
_MAX_MARGIN = 32  # of an indent or separator of JSON
_MAX_DIGITS = 300  # that a number is rounded to
_PERCENT = re.compile(r"%(?:\(.*?\))?[-+ #0]*(\*|\d*)(?:\.(\*|\d*))?[a-zA-Z%]", re.DOTALL)

# str methods that a template may call. Of those left out, none makes text from text.
TEXT_METHODS = frozenset({
    "capitalize", "casefold", "center", "count", "endswith", "expandtabs", "find", "format",
    "format_map", "index", "isalnum", "isalpha", "isascii", "isdecimal", "isdigit",
    "isidentifier", "islower", "isnumeric", "isprintable", "isspace", "istitle", "isupper",
    "join", "ljust", "lower", "lstrip", "partition", "removeprefix", "removesuffix", "replace",
    "rfind", "rindex", "rjust", "rpartition", "rsplit", "rstrip", "split", "splitlines",
    "startswith", "strip", "swapcase", "title", "upper", "zfill",
})  # fmt: skip
# Filters that take a value of any kind and make no text of it.
_STRUCTURAL = frozenset({
    "abs", "attr", "count", "d", "default", "dictsort", "e", "escape", "first", "float", "int",
    "items", "last", "length", "map", "max", "min", "reject", "rejectattr", "safe", "select",
    "selectattr", "sort", "unique", "groupby",
})  # fmt: skip
# Filters that write their value.
_WRITING = frozenset({
    "capitalize", "lower", "title", "trim", "upper", "urlencode", "wordcount",
})  # fmt: skip
_OWN = frozenset({
    "batch", "center", "format", "indent", "join", "list", "replace", "reverse", "round", "slice",
    "string", "tojson", "truncate",
})  # fmt: skip
FILTER_NAMES = frozenset(_STRUCTURAL | _WRITING | _OWN)


def operate(budget: Budget, operator: str, run: Callable[[Any, Any], Any], a: Any, b: Any) -> Any:
    """The result of a binary operator, refused before it is made where it would be too large."""
    budget.step()
    if operator == "+":
        if isinstance(a, str) and isinstance(b, str):
            budget.text(len(a) + len(b))
        elif isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
            budget.items(len(a) + len(b))
    elif operator == "*":
        _before_product(budget, a, b)
    elif operator == "**":
        if isinstance(a, int) and isinstance(b, int) and b > 0:
            budget.number(max(1, a.bit_length()) * b)
    elif operator == "%" and isinstance(a, str):
        before_percent(budget, a, b)
    result = run(a, b)
    if isinstance(result, int):
        budget.number(result.bit_length())
    return result


def _before_product(budget: Budget, a: Any, b: Any) -> None:
    for many, times in ((a, b), (b, a)):
        if isinstance(many, (str, list, tuple)) and isinstance(times, int):
            charge = budget.text if isinstance(many, str) else budget.items
            charge(len(many) * max(0, times))
    if isinstance(a, int) and isinstance(b, int):
        budget.number(a.bit_length() + b.bit_length())


def before_percent(budget: Budget, pattern: str, values: Any) -> None:
    """Counts `pattern % values`."""
    inner = budget.size(values).characters
    total = len(pattern)
    for match in _PERCENT.finditer(pattern):
        for width in match.groups(default=""):
            if width == "*" or len(width) > 4:
                raise TemplateError("stopped: a wider column than a chat template needs")
            total += int(width or 0)
        total += inner
    budget.text(total)


def before_format(budget: Budget, pattern: str, args: Iterable[Any], kwargs: Any) -> None:
    """Counts `pattern.format(*args, **kwargs)`; nested fields may ask for any width."""
    if re.search(r"\d{5}", pattern) or re.search(r"\{[^{}]*:[^{}]*\{", pattern):
        raise TemplateError("stopped: a wider column than a chat template needs")
    inner = budget.size([list(args), kwargs]).characters
    widths = sum(int(width) for width in re.findall(r"\d+", pattern))
    budget.text(len(pattern) + widths + pattern.count("{") * inner)


def call_text_method(budget: Budget, text: str, method: str, call: Callable[..., Any],
                     args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:  # fmt: skip
    """The result of a str method, counted before it is made."""
    first = next(iter((*args, *kwargs.values())), None)
    if method == "join":
        args = (_texts(budget, *args, separator=len(text)),)
    elif method == "replace" and len(args) >= 2:
        _before_replace(budget, text, args[0], args[1])
    elif method in ("center", "ljust", "rjust", "zfill", "expandtabs"):
        margin = first if isinstance(first, int) else 8
        times = 1 + text.count("\t") if method == "expandtabs" else 1
        budget.text(len(text) + max(0, margin) * times)
    elif method in ("split", "rsplit", "splitlines"):
        separator = first if isinstance(first, str) else None
        pieces = text.count(separator) if separator else len(text) // 2
        budget.items(1 + pieces)
        budget.text(len(text))
    else:
        budget.text(len(text))
    return call(*args, **kwargs)


def _texts(budget: Budget, values: Any, *, separator: int) -> list[str]:
    """The parts of a join as a list, counted with what goes between them."""
    parts = []
    for value in values:
        budget.step()
        parts.append(value)
        if len(parts) > budget.max_items:
            budget.items(len(parts))
    budget.text(budget.size(parts).characters + separator * len(parts))
    return parts


def _before_replace(budget: Budget, text: Any, old: Any, new: Any) -> None:
    text, old, new = (written(budget, part) for part in (text, old, new))
    times = text.count(old) if old else len(text) + 1
    budget.text(len(text) + times * max(0, len(new) - len(old)))


def written(budget: Budget, value: Any) -> str:
    """The text of a value as a template prints it."""
    if not isinstance(value, str):
        budget.text(budget.size(value).characters)
        return str(value)
    budget.text(len(value))
    return value


def to_json(budget: Budget, value: Any, ensure_ascii: bool, indent: Any, separators: Any,
            sort_keys: bool) -> str:  # fmt: skip
    """JSON as Hugging Face's `tojson` filter writes it."""
    for margin in (indent, *(separators or ())):
        length = len(margin) if isinstance(margin, str) else abs(int(margin or 0))
        if length > _MAX_MARGIN:
            raise TemplateError("stopped: a wider indent than a chat template needs")
    size = budget.size(value)
    budget.text(2 * size.characters + size.values * (_MAX_MARGIN if indent or separators else 1))
    budget.text(size.values * size.depth * (1 + _MAX_MARGIN) if indent else 0)
    return json.dumps(
        value,
        ensure_ascii=ensure_ascii,
        indent=indent,
        separators=separators,
        sort_keys=sort_keys,
    )


def _check_arguments(budget: Budget, args: Iterable[Any]) -> None:
    for arg in args:
        if isinstance(arg, int) and abs(arg) > MAX_ARGUMENT:
            raise TemplateError("stopped: a larger argument of a filter than a template needs")


def _before_filter(budget: Budget, name: str, value: Any, args: list[Any]) -> Any:
    """Counts a filter before it runs; returns the value to run it on."""
    if name in _WRITING:
        budget.text(9 * budget.size(value).characters)
    elif name in ("e", "escape") and isinstance(value, str):
        budget.text(6 * len(value))
    elif name not in _STRUCTURAL:
        _check_arguments(budget, args)
    first = args[0] if args else None
    if name == "center":
        budget.text(budget.size(value).characters + int(first or 80))
    elif name == "indent":
        text = written(budget, value)
        margin = len(first) if isinstance(first, str) else int(4 if first is None else first)
        budget.text(len(text) + (text.count("\n") + 1) * margin)
    elif name == "format":
        before_percent(budget, written(budget, value), args)
    elif name == "replace":
        _before_replace(budget, value, *args[:2])
    elif name in ("list", "reverse", "batch", "slice", "join"):
        value = _as_list(budget, value)
    elif name == "round" and len(args) and abs(int(first or 0)) > _MAX_DIGITS:
        raise TemplateError("stopped: more digits than a chat template needs")
    elif name in ("string", "truncate"):
        budget.text(budget.size(value).characters)
    if name in ("batch", "slice"):
        budget.items(len(value) + int(first or 0))
    return value


def _as_list(budget: Budget, value: Any) -> Any:
    if isinstance(value, (str, Undefined)):
        budget.items(len(value))
        return value
    items = []
    for item in value:
        budget.step()
        items.append(item)
        if len(items) > budget.max_items:
            budget.items(len(items))
    budget.items(len(items))
    return items


def bounded_filters(budget_of: Callable[[], Budget]) -> dict[str, Callable[..., Any]]:
    """Jinja's filters that chat templates may use, each under the budget."""
    return {
        name: _bounded(name, FILTERS[name], budget_of) for name in FILTER_NAMES if name != "tojson"
    }


def _bounded(
    name: str, run: Callable[..., Any], budget_of: Callable[[], Budget]
) -> Callable[..., Any]:
    lead = 1 if hasattr(run, "jinja_pass_arg") else 0  # an environment or context comes first

    @functools.wraps(run)
    def bounded(*args: Any, **kwargs: Any) -> Any:
        budget = budget_of()
        budget.step()
        before, (value, *rest) = args[:lead], args[lead:]
        value = _before_filter(budget, name, value, [*rest, *kwargs.values()])
        if name == "join":
            separator = rest[0] if rest else kwargs.get("d", "")
            _texts_joined(budget, value, str(separator))
        result = run(*before, value, *rest, **kwargs)
        if isinstance(result, (str, list, tuple, Mapping)):
            charge = budget.text if isinstance(result, str) else budget.items
            charge(len(result))
        return result

    return bounded


def _texts_joined(budget: Budget, value: Any, separator: str) -> None:
    count = len(value) if isinstance(value, (list, str)) else 0
    budget.text(budget.size(value).characters + count * len(separator))
