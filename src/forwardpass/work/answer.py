"""The work of a prompt, and of an answer behind it.

An answer of A tokens after a prompt of P is A passes: the first is the prompt's last row, which
sees P tokens, and pass k sees P + k - 1. The token that ends an answer counts as drawn, as a pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from forwardpass.graph.graph import Role
from forwardpass.work.passes import PassShape, SequenceShape
from forwardpass.work.token import Alike, Growth, flop_by_role, total


@dataclass(frozen=True)
class Answer:
    """What an answer costs; `flop_weights` counts 2 × every parameter that does arithmetic."""

    passes: int
    layer_runs: int
    flop_weights: int
    flop_attention: int
    flop_total: int


@dataclass(frozen=True)
class Prompt:
    """FLOP of a prompt's pass by three conventions; `flop` is ours.

    `flop_full_square` scores every token against every other and puts the head on every row;
    `flop_causal` leaves out what a token does not see; `flop` also leaves out the head of all rows
    but the last. `flop_rows_before` is the pass without its last row.
    """

    tokens: int
    flop: int
    flop_causal: int
    flop_full_square: int
    flop_rows_before: int


def count_answer(
    prompt: int, answer: int, layers: int, weights: int, parts: Sequence[Growth]
) -> Answer:
    """The answer's passes, with `weights` FLOP each and attention by `parts`."""
    attention = sum(part.flop * pairs(prompt, answer, part.window) for part in parts)
    return Answer(
        passes=answer,
        layer_runs=answer * layers,
        flop_weights=answer * weights,
        flop_attention=attention,
        flop_total=answer * weights + attention,
    )


def pairs(prompt: int, answer: int, window: int | None) -> int:
    """Visible tokens summed over the passes of an answer."""
    return SequenceShape(answer, prompt - 1).pairs(window)


def count_prompt(tokens: int, nodes: Alike, parts: Sequence[Growth]) -> Prompt:
    """The prompt's pass by each convention."""
    every_row = flop_by_role(nodes, PassShape((SequenceShape(tokens, 0, tokens),)))
    causal = total(every_row)
    square = sum(part.flop for part in parts) * tokens**2
    before = 0
    if tokens > 1:
        before = total(flop_by_role(nodes, PassShape((SequenceShape(tokens - 1, 0, 0),))))
    return Prompt(
        tokens=tokens,
        flop=total(flop_by_role(nodes, PassShape.prompt(tokens))),
        flop_causal=causal,
        flop_full_square=causal - every_row[Role.READ] + square,
        flop_rows_before=before,
    )
