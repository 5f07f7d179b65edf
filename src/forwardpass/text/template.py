"""ChatTemplate: a conversation to the text that the model was trained to continue."""

from __future__ import annotations

import threading
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property

import jinja2
from jinja2 import meta, nodes

from forwardpass.errors import RequestError, TemplateError, did_you_mean
from forwardpass.text.budget import Budget, Limits, given_size
from forwardpass.text.rewrite import check_shape, with_budget
from forwardpass.text.sandbox import Refusal, Sandbox

# What rendering itself provides; everything else that a template reads is an argument.
_PROVIDED = frozenset({"messages", "tools", "documents", "add_generation_prompt"})
_THINKING = ("enable_thinking", "thinking")

Substitute = Callable[[str], str]


@dataclass(frozen=True)
class Request:
    """What a template is rendered with. `special_tokens`: `bos_token` and the like."""

    messages: Sequence[Mapping[str, object]]
    tools: Sequence[Mapping[str, object]] | None = None
    documents: Sequence[Mapping[str, object]] | None = None
    special_tokens: Mapping[str, str] = field(default_factory=dict)
    arguments: Mapping[str, object] = field(default_factory=dict)
    add_generation_prompt: bool = True
    now: Callable[[], datetime] = datetime.now

    def variables(self) -> dict[str, object]:
        """The template's variables by name."""
        return {
            **self.special_tokens,
            **self.arguments,
            "messages": list(self.messages),
            "tools": self.tools,
            "documents": self.documents,
            "add_generation_prompt": self.add_generation_prompt,
        }


class ChatTemplate:
    """A Jinja chat template with Hugging Face's rules, in a sandbox with limits.

    `literals` is every text that the template holds; `arguments` the names that a caller may set.
    Errors: TemplateError for syntax, for limits and for what the template itself refuses.
    """

    def __init__(
        self, source: str, *, name: str = "chat template", limits: Limits | None = None
    ) -> None:
        self.source = source
        self.name = name
        self._limits = limits or Limits()
        if len(source) > self._limits.source:
            allowed = f"more than the {self._limits.source:,} allowed"
            raise TemplateError(f"{name}: {len(source):,} characters, {allowed}")
        self._sandbox = Sandbox(self._limits)
        self._lock = threading.Lock()
        try:
            tree = self._parsed()
            self._reads = meta.find_undeclared_variables(tree) - set(self._sandbox.globals)
            self.literals = tuple(dict.fromkeys(_literals(tree)))
            self._first_uses = _first_uses(tree)
        except Exception as error:
            raise self._failed(error) from error

    @cached_property
    def _plain(self) -> jinja2.Template:
        return self.compile(lambda text: text)

    @property
    def arguments(self) -> tuple[str, ...]:
        """The names that the template reads before it sets them, besides what is always there."""
        return tuple(
            sorted(
                name
                for name in self._reads - _PROVIDED
                if self._first_uses.get(name) == "load" and not name.endswith("_token")
            )
        )

    @property
    def thinking_arguments(self) -> tuple[str, ...]:
        """Those of its arguments that switch thinking on and off."""
        return tuple(name for name in _THINKING if name in self.arguments)

    def reads(self, name: str) -> bool:
        """Whether the template reads the variable `name` at all."""
        return name in self._reads

    def check_arguments(self, arguments: Mapping[str, object]) -> None:
        """Raises RequestError where an argument is one that the template never reads."""
        known = self.arguments
        for name in arguments:
            if name not in known:
                listed = ", ".join(known) or "none"
                near = did_you_mean(name, known)
                raise RequestError(
                    f"{self.name} never reads the argument {name!r:.60}{near}",
                    f"it reads: {listed}",
                )

    def render(self, request: Request) -> str:
        """The text of a conversation, as Hugging Face would render it."""
        return self.run(self._plain, request)

    def compile(self, substitute: Substitute) -> jinja2.Template:
        """The template with `substitute` applied to every text that it holds."""
        with self._lock:
            self._sandbox.budget = Budget(self._limits)
            try:
                tree = self._parsed()
                for node in tree.find_all(nodes.TemplateData):
                    node.data = substitute(node.data)
                for const in tree.find_all(nodes.Const):
                    if isinstance(const.value, str):
                        const.value = substitute(const.value)
                return self._sandbox.from_string(with_budget(tree))
            except Exception as error:
                raise self._failed(error) from error

    def run(
        self,
        compiled: jinja2.Template,
        request: Request,
        *,
        wrap_json: Callable[[object, str], str] | None = None,
    ) -> str:
        """The text that a compiled form of this template writes.

        `wrap_json` may change what `tojson` returns for a value.
        """
        variables = request.variables()
        sandbox = self._sandbox
        with self._lock:
            sandbox.budget = Budget(self._limits, given_size(list(variables.values())))
            sandbox.now = request.now
            sandbox.wrap_json = wrap_json or (lambda value, text: text)
            try:
                text = "".join(compiled.generate(variables))
            except Exception as error:
                raise self._failed(error) from error
        try:
            text.encode()
        except UnicodeEncodeError as error:
            place = f"at character {error.start:,} of the prompt"
            raise TemplateError(f"{self.name}: half a surrogate pair {place}") from None
        return text

    def _parsed(self) -> nodes.Template:
        tree = self._sandbox.parse(self.source)
        check_shape(tree, self._limits.depth)
        return tree

    def _failed(self, error: Exception) -> TemplateError:
        """What went wrong, with the template's line where it is known."""
        if isinstance(error, Refusal):
            return TemplateError(_printable(f"{self.name} refuses the conversation: {error}"))
        line = getattr(error, "lineno", None)
        for frame, number in traceback.walk_tb(error.__traceback__):
            if frame.f_code.co_filename == "<template>":
                line = number
        where = self.name if line is None else f"{self.name}, line {line}"
        kind = "nested too deep" if isinstance(error, RecursionError) else str(error)
        return TemplateError(_printable(f"{where}: {kind or type(error).__name__}"))


def _printable(fact: str) -> str:
    """The fact, cut, with halves of surrogate pairs that a template wrote spelled out."""
    return fact[:2000].encode("utf-8", "backslashreplace").decode()


def _literals(tree: nodes.Template) -> Iterator[str]:
    for node in tree.find_all((nodes.TemplateData, nodes.Const)):
        value = node.data if isinstance(node, nodes.TemplateData) else node.value  # type: ignore[attr-defined]
        if isinstance(value, str):
            yield value


def _first_uses(tree: nodes.Template) -> dict[str, str]:
    """For each name, whether it is first read ("load") or first set ("store")."""
    first: dict[str, str] = {}
    waiting: list[nodes.Node] = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, nodes.Name):
            first.setdefault(node.name, node.ctx)
        children = list(node.iter_child_nodes())
        if isinstance(node, nodes.Assign):
            children = [node.node, node.target]  # the value is read before the name is set
        waiting.extend(reversed(children))
    return first
