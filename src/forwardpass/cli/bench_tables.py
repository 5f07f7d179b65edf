"""How a benchmark looks: one line a speed, its bound beside it, and what it ran on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from forwardpass._version import __version__, commit
from forwardpass.cli.console import columns
from forwardpass.cli.profile_tables import joined, plural
from forwardpass.units import exact, percent, size

if TYPE_CHECKING:
    from forwardpass.backends.backend import Backend
    from forwardpass.benching import Decode, Figure, Peak, Prefill

_GIGA = 1e9


def program(what: str, backend: Backend, repetitions: int) -> list[str]:
    """What is measured, on which backend, how often, by which version."""
    return joined(
        [
            what,
            f"{backend.words}, {plural(backend.threads, 'thread')}",
            f"{plural(repetitions, 'repetition')}, median ± half the range",
            f"forwardpass {__version__}, commit {commit() or 'unknown'}",
        ]
    )


def prefills(rows: Sequence[Prefill]) -> list[str]:
    """One line a size of prompt."""
    lines: list[tuple[str, ...]] = [
        ("prompt tokens", "tokens/s", "±", "GFLOP/s", "of peak", "bound tokens/s")
    ]
    for row in rows:
        lines.append(
            (
                exact(row.tokens),
                *_speed(row.rate),
                f"{row.flop_per_second / _GIGA:,.1f}",
                percent(row.flop_per_second, row.ceiling.value, 0),
                _tokens(row.bound),
            )
        )
    return columns(lines, ">>>>>>", gap="   ")


def decodes(rows: Sequence[Decode]) -> list[str]:
    """One line a number of visible tokens and of sequences."""
    lines: list[tuple[str, ...]] = [
        (
            *("visible", "sequences", "tokens/s", "±", "a token reads"),
            *("GB/s", "of bandwidth", "bound tokens/s"),
        )
    ]
    for row in rows:
        lines.append(
            (
                exact(row.visible),
                exact(row.batch),
                *_speed(row.rate),
                size(row.bytes),
                f"{row.bytes_per_second / _GIGA:,.1f}",
                percent(row.bytes_per_second, row.ceiling.value, 0),
                _tokens(row.bound),
            )
        )
    return columns(lines, ">>>>>>>>", gap="   ")


def load_line(seconds: Figure | None, peak: Peak) -> str:
    """Time to load, and memory."""
    parts = [] if seconds is None else [f"loaded in {seconds.value:.2f} s (± {seconds.spread:.2f})"]
    if peak.bytes is not None:
        whole = "" if peak.exact else ", what measuring the bounds takes included"
        parts.append(f"peak memory {size(peak.bytes)}{whole}")
    return " · ".join(parts) or "peak memory unknown"


def _speed(rate: Figure) -> tuple[str, str]:
    digits = _digits(rate.value)
    return f"{rate.value:,.{digits}f}", f"{rate.spread:,.{digits}f}"


def _tokens(rate: float) -> str:
    return f"{rate:,.{_digits(rate)}f}"


def _digits(rate: float) -> int:
    return 0 if rate >= 1_000 else 1 if rate >= 10 else 2
