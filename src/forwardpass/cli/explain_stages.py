"""One token stage by stage, as the lines of a table: what each stage left of the vocabulary."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from forwardpass.cli.account import plural
from forwardpass.cli.explain_words import number, score, share, token_text
from forwardpass.sampling.adjusting import History, adjusted
from forwardpass.sampling.outcome import StageResult
from forwardpass.sampling.random import XTC, uniform
from forwardpass.sampling.ranges import EVERYTHING
from forwardpass.sampling.rules import ADJUSTING, SWITCHES
from forwardpass.sampling.stages import Scores
from forwardpass.trace.step import Step
from forwardpass.trace.trace import Trace
from forwardpass.units import exact

_RARE = ("top_n_sigma", "typical_p", "xtc")  # shown only where they are set


@dataclass(frozen=True)
class Line:
    """A stage: its name with its value, where that came from, how many tokens were left, their
    mass, the likeliest of them, and what else there is to say.

    `spans`: `source` holds words that may take the room of both figures, which are empty.
    """

    name: str
    source: str
    left: str = ""
    mass: str = ""
    token: int | None = None
    detail: str = ""
    spans: bool = False


def stage_lines(trace: Trace, step: Step) -> Iterator[Line]:
    """Every stage that a token went through, in order; rare ones only where they are set."""
    adjust, mask, *later = step.stages
    yield from _adjusting(trace, step, adjust, mask)
    for stage in later:
        if stage.name == "rescale":
            assert isinstance(stage.value, float)
            yield _line(stage, f"rescale by 1 / {1 / stage.value:.3f}", "")
        elif stage.name == "draw":
            yield _draw(trace, step, stage)
        elif stage.acts or stage.name not in _RARE:
            yield _line(stage, _named(stage), stage.source)
            if stage.name == "xtc":
                yield _xtc(trace, step)
    if trace.sampling.greedy:
        best = step.outcome.token
        yield Line("greedy", "the best score wins, no draw", token=best, spans=True)
    if step.taken:
        yield Line("taken", "whatever the stages gave", token=step.id, spans=True)


def _line(stage: StageResult, name: str, source: str) -> Line:
    left, mass = exact(stage.survivors), share(stage.mass)
    return Line(name, source, left, mass, stage.best, share(stage.best_probability))


def _named(stage: StageResult) -> str:
    option = SWITCHES[stage.name][0].replace("_", "-")
    shown = stage.acts or stage.name == "temperature"
    return f"{option} {number(stage.value) if shown else 'off'}"


def _adjusting(trace: Trace, step: Step, adjust: StageResult, mask: StageResult) -> Iterator[Line]:
    """Bias, penalties and mask: one line where none is set; else each with what it changed."""
    if not adjust.acts and not mask.acts:
        yield _line(mask, "bias, penalties, mask", "none set")
        return
    if adjust.acts:
        yield _line(adjust, f"bias, penalties{'' if mask.acts else '; no mask'}", "")
        yield from _changes(trace, step)
    if mask.acts:
        yield _line(mask, f"{'' if adjust.acts else 'no bias, no penalties; '}mask", mask.source)


def _changes(trace: Trace, step: Step) -> Iterator[Line]:
    """For each stage that changes scores and is set: what it did to the token and to the best."""
    sampling = trace.sampling
    shown = dict.fromkeys(
        (step.id, int(step.outcome.best.ids[0]), step.outcome.token, step.outcome.left[0].best)
    )
    before = _known_scores(trace, step)
    output = [earlier.id for earlier in trace.steps[: step.index]]
    history = History(trace.prompt, output, trace.breakers)
    for name, after in adjusted(before, sampling, history, None):
        if name not in ADJUSTING or after is before:
            continue
        yield _change(trace, name, before, after, list(shown))
        before = after


def _change(trace: Trace, name: str, before: Scores, after: Scores, shown: list[int]) -> Line:
    """What one stage did to the scores of the tokens `shown`, as far as they are known."""
    setting = getattr(trace.sampling, SWITCHES[name][0])
    changes = [
        f"{token_text(trace, token)} {score(float(before[token]))} → {score(float(after[token]))}"
        for token in shown
        if after[token] != before[token]
    ]
    none = f"no change to {' or '.join(token_text(trace, token) for token in shown)}"
    words = f"{setting.source}{_window(trace, name)}: {', '.join(changes) or none}"
    value = setting.value
    shown_value = f"of {plural(len(value), 'token')}" if name == "logit_bias" else number(value)
    return Line(f"  {name.replace('_', '-')} {shown_value}", words, spans=True)


def _window(trace: Trace, name: str) -> str:
    """How far back a penalty looks, where that is not everything."""
    sampling = trace.sampling
    window = sampling.dry_penalty_last_n if name == "dry" else sampling.penalty_last_n
    everything = name == "logit_bias" or window.value == EVERYTHING
    return "" if everything else f", last {exact(window.value)}"


def _known_scores(trace: Trace, step: Step) -> Scores:
    """The row of scores as far as it is known, -inf elsewhere."""
    best = step.outcome.best
    row = np.full(trace.model.vocabulary, -np.inf)
    for token, logprob in ((step.outcome.token, step.outcome.logprob), (step.id, step.logprob)):
        row[token] = logprob + float(best.scores[0]) + best.log_sum
    row[best.ids] = best.scores
    return row


def _xtc(trace: Trace, step: Step) -> Line:
    sampling = trace.sampling
    assert sampling.seed.value is not None  # without one nothing was drawn
    drawn = uniform(sampling.seed.value, trace.choice, step.index, XTC)
    acts = drawn < sampling.xtc_probability.value
    words = f"drew {drawn:.3f}: {'acts' if acts else 'does not act'}"
    threshold = f"  xtc-threshold {number(sampling.xtc_threshold.value)}"
    return Line(threshold, f"{sampling.xtc_threshold.source}, {words}", spans=True)


def _draw(trace: Trace, step: Step, stage: StageResult) -> Line:
    outcome = step.outcome
    assert outcome.interval is not None
    assert outcome.random is not None
    start, end = outcome.interval
    # enough digits to tell the ends of a narrow interval apart
    enough = (n for n in range(3, 16) if f"{start:.{n}f}" != f"{end:.{n}f}")
    digits = next(enough, 16)
    interval = f"{start:.{digits}f} to {end:.{digits}f}"
    key = f"seed {trace.sampling.seed.value}, choice {trace.choice}, position {step.index}"
    name = f"draw {outcome.random:.{digits}f}"
    return Line(name, key, token=outcome.token, detail=interval, spans=True)
