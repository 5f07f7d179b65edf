"""A look inside one pass, for `explain --html`: norms, the logit lens, attention."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise

from forwardpass.pages.figures import Path, pointer
from forwardpass.pages.page import Group, Html, element, section, table
from forwardpass.pages.traced import Traced, meter, token_html

_SERIES = (
    ("after", "first", "running vector, after the layer"),
    ("attention", "second", "update by attention"),
    ("mlp", "third", "update by the MLP"),
)
_COLUMNS = {
    "before": "before",
    "attention": "attention adds",
    "attention_cosine": "cosine",
    "mlp": "the MLP adds",
    "mlp_cosine": "cosine",
    "after": "after",
}
_TOP, _HIGH = 12, 200  # of the picture: where it begins, how high it is
_STEEP = 30  # times from the least to the greatest, from which the scale is of powers of ten
_STRIP = 400  # tokens of a prompt whose weights are shown: the greatest


def pass_section(traced: Traced) -> Html:
    """All of the look, below a heading of its own."""
    at = traced.whole(("pass", "position"))
    token = traced.token(("pass", "tokens", traced.value(("pass", "position")), "id"))
    about = ["One pass, seen at ", token, ", place ", at, " of the prompt, counted from zero."]
    if traced.figures.has(("pass", "best")):
        about += [" What it finds likeliest to come next: ", _guess(traced, ("pass", "best")), "."]
    if traced.figures.has(("pass", "adds_up")) and not traced.value(("pass", "adds_up")):
        about.append(
            " This model takes norms of the running vector itself, so that before and the two "
            "updates do not add up to after."
        )
    return element(
        "section",
        element("h2", "Inside the pass"),
        element("p", *about),
        section("Norm of the running vector, by layer", *_norms(traced), level=3),
        section("The logit lens: if the pass ended here", _lens(traced), level=3),
        section("Attention over the prompt", *_attention(traced), level=3),
        id="pass",
    )


def _norms(traced: Traced) -> Iterator[Html]:
    """The picture, what its lines are, and the table of the same figures."""
    layers = range(len(traced.value(("pass", "layers"))))
    yield _picture(traced, layers)
    keys = (element("span", _mark(kind, key=True), name) for _, kind, name in _SERIES)
    yield element("p", *keys, class_="keys")
    rows = []
    for i in layers:
        base: Path = ("pass", "layers", i)
        norms = (traced.number((*base, key)) for key in _COLUMNS)
        rows.append([traced.whole((*base, "layer")), *norms])
    whole = table("Norms by layer", ["layer", *_COLUMNS.values()], [Group(rows)])
    yield element("details", element("summary", "The figures as a table"), whole)


def _picture(traced: Traced, layers: Sequence[int]) -> Html:
    paths = {key: [("pass", "layers", i, key) for i in layers] for key, _, _ in _SERIES}
    known = [traced.value(path) for found in paths.values() for path in found]
    scale = _Scale([value for value in known if value is not None])
    parts: list[Html] = []
    for height, name in scale.ticks():
        parts.append(element("line", x1="0", x2="100%", y1=height, y2=height, class_="tick"))
        parts.append(element("text", name, x="0", y=f"{float(height) - 4:.1f}", class_="scale"))
    parts += _layer_names(traced, layers)
    for key, kind, _ in _SERIES:
        parts += _series(traced, paths[key], kind, scale)
    return element(
        "svg",
        *parts,
        class_="norms",
        role="img",
        aria_label="Norms by layer as lines; the table below has the same figures.",
    )


def _across(i: int, count: int) -> str:
    """How far to the right the i-th of `count` layers stands, with room for the scale's names."""
    return f"{8 + 90 * i / max(count - 1, 1):.2f}%"


def _layer_names(traced: Traced, layers: Sequence[int]) -> Iterator[Html]:
    """The numbers of some layers below the picture, about six of them."""
    for i in layers[:: -(-len(layers) // 6)]:
        path = ("pass", "layers", i, "layer")
        name, x = str(traced.value(path)), _across(i, len(layers))
        bottom = str(_TOP + _HIGH + 22)
        where = {"x": x, "y": bottom, "text_anchor": "middle"}
        yield element("text", name, **where, class_="scale", data_of=pointer(path))


def _series(traced: Traced, paths: Sequence[Path], kind: str, scale: _Scale) -> Iterator[Html]:
    """A line through all layers, and a mark at each."""
    places = [
        (_across(i, len(paths)), scale.height(traced.value(path)), path)
        for i, path in enumerate(paths)
        if traced.value(path) is not None
    ]
    for (x1, y1, _), (x2, y2, _) in pairwise(places):
        yield element("line", x1=x1, x2=x2, y1=y1, y2=y2, class_=f"line {kind}-line")
    for x, y, path in places:
        yield element("svg", _mark(kind), x=x, y=y, overflow="visible", data_of=pointer(path))


def _mark(kind: str, key: bool = False) -> Html:
    """A disc, a square, a ring: so that colour is not all that tells lines apart."""
    if kind == "first":
        mark = element("circle", r="3.5", class_=kind)
    elif kind == "second":
        mark = element("rect", x="-3.5", y="-3.5", width="7", height="7", class_=kind)
    else:
        mark = element("circle", r="3", class_=f"{kind}-ring")
    if not key:
        return mark
    return element("svg", mark, viewBox="-5 -5 10 10", class_="mark", aria_hidden="true")


class _Scale:
    """From norms to heights; in powers of ten where they are far apart."""

    def __init__(self, values: Sequence[float]) -> None:
        above = [value for value in values if value > 0] or [1.0]
        self.steep = max(above) / min(above) > _STEEP
        self.least = math.log10(min(above)) if self.steep else 0.0
        self.most = math.log10(max(above)) if self.steep else max(above)

    def height(self, value: float) -> str:
        """How far down a value is drawn."""
        if self.steep:
            value = math.log10(value) if value > 0 else self.least
        span = (self.most - self.least) or 1.0
        return f"{_TOP + _HIGH * (1 - (value - self.least) / span):.1f}"

    def ticks(self) -> Iterator[tuple[str, str]]:
        """Round values of the scale: height and name."""
        if self.steep:
            for power in range(math.ceil(self.least), math.floor(self.most) + 1):
                yield self.height(10.0**power), f"{10.0**power:,g}"
            return
        step = 10.0 ** math.floor(math.log10(self.most))
        step = step / 2 if self.most / step < 3 else step
        for i in range(int(self.most / step) + 1):
            yield self.height(i * step), f"{i * step:,g}"


def _lens(traced: Traced) -> Html:
    rows = []
    for i in range(len(traced.value(("pass", "layers")))):
        base: Path = ("pass", "layers", i)
        words = [
            _guess(traced, (*base, "lens", j)) for j in range(len(traced.value((*base, "lens"))))
        ]
        first = ""
        if words:
            first = Html(words[0] + meter(traced.value((*base, "lens", 0, "probability"))))
        rank = traced.whole((*base, "rank"))
        rows.append([traced.whole((*base, "layer")), rank, first, Html(", ".join(words[1:]))])
    head = ["after layer", "rank of the best", "likeliest", "then"]
    return table("The logit lens", head, [Group(rows)], words={2, 3}, heard=True)


def _guess(traced: Traced, path: Path) -> Html:
    return Html(f"{_named(traced, path)} {traced.part((*path, 'probability'))}")


def _named(traced: Traced, path: Path) -> Html:
    """A token that the look names itself."""
    text = "token" if "token" in traced.value(path) else "text"
    return traced.figures.figure((*path, text), token_html, kind="token")


def _attention(traced: Traced) -> Iterator[Html]:
    base: Path = ("pass", "attention")
    weights = traced.value((*base, "weights"))
    layer, head = (traced.whole((*base, key)) for key in ("layer", "head"))
    whole = traced.number((*base, "sum"), ".3f")
    words = ["Layer ", layer, ", head ", head, ": the weights of all tokens"]
    if traced.value((*base, "sink")) is not None:
        words += [" and of the sink, ", traced.part((*base, "sink")), ","]
    yield element(
        "p", *words, " add up to ", whole, ". Bars are as long as a weight’s share of the greatest."
    )
    greatest = max(weights, default=0.0) or 1.0
    by_weight = sorted(range(len(weights)), key=lambda i: -weights[i])
    shown = sorted(by_weight[:_STRIP])
    tiles = []
    for i in shown:
        figure = traced.part((*base, "weights", i))
        bar = meter(weights[i] / greatest, "second")
        tile = (_named(traced, ("pass", "tokens", i)), figure, bar)
        tiles.append(element("li", *tile))
    if len(shown) < len(weights):
        yield element("p", "Only the tokens with the greatest weights are shown.")
    yield element("ol", *tiles, class_="attention", role="list")
