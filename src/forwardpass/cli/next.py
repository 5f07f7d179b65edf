"""`forwardpass next MODEL PROMPT`: the next-token table."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from forwardpass.cli.account import engine_lines, plural
from forwardpass.cli.answering import EngineOptions, PromptOptions, TemplateOptions
from forwardpass.cli.console import as_json, columns, data, note, patience, visible
from forwardpass.cli.explaining import token_ids
from forwardpass.cli.groups import with_groups
from forwardpass.cli.options import Json
from forwardpass.cli.options import Model as Reference
from forwardpass.errors import RequestError
from forwardpass.units import exact

if TYPE_CHECKING:
    from forwardpass.model import Model
    from forwardpass.sampling.table import NextTable, Row, Together

Columns = dict[str, float]  # the temperatures, each under the name that it is shown by

MOST_DRAWS = 1_000_000


@with_groups
def command(
    model: Reference,
    prompt: PromptOptions,
    template: TemplateOptions,
    engine: EngineOptions,
    top: Annotated[int, typer.Option("--top", metavar="N", help="rows of the table")] = 6,
    temperatures: Annotated[
        str, typer.Option("--temperatures", metavar="T,T,…", help="columns of the table")
    ] = "0.5,1.0,1.5",
    draws: Annotated[
        int, typer.Option("--draws", metavar="N", help="draw N times at temperature 1.0")
    ] = 0,
    seed: Annotated[
        int | None, typer.Option("--seed", metavar="N", help="seed of the draws, 0 unless given")
    ] = None,
    asked: Annotated[
        list[str] | None,
        typer.Option(
            "--id",
            metavar="ID",
            help="a row for this token too, by its id or its exact text; repeatable",
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Shows the best next tokens, their scores, and their probabilities at some temperatures."""
    named = temperature_columns(temperatures)
    if top < 1:
        raise RequestError(f"--top {top}: wanted at least 1")
    if not 0 <= draws <= MOST_DRAWS:
        raise RequestError(f"--draws {draws}: wanted 0 to {MOST_DRAWS:,}")
    if seed is not None and not draws:
        raise RequestError(f"--seed {seed}: without --draws nothing is drawn")
    options = template.chosen()
    text = prompt.text(template)
    with engine.load(model, template.template) as loaded:
        from forwardpass.sampling.table import next_table

        rows = loaded.description.config.vocab_size
        if top > rows:
            raise RequestError(f"--top {top}: the vocabulary has {exact(rows)} tokens")
        ids = token_ids(loaded, asked, "--id")
        ready = loaded.prepare(prompt.request(loaded, text), **options)
        with patience("reading the prompt"):
            scores = loaded.runner.prefill(ready.ids).scores
        degrees = tuple(named.values())
        table = next_table(
            scores, top=top, temperatures=degrees, draws=draws, seed=seed or 0, ids=ids
        )
        if json:
            as_json(json_table(loaded, table, named, len(ready.ids)))
        else:
            _show(loaded, table, named, len(ready.ids))


def temperature_columns(text: str) -> Columns:
    """The temperatures of `0.5,1,1.5`, each under its shortest decimal: `0.5`, `1.0`, `1.5`."""
    found: Columns = {}
    for part in text.split(","):
        try:
            value = float(part)
        except ValueError:
            value = math.nan
        if not (value > 0 and math.isfinite(value)):
            raise RequestError(f"--temperatures {text}: {part!r} is no number above 0")
        if value in found.values():
            raise RequestError(f"--temperatures {text}: {part} is given twice")
        found[str(value)] = value
    return found


def json_table(model: Model, table: NextTable, named: Columns, tokens: int) -> dict[str, object]:
    """The keys of `next --json`; `asked` is there where ids were asked for."""
    found: dict[str, object] = {
        "prompt_tokens": tokens,
        "vocabulary": table.vocabulary,
        "top": [_json_row(model, row, named) for row in table.rows],
        "draws": [
            {"id": token, "token": model.token_text(token), "count": count}
            for token, count in table.counts
        ],
    }
    if table.asked:
        found["asked"] = [_json_row(model, row, named) for row in table.asked]
    return found


def _json_row(model: Model, row: Row, named: Columns) -> dict[str, object]:
    """One token; a score of -inf, which JSON has no word for, is null."""
    return {
        "id": row.id,
        "token": model.token_text(row.id),
        "score": row.score if math.isfinite(row.score) else None,
        "probability": {name: row.probability[t] for name, t in named.items()},
    }


def _show(model: Model, table: NextTable, named: Columns, tokens: int) -> None:
    best = {row.id for row in table.rows}
    table = replace(table, asked=tuple(row for row in table.asked if row.id not in best))
    data(f"{exact(table.vocabulary)} scores after {plural(tokens, 'token')}, one pass")
    data()
    for line in _lines(model, table, named):
        data(line)
    if len(table.rows) > 1:
        data(_gap(model, table, named))
    for line in engine_lines(model):
        note(line)


def _lines(model: Model, table: NextTable, named: Columns) -> list[str]:
    """The table: a row a token, the sums of the best, and below their name the tokens asked for."""
    every = (*table.rows, *table.asked)
    tokens = columns(
        [("id", "token"), *((str(row.id), _token(model, row.id)) for row in every)], "><"
    )
    side_by_side = [
        _with_sum(tokens, table, f"these {len(table.rows)}"),
        _with_sum(["score", *(f"{row.score:.2f}" for row in every)], table, ""),
    ]
    sums = table.together.probability
    for name, t in named.items():
        head = f"T {name}" if len(side_by_side) > 2 else f"p at T {name}"
        chances = [head, *(f"{row.probability[t]:.3f}" for row in every)]
        side_by_side.append(_with_sum(chances, table, f"{sums[t]:.3f}"))
    align = "<" + ">" * (len(side_by_side) - 1)
    if table.draws:
        side_by_side.append(_drawn(table))
        align += "<"
    rows: list[Sequence[str]] = [*zip(*side_by_side, strict=True)]
    if table.asked:
        rows.insert(2 + len(table.rows), ["asked for"])
    return [f"  {line}" for line in columns(rows, align, "    ")]


def _with_sum(column: Sequence[str], table: NextTable, together: str) -> list[str]:
    """A column under its head, with the sum of the best behind these."""
    best = 1 + len(table.rows)
    return [*column[:best], together, *column[best:]]


def _drawn(table: NextTable) -> list[str]:
    """The last column: how often each row was drawn, beside how often it was expected."""
    sums = table.together
    every: list[Row | Together] = [*table.rows, sums, *table.asked]
    expected = [f"{row.expected:.1f}" for row in every]
    expected[0] = f"expected {expected[0]}"
    pairs = list(zip((exact(row.drawn) for row in every), expected, strict=True))
    head = f"{plural(table.draws, 'draw')} at T 1.0, seed {table.seed}"
    return [head, *columns(pairs, ">>", "   ")]


def _gap(model: Model, table: NextTable, named: Columns) -> str:
    """How far the best token is ahead of the next, temperature 1.0 first."""
    first, second = table.rows[:2]
    versus = table.compare(first, second)
    ratios = [
        (f"{versus.ratio[t]:.1f}", f"at T {name}")
        for name, t in sorted(named.items(), key=lambda item: item[1] != 1.0)
    ]
    (times, where), *others = ratios
    words = [f"{times} times as likely {where}", *(" ".join(other) for other in others)]
    better, worse = _token(model, first.id), _token(model, second.id)
    return f"{better} over {worse}: gap {versus.gap:.2f}, so {', '.join(words)}"


def _token(model: Model, token: int) -> str:
    return visible(model.token_text(token))
