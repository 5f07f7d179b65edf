"""A `Plan` as the lines that people read; what was assumed stands below the figures.

`≥` and `≤` are floors of time and ceilings of rates; `~` stands before what rests on an assumption.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from forwardpass.describe import Description
from forwardpass.units import exact, short, size
from forwardpass.work.layout import WIDTH, wrapped
from forwardpass.work.machines import HERE, Known, amount
from forwardpass.work.plan import Bound, Plan
from forwardpass.work.plan_notes import notes, per_second, seconds
from forwardpass.work.plan_price import significant
from forwardpass.work.plan_ways import Ways

_LABEL = 13
_GAP = 2
_INDENT = "  "
_SCALES = {"kB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12, "PB": 1e15}
_BINDS = {
    "weights": "the weights alone are more than the memory",
    "activations": "weights and the work of a pass are more than the memory",
    "kv": "the KV cache: weights and work would fit without it",
}


def report(plan: Plan, description: Description, ways: Ways | None) -> list[str]:
    """The whole text; `ways` where it does not fit."""
    rows = [*_memory(plan, description), *(_ways(plan, ways) if ways else _times(plan))]
    return [*_title(plan), "", *_columns(rows), *notes([plan], description)]


def _title(plan: Plan) -> list[str]:
    machine = plan.machine
    facts = [
        amount(rate, unit, 3 if machine.figures == "measured" else 5) + kind
        for rate, unit, kind in (
            (machine.flop_rate, "FLOP/s", f" {machine.flop_type}".rstrip()),
            (machine.read_rate, "B/s", ""),
        )
        if rate is not None
    ]
    memory = "" if machine.memory is None else amount(machine.memory, "B", 4)
    here = machine.name == HERE
    inside = "; ".join(filter(None, (memory + " available" * here, ", ".join(facts))))
    figures = machine.figures.replace("vendor", "vendor's figures").replace("given", "as given")
    where = f"this machine, {machine.title}" if here else f"{machine.count} × {machine.title}"
    head = f"{plan.model} in {_type(plan)} on {where}"
    facts_of_each = f"({'each ' * (machine.count > 1)}{inside}: {figures})"
    lines = wrapped([head, facts_of_each], " ", _INDENT)
    if machine.count > 1:
        together = f"together {_together(machine)}; what they send each other is not counted"
        lines.append(_INDENT + together)
    return [*lines, _INDENT + asked(plan)]


def asked(plan: Plan) -> str:
    """The requests in words."""
    request = plan.request
    many = f"{exact(request.concurrency)} requests at once, each " * (request.concurrency > 1)
    return (
        f"{many}a prompt of {exact(request.prompt)} and an answer of {exact(request.answer)} "
        f"token{'s' * (request.answer > 1)}, KV cache in {request.kv_type}"
    )


def _type(plan: Plan) -> str:
    """The type of the weights; of several in a file that with most bytes, and how many."""
    first, *others = plan.dtype.split(", ")
    if not others:
        return plan.dtype
    return f"{first.split()[0]} and {len(others)} other type{'s' * (len(others) > 1)}"


def _together(machine: Known) -> str:
    rates = (
        (machine.memory_together, "B"),
        (machine.flop_rate_together, "FLOP/s"),
        (machine.read_rate_together, "B/s"),
    )
    return ", ".join(amount(rate, unit) for rate, unit in rates if rate is not None)


def _memory(plan: Plan, description: Description) -> Iterator[tuple[str, ...]]:
    memory, request = plan.memory, plan.request
    about = "~" if plan.estimated else ""
    unit = memory.weights
    states = description.graph.states
    kept = ["KV"] * any(state.elements_per_token for state in states)
    kept += ["states"] * any(state.elements_per_sequence for state in states)
    cache = _like(memory.kv // request.concurrency, unit, 2)
    caches = f"{cache} {' and '.join(kept)} ({exact(request.tokens)} tokens"
    if request.concurrency > 1:
        caches = f"{exact(request.concurrency)} × {caches} each"
    work = f"~{_like(memory.activations, unit, 1)} work"
    parts = f"{about}{size(memory.weights, 2)} weights + {caches}) + {work}"
    if memory.available is None:
        total = f"= ~{size(memory.total)}; how much there is depends on the machine"
    else:
        verdict = "fits" if memory.fits else "does not fit"
        total = f"= ~{share(memory.total, memory.available)}: {verdict}"
    if _LABEL + len(parts) + 1 + len(total) <= WIDTH:
        yield ("memory", f"{parts} {total}")
    else:
        yield ("memory", parts)
        yield ("", total)


def _like(count: int, other: int, digits: int) -> str:
    """Bytes in the unit of another number of bytes, or in their own where that shows nothing."""
    unit = size(other).partition(" ")[2]
    shown = f"{count / _SCALES.get(unit, 1.0):.{digits}f}"
    return f"{shown} {unit}" if float(shown) else size(count, digits)


def share(part: int, whole: int) -> str:
    """`18.3 of 80 GB`, or with both units where they differ."""
    first, second = size(part), amount(whole, "B", 4)
    number, _, unit = first.partition(" ")
    return f"{number if second.endswith(f' {unit}') else first} of {second}"


def _times(plan: Plan) -> Iterator[tuple[str, ...]]:
    """First token, each token, answer, cost and concurrency."""
    yield from _first(plan)
    yield from _each(plan)
    answer, arithmetic = plan.answer_seconds, plan.answer_arithmetic_seconds
    if answer is not None and plan.decode.seconds is not None:
        alone = ""
        if arithmetic is not None and plan.decode.bound is Bound.MEMORY:
            alone = f"its arithmetic alone: {significant(arithmetic)} s"
        formula = f"{exact(plan.request.answer)} × {seconds(plan.decode.seconds)}"
        yield ("answer", formula, f"≥ {seconds(answer)}", alone)
    yield from _cost(plan)
    if plan.max_concurrency is not None and plan.memory.available is not None:
        left = plan.memory.available - plan.memory.weights - plan.memory.activations
        most = f"~{exact(plan.max_concurrency)} such requests at once"
        yield ("concurrency", f"~{size(left, 0)} left for KV", most)


def _first(plan: Plan) -> Iterator[tuple[str, ...]]:
    request, prefill = plan.request, plan.prefill
    many = "" if request.concurrency == 1 else f"{exact(request.concurrency)} × "
    flop = f"{many}{short(plan.prefill_flop / request.concurrency, 'FLOP')}"
    rate = plan.machine.flop_rate_together
    if prefill.seconds is None or rate is None:
        yield ("first token", flop, "unknown", "no FLOP/s are stated; add them: …,30TFLOP/s")
        return
    if prefill.bound is Bound.MEMORY:
        reads = plan.machine.read_rate_together
        assert reads is not None
        formula = f"{size(plan.prefill_bytes, 2)} ÷ {_rate(plan, reads, 'B/s')}"
    else:
        formula = f"{flop} ÷ {_rate(plan, rate, 'FLOP/s')}"
    whose = "" if request.concurrency == 1 else f", for all {exact(request.concurrency)}"
    yield ("first token", formula, f"≥ {seconds(prefill.seconds)}", f"{prefill.bound} binds{whose}")


def _each(plan: Plan) -> Iterator[tuple[str, ...]]:
    decode, reads = plan.decode, plan.machine.read_rate_together
    together = plan.tokens_per_second
    if decode.seconds is None or together is None:
        yield ("each token", "", "unknown", "no rate of this machine is stated")
        return
    if decode.bound is Bound.MEMORY and reads is not None:
        both = _sum(plan.read_weights, plan.read_cache)
        formula = f"({both}) ÷ {_rate(plan, reads, 'B/s')}"
    else:
        rate = plan.machine.flop_rate_together
        assert rate is not None
        formula = f"{short(plan.pass_flop, 'FLOP')} ÷ {_rate(plan, rate, 'FLOP/s')}"
    count = plan.request.concurrency
    each = per_second(together / count)
    least = f"≥ {seconds(decode.seconds)}"
    yield ("each token", formula, least, f"{decode.bound} binds", f"≤ {each} tokens/s")
    if count > 1:
        yield (
            "together",
            f"{exact(count)} × {each} tokens/s",
            f"≤ {per_second(together)} tokens/s",
        )


def _cost(plan: Plan) -> Iterator[tuple[str, ...]]:
    if plan.price is None:
        return
    cost, million = plan.cost, plan.cost_per_million_tokens
    price = f"{plan.price.text} {plan.price.words}"
    if cost is None or million is None:
        yield ("cost", f"at {price}", "unknown", "as the time of the first token is")
        return
    assert plan.prefill_seconds is not None
    assert plan.answer_seconds is not None
    both = " + ".join(
        f"{part:.2f}" if part >= 0.1 else significant(part)
        for part in (plan.prefill_seconds, plan.answer_seconds)
    )
    whole, each = plan.price.shown(cost), plan.price.shown(million)
    yield ("cost", f"({both}) s at {price}", f"≥ {whole}, or {each} per million answer tokens")


def _ways(plan: Plan, ways: Ways) -> Iterator[tuple[str, ...]]:
    """What binds, and what would fit."""
    yield ("binds", _BINDS[plan.memory.binds or "kv"])
    out = []
    if ways.devices is not None and plan.machine.name != HERE:
        out.append(f"on {exact(ways.devices)} × {plan.machine.title}")
    out += [
        f"in {name} ({'~' if '_k_' in name else ''}{size(weights, 2)} weights)"
        for name, weights in ways.dtypes
    ]
    if plan.request.concurrency > 1 and ways.requests:
        out.append(f"{exact(ways.requests)} such requests at once")
    if ways.tokens and ways.tokens < plan.request.tokens:
        out.append(f"one request of {exact(ways.tokens)} tokens")
    out = out or ["nothing that was tried: fewer bits, 64 such machines"]
    indent = " " * _LABEL
    first, *more = wrapped([indent + out[0], *out[1:]], "; ", indent)
    yield ("would fit", first.strip())
    yield from (("", line.strip()) for line in more)


def _rate(plan: Plan, rate: float, unit: str) -> str:
    return amount(rate, unit, 3 if plan.machine.figures == "measured" else 5)


def _sum(first: float, second: float) -> str:
    """`15.01 + 1.60 GB`: both in the unit of the larger."""
    unit = size(max(first, second), 2).partition(" ")[2]
    scale = _SCALES.get(unit, 1.0)
    return f"{first / scale:.2f} + {second / scale:.2f} {unit}"


def _columns(rows: Sequence[tuple[str, ...]]) -> list[str]:
    """The rows as lines; the last cell of a row may be as long as it likes."""
    widths: dict[int, int] = {0: _LABEL - _GAP}
    for row in rows:
        for i, cell in enumerate(row[:-1]):
            widths[i] = max(widths.get(i, 0), len(cell))
    return [
        (" " * _GAP)
        .join(f"{cell:<{widths[i]}}" if i < len(row) - 1 else cell for i, cell in enumerate(row))
        .rstrip()
        for row in rows
    ]


def table(plans: Sequence[Plan], description: Description) -> list[str]:
    """Several plans, one a line."""
    priced = plans[0].price is not None
    head = ["machine", "weights", "", "memory", "first token", "each token", "tokens/s", "at once"]
    rows = [[*head, "per million"] if priced else head]
    for plan in plans:
        rows.append(_table_row(plan) + ([_table_cost(plan)] if priced else []))
    align = "<<>>>>>>>"
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = [
        "  ".join(f"{cell:{align[i]}{widths[i]}}" for i, cell in enumerate(row)).rstrip()
        for row in rows
    ]
    title = wrapped([f"{plans[0].model}:", *asked(plans[0]).split(" ")], " ", _INDENT)
    return [*title, "", *lines, "", *notes(plans, description)]


def _table_row(plan: Plan) -> list[str]:
    memory, about = plan.memory, "~" if plan.estimated else ""
    total = size(memory.total)
    if memory.available is not None:
        total = share(memory.total, memory.available)
    dtype = plan.dtype.split(",")[0].split()[0]
    cells = [plan.machine.label, dtype, f"{about}{size(memory.weights, 2)}", f"~{total}"]
    most = "unknown" if plan.max_concurrency is None else f"~{exact(plan.max_concurrency)}"
    most = most if plan.max_concurrency != 0 else "0"
    if plan.fits is False:
        return [*cells, "does not fit", "-", "-", most]
    prefill, decode, rate = plan.prefill_seconds, plan.decode.seconds, plan.tokens_per_second
    cells.append("unknown" if prefill is None else f"≥ {seconds(prefill)}")
    cells.append("unknown" if decode is None else f"≥ {seconds(decode)}")
    cells.append("unknown" if rate is None else f"≤ {per_second(rate)}")
    return [*cells, most]


def _table_cost(plan: Plan) -> str:
    million = plan.cost_per_million_tokens
    return "-" if million is None or plan.price is None else f"≥ {plan.price.shown(million)}"
