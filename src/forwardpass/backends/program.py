"""From the fused steps of a pass to the native program that runs them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np

from forwardpass import _native
from forwardpass.backends.fusion import uses
from forwardpass.backends.slots import Slots, View, assign
from forwardpass.backends.steps import (
    AttentionStep,
    HostStep,
    LinearStep,
    Plan,
    RowOp,
    Rows,
    RowStep,
    Segment,
)
from forwardpass.backends.tables import PackedWeights
from forwardpass.graph.references import F32


@dataclass(frozen=True)
class Part:
    """Steps `first` to `last` (excluded) of the program, or what the host does between two.

    `plan`: the numbers of the plan's steps that these are.
    """

    first: int
    last: int
    plan: tuple[int, ...]
    host: HostStep | None = None


@dataclass(frozen=True)
class Compiled:
    """A program, where its values are, and the parts to run one after another."""

    program: _native.Program
    slots: Slots
    parts: tuple[Part, ...]


def compiled(
    plan: Plan, weights: PackedWeights, *, kv_type: str, rows: int, threads: int, level: str = ""
) -> Compiled:
    """The program of a plan, for passes of up to `rows` rows."""
    slots = assign(uses(plan), [plan.logits])
    program = _native.Program(
        weights.tables, list(slots.slots), list(plan.states), kv_type, rows, level, threads
    )
    builder = _Builder(program, weights, slots)
    steps = [builder.add(step) for step in plan.steps]
    return Compiled(program, slots, _parts(plan, steps))


def _parts(plan: Plan, added: Sequence[bool]) -> tuple[Part, ...]:
    """The plan as runs of the program, cut where the host works."""
    found: list[Part] = []
    run: list[int] = []

    def end(upto: int) -> None:
        if run:
            last = sum(added[:upto])
            found.append(Part(last - len(run), last, tuple(run)))
            run.clear()

    for number, step in enumerate(plan.steps):
        if isinstance(step, HostStep):
            end(number)
            found.append(Part(0, 0, (number,), step))
        else:
            run.append(number)
    end(len(added))
    return tuple(found)


@dataclass
class _Builder:
    program: _native.Program
    weights: PackedWeights
    slots: Slots

    def add(self, step: object) -> bool:
        """Adds a step to the program; False for the host's."""
        if isinstance(step, RowStep):
            self.program.row_step([self._row(op) for op in step.ops], step.wanted)
        elif isinstance(step, LinearStep):
            segments = [self._segment(segment) for segment in step.segments]
            self.program.linear_step(self._view(step.input), segments, step.wanted)
        elif isinstance(step, AttentionStep):
            self.program.attention_step(self._attention(step))
        return not isinstance(step, HostStep)

    def _view(self, view: View | None) -> tuple[int, int]:
        return (-1, 0) if view is None else (self.slots.of[view.value], view.column)

    def _table(self, rows: Rows | None) -> int:
        return -1 if rows is None else self.weights.numbers[rows]

    def _row(self, op: RowOp) -> _native.RowOp:
        made = {
            "kind": op.kind,
            "node": op.node,
            "a": self._view(op.a),
            "b": self._view(op.b),
            "out": self._view(op.out),
            "width": op.width,
            "heads": op.heads,
            "weight": None if op.weight is None else self.weights.vector(op.weight),
            "bias": None if op.bias is None else self.weights.vector(op.bias),
            "number": op.number,
            "offset": op.offset,
            "table": self._table(op.table),
            "rope": op.rope,
            "state": op.state,
            "pairs": op.pairs,
            "interleaved": op.interleaved,
        }
        return cast("_native.RowOp", made)

    def _segment(self, segment: Segment) -> _native.Segment:
        sums = segment.sums
        made = {
            "node": segment.node,
            "table": self._table(sums.table),
            "up": self._table(sums.up),
            "bias": self._bias(sums.bias),
            "up_bias": self._bias(sums.up_bias),
            "out": self._view(segment.out),
            "residual": self._view(sums.residual),
            "gate": sums.gate,
            "act": sums.act,
            "cap": sums.cap,
            "quantize": segment.quantize,
            "floats": segment.floats,
        }
        return cast("_native.Segment", made)

    def _bias(self, rows: Rows | None) -> F32 | None:
        return None if rows is None else self.weights.vector(rows.weight)[rows.start : rows.stop]

    def _attention(self, step: AttentionStep) -> _native.Attention:
        return {
            "node": step.node,
            "q": self._view(step.q),
            "out": self._view(step.out),
            "state": step.state,
            "heads": step.heads,
            "groups": step.groups,
            "width": step.width,
            "scale": step.scale,
            "softcap": step.softcap,
            "window": step.window,
            "slopes": np.array(step.slopes, np.float32) if step.slopes else None,
            "quantize": step.quantize,
        }
