"""`forwardpass count MODEL`: parameters, bytes, work a token, KV cache; no weights are read."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from forwardpass import hub
from forwardpass.cli.console import as_json, data
from forwardpass.cli.html import HtmlFile, check_page, typed, write_page
from forwardpass.cli.options import AcceptUnknown, Json, KvType, Model, Visible, numbers
from forwardpass.config import ModelConfig
from forwardpass.opening import Opened, check_accepted, open_headers
from forwardpass.units import size
from forwardpass.work.compare import Figure, Pair, compare, compared
from forwardpass.work.report import report, report_tensors
from forwardpass.work.summary import Asked, Count, count_model, count_tensors

_SHORT, _LONG = 128, 8_192  # contexts that are shown where none are asked for


def command(
    context: typer.Context,
    model: Model,
    visible: Visible = None,
    prompt: Annotated[
        int | None, typer.Option("--prompt", metavar="N", help="count a prompt of N tokens")
    ] = None,
    answer: Annotated[
        int | None,
        typer.Option("--answer", metavar="N", help="count an answer of N tokens after the prompt"),
    ] = None,
    dtype: Annotated[
        str | None,
        typer.Option("--dtype", metavar="TYPE", help="bytes in this type: bf16, q8_0, q4_k, …"),
    ] = None,
    kv_type: KvType = "bf16",
    diff: Annotated[
        str | None,
        typer.Option("--diff", metavar="MODEL", help="put another model beside it"),
    ] = None,
    accept_unknown: AcceptUnknown = None,
    html: HtmlFile = None,
    json: Json = False,
) -> None:
    """Counts a model from its shape, its config, or the header of its file."""
    check_page(html)
    contexts = None if visible is None else numbers(visible, "--visible")
    asked = Asked(contexts or (), prompt, answer, dtype, kv_type)
    settings, accepted = hub.settings(os.environ), accept_unknown or []
    if diff is None:
        with open_headers(model, settings, accept_unknown=accepted) as opened:
            asked = asked if contexts else _with_contexts(asked, opened)
            counted = _count(opened, asked)
            if html is not None:
                _write_one(html, opened, counted, asked, typed(context))
            _print_one(opened, counted, asked, json)
        return
    with (
        open_headers(model, settings, accept_unknown=accepted, check=False) as first,
        open_headers(diff, settings, accept_unknown=accepted, check=False) as second,
    ):
        check_accepted(accepted, first, second)
        asked = asked if contexts else _with_contexts(asked, first, second)
        counts = _count(first, asked), _count(second, asked)
        pairs = compared(*zip(counts, (_config(first), _config(second)), strict=True))
        if html is not None:
            _write_both(html, (first, second), counts, pairs, asked, typed(context))
        _print_both(counts, pairs, json)


def _print_one(opened: Opened, count: Count, asked: Asked, json: bool) -> None:
    if json:
        as_json(count.as_dict())
    elif opened.description is not None:
        data("\n".join(report(count, opened.description, asked, _origin(opened))))
    elif opened.file is not None:
        data("\n".join(report_tensors(count, opened.file, _origin(opened))))


def _print_both(counts: tuple[Count, Count], pairs: list[Pair], json: bool) -> None:
    if json:
        models = [count.as_dict() for count in counts]
        as_json({"models": models, "differences": _differences(pairs)})
    else:
        data("\n".join(compare(*counts, pairs)))


def _differences(pairs: list[Pair]) -> dict[str, list[Figure]]:
    return {pair.name: [pair.first, pair.second] for pair in pairs if pair.differs}


def _write_one(path: Path, opened: Opened, count: Count, asked: Asked, line: str) -> None:
    from forwardpass.pages.count_page import Counted, count_page

    counted = Counted(count, opened.description, _origin(opened))
    write_page(path, count_page(counted, asked, line))


def _write_both(
    path: Path,
    models: tuple[Opened, Opened],
    counts: tuple[Count, Count],
    pairs: list[Pair],
    asked: Asked,
    line: str,
) -> None:
    from forwardpass.pages.count_page import Counted, diff_page

    both = [
        Counted(count, opened.description, _origin(opened))
        for count, opened in zip(counts, models, strict=True)
    ]
    write_page(path, diff_page(both, _differences(pairs), asked, line))


def _count(opened: Opened, asked: Asked) -> Count:
    if opened.description is not None:
        return count_model(opened.description, asked)
    assert opened.file is not None
    return count_tensors(opened.label, opened.file, asked)


def _config(opened: Opened) -> ModelConfig | None:
    return None if opened.description is None else opened.description.config


def _origin(opened: Opened) -> str:
    """What was read to count."""
    if opened.seen in ("shape", "config") or opened.file is None:
        return f"counted from its {opened.seen}, no weights needed"
    read = size(opened.file.bytes_read, 0)
    files = len(opened.file.sources)
    what = "the file's header" if files == 1 else f"the headers of its {files} files"
    elsewhere = ", nothing downloaded" if opened.seen == "hub" else ""
    return f"from {what}, {read} read{elsewhere}"


def _with_contexts(asked: Asked, *models: Opened) -> Asked:
    """Where none are asked for: a short context, and a long one that all the models have."""
    limits = [config.max_position_embeddings for config in map(_config, models) if config]
    if len(limits) < len(models):
        return asked
    return replace(asked, visible=tuple(sorted({min(n, *limits) for n in (_SHORT, _LONG)})))
