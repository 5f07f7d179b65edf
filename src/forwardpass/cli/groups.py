"""Options that several commands share: a dataclass whose fields are options."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import MISSING, fields, is_dataclass
from typing import Any, get_type_hints

Command = Callable[..., int | None]


def with_groups(command: Command) -> Command:
    """The command with one option for each field of its parameters that are dataclasses.

        @dataclass(frozen=True)
        class Sampler:
            temperature: Annotated[float | None, typer.Option("--temperature")] = None

        @with_groups
        def command(model: str, sampler: Sampler) -> None: ...

    The parser sees `model` and `temperature`; the command gets `sampler` filled.
    """
    hints = get_type_hints(command, include_extras=True)
    groups: dict[str, Any] = {name: hint for name, hint in hints.items() if is_dataclass(hint)}
    flat = list(_flat(command, hints))

    def parsed(**given: Any) -> int | None:
        for name, group in groups.items():
            given[name] = group(**{field.name: given.pop(field.name) for field in fields(group)})
        return command(**given)

    parsed.__doc__ = command.__doc__
    parsed.__annotations__ = {parameter.name: parameter.annotation for parameter in flat}
    parsed.__signature__ = inspect.Signature(flat)  # type: ignore[attr-defined]
    return parsed


def _flat(command: Command, hints: dict[str, Any]) -> Iterator[inspect.Parameter]:
    """The command's own parameters, and those of its groups in their places."""
    for name, parameter in inspect.signature(command).parameters.items():
        if not is_dataclass(hints[name]):
            yield _option(name, hints[name], parameter.default)
            continue
        inner = get_type_hints(hints[name], include_extras=True)
        for field in fields(hints[name]):
            default = inspect.Parameter.empty if field.default is MISSING else field.default
            yield _option(field.name, inner[field.name], default)


def _option(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    kind = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(name, kind, annotation=annotation, default=default)
