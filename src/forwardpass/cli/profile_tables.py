"""How a profile looks: one table of roles a context, one line a context, one line a pass size."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from forwardpass.cli.console import WIDTH, columns
from forwardpass.graph.graph import Role
from forwardpass.units import exact, percent, size
from forwardpass.work.predict import Bound

if TYPE_CHECKING:
    from forwardpass.profiling import RoleTime, Row
    from forwardpass.work.machine import Machine

_WORTH_A_WORD = 2.0  # times its bound
_GIGA = 1e9


def joined(parts: Iterable[str]) -> list[str]:
    """The parts, a dot between two, in as many lines as the terminal's width needs."""
    lines: list[str] = []
    for part in parts:
        if lines and len(lines[-1]) + len(part) + 3 <= WIDTH:
            lines[-1] += f" · {part}"
        else:
            lines.append(part)
    return lines


def plural(count: int, word: str) -> str:
    """`1 thread`, `2 threads`."""
    return f"{count:,} {word}" if count == 1 else f"{count:,} {word}s"


def about(machine: Machine) -> list[str]:
    """The machine, its ceilings, and how they were found."""
    load = "" if machine.load is None else f", load {machine.load:.1f}"
    rates = f"reads {machine.ceilings.read_rate / _GIGA:,.1f} GB/s"
    if machine.threads > 1:
        rates += f" ({machine.read_rate_one / _GIGA:,.1f} by one thread)"
    return [
        f"{machine.cpu}, {plural(machine.cores, 'core')}{load}",
        f"{rates}, {machine.ceilings.flop_rate / _GIGA:,.1f} GFLOP/s",
        machine.source,
    ]


def by_role(row: Row, small_steps: tuple[int, int]) -> list[str]:
    """Work and time of one token's pass by role, predicted beside measured."""
    unit, scale = _flop_unit(row.flop)
    ms = _Milliseconds(row.seconds)
    lines: list[tuple[str, ...]] = [
        (f"{exact(row.visible)} visible", unit, "work", "ms", "time", "GB/s", "predicted ms", "")
    ]
    for part in row.roles:
        lines.append(
            (
                f"  {part.role}",
                f"{part.work.flop / scale:,.2f}",
                percent(part.work.flop, row.flop),
                ms(part.seconds),
                percent(part.seconds, row.seconds, 0),
                *_judged(part, ms, small_steps),
            )
        )
    between = percent(row.between, row.seconds, 0)
    if row.waiting:
        share = percent(row.waiting, row.seconds, 0)
        lines.append(("  wait", "", "", ms(row.waiting), share, "", "", "for other threads"))
    judged = _rate_and_prediction(row.bytes, row.seconds, row.predicted.seconds, ms)
    whole = f"{row.flop / scale:,.2f}"
    lines += [
        ("  between steps", "", "", ms(row.between), between, "", "", "the interpreter"),
        ("  together", whole, "", ms(row.seconds), f"(± {ms(row.spread)})", *judged),
    ]
    return columns(lines, "<>>>>>><")


def by_visible(rows: Sequence[Row]) -> list[str]:
    """What grows with the tokens that are seen: one column a context."""
    unit, scale = _flop_unit(max(row.flop for row in rows))
    ms = _Milliseconds(max(row.seconds for row in rows))
    share = [percent(row.work.by_role[Role.READ].flop, row.flop) for row in rows]
    return columns(
        [
            ("visible          ", *(exact(row.visible) for row in rows)),
            (f"  {unit}", *(f"{row.flop / scale:,.1f}" for row in rows)),
            ("  ms", *(ms(row.seconds) for row in rows)),
            ("  share of the read", *share),
        ],
        "<" + ">" * len(rows),
    )


def by_tokens(rows: Sequence[Row]) -> list[str]:
    """What more tokens in one pass change: one line a pass size."""
    ms = _Milliseconds(min(row.seconds / row.tokens for row in rows))
    lines = [("tokens a pass", "ms a pass", "ms a token", "GFLOP/s", "of bound", "bound by")]
    for row in rows:
        lines.append(
            (
                exact(row.tokens),
                ms(row.seconds),
                ms(row.seconds / row.tokens),
                f"{row.flop / row.seconds / _GIGA:,.1f}",
                percent(row.predicted.seconds, row.seconds, 0),
                _bound_by(row),
            )
        )
    return columns(lines, ">>>>><", gap="   ")


class _Milliseconds:
    """Writes seconds as milliseconds, all of a table with the decimals that `typical` ones need."""

    def __init__(self, typical: float) -> None:
        self.digits = 1 if typical >= 1e-2 else 2 if typical >= 1e-3 else 3

    def __call__(self, seconds: float) -> str:
        return f"{1e3 * seconds:,.{self.digits}f}"


def _judged(
    part: RoleTime, ms: _Milliseconds, small_steps: tuple[int, int]
) -> tuple[str, str, str]:
    """A role's rate, its predicted time, and what there is to say about the two."""
    if part.role is Role.OTHER:
        inside, outside = small_steps
        return "", "", f"{inside} small steps" + (f" + {outside}" if outside else "")
    if part.role is Role.EMBEDDING:
        return "", "", ""  # a row or two: too few bytes to speak of a rate
    return _rate_and_prediction(part.work.bytes, part.seconds, part.predicted.seconds, ms)


def _rate_and_prediction(
    byte_count: int, seconds: float, predicted: float, ms: _Milliseconds
) -> tuple[str, str, str]:
    if not predicted:
        return "", "", ""
    times = seconds / predicted
    note = f"{times:,.0f} × its bound" if times >= _WORTH_A_WORD else ""
    return f"{byte_count / seconds / _GIGA:,.1f}", ms(predicted), note


def _bound_by(row: Row) -> str:
    bounds = row.predicted.bounds
    if bounds == (Bound.READING,):
        return f"{Bound.READING} {size(row.bytes)}"
    return ", then ".join(bounds)


def _flop_unit(flop: int) -> tuple[str, float]:
    """One unit for a table, by its largest count."""
    return ("GFLOP", 1e9) if flop >= 1e10 else ("MFLOP", 1e6)
