from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Annotated

import pytest
import typer

from forwardpass.cli.groups import with_groups


@dataclass(frozen=True)
class Sampler:
    temperature: Annotated[float, typer.Option("--temperature")] = 1.0
    bias: Annotated[list[str] | None, typer.Option("--bias")] = None


@with_groups
def command(
    model: str, sampler: Sampler, count: Annotated[int, typer.Option("--count")] = 3
) -> int:
    """Does it."""
    print(model, sampler, count)
    return 7


def test_the_parser_sees_the_fields_of_a_group_as_options_and_the_command_sees_the_group(
    capsys: pytest.CaptureFixture[str],
) -> None:
    app = typer.Typer(rich_markup_mode=None)
    app.command()(command)
    arguments = ["m", "--temperature", "0.5", "--bias", "a", "--bias", "b"]
    status = typer.main.get_command(app).main(arguments, prog_name="x", standalone_mode=False)
    assert status == 7
    assert capsys.readouterr().out == "m Sampler(temperature=0.5, bias=['a', 'b']) 3\n"
    typer.main.get_command(app).main(["m"], prog_name="x", standalone_mode=False)
    assert capsys.readouterr().out == "m Sampler(temperature=1.0, bias=None) 3\n"


def test_options_stand_in_the_order_of_the_command() -> None:
    assert list(inspect.signature(command).parameters) == ["model", "temperature", "bias", "count"]
    assert command.__doc__ == "Does it."
