"""`explain --replay FILE`: a recorded answer again, or what other settings would have taken."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from forwardpass.cli.account import plural, sampling_words
from forwardpass.cli.answering import AnswerOptions
from forwardpass.cli.console import as_json, columns, data, note
from forwardpass.cli.explaining import ROWS
from forwardpass.errors import RequestError
from forwardpass.sampling.ranges import ENGINE_DEFAULTS
from forwardpass.trace.files import read_trace
from forwardpass.units import exact

if TYPE_CHECKING:
    from forwardpass.cli.explain import Page, TableOptions
    from forwardpass.trace.replay import Replay, Replayed
    from forwardpass.trace.trace import Trace

_RECORDED = "the recorded answer: leave the sampler options out"


def show_replay(
    path: Path, answer: AnswerOptions, tables: TableOptions, page: Page | None, json: bool
) -> None:
    """Shows a recorded answer; under sampler options, what they take from its scores.

    Raises FormatError for a file that is no trace, RequestError for options that choose no token.
    """
    for name in ("max_tokens", "ignore_model_defaults"):
        if getattr(answer, name):
            option = name.replace("_", "-")
            raise RequestError(f"--replay runs no model: --{option} was given too")
    chosen = {name: value for name, value in answer.chosen().items() if name in ENGINE_DEFAULTS}
    trace = read_trace(path)
    if not chosen:
        _show_recorded(trace, tables, page, json)
        return
    if page is not None:
        raise RequestError(f"--html shows {_RECORDED}")
    if tables.token or tables.top:
        raise RequestError(f"--token and --top show {_RECORDED}")
    replayed = trace.resample(**chosen)
    if json:
        as_json(json_replay(replayed))
        return
    for line in replay_lines(replayed, tables.rows or ROWS):
        data(line)
    note(sampling_words(replayed.settings))


def _show_recorded(trace: Trace, tables: TableOptions, page: Page | None, json: bool) -> None:
    if page is not None:
        page.write(trace)
    if json:
        from forwardpass.trace.form import as_dict

        as_json(as_dict(trace))
        return
    tables.print(trace)
    note(f"recorded by {trace.program} on {trace.model.label}, {trace.model.backend}")
    note(sampling_words(trace.sampling))


def json_replay(replayed: Replay) -> dict[str, object]:
    """The keys of `explain --replay --json` under other settings."""
    undecided = replayed.undecided
    return {
        "recorded": [step.id for step in replayed.trace.steps],
        "steps": [_json_step(replayed, step) for step in replayed.steps],
        "text": replayed.text,
        "finish_reason": replayed.finish_reason,
        "differs_at": replayed.differs_at,
        "undecided": None
        if undecided is None
        else {"index": undecided.index, "reason": undecided.reason},
        "sampling": replayed.settings.as_dict(),
    }


def _json_step(replayed: Replay, step: Replayed) -> dict[str, object]:
    chance = None if step.probability is None else list(step.probability)
    return {
        "index": step.index,
        "id": step.id,
        "token": _text(replayed.trace, step.id),
        "logprob": step.logprob if math.isfinite(step.logprob) else None,
        "probability": chance,
        "random": step.random,
        "taken": step.taken,
    }


def replay_lines(replayed: Replay, rows: int) -> Iterator[str]:
    """The recorded tokens beside those of the other settings, and how far these are known."""
    from forwardpass.cli.explain_words import TOKEN_CELLS, p, token_text

    trace, shown = replayed.trace, replayed.steps[:rows]
    if not shown:
        yield from _found(replayed)
        return
    cut = [("#", "recorded", "replayed", "raw p", "after p", "random", "")]
    cut += [
        (
            str(step.index),
            token_text(trace, trace.steps[step.index].id, TOKEN_CELLS),
            token_text(trace, step.id, TOKEN_CELLS),
            p(step.logprob),
            _chance(step),
            "taken" if step.taken else "greedy" if step.random is None else f"{step.random:.3f}",
            "differs" if step.index == replayed.differs_at else "",
        )
        for step in shown
    ]
    yield from columns(cut, "><<>>><")
    if more := len(replayed.steps) - len(shown):
        yield f"… and {plural(more, 'token')} more, which --rows {len(replayed.steps)} shows"
    yield ""
    yield from _found(replayed)


def _chance(step: Replayed) -> str:
    """The probability after the stages, as far as it is known."""
    if step.probability is None:
        return ""
    from forwardpass.cli.explain_words import share

    least, most = map(share, step.probability)
    return least if least == most else f"{least} to {most}"


def _found(replayed: Replay) -> Iterator[str]:
    """Where the tokens first differ, and where the kept scores do not suffice."""
    recorded, known = len(replayed.trace.steps), len(replayed.steps)
    place, undecided = replayed.differs_at, replayed.undecided
    if undecided is not None:
        if known:
            yield f"certain are {exact(known)} of {exact(recorded)} tokens, the same as recorded"
        yield f"unknown from token {undecided.index} on:"
        masked = replayed.trace.steps[undecided.index].outcome.masked  # no score helps there
        yield f"  {undecided.reason}{'' if masked else ' (--full keeps all)'}"
    elif place is not None:
        yield f"token {place} differs: what the model scored behind it belongs to another text"
    else:
        yield f"the same {plural(recorded, 'token')} as recorded"


def _text(trace: Trace, token: int) -> str:
    known = trace.tokens.get(token)
    return f"[token {token}]" if known is None else known.text
