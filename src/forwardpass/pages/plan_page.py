"""The page of `plan --html`: what `plan --json` has, its assumptions, and what would fit."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from typing import Any

from forwardpass.describe import Description
from forwardpass.pages.figures import Figures, Path
from forwardpass.pages.page import (
    Document,
    Group,
    Html,
    bar,
    cards,
    element,
    paragraphs,
    section,
    stacked,
    table,
)
from forwardpass.pages.parts import part, rest
from forwardpass.units import size
from forwardpass.work.plan import Plan
from forwardpass.work.plan_notes import notes, per_second
from forwardpass.work.plan_report import asked
from forwardpass.work.plan_ways import Ways

Write = Callable[[Any], str] | None
WAYS = "ways"  # where the ways out stand beside the keys of the JSON
_SECTIONS = (
    ("Memory", ("fits", "binds", "memory", "max_concurrency", "dtype", "estimated", "kv_type")),
    (
        "Time",
        (
            *("prefill_seconds", "prefill_bound", "decode_seconds_per_token", "bound"),
            *("tokens_per_second", "tokens_per_second_each"),
        ),
    ),
    ("Work", ("prefill_flop", "answer_flop", "weight_bytes_per_pass", "cache_bytes_per_pass")),
    ("Cost", ("cost", "cost_per_million_tokens")),
    ("Requests", ("prompt", "answer", "concurrency")),
    ("Machine", ("machine",)),
)
_BESIDE = "Plans beside each other"
_MONEY = ("cost", "cost_per_million_tokens")
_PARTS = (("weights", "first"), ("kv", "second"), ("activations", "third"))
_CALLED = {"kv": "KV cache", "activations": "work"}


def plan_page(plan: Plan, description: Description, ways: Ways | None, command: str) -> str:
    """The page of one plan; `ways` where it does not fit."""
    values = {**plan.as_dict(), **({} if ways is None else {WAYS: _ways_values(ways)})}
    figures = Figures(values, _writers(plan))
    return Document(
        title=f"{plan.model} on {plan.machine.label}: memory, time and cost",
        heading=_title(figures, ()),
        lead=[asked(plan)],
        body=[*_whole(figures, (), plan), _notes([plan], description)],
        command=command,
    ).html()


def plans_page(plans: Sequence[Plan], description: Description, command: str) -> str:
    """The page of several plans for one model: a table of all, then each of them whole."""
    figures = Figures({"plans": [plan.as_dict() for plan in plans]}, _writers(plans[0]))
    body = [section(_BESIDE, _beside(figures, plans))]
    body.append(_notes(plans, description))
    for i, plan in enumerate(plans):
        base = ("plans", i)
        body += [section(_title(figures, base)), *_whole(figures, base, plan)]
    return Document(
        title=f"{plans[0].model}: {len(plans)} plans",
        heading=figures.figure(("plans", 0, "model")),
        lead=[asked(plans[0])],
        body=body,
        command=command,
    ).html()


def _title(figures: Figures, base: Path) -> Html:
    model, title, dtype = (
        figures.figure((*base, *path)) for path in (("model",), ("machine", "title"), ("dtype",))
    )
    return Html(f"{model} in {dtype} on {title}")


def _ways_values(ways: Ways) -> dict[str, Any]:
    values = asdict(ways)
    values["dtypes"] = [{"dtype": name, "bytes": count} for name, count in ways.dtypes]
    return values


def _whole(figures: Figures, base: Path, plan: Plan) -> Iterator[Html]:
    """All of one plan."""
    yield cards(_cards(figures, base, plan))
    for title, keys in _SECTIONS:
        before = [_memory(figures, base, plan)] if title == "Memory" else []
        yield from part(figures, title, base, keys, *before)
        if title == "Memory" and WAYS in figures.value(base):
            yield from part(figures, "What would fit", base, [WAYS])
    yield from rest(figures, base)


def _cards(figures: Figures, base: Path, plan: Plan) -> Iterator[tuple[str, str, str]]:
    """Whether it fits, how fast, at what cost."""
    fits = figures.figure((*base, "fits"), lambda fits: "fits" if fits else "does not fit")
    kind = {True: "good", False: "bad", None: None}[plan.fits]
    total = figures.figure((*base, "memory", "total"), size)
    yield "Memory", Html(f"~{total}"), element("span", fits, class_=kind)
    wanted: tuple[tuple[str, str, str, Write, str | None], ...] = (
        ("First token", "≥ ", "prefill_seconds", None, plan.prefill.bound),
        ("Each token", "≥ ", "decode_seconds_per_token", None, plan.decode.bound),
        ("Tokens a second", "≤ ", "tokens_per_second", per_second, None),
        ("A million tokens", "≥ ", "cost_per_million_tokens", None, None),
    )
    for name, sign, key, write, bound in wanted:
        if figures.has((*base, key)):
            figure = figures.figure((*base, key), write)
            words = f"{bound} binds" if bound else ""
            if key == "tokens_per_second":
                words = "of all requests together"
            elif plan.price is not None and key.startswith("cost"):
                words = f"of answers, at {plan.price.text} {plan.price.words}"
            yield name, Html(sign + figure), words


def _writers(plan: Plan) -> dict[str, Callable[[Any], str]]:
    """Money is written in the currency that was typed."""
    return {} if plan.price is None else dict.fromkeys(_MONEY, plan.price.shown)


def _memory(figures: Figures, base: Path, plan: Plan) -> Html:
    """What takes the memory, as one bar with its key."""
    memory = plan.memory
    whole = max(memory.total, memory.available or 0)
    sizes = [(name, kind, getattr(memory, name)) for name, kind in _PARTS]
    about = ", ".join(f"{_CALLED.get(name, name)} {size(count, 2)}" for name, _, count in sizes)
    if memory.available is not None:
        about += f", of {size(memory.available, 2)}"
    picture = stacked([(kind, count / whole) for _, kind, count in sizes if whole], about)
    words = []
    for name, kind, _ in sizes:
        shown = figures.figure((*base, "memory", name), lambda count: size(count, 2))
        key = bar(1.0, "key", kind)
        words.append(element("span", key, _CALLED.get(name, name), " ", shown))
    return Html(picture + element("p", *words, class_="keys"))


def _notes(plans: Sequence[Plan], description: Description) -> Html:
    """What was assumed, a paragraph each."""
    found: list[str] = []
    for line in notes(plans, description):
        if line.startswith(" ") and found:
            found[-1] += f" {line.strip()}"
        else:
            found.append(line)
    return section("What this rests on", paragraphs(found))


def _beside(figures: Figures, plans: Sequence[Plan]) -> Html:
    """One plan a row."""
    columns: list[tuple[str, str, Write]] = [
        ("weights in", "dtype", None),
        ("weights", "memory/weights", lambda count: size(count, 2)),
        ("memory", "memory/total", size),
        ("there is", "memory/available", size),
        ("fits", "fits", None),
        ("first token ≥", "prefill_seconds", None),
        ("each token ≥", "decode_seconds_per_token", None),
        ("tokens/s ≤", "tokens_per_second", per_second),
        ("at once ≤", "max_concurrency", None),
        ("a million tokens ≥", "cost_per_million_tokens", None),
    ]
    if plans[0].price is None:
        columns.pop()
    rows = []
    for i in range(len(plans)):
        base: Path = ("plans", i)
        cells = [figures.figure((*base, *keys.split("/")), write) for _, keys, write in columns]
        rows.append([figures.figure((*base, "machine", "name")), *cells])
    heads = ["machine", *(name for name, _, _ in columns)]
    return table(_BESIDE, heads, [Group(rows)], words={1, 5}, heard=True)
