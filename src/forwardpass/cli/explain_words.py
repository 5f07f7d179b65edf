"""How `explain` writes a token, a score and a probability."""

from __future__ import annotations

import math

from forwardpass.cli.console import cells, visible
from forwardpass.trace.trace import Trace

TOKEN_CELLS = 14  # of a token in a column of its own
OTHER_CELLS = 12  # of a token that is named beside another
_SMALL = 0.0005  # what three decimals would call 0


def token_text(trace: Trace, token: int, most: int = OTHER_CELLS) -> str:
    """One token in at most `most` cells of a terminal."""
    note = trace.tokens.get(token)
    text = visible(f"[token {token}]" if note is None else note.text, most)
    while cells(text) > most:
        text = text.removesuffix("…")[:-1] + "…"
    return text


def score(value: float) -> str:
    """A score with two decimals, a huge one with three digits."""
    return f"{value:.2f}" if abs(value) < 1e5 else f"{value:.3g}"


def p(logprob: float) -> str:
    """The probability of a log probability, as `share` writes it."""
    return share(math.exp(logprob))


def share(value: float) -> str:
    """A probability or a mass in five cells: three decimals, 0 only where it is 0."""
    return "<.001" if 0 < value < _SMALL else f"{value:.3f}"


def number(value: object) -> str:
    """A setting's value: six digits, and a point where it is no whole number by its kind."""
    if not isinstance(value, float):
        return str(value)
    text = f"{value:g}"
    return text if set(text) & set(".e") else f"{text}.0"
