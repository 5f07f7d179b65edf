"""`forwardpass explain MODEL PROMPT`: why each token of an answer came."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from forwardpass.cli import account
from forwardpass.cli.answering import (
    AnswerOptions,
    EngineOptions,
    PromptOptions,
    TemplateOptions,
    begin,
)
from forwardpass.cli.console import as_json, data, note, patience
from forwardpass.cli.explaining import ROWS, branch, explain_lines, token_named
from forwardpass.cli.groups import with_groups
from forwardpass.cli.html import HtmlFile, check_page, typed, write_page
from forwardpass.cli.options import Json
from forwardpass.cli.shapes import ShapeOptions
from forwardpass.errors import RequestError

if TYPE_CHECKING:
    from forwardpass.inspecting.looking import Look
    from forwardpass.model import Generation, Model, Prompt
    from forwardpass.options import Options
    from forwardpass.trace.trace import Trace

MOST_BEST = 32  # tokens after the stages that a step keeps

Reference = Annotated[
    str | None,
    typer.Argument(metavar="MODEL", help="as `run` takes it; none with --replay"),
]


@dataclass(frozen=True)
class TableOptions:
    """What the tables show."""

    token: Annotated[
        list[int] | None,
        typer.Option(
            "--token", metavar="N", help="the token to show stage by stage (0); repeatable"
        ),
    ] = None
    top: Annotated[
        int | None,
        typer.Option("--top", metavar="N", help="and its N best tokens of both distributions"),
    ] = None
    rows: Annotated[
        int | None,
        typer.Option("--rows", metavar="N", help=f"the most tokens in the first table ({ROWS})"),
    ] = None

    def check(self, tokens: int | None) -> None:
        """Refuses numbers that no table has; `tokens`: the most of the answer."""
        for name, value, least, most in (
            *(("token", number, 0, None) for number in self.token or ()),
            ("top", self.top, 1, MOST_BEST),
            ("rows", self.rows, 1, None),
        ):
            if value is not None and not (least <= value <= (most or value)):
                upto = " up" if most is None else f" to {most}"
                raise RequestError(f"--{name} {value}: wanted a whole number from {least}{upto}")
        if tokens is not None and 0 < tokens <= (last := max(self.token or [0])):
            has = f"tokens 0 to {tokens - 1}" if tokens > 1 else "token 0 only"
            raise RequestError(f"--token {last}: an answer of --max-tokens {tokens} has {has}")

    def print(self, trace: Trace, token: int = 0) -> None:
        """Prints the tables; `token` is shown stage by stage where none was asked for, but of an
        answer that a grammar held, which is told by the grammar."""
        tokens = self.token or ([] if trace.masks else [token])
        for line in explain_lines(trace, tokens, self.rows or ROWS, self.top):
            data(line)


def _file(option: str) -> Callable[[str], Path]:
    """Reads the name of a file; an empty one would be the folder `.`."""

    def read(text: str) -> Path:
        if not text:
            raise RequestError(f"{option} '': wanted the name of a file")
        return Path(text)

    return read


@dataclass(frozen=True)
class TraceOptions:
    """What is kept of an answer, looked at again, or taken another way."""

    trace: Annotated[
        Path | None,
        typer.Option(
            "--trace",
            metavar="FILE",
            parser=_file("--trace"),
            help="write the trace as JSON as well",
        ),
    ] = None
    full: Annotated[
        bool, typer.Option("--full", help="keep all scores in the trace, not the 256 best")
    ] = False
    replay: Annotated[
        Path | None,
        typer.Option(
            "--replay",
            metavar="FILE",
            parser=_file("--replay"),
            help="look at a trace again; with sampler options: what these would have taken",
        ),
    ] = None
    at: Annotated[
        int | None, typer.Option("--at", metavar="N", help="go on from another token at place N")
    ] = None
    take: Annotated[
        str | None,
        typer.Option(
            "--take", metavar="ID", help="that token, by its id or exact text; digits are an id"
        ),
    ] = None

    def check(self, html: Path | None, json: bool, inside: bool) -> None:
        """Refuses what does not go together; `inside`: what --json prints is a pass, no trace."""
        if (self.at is None) != (self.take is None):
            has, wants = ("--at", "--take ID") if self.take is None else ("--take", "--at N")
            raise RequestError(f"{has} needs {wants}")
        if self.at is not None and self.at < 0:
            raise RequestError(f"--at {self.at}: wanted a place in the answer, from 0 up")
        if self.take == "":
            raise RequestError("--take '': wanted the id of a token, or its exact text")
        if self.full and not (self.trace or (json and not inside)):
            wants = "--trace FILE" if inside else "--trace FILE or --json"
            raise RequestError(f"--full needs {wants}: the tables show no more by it")
        if html and self.trace and os.path.realpath(html) == os.path.realpath(self.trace):
            raise RequestError("--trace and --html name one file")


@dataclass(frozen=True)
class PassOptions:
    """One pass over the prompt from inside."""

    inside: Annotated[
        bool, typer.Option("--pass", help="show one pass over the prompt from inside instead")
    ] = False
    layer: Annotated[
        int | None, typer.Option("--layer", metavar="L", help="whose attention (the last layer's)")
    ] = None
    head: Annotated[
        int | None, typer.Option("--head", metavar="H", help="whose attention (head 0)")
    ] = None
    position: Annotated[
        int | None,
        typer.Option("--position", metavar="N", help="of the token looked at (the prompt's last)"),
    ] = None

    def look(self, model: Model, prompt: Prompt, options: Options) -> Look:
        """The pass over the prompt."""
        from forwardpass.cli.explain_pass import look_inside

        ids = model.prepare(prompt, **options).ids
        return look_inside(
            model, ids, layer=self.layer, head=self.head or 0, position=self.position
        )


@dataclass(frozen=True)
class Page:
    """Where a page goes, and the command line that it names as its maker."""

    path: Path
    line: str

    def write(self, trace: Trace, look: dict[str, object] | None = None) -> None:
        """Writes the page of an answer, and of a pass where one was looked at."""
        from forwardpass.pages.explain_page import explain_page
        from forwardpass.trace.form import as_dict

        write_page(self.path, explain_page(as_dict(trace), look, self.line))


@with_groups
def command(
    *,
    called: typer.Context,
    model: Reference = None,
    prompt: PromptOptions,
    template: TemplateOptions,
    answer: AnswerOptions,
    shape: ShapeOptions,
    engine: EngineOptions,
    tables: TableOptions,
    traces: TraceOptions,
    inside: PassOptions,
    html: HtmlFile = None,
    json: Json = False,
) -> None:
    """Answers once and shows why: for each token its score, the stages, and the draw."""
    tables.check(None if traces.replay or inside.inside else answer.max_tokens)
    if json and not inside.inside:
        _refuse("--json prints the whole trace", tables)
    if not inside.inside:
        _refuse("only --pass looks inside a pass", inside)
    check_page(html)
    page = None if html is None else Page(html, typed(called))
    if traces.replay is not None:
        from forwardpass.cli.explain_replay import show_replay

        if model is not None:
            raise RequestError("--replay runs no model: MODEL was given too")
        _refuse("--replay runs no model", prompt, template, shape, engine, inside)
        _refuse("--replay writes and takes nothing", replace(traces, replay=None))
        show_replay(traces.replay, answer, tables, page, json)
        return
    if model is None:
        raise RequestError(
            "there is no MODEL", advice="forwardpass explain MODEL PROMPT, or --replay FILE"
        )
    if inside.inside and page is None:
        _refuse("--pass shows no answer", tables, traces, answer, shape)
    if inside.inside:
        _refuse("--pass prints no answer's tables", tables)
    traces.check(html, json, inside.inside)
    _check_trace(traces.trace)
    options: Options = {**template.chosen(), **answer.chosen(), **shape.chosen()}
    if inside.inside:
        from forwardpass.cli.explain_pass import on_reference

        engine = on_reference(engine)
    text = prompt.text(template)
    with engine.load(model, template.template) as loaded:
        if traces.full:
            options["keep_scores"] = loaded.description.config.vocab_size
        request = prompt.request(loaded, text)
        if inside.inside:
            _show_pass(loaded, request, options, inside, traces, page, json)
        else:
            _show_answer(loaded, request, options, tables, traces, page, json)


def _refuse(why: str, *groups: Any) -> None:
    """RequestError for the first option of `groups` that was given."""
    for option in (option for group in groups for option in given_options(group)):
        raise RequestError(f"{why}: {option} was given too")


def given_options(group: Any) -> Iterator[str]:
    """The options of a group that were given, as they are typed."""
    hints = get_type_hints(type(group), include_extras=True)
    for field in fields(group):
        if getattr(group, field.name) != field.default:
            info = hints[field.name].__metadata__[0]
            # typer takes the first name for a default until it has read the command
            names = [*filter(_is_option, (info.default, *info.param_decls))]
            yield names[0] if names else info.metavar


def _is_option(name: object) -> bool:
    return isinstance(name, str) and name.startswith("--")


def _check_trace(path: Path | None) -> None:
    if path is not None:
        from forwardpass.trace.files import check_trace_file

        check_trace_file(path, f"--trace {path}")


def _show_answer(
    model: Model,
    prompt: Prompt,
    options: Options,
    tables: TableOptions,
    traces: TraceOptions,
    page: Page | None,
    json: bool,
) -> None:
    """Answers, prints, writes; what came before Ctrl-C counts."""
    before, going, stopped = _answer(model, prompt, options, traces)
    trace = going.trace()
    try:
        _write(trace, traces.trace, page)
    finally:  # a file that cannot be written takes nothing away
        _print(trace, tables, traces.at or 0, json)
    if not json:
        if before is not None:
            tokens = account.plural(len(before.steps), "token")
            note(f"{tokens} as the stages give them: {account.work_words(before.answer().work)}")
        for line in account.account_lines(going):
            note(line)
    if stopped:
        raise KeyboardInterrupt


def _answer(
    model: Model, prompt: Prompt, options: Options, traces: TraceOptions
) -> tuple[Generation | None, Generation, bool]:
    """The answer that another token was taken in, if one was; the answer; whether Ctrl-C came."""
    taken = None if traces.take is None else token_named(model, traces.take, "--take")
    going, at = begin(model, prompt, options), traces.at
    stopped = _go(going, None if at is None else at + 1)
    if at is None or taken is None or stopped:
        return None, going, stopped
    other = branch(going, at, taken)
    return going, other, _go(other)


def _print(trace: Trace, tables: TableOptions, token: int, json: bool) -> None:
    if json:
        from forwardpass.trace.form import as_dict

        as_json(as_dict(trace))
    else:
        tables.print(trace, token)


def _go(going: Generation, most: int | None = None) -> bool:
    """Lets at most so many tokens come; whether Ctrl-C stopped it."""
    try:
        with patience("answering"):
            while most is None or len(going.steps) < most:
                if next(going, None) is None:
                    break
    except KeyboardInterrupt:
        return True
    return False


def _write(
    trace: Trace, path: Path | None, page: Page | None, look: dict[str, object] | None = None
) -> None:
    if path is not None:
        from forwardpass.trace.files import write_trace

        write_trace(trace, path)
        note(f"trace written to {path}")
    if page is not None:
        page.write(trace, look)


def _show_pass(
    model: Model,
    prompt: Prompt,
    options: Options,
    inside: PassOptions,
    traces: TraceOptions,
    page: Page | None,
    json: bool,
) -> None:
    """Shows one pass; a page shows the answer as well."""
    from forwardpass.cli.explain_pass import pass_dict, show_pass

    look = inside.look(model, prompt, options)
    stopped = False
    if page is not None:
        _, going, stopped = _answer(model, prompt, options, traces)
        _write(going.trace(), traces.trace, page, pass_dict(model, look))
    if json:
        as_json(pass_dict(model, look))
    else:
        show_pass(model, look)
    if stopped:
        raise KeyboardInterrupt
