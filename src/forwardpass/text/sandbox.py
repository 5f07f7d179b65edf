"""The sandbox that chat templates run in: Hugging Face's rules, with a budget.

Source: transformers, utils/chat_template_utils.py (`render_jinja_template`): an immutable
sandbox, trimmed blocks, loop controls, a `generation` tag, `tojson` without HTML escapes, and the
functions `raise_exception` and `strftime_now`.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

from jinja2 import nodes, pass_context
from jinja2.exceptions import SecurityError, TemplateRuntimeError
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace

from forwardpass.errors import TemplateError
from forwardpass.text import bounded
from forwardpass.text.budget import Budget, Limits
from forwardpass.text.rewrite import BUILD, CONCAT, DATA, PRINT, SLICE, TICK, TOUCH

_MAX_TIME_FORMAT = 200
_CONTAINER_METHODS = {
    dict: frozenset({"get", "items", "keys", "values", "copy"}),
    list: frozenset({"index", "count", "copy"}),
    tuple: frozenset({"index", "count"}),
}


class Refusal(TemplateRuntimeError):
    """What a template says with `raise_exception`."""


class _Generation(Extension):
    """`{% generation %}`: marks what the model wrote. It changes no text."""

    tags = {"generation"}  # noqa: RUF012  the name and type are Jinja's

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body, lineno=line)


class _Namespace(Namespace):
    """Jinja's namespace without names that begin with an underscore."""

    def __init__(*args: Any, **kwargs: Any) -> None:
        self, *rest = args
        for name in dict(*rest, **kwargs):
            _check_name(name)
        Namespace.__init__(self, *rest, **kwargs)

    def __setitem__(self, name: str, value: Any) -> None:
        _check_name(name)
        super().__setitem__(name, value)


def _check_name(name: object) -> None:
    if isinstance(name, str) and name.startswith("_"):
        raise SecurityError(f"the namespace attribute {name!r:.40} begins with an underscore")


class Sandbox(ImmutableSandboxedEnvironment):
    """A Jinja environment for one template, rendered by one thread at a time.

    `budget`, `now` and `wrap_json` belong to the rendering under way.
    """

    intercepted_binops = frozenset({"+", "-", "*", "/", "//", "%", "**"})

    def __init__(self, limits: Limits) -> None:
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            optimized=False,
            extensions=[_Generation, "jinja2.ext.loopcontrols"],
        )
        self.budget = Budget(limits)
        self.now: Callable[[], datetime] = datetime.now
        self.wrap_json: Callable[[object, str], str] = lambda value, text: text
        self.filters = bounded.bounded_filters(lambda: self.budget)
        self.filters["tojson"] = self._tojson
        self.filters |= self._counting_filters()
        del self.globals["lipsum"]
        self.globals |= {
            "dict": self._dict,
            "namespace": _Namespace,
            "raise_exception": _raise_exception,
            "strftime_now": self._strftime_now,
        }

    def _counting_filters(self) -> dict[str, Callable[..., Any]]:
        # Taking the context keeps Jinja from running them while it compiles.
        @pass_context
        def tick(context: Context, value: Any) -> Any:
            self.budget.step()
            return value

        @pass_context
        def written(context: Context, value: Any) -> str:
            return bounded.written(self.budget, value)

        @pass_context
        def data(context: Context, characters: int) -> str:
            self.budget.text(characters)
            return ""

        @pass_context
        def concat(context: Context, values: list[Any]) -> str:
            parts = [bounded.written(self.budget, value) for value in values]
            self.budget.text(sum(map(len, parts)))
            return "".join(parts)

        @pass_context
        def build(context: Context, value: Any) -> Any:
            self.budget.items(self.budget.size(value, printing=False).values)
            return value

        @pass_context
        def touch(context: Context, value: Any) -> Any:
            length = len(value) if isinstance(value, (str, list, tuple, dict)) else 0
            self.budget.step(1 + length // 512)
            return value

        @pass_context
        def cut(context: Context, value: Any, start: Any, stop: Any, step: Any) -> Any:
            charge = self.budget.text if isinstance(value, str) else self.budget.items
            charge(len(range(*slice(start, stop, step).indices(len(value)))))
            return value[start:stop:step]

        names = (TICK, PRINT, DATA, CONCAT, BUILD, TOUCH, SLICE)
        return dict(zip(names, (tick, written, data, concat, build, touch, cut), strict=True))

    def _tojson(
        self,
        x: Any,
        ensure_ascii: bool = False,
        indent: Any = None,
        separators: Any = None,
        sort_keys: bool = False,
    ) -> str:
        text = bounded.to_json(self.budget, x, ensure_ascii, indent, separators, sort_keys)
        return self.wrap_json(x, text)

    def _strftime_now(self, format: str) -> str:
        if len(format) > _MAX_TIME_FORMAT:
            raise TemplateError("a longer time format than a chat template needs")
        return self.now().strftime(format)

    def _dict(self, *args: Any, **kwargs: Any) -> dict[Any, Any]:
        made = dict(*args, **kwargs)
        self.budget.items(self.budget.size(made, printing=False).values)
        return made

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        """Only the methods that chat templates need, of the kinds of value that they get."""
        if not super().is_safe_attribute(obj, attr, value):
            return False
        if isinstance(obj, str):
            return attr in bounded.TEXT_METHODS
        for kind, methods in _CONTAINER_METHODS.items():
            if isinstance(obj, kind):
                return attr in methods
        return not isinstance(obj, (int, float, bytes))

    def unsafe_undefined(self, obj: Any, attribute: str) -> Any:
        """Raises: what must not be read is refused at once, not when it is used."""
        raise SecurityError(f"the attribute {attribute!r:.40} is not for templates")

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        """`str.format` and `format_map` under the budget."""
        run = super().wrap_str_format(value)
        if run is None:
            return None

        def wrapped(*args: Any, **kwargs: Any) -> str:
            bounded.before_format(self.budget, value.__self__, args, kwargs)
            return run(*args, **kwargs)

        return wrapped

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """A binary operator under the budget."""
        return bounded.operate(self.budget, operator, self.binop_table[operator], left, right)

    def call(self, context: Context, obj: Any, /, *args: Any, **kwargs: Any) -> Any:
        """A call under the budget."""
        self.budget.step()
        owner = getattr(obj, "__self__", None)
        if isinstance(owner, str):

            def run(*given: Any, **named: Any) -> Any:
                return super(Sandbox, self).call(context, obj, *given, **named)

            return bounded.call_text_method(self.budget, owner, obj.__name__, run, args, kwargs)
        return super().call(context, obj, *args, **kwargs)


def _raise_exception(message: object) -> None:
    raise Refusal(str(message))
