"""What pages of different commands have in common: tables of a JSON object's values."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from forwardpass.pages.figures import Figures, Path
from forwardpass.pages.labels import label
from forwardpass.pages.page import Group, Html, section, table

_HEAD = ("", "value", "in short")
# Within these, values are shares of what stands at the path behind: the part's own mapping first.
_WHOLES: dict[Path, Path] = {
    ("parameters", "by_role"): ("parameters", "unique"),
    ("parameters",): ("parameters", "unique"),
    ("memory",): ("memory", "available"),
}
_SHARED = {"embedding", "layers", "head", "active", "weights", "kv", "activations", "total"}


def part(
    figures: Figures, title: str, base: Path, keys: Sequence[str], *before: str
) -> Iterator[Html]:
    """A section with the values at some keys; nothing where there are none.

    Values and those of mappings share one table; what lies deeper has tables of its own.
    """
    paths = [(*base, key) for key in keys if key in figures.value(base)]
    tables = list(tables_of(figures, title, paths, base, title))
    if tables:
        yield section(title, *before, *tables, level=level(base))


def level(base: Path) -> int:
    """The level of headings about what stands at `base`: the whole page, or a part of it."""
    return 3 if base else 2


def tables_of(
    figures: Figures, caption: str, paths: Sequence[Path], base: Path, title: str | None = None
) -> Iterator[Html]:
    """The values at `paths`, below `base`; `title` is the heading above."""
    plain: list[Path] = []
    deeper: list[Path] = []
    for path in paths:
        inner = figures.value(path)
        if not (inner and isinstance(inner, dict)):
            (deeper if _is_rows(inner) else plain).append(path)
            continue
        for key, value in inner.items():
            nested = bool(value) and (isinstance(value, dict) or _is_rows(value))
            (deeper if nested else plain).append((*path, key))
    if plain:
        yield _values(figures, caption, plain, base, heard=caption == title)
    for path in deeper:
        if not any(figures.left(path)):
            continue  # a table of its own shows it better
        name = f"{caption}: {label(path)}"
        if _is_rows(figures.value(path)):
            yield from _listed(figures, name, path)
        else:
            inner = figures.value(path)
            yield from tables_of(figures, name, [(*path, key) for key in inner], base)


def _is_rows(value: object) -> bool:
    """Whether a value is a list of mappings."""
    return isinstance(value, list | tuple) and bool(value) and isinstance(value[0], dict)


def _values(figures: Figures, caption: str, paths: Sequence[Path], base: Path, heard: bool) -> Html:
    """One value a row."""
    wholes = [_whole(path, base) for path in paths]
    shares = any(whole is not None and figures.has(whole) for whole in wholes)
    rows = []
    for path, whole in zip(paths, wholes, strict=True):
        row = [label(path), figures.figure(path), figures.in_short(path)]
        if shares:
            known = whole is not None and figures.has(whole)
            row.append(figures.share(path, whole) if whole is not None and known else "")
        rows.append(row)
    head = [*_HEAD, "share"] if shares else _HEAD
    return table(caption, head, [Group(rows)], heard=heard)


def _whole(path: Path, base: Path) -> Path | None:
    """What the value at a path is a share of."""
    inside = path[len(base) : -1]
    whole = _WHOLES.get(inside)
    if whole is None or (len(inside) == 1 and path[-1] not in _SHARED):
        return None
    return (*base, *whole)


def _listed(figures: Figures, caption: str, path: Path) -> Iterator[Html]:
    """A list of mappings: one a row, what they hold in columns; deeper values below."""
    items = figures.value(path)
    keys = list(dict.fromkeys(key for item in items for key in item))
    flat = [key for key in keys if not any(isinstance(item.get(key), dict) for item in items)]
    rows = [
        [figures.figure((*path, i, key)) if key in items[i] else "" for key in flat]
        for i in range(len(items))
    ]
    yield table(caption, [label((*path, key)) for key in flat], [Group(rows)])
    for i, item in enumerate(items):
        deeper = [(*path, i, key) for key in item if key not in flat]
        yield from tables_of(figures, f"{caption} {i + 1}", deeper, path)


def rest(figures: Figures, base: Path) -> Iterator[Html]:
    """A section with all values below `base` that no other one showed."""
    left = list(figures.left(base))
    if left:
        inside = _values(figures, "Further values", left, base, heard=True)
        yield section("Further values", inside, level=level(base))
