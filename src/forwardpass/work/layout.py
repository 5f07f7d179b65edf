"""Tables whose cells end at common columns, and lines that keep within the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

WIDTH = 99
GAP = 2


@dataclass(frozen=True)
class Row:
    """A label at the left, cells that end at the table's edges, a note behind the last edge."""

    label: str
    cells: tuple[str, ...] = ()
    note: str = ""


def ledger(rows: Sequence[Row], edges: Sequence[int]) -> list[str]:
    """The rows as lines; cell i of each ends at column `edges[i]`, or later where one needs it.

    An empty cell leaves its room to what stands left of it.
    """
    placed = list(edges)
    for i in range(len(placed)):
        for row in rows:
            if i < len(row.cells) and row.cells[i]:
                placed[i] = max(placed[i], _end_before(row, i, placed) + GAP + len(row.cells[i]))
    return [_line(row, placed) for row in rows]


def wrapped(words: Sequence[str], separator: str, indent: str) -> list[str]:
    """The words joined by `separator`, in lines of at most WIDTH columns where a word allows it.

    All lines but the first begin with `indent`; a separator that starts with a sign ends its line.
    """
    lines = [words[0]]
    for word in words[1:]:
        joined = f"{lines[-1]}{separator}{word}"
        if len(joined) <= WIDTH:
            lines[-1] = joined
        else:
            lines[-1] += separator.strip() if separator[0] != " " else ""
            lines.append(indent + word)
    return lines


def _end_before(row: Row, column: int, edges: Sequence[int]) -> int:
    filled = [i for i in range(column) if row.cells[i]]
    return edges[filled[-1]] if filled else len(row.label)


def _line(row: Row, edges: Sequence[int]) -> str:
    line = row.label
    for edge, cell in zip(edges, row.cells, strict=False):
        if cell:
            line += f"{cell:>{edge - len(line)}}"
    if row.note:
        line = f"{line:<{edges[-1]}}{' ' * GAP}{row.note}"
    return line.rstrip()
