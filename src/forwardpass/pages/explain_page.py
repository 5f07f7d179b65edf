"""The page of `explain --html`: an answer token by token, as its trace tells it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path as File
from typing import Any

from forwardpass.pages.explain_masks import masks_section
from forwardpass.pages.explain_step import anchor, kept_mass, step_section
from forwardpass.pages.figures import UNKNOWN, Path, pointer
from forwardpass.pages.page import Document, Group, Html, cards, element, table
from forwardpass.pages.pass_parts import pass_section
from forwardpass.pages.traced import Traced, meter, probability, token_html

_STYLE = File(__file__).with_name("explain.css")
_CONVENTIONS = (
    "p is a probability. The model’s own is the softmax of its scores at temperature 1, over all "
    "of its vocabulary; p after the stages is what a token was drawn with. Mass is the share of "
    "probability that the tokens left by a stage hold. Blanks at the ends of a token are shown "
    "as ␣."
)
# From which of the model's own probabilities on a token is in a class, and what that is called.
_CLASSES = ((0.9, "0.9 to 1"), (0.5, "0.5 to 0.9"), (0.1, "0.1 to 0.5"), (0.01, "0.01 to 0.1"))
_RAREST = "below 0.01"
_LONG = 40  # tokens of an answer whose table is folded away
_PROMPT = 600  # tokens of a prompt that are shown: a third of them its first ones


def explain_page(
    trace: Mapping[str, Any],
    inside: Mapping[str, Any] | None = None,
    command: str = "forwardpass explain",
) -> str:
    """The page of a trace in its JSON form; `inside` is that of a look into one pass.

    `command` is the line that made it. Every figure names its place in the trace, one of the look
    below `/pass`.
    """
    traced = Traced(trace, inside)
    figures = traced.figures
    steps = range(len(traced.steps))
    body = [
        _contents(traced),
        cards(_cards(traced)),
        _answer(traced),
        *([masks_section(traced)] if traced.figures.has(("masks",)) else []),
        _overview(traced),
        element(
            "section", element("h2", "Token by token"), *(step_section(traced, i) for i in steps)
        ),
    ]
    if inside is not None:
        body.append(pass_section(traced))
    body += [_prompt(traced), _settings(traced)]
    label = str(trace["model"]["label"])
    return Document(
        title=f"Why {label} said that",
        heading=Html(f"Why {figures.figure(('model', 'label'), kind='word')} said that"),
        lead=[
            "Every token of an answer: what the model gave, what the sampler left, what was drawn."
        ],
        body=body,
        command=command,
        conventions=_CONVENTIONS,
        style=_STYLE,
    ).html()


def _contents(traced: Traced) -> Html:
    parts = [("answer", "Answer"), ("tokens", "All tokens")]
    if traced.figures.has(("masks",)):
        parts.insert(1, ("grammar", "What the grammar allowed"))
    if traced.steps:
        parts.append((anchor(0), "Token by token"))
    if traced.figures.has(("pass",)):
        parts.append(("pass", "Inside the pass"))
    parts += [("prompt", "Prompt"), ("settings", "Settings")]
    links = (element("a", name, href=f"#{place}") for place, name in parts)
    return element("nav", *links, aria_label="Parts of this page", class_="contents")


def _cards(traced: Traced) -> Iterator[tuple[str, str, str]]:
    reason = traced.figures.figure(("finish_reason",), _reason, rule="words", kind="word")
    yield "Answer", _count(traced, ("steps",)), reason
    yield "Prompt", _count(traced, ("prompt", "ids")), "as the model reads them"
    family = traced.figures.figure(("model", "architecture"), kind="word")
    yield "Vocabulary", Html(f"{traced.whole(('model', 'vocabulary'))} tokens"), family
    temperature = ("sampling", "temperature", "value")
    if traced.value(temperature) == 0:
        yield "Sampling", "greedy", "the best score wins"
    else:
        seed = traced.figures.figure(("sampling", "seed", "value"), str)
        how = traced.figures.figure(temperature, str)
        yield "Sampling", Html(f"T {how}"), Html(f"drawn with seed {seed}")


def _reason(reason: str) -> str:
    return {"stop": "the model ended it", "length": "a limit ended it"}.get(reason, reason)


def _count(traced: Traced, path: Path) -> Html:
    """How many tokens there are."""
    count = len(traced.value(path))
    number = element("span", f"{count:,}", data_count=pointer(path))
    return Html(f"{number} {'token' if count == 1 else 'tokens'}")


def _answer(traced: Traced) -> Html:
    """The answer as a row of tokens, each a link to its section."""
    tiles = (_tile(traced, i) for i in range(len(traced.steps)))
    row = element("ol", *tiles, class_="answer", role="list")
    return element("section", element("h2", "The answer"), _legend(), row, id="answer")


def _tile(traced: Traced, step: int) -> Html:
    base: Path = ("steps", step)
    own = probability(traced.value((*base, "logprob")))
    inside = (
        traced.token((*base, "id")),
        traced.chance((*base, "logprob"), kind="heard"),
        meter(own),
    )
    taken = " taken" if traced.value((*base, "taken")) else ""
    tile = element("a", *inside, href=f"#{anchor(step)}", class_=f"p{_class(own)}{taken}")
    ends_line = "\n" in str(traced.value((*base, "text")))
    return element("li", tile, class_="last" if ends_line else None)


def _class(own: float) -> int:
    return next((i for i, (least, _) in enumerate(_CLASSES) if own >= least), len(_CLASSES))


def _legend() -> Html:
    names = [name for _, name in _CLASSES] + [_RAREST]
    middles = (0.95, 0.7, 0.3, 0.05, 0.005)
    keys = (
        element("span", element("span", meter(share), class_=f"p{i} key-tile"), name)
        for i, (name, share) in enumerate(zip(names, middles, strict=True))
    )
    words = element("span", "The model’s own p, as colour and as the bar below a token:")
    return element("p", words, *keys, class_="legend")


def _overview(traced: Traced) -> Html:
    """A token a row."""
    steps = range(len(traced.steps))
    head = [
        "#",
        "token",
        "score",
        "own p",
        "kept",
        "mass",
        "p after",
        "rank",
        "random",
        "runners-up",
    ]
    rows = [_line(traced, i) for i in steps]
    whole = table("All tokens", head, [Group(rows)], words={1, 9}, heard=True)
    summary = element("summary", element("h2", "All tokens in one table"))
    opened = {"open": ""} if len(steps) <= _LONG else {}
    return element("section", element("details", summary, whole, **opened), id="tokens")


def _line(traced: Traced, step: int) -> list[str]:
    base, one = ("steps", step), traced.steps[step]
    chosen = next(row for row in traced.rows(step) if row.chosen)
    kept, drawn = traced.kept(step), one["id"] == one["drawn"]
    others = [i for i, ranked in enumerate(one["after"]) if ranked["id"] != one["id"]][:2]
    beside = [
        f"{traced.token((*base, 'after', i, 'id'))} {traced.chance((*base, 'after', i, 'logprob'))}"
        for i in others
    ]
    number = Html(UNKNOWN) if one["random"] is None else traced.number((*base, "random"), ".3f")
    return [
        traced.whole((*base, "index")),
        traced.token((*base, "id")),
        traced.number(chosen.score),
        traced.chance((*base, "logprob")),
        traced.whole((*kept, "survivors")),
        traced.part(kept_mass(traced, step)),
        traced.chance((*base, "sampled_logprob")),
        traced.whole((*base, "rank")) if drawn else "taken",
        number if drawn else "taken",
        Html(", ".join(beside) or "none left"),
    ]


def _prompt(traced: Traced) -> Html:
    ids = traced.value(("prompt", "ids"))
    count, first = len(ids), _PROMPT // 3
    shown = (
        [*range(count)] if count <= _PROMPT else [*range(first), *range(count - 2 * first, count)]
    )
    tiles = [element("li", traced.token(("prompt", "ids", i))) for i in shown]
    if len(shown) < count:
        gap = element("li", "… tokens left out here …", class_="gap")
        tiles.insert(first, gap)
    row = element("ol", *tiles, class_="answer plain", role="list")
    summary = element("summary", element("h2", "The prompt, as the model reads it"))
    return element("section", element("details", summary, row), id="prompt")


def _settings(traced: Traced) -> Html:
    """Every setting of the sampler and where it came from, the request's own first."""
    sampling = traced.value(("sampling",))
    groups = []
    for source in ("request", "model file", "engine default"):
        names = [name for name, setting in sampling.items() if setting["source"] == source]
        groups.append(Group([_setting(traced, name) for name in names]))
    whole = table(
        "Settings",
        ["setting", "value", "source"],
        [g for g in groups if g.rows],
        words={1, 2},
        heard=True,
    )
    backend = traced.figures.figure(("model", "backend"), kind="word")
    limits = traced.whole(("max_tokens",))
    note = element("p", "Computed by ", backend, "; at most ", limits, " tokens.")
    return element("section", element("h2", "Settings of the sampler"), note, whole, id="settings")


def _setting(traced: Traced, name: str) -> list[str]:
    path = ("sampling", name, "value")
    value = traced.value(path)
    source = traced.figures.figure(("sampling", name, "source"), kind="word")
    shown = traced.figures.figure(path, _listed if isinstance(value, list) else None)
    if isinstance(value, int | float):
        shown = traced.figures.figure(path, str)
    return [name.replace("_", " "), shown, source]


def _listed(parts: Sequence[object]) -> Html:
    """Names one behind the other, or that there are none."""
    return Html(", ".join(token_html(str(each)) for each in parts) or "none")
