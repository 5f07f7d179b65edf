"""The tables of `explain`: an answer token by token, and one of its tokens stage by stage.

Probabilities are of two kinds and always say which: "raw p" is the model's own (the softmax of
its scores), "after p" the one after the stages, from which a token is drawn.
"""

from __future__ import annotations

from dataclasses import dataclass

from forwardpass.cli.console import WIDTH, cells, columns, padded
from forwardpass.cli.explain_stages import Line, stage_lines
from forwardpass.cli.explain_words import TOKEN_CELLS, p, score, share, token_text
from forwardpass.errors import RequestError
from forwardpass.sampling.rules import TRUNCATING
from forwardpass.trace.step import Step
from forwardpass.trace.trace import Trace
from forwardpass.units import exact

_MASS_CELLS = 5


def answer_table(trace: Trace, rows: int, hint: str | None = None) -> list[str]:
    """A line a token, the first `rows` of them: scores, what was kept, the draw, runners-up.

    `hint` says how the others are shown; by --rows where it is None.
    """
    steps = trace.steps[:rows]
    greedy = trace.sampling.greedy
    head = ["#", "token", "score", "raw p"]
    if not greedy:
        head += ["kept", "mass", "after p", "rank", "random"]
    elif any(_parted(step) for step in steps):
        head.append("")
    lead = columns(
        [head, *(_cells_of(trace, step) for step in steps)], "><" + ">" * (len(head) - 2)
    )
    width = max(map(cells, lead))
    beside = [f"runner-up ({'raw' if greedy else 'after'} p)"]
    beside += [_runners_up(trace, step, WIDTH - width - 2) for step in steps]
    lines = [
        f"{padded(line, '<', width)}  {other}" for line, other in zip(lead, beside, strict=True)
    ]
    if left := len(trace.steps) - len(steps):
        hint = hint or f"which --rows {len(trace.steps)} shows"
        lines.append(f"… and {exact(left)} more, {hint}")
    return lines


def _cells_of(trace: Trace, step: Step) -> list[str]:
    """The cells of a token but the last."""
    token = token_text(trace, step.id, TOKEN_CELLS)
    lead = [str(step.index), token, score(_score_of(step)), p(step.logprob)]
    if trace.sampling.greedy:
        return [*lead, *(["taken"] if _parted(step) else [])]
    # A temperature that comes last makes a new distribution of what was kept of the one before.
    kept = [stage for stage in step.stages if stage.name in TRUNCATING]
    mass = kept[-1].mass if kept else step.outcome.left[-1].mass
    left = [exact(step.outcome.left[-1].survivors), share(mass), p(step.sampled_logprob)]
    return [*lead, *left, _rank(step), _random(step)]


def _random(step: Step) -> str:
    """The number drawn; where it gave another token than the one that came, that it was taken."""
    drawn = step.outcome.random
    return "taken" if _parted(step) or drawn is None else f"{drawn:.3f}"


def _parted(step: Step) -> bool:
    """Whether the caller took another token than the stages gave."""
    return step.id != step.outcome.token


def _rank(step: Step) -> str:
    if not _parted(step):
        return exact(step.outcome.rank)
    places = [place for place, other in enumerate(step.outcome.after, 1) if other.id == step.id]
    return exact(places[0]) if places else "-"


def _score_of(step: Step) -> float:
    """The model's score of the token, from its log probability where it is not among the kept."""
    best = step.outcome.best
    kept = [float(x) for token, x in zip(best.ids, best.scores, strict=True) if token == step.id]
    return kept[0] if kept else step.logprob + float(best.scores[0]) + best.log_sum


def _runners_up(trace: Trace, step: Step, most: int) -> str:
    """The likeliest others, as many of two as fit into `most` cells."""
    best = step.top(3) if trace.sampling.greedy else step.after_stages(3)
    others = [other for other in best if other.id != step.id][:2]
    words = [f"{token_text(trace, other.id)} {p(other.logprob)}" for other in others]
    if not words:
        return "none kept"
    return ", ".join(words) if cells(", ".join(words)) <= most else words[0]


def step_at(trace: Trace, number: int) -> Step:
    """The step at a place of the answer. Raises RequestError where it has none."""
    count = len(trace.steps)
    if not 0 <= number < count:
        has = f"tokens 0 to {exact(count - 1)}" if count > 1 else "token 0 only"
        raise RequestError(f"there is no token {number}: the answer has {has if count else 'none'}")
    return trace.steps[number]


def stage_table(trace: Trace, number: int) -> list[str]:
    """What every stage left on the way to one token, and the draw."""
    lines = list(stage_lines(trace, step_at(trace, number)))
    title = f"token {number}, stage by stage{_rules(trace)}"
    left = f"left of {exact(trace.model.vocabulary)}"
    names = max(cells(line.name) for line in lines)
    sources = max(cells(line.source) for line in lines if not line.spans)
    out = [title]
    lead = names + sources + 4
    if cells(title) > lead:
        out.append("")
    out[-1] = f"{padded(out[-1], '<', lead)}  {left}   mass  best left"
    tokens = max(cells(_best(trace, line)) for line in lines)
    widths = _Widths(names, sources, cells(left), tokens)
    for line in lines:
        out += _rows(trace, line, widths)
    return out


@dataclass(frozen=True)
class _Widths:
    """Cells of the columns of a stage table."""

    names: int
    sources: int
    counts: int
    tokens: int


def _best(trace: Trace, line: Line) -> str:
    return "" if line.token is None else token_text(trace, line.token)


def _rows(trace: Trace, line: Line, widths: _Widths) -> list[str]:
    """A stage in its columns; spanning words may take several lines."""
    room = widths.sources + widths.counts + _MASS_CELLS + 4
    if line.spans:
        middle, *more = _broken(line.source, room)
    else:
        middle, more = (
            "  ".join(
                [
                    padded(line.source, "<", widths.sources),
                    padded(line.left, ">", widths.counts),
                    padded(line.mass, ">", _MASS_CELLS),
                ]
            ),
            [],
        )
    best = padded(_best(trace, line), "<", widths.tokens)
    name = padded(line.name, "<", widths.names)
    first = f"  {name}  {padded(middle, '<', room)}  {best}  {line.detail}".rstrip()
    return [first, *(f"  {' ' * widths.names}  {part}" for part in more)]


def _broken(text: str, width: int) -> list[str]:
    """`text` in lines of at most `width` cells, broken behind commas; a longer part stays whole."""
    lines = [""]
    for part in text.split(", "):
        longer = f"{lines[-1]}, {part}" if lines[-1] else part
        if lines[-1] and cells(longer) > width:
            lines[-1] += ","
            lines.append(part)
        else:
            lines[-1] = longer
    return lines


def _rules(trace: Trace) -> str:
    """Which rules the stages follow, where they are not ours."""
    sampler, order = trace.sampling.sampler, trace.sampling.stages
    words = [] if sampler.value == "default" else [f", sampler {sampler.value} ({sampler.source})"]
    words += [] if order.value is None else [f", in an order of its own ({order.source})"]
    return "".join(words)


def best_table(trace: Trace, number: int, count: int) -> list[str]:
    """The `count` best tokens of both distributions, side by side."""
    step = step_at(trace, number)
    own = [
        (str(row.id), token_text(trace, row.id, TOKEN_CELLS), score(row.score), p(row.logprob))
        for row in step.top(count)
    ]
    after = [
        (str(row.id), token_text(trace, row.id, TOKEN_CELLS), p(row.logprob))
        for row in step.after_stages(count)
    ]
    left = columns([("id", "token", "score", "raw p"), *own], "><>>")
    right = columns([("id", "token", "after p"), *after], "><>")
    width = max(map(cells, left))
    left += [""] * (len(right) - len(left))
    right += [""] * (len(left) - len(right))
    rows = zip(left, right, strict=True)
    return [
        f"token {number}, the best by the model's own scores, and after the stages",
        *(f"  {padded(one, '<', width)}      {other}".rstrip() for one, other in rows),
    ]
