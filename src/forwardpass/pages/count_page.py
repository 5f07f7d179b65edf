"""The page of `count --html`: what `count --json` has, and the parameters table by table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from forwardpass.describe import Description
from forwardpass.pages.figures import Figures, Path
from forwardpass.pages.labels import label
from forwardpass.pages.page import (
    Document,
    Group,
    Html,
    cards,
    element,
    escaped,
    paragraphs,
    section,
    table,
)
from forwardpass.pages.parts import level, part, rest
from forwardpass.units import exact, short, size
from forwardpass.work.parameters import LayerKind, ParameterTable, Part, parameter_table
from forwardpass.work.summary import Asked, Count

TABLES = "tables"  # where the parameters stand beside the keys of the JSON
_OTHER = "FLOP; “other” is norms, rope, softmax and adds, which are counted apart."
_BY_ROLE = "One token, by role"
_CONTEXTS = 3  # side by side, as a sheet of paper has room for
_SECTIONS = (
    ("Parameters", ("parameters",)),
    ("Bytes", ("bytes",)),
    ("One token", ("flop_per_token", "crossover_tokens")),
    ("Latent attention", ("latent",)),
    ("Cache of a sequence", ("kv_bytes_per_token", "state_bytes", "windows")),
    ("A prompt", ("prompt",)),
    ("An answer after it", ("answer",)),
)
_ABOUT = {
    "One token": "FLOP of one more token of an answer, without attention unless stated.",
    "Cache of a sequence": "What a token adds while no window is full; elements in {kv_type}.",
    "An answer after it": "Its first pass is the prompt's last row, so that it reads the prompt.",
}


@dataclass(frozen=True)
class Counted:
    """A counted model; `origin` says what was read, `description` is None without a config."""

    count: Count
    description: Description | None
    origin: str


def count_page(counted: Counted, asked: Asked, command: str) -> str:
    """The page of one model."""
    figures = Figures(_with_tables(counted))
    count = counted.count
    return Document(
        title=f"{count.model}: parameters, bytes, FLOP and cache",
        heading=figures.figure(("model",)),
        lead=[_what(figures, (), counted.origin), *_remarks(counted, asked)],
        body=[*_cards(figures, ()), *_sections(figures, (), asked)],
        command=command,
    ).html()


def diff_page(
    counted: Sequence[Counted], differences: Mapping[str, Sequence[Any]], asked: Asked, command: str
) -> str:
    """The page of two models: what differs, then each of them whole."""
    values = {"models": [_with_tables(each) for each in counted], "differences": differences}
    figures = Figures(values)
    names = [each.count.model for each in counted]
    paths = [("differences", name) for name in differences]
    rows = [[name, *(figures.figure((at, name, i)) for i in (0, 1))] for at, name in paths]
    if rows:
        differing = table("What differs", ["", *names], [Group(rows)], heard=True)
    else:
        differing = figures.figure(("differences",), lambda _: "Nothing differs.")
    body = [section("What differs", differing)]
    for i, each in enumerate(counted):
        base = ("models", i)
        about = paragraphs([_what(figures, base, each.origin), *_remarks(each, asked)])
        body += [section(figures.figure((*base, "model")), about, *_cards(figures, base))]
        body += _sections(figures, base, asked)
    return Document(
        title=f"{names[0]} beside {names[1]}",
        heading=f"{names[0]} beside {names[1]}",
        lead=["Two models, counted by the same rules."],
        body=body,
        command=command,
    ).html()


def _with_tables(counted: Counted) -> dict[str, Any]:
    values: dict[str, Any] = counted.count.as_dict()
    if counted.description is not None:
        values[TABLES] = table_values(parameter_table(counted.description.graph))
    return values


def table_values(parameters: ParameterTable) -> dict[str, Any]:
    """The table of parameters as values: each part's shape, its elements, in all layers too."""
    return {
        "embedding": [_part_values(each, 1) for each in parameters.embedding],
        "layers": [
            {
                "layers": len(kind.layers),
                "numbers": list(kind.layers),
                "each": kind.elements,
                "all": len(kind.layers) * kind.elements,
                **{
                    name: [_part_values(each, len(kind.layers)) for each in parts]
                    for name, parts in _groups(kind)
                },
            }
            for kind in parameters.layers
        ],
        "outside": [_part_values(each, 1) for each in parameters.outside],
        "head": [_part_values(each, 0 if parameters.tied else 1) for each in parameters.head],
        **({"tied": True} if parameters.tied else {}),
    }


def _groups(kind: LayerKind) -> Iterator[tuple[str, tuple[Part, ...]]]:
    """The parts of a layer by what they belong to, in its order."""
    for field in fields(kind):
        parts = getattr(kind, field.name)
        if parts and isinstance(parts, tuple) and isinstance(parts[0], Part):
            yield field.name, parts


def _part_values(one: Part, times: int) -> dict[str, Any]:
    sizes = [one.tables, *one.shape] if one.tables > 1 else [*one.shape]
    return {"part": one.label, "shape": sizes, "each": one.elements, "all": times * one.elements}


def _what(figures: Figures, base: Path, origin: str) -> Html:
    words = [figures.figure((*base, *path)) for path in (("architecture",), ("bytes", "dtype"))]
    if not figures.has((*base, "architecture")):
        words.insert(0, Html("tensors without a config, architecture"))
    return Html(" · ".join([*words, escaped(origin)]))


def _remarks(counted: Counted, asked: Asked) -> Iterator[str]:
    """What has to be known to read the figures."""
    for key, value in (counted.count.accepted_unknown or {}).items():
        yield f"Not understood, and left out as you asked: {key} = {value!r:.200}"
    about = counted.description
    if about is None:
        return
    if asked.keeps_vectors:
        yield f"In {asked.dtype} the tables are stored; vectors stay in f32."
    if about.quantization is not None and about.file is None and asked.dtype is None:
        yield f"The checkpoint is {about.quantization}; its files say how many bytes."
    longest = max([*asked.visible, (asked.prompt or 0) + (asked.answer or 0)], default=0)
    positions = about.config.max_position_embeddings
    if longest > positions:
        yield (
            f"{exact(longest)} is beyond the {exact(positions)} positions of the config: "
            "counted all the same."
        )


def _cards(figures: Figures, base: Path) -> list[Html]:
    """The figures that are asked for most, those that are known."""
    wanted = (
        ("Parameters", ("parameters", "unique"), short, "a tied table once"),
        ("Stored", ("parameters", "stored"), short, "parameters in the file"),
        ("Weights", ("bytes", "unique"), lambda count: size(count, 2), "as they are read"),
        ("File", ("bytes", "file"), lambda count: size(count, 2), "tensors and header"),
        ("One token", ("flop_per_token", "weights"), _flop, "by the weights alone"),
        ("KV cache", ("kv_bytes_per_token",), lambda count: size(count, 2), "a token"),
        ("Attention equals the weights", ("crossover_tokens",), exact, "visible tokens"),
    )
    found = [
        (name, figures.figure((*base, *path), write), remark)
        for name, path, write, remark in wanted
        if figures.has((*base, *path))
    ]
    return [cards(found)] if found else []


def _flop(count: int) -> str:
    return short(count, "FLOP")


def _sections(figures: Figures, base: Path, asked: Asked) -> Iterator[Html]:
    """All sections of one model."""
    for title, keys in _SECTIONS:
        about = _ABOUT.get(title)
        before = [paragraphs([about.format(kv_type=asked.kv_type)])] if about else []
        contexts = (*base, "flop_per_token", "at")
        after = []
        if title == "Parameters" and figures.has((*base, TABLES)):
            after.append(_tables(figures, base))
        if title == "One token" and figures.has((*contexts, 0)):
            after.append(_by_role(figures, contexts))
        yield from part(figures, title, base, keys, *before)
        yield from after
    yield from part(figures, "Left out as you asked", base, ["accepted_unknown"])
    yield from rest(figures, base)


def _by_role(figures: Figures, path: Path) -> Html:
    """FLOP and shares by role, a few contexts side by side."""
    items = figures.value(path)
    tables = []
    for start in range(0, len(items), _CONTEXTS):
        columns = [(*path, i) for i in range(start, min(start + _CONTEXTS, len(items)))]
        head = [""]
        for at in columns:
            head += [Html(figures.figure((*at, "visible")) + " visible"), "share"]
        roles = list(dict.fromkeys(role for at in columns for role in figures.value(at)["by_role"]))
        rows = [
            [role, *(cell for at in columns for cell in _role_cells(figures, at, role))]
            for role in roles
            if role != "other"
        ]
        sums = [
            [label(("at", key)), *(c for at in columns for c in (_sum(figures, at, key), ""))]
            for key in figures.value(columns[0])
            if key not in ("visible", "by_role")
        ]
        tables.append(table(_BY_ROLE, head, [Group(rows), Group(sums)], heard=True))
    return section(_BY_ROLE, element("p", _OTHER), *tables, level=level(path[:-2]))


def _role_cells(figures: Figures, at: Path, role: str) -> tuple[str, str]:
    path = (*at, "by_role", role)
    return figures.figure(path), figures.share(path, (*at, "total"))


def _sum(figures: Figures, at: Path, key: str) -> Html:
    """A sum over roles; `other` is the role of that name as well."""
    role = (*at, "by_role", "other")
    same = key == "other" and figures.has(role)
    return figures.figure((*at, key), (lambda _: figures.figure(role)) if same else None)


def _tables(figures: Figures, base: Path) -> Html:
    """Every table of the model with its shape and size."""
    path, unique = (*base, TABLES), (*base, "parameters", "unique")
    tied = figures.has((*path, "tied"))

    def rows(at: Path, *, shared: bool = False) -> list[list[str]]:
        found: list[list[str]] = []
        for i in range(len(figures.value(at))):
            one = (*at, i)
            name, last = figures.figure((*one, "part")), (*one, "all")
            sizes = range(len(figures.value((*one, "shape"))))
            shape = [figures.figure((*one, "shape", j)) for j in sizes]
            each = figures.figure((*one, "each"))
            share = figures.share(last, unique)
            if shared:
                share = figures.figure((*path, "tied"), lambda _: "the embedding's table")
            found.append([name, Html(" × ".join(shape)), each, figures.figure(last), share])
        return found

    groups = [Group(rows((*path, "embedding")))]
    for i, kind in enumerate(figures.value((*path, "layers"))):
        at = (*path, "layers", i)
        own = figures.figure((*at, "layers")), figures.figure((*at, "numbers"), _numbers)
        sums = (figures.figure((*at, key)) for key in ("each", "all"))
        whole = [Html(f"{own[0]} layers: {own[1]}"), "", *sums]
        groups.append(Group([[*whole, figures.share((*at, "all"), unique)]]))
        for name in kind:
            if isinstance(kind[name], list) and kind[name] and isinstance(kind[name][0], dict):
                title = "MLP" if name == "mlp" else name
                groups.append(Group(rows((*at, name)), title, inner=True))
    groups.append(Group([*rows((*path, "outside")), *rows((*path, "head"), shared=tied)]))
    head = ["", "rows × columns", "each", "all", "share"]
    title = "Parameters, table by table"
    inside = table(title, head, [g for g in groups if g.rows], heard=True)
    return section(title, inside, level=level(base))


def _numbers(layers: Sequence[int]) -> str:
    """Layer numbers: runs of them as `0 to 11`, others one by one."""
    words, start = [], 0
    for i, layer in enumerate(layers):
        if i + 1 < len(layers) and layers[i + 1] == layer + 1:
            continue
        words.append(str(layer) if start == i else f"{layers[start]} to {layer}")
        start = i + 1
    return ", ".join(words)
