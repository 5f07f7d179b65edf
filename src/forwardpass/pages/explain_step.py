"""One token of `explain --html`: both distributions, every stage, the draw."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from forwardpass.pages.draw import draw
from forwardpass.pages.figures import UNKNOWN, Path, pointer
from forwardpass.pages.page import Group, Html, element, table
from forwardpass.pages.traced import Row, Traced, meter, probability

CALLED = {
    "adjust": "bias, penalties, DRY",
    "top_n_sigma": "top-n-sigma",
    "top_k": "top-k",
    "typical_p": "typical",
    "top_p": "top-p",
    "min_p": "min-p",
    "xtc": "XTC",
    "rescale": "rescale",
}
TRUNCATING = ("top_n_sigma", "top_k", "typical_p", "top_p", "min_p", "xtc")


def anchor(step: int) -> str:
    """The name of a token's section within the page."""
    return f"token-{step}"


def step_section(traced: Traced, step: int) -> Html:
    """All of one token, below a heading that stays in sight."""
    base: Path = ("steps", step)
    name = f"{anchor(step)}-name"
    heading = element(
        "h3",
        element("small", "token ", traced.whole((*base, "index"))),
        " ",
        traced.token((*base, "id")),
        id=name,
    )
    return element(
        "section",
        element("div", heading, _moves(len(traced.steps), step), class_="head"),
        _facts(traced, step),
        element("div", _distributions(traced, step), _stages(traced, step), class_="pair"),
        draw(traced, step),
        id=anchor(step),
        class_="step",
        aria_labelledby=name,
    )


def _moves(count: int, step: int) -> Html:
    """Links to the tokens beside it and back to the answer."""

    def link(arrow: str, word: str, place: str) -> Html:
        return element("a", arrow, element("span", f" {word}"), href=f"#{place}")

    links = [link("↑", "answer", "answer")]
    if step:
        links.append(link("←", "previous", anchor(step - 1)))
    if step + 1 < count:
        links.append(link("→", "next", anchor(step + 1)))
    return element("p", *links, class_="moves")


def _facts(traced: Traced, step: int) -> Html:
    pairs = (element("div", element("dt", k), element("dd", v)) for k, v in _known(traced, step))
    return element("dl", *pairs, class_="facts")


def _known(traced: Traced, step: int) -> Iterator[tuple[str, Html]]:
    """What there is to say of the token itself."""
    base, one = ("steps", step), traced.steps[step]
    yield "the model’s own p", traced.chance((*base, "logprob"))
    yield "p after the stages", traced.chance((*base, "sampled_logprob"))
    chosen = next(row for row in traced.rows(step) if row.chosen)
    if chosen.score is not None:
        yield "score", traced.number(chosen.score)
    if one["taken"]:
        yield "taken as asked; the stages gave", traced.token((*base, "drawn"))
    if one["id"] == one["drawn"]:
        yield "rank after the stages", traced.whole((*base, "rank"))
    kept = traced.kept(step)
    yield "tokens kept", traced.whole((*kept, "survivors"))
    if one["random"] is None:
        yield "chosen", Html("the best score")
    else:
        yield "random number", traced.number((*base, "random"), ".3f")
    note: Path = ("tokens", str(one["id"]), "bytes")
    if traced.figures.has(note) and _is_part(traced.value(note)):
        yield "bytes", traced.figures.figure(note, lambda part: bytes(part).hex(" "), "hex")
    if one["finish_reason"] is not None:
        yield "ends the answer", traced.figures.figure((*base, "finish_reason"), kind="word")


def _is_part(part: Sequence[int]) -> bool:
    """Whether bytes are of a character that more than one token makes."""
    try:
        bytes(part).decode("utf-8")
    except UnicodeDecodeError:
        return True
    return False


def _distributions(traced: Traced, step: int) -> Html:
    """Both distributions beside each other, a token a row."""
    rows = traced.rows(step)
    all_left = traced.value((*traced.kept(step), "survivors"))
    complete = all_left <= len(traced.steps[step]["after"])
    found = [_distribution(traced, step, row, complete) for row in rows]
    groups = [Group(found)]
    wanted = [_wanted(traced, step, i) for i in range(len(traced.steps[step]["wanted"]))]
    if wanted:
        groups.append(Group(wanted, "asked for"))
    head = ["token", "score", "the model’s own p", "p after the stages"]
    whole = table("Both distributions", head, groups, scrolls=False)
    scored = sum(row.score is not None for row in rows)
    return element("div", whole, _beyond(traced, step, scored), class_="both")


def _distribution(traced: Traced, step: int, row: Row, complete: bool) -> list[str]:
    token = traced.token(row.token)
    if row.chosen:
        token = Html(token + element("b", " ◂ came", class_="came"))
    own = after = Html(UNKNOWN)
    if row.own is not None:
        shown = traced.own(step, row.own)
        own = Html(shown + meter(traced.own_value(step, row.own)))
    if row.after is not None:
        shown = traced.chance(row.after)
        after = Html(shown + meter(probability(traced.value(row.after)), "second"))
    elif complete:
        after = element("span", "left out", class_="out")
    return [token, traced.number(row.score), own, after]


def _wanted(traced: Traced, step: int, i: int) -> list[str]:
    base = ("steps", step, "wanted", i)
    own, after = (
        Html(traced.chance((*base, key)) + meter(probability(traced.value((*base, key))), fill))
        for key, fill in (("logprob", "first"), ("sampled_logprob", "second"))
    )
    return [traced.token((*base, "id")), UNKNOWN, own, after]


def _beyond(traced: Traced, step: int, scored: int) -> Html:
    """What the table leaves out: of the tokens whose scores the trace has, `scored` of which are
    shown, and of those whose scores it has not."""
    base = ("steps", step, "best")
    words: list[str] = []
    if (count := traced.value((*base, "count"))) > scored:
        number = element("span", f"{count:,}", data_count=pointer((*base, "ids")))
        words += ["The trace has the scores of ", number, " tokens, not all of them shown here. "]
    if traced.figures.has((*base, "rest")) and traced.value((*base, "rest")):
        rest, mass = traced.whole((*base, "rest")), traced.part((*base, "rest_mass"))
        words += [rest, " more tokens share ", mass]
        words += [" of the model’s own p and are not in the trace."]
    return element("p", *words, class_="note") if words else Html("")


def _stages(traced: Traced, step: int) -> Html:
    """What every stage left that did something, and the names of those that did not."""
    stages = traced.steps[step]["stages"]
    always = ("adjust", "temperature", "rescale", "draw")
    shown = [i for i, one in enumerate(stages) if one["acts"] or one["name"] in always]
    rows = [_stage(traced, ("steps", step, "stages", i)) for i in shown]
    head = ["stage", "set by", "left", "mass", "likeliest left"]
    off = [CALLED.get(one["name"], one["name"]) for one in stages if not one["acts"]]
    off = [name for name in off if name not in ("temperature", CALLED["adjust"])]
    words = f"Off, and so without effect: {', '.join(off)}." if off else ""
    note = element("p", words, class_="note") if words else Html("")
    whole = table("Stage by stage", head, [Group(rows)], words={1, 4}, scrolls=False)
    return element("div", whole, note, class_="stages")


def _stage(traced: Traced, path: Path) -> list[str]:
    one = traced.value(path)
    name = one["name"]
    title, by = Html(CALLED.get(name, name)), traced.figures.figure((*path, "source"), kind="word")
    if name == "adjust":
        by = by if one["acts"] else Html("none set")
    elif name == "rescale":
        title, by = Html(f"{title} × {traced.number((*path, 'value'), '.3f')}"), Html("")
    elif name == "draw":
        title = Html(f"draw {traced.number((*path, 'value'), '.3f')}")
        by = Html(f"seed {traced.figures.figure(('sampling', 'seed', 'value'), str)}")
    elif name != "mask":
        title = Html(f"{title} {traced.figures.figure((*path, 'value'), str)}")
    best = Html(traced.token((*path, "best")) + " ")
    if name != "draw":
        best = Html(best + traced.part((*path, "best_probability")))
    return [title, by, traced.whole((*path, "survivors")), traced.part((*path, "mass")), best]


def kept_mass(traced: Traced, step: int) -> Path:
    """Where the mass stands that the truncations kept: a temperature behind them starts anew."""
    stages = traced.steps[step]["stages"]
    places = [i for i, one in enumerate(stages) if one["name"] in TRUNCATING]
    place = places[-1] if places else traced.kept(step)[-1]
    return ("steps", step, "stages", place, "mass")
