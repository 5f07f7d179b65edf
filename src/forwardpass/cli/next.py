"""`forwardpass next MODEL PROMPT`: the next-token table."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated

import typer

from forwardpass.cli.account import engine_lines, plural
from forwardpass.cli.answering import EngineOptions, PromptOptions, TemplateOptions
from forwardpass.cli.console import as_json, columns, data, note, patience, visible
from forwardpass.cli.groups import with_groups
from forwardpass.cli.options import Json
from forwardpass.cli.options import Model as Reference
from forwardpass.errors import RequestError
from forwardpass.units import exact

if TYPE_CHECKING:
    from forwardpass.model import Model
    from forwardpass.sampling.table import NextTable

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
        ready = loaded.prepare(prompt.request(loaded, text), **options)
        with patience("reading the prompt"):
            scores = loaded.runner.prefill(ready.ids).scores
        table = next_table(
            scores, top=top, temperatures=tuple(named.values()), draws=draws, seed=seed or 0
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
    """The keys of `next --json`."""
    return {
        "prompt_tokens": tokens,
        "vocabulary": table.vocabulary,
        "top": [
            {
                "id": row.id,
                "token": model.token_text(row.id),
                "score": row.score,
                "probability": {name: row.probability[t] for name, t in named.items()},
            }
            for row in table.rows
        ],
        "draws": [
            {"id": token, "token": model.token_text(token), "count": count}
            for token, count in table.counts
        ],
    }


def _show(model: Model, table: NextTable, named: Columns, tokens: int) -> None:
    data(f"{exact(table.vocabulary)} scores after {plural(tokens, 'token')}, one pass")
    data()
    for line in _lines(model, table, named):
        data(line)
    if len(table.rows) > 1:
        data(_gap(model, table, named))
    for line in engine_lines(model):
        note(line)


def _lines(model: Model, table: NextTable, named: Columns) -> list[str]:
    """The table: a row a token, and their sums."""
    tokens = [("id", "token"), *((str(row.id), _token(model, row.id)) for row in table.rows)]
    side_by_side = [
        [*columns(tokens, "><"), f"these {len(table.rows)}"],
        ["score", *(f"{row.score:.2f}" for row in table.rows), ""],
    ]
    sums = table.together.probability
    for name, t in named.items():
        head = f"T {name}" if len(side_by_side) > 2 else f"p at T {name}"
        chances = [*(row.probability[t] for row in table.rows), sums[t]]
        side_by_side.append([head, *(f"{chance:.3f}" for chance in chances)])
    align = "<" + ">" * (len(side_by_side) - 1)
    if table.draws:
        side_by_side.append(_drawn(table))
        align += "<"
    rows = list(zip(*side_by_side, strict=True))
    return [f"  {line}" for line in columns(rows, align, "    ")]


def _drawn(table: NextTable) -> list[str]:
    """The last column: how often each row was drawn, beside how often it was expected."""
    sums = table.together
    counts = [*(row.drawn for row in table.rows), sums.drawn]
    expected = [f"{x:.1f}" for x in (*(row.expected for row in table.rows), sums.expected)]
    expected[0] = f"expected {expected[0]}"
    pairs = list(zip(map(exact, counts), expected, strict=True))
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
