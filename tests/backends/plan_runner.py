"""Runs the fused steps of a pass in NumPy, in their slots, as the native program does in C++.

What a step reads must be there: a slot that another value has taken meanwhile, or blocks that
nobody made of what is in it, are found out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from forwardpass.backends.backend import WeightSource
from forwardpass.backends.fusion import uses
from forwardpass.backends.ropes import RopeTables
from forwardpass.backends.slots import View, assign, is_wanted
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
from forwardpass.graph import references
from forwardpass.graph.graph import Graph, Value
from forwardpass.graph.references import F32

ACTS: dict[str, Callable[[F32], F32]] = {
    "none": lambda x: x,
    "relu": references.relu,
    "gelu": references.gelu,
    "gelu_erf": references.gelu_erf,
}
GATES: dict[str, Callable[[F32, F32], F32]] = {
    "silu": references.silu_multiply,
    "gelu": references.gelu_multiply,
}


@dataclass
class PlanRunner:
    """One pass over the tokens of a new sequence."""

    graph: Graph
    plan: Plan
    weights: WeightSource
    takes_blocks: Callable[[str], bool]
    tokens: list[int]
    wanted: list[int]
    slots: list[F32] = field(default_factory=list)
    owner: dict[int, Value] = field(default_factory=dict)
    blocks: dict[int, Value] = field(default_factory=dict)
    caches: dict[int, tuple[F32, F32]] = field(default_factory=dict)

    def run(self) -> F32:
        assigned = assign(uses(self.plan), [self.plan.logits])
        self.of = assigned.of
        sizes = (len(self.tokens), len(self.wanted))
        for width, wanted in assigned.slots:
            self.slots.append(np.full((sizes[wanted], width), np.nan, np.float32))
        self.ropes = RopeTables(self.plan.ropes, self.weights.numpy)
        self.ropes.grow(len(self.tokens))
        self.positions = np.arange(len(self.tokens))
        for step in self.plan.steps:
            if isinstance(step, RowStep):
                for op in step.ops:
                    self._row(op, step.wanted)
            elif isinstance(step, LinearStep):
                made = [self._segment(step.input, segment) for segment in step.segments]
                for segment, sums in zip(step.segments, made, strict=True):
                    assert is_wanted(segment.out.value) == step.wanted
                    self._write(segment.out, sums)
                    if segment.quantize:
                        self._quantize(segment.out)
            elif isinstance(step, AttentionStep):
                self._attention(step)
            else:
                self._host(step)
        return self.slots[self.of[self.plan.logits]]

    def _read(self, view: View, width: int) -> F32:
        slot = self.of[view.value]
        assert self.owner[slot] == view.value, "another value is in the slot"
        return self.slots[slot][:, view.column : view.column + width].copy()

    def _write(self, view: View, rows: F32) -> None:
        slot = self.of[view.value]
        self.owner[slot] = view.value
        self.blocks.pop(slot, None)
        width = int(np.prod(rows.shape[1:]))
        self.slots[slot][:, view.column : view.column + width] = rows.reshape(len(rows), -1)

    def _quantize(self, view: View) -> None:
        assert view.column == 0
        self.blocks[self.of[view.value]] = view.value

    def _rows(self, rows: Rows) -> F32:
        return self.weights.numpy(rows.weight)[rows.start : rows.stop]

    def _segment(self, source: View, segment: Segment) -> F32:
        def product(table: Rows, bias: Rows | None) -> F32:
            weight = self._rows(table)
            if self.takes_blocks(table.weight):
                assert self.blocks.get(self.of[source.value]) == source.value, "no blocks"
            sums = references.linear(self._read(source, weight.shape[1]), weight)
            return sums if bias is None else sums + self._rows(bias)

        asked = segment.sums
        sums = product(asked.table, asked.bias)
        if asked.up is not None:
            sums = GATES[asked.gate](sums, product(asked.up, asked.up_bias))
        sums = ACTS[asked.act](sums)
        if asked.residual is not None:
            sums = sums + self._read(asked.residual, sums.shape[1])
        return references.softcap(sums, cap=asked.cap) if asked.cap else sums

    def _row(self, op: RowOp, wanted: bool) -> None:
        total = op.width * op.heads
        a = None if op.a is None else self._read(op.a, total)
        if op.kind == "quantize":
            assert op.a is not None
            self._quantize(op.a)
            return
        if op.kind == "write_cache":
            assert a is not None
            assert op.b is not None
            shape = (len(a), op.heads, op.width)
            pair = (a.reshape(shape), self._read(op.b, total).reshape(shape))
            self.caches[op.state] = (pair[0].swapaxes(0, 1), pair[1].swapaxes(0, 1))
            return
        assert op.out is not None
        assert is_wanted(op.out.value) == wanted
        self._write(op.out, self._result(op, a))

    def _result(self, op: RowOp, a: Any) -> F32:
        numbers = np.array(self.tokens)
        weights = [self.weights.numpy(name) for name in (op.weight, op.bias) if name is not None]
        parts = None if a is None else a.reshape(len(a), op.heads, op.width)
        if op.kind == "embed":
            assert op.table is not None
            return references.embed(numbers, self._rows(op.table))
        if op.kind == "add_positions":
            assert op.table is not None
            return references.add_positions(
                a, self.positions, self._rows(op.table), offset=op.offset
            )
        if op.kind == "gather":
            return references.wanted_rows(a, np.array(self.wanted))
        if op.kind == "copy":
            return np.array(a)
        if op.kind == "rope":
            assert parts is not None
            return self._turned(op, parts)
        if op.kind == "layer_norm":
            name = "layer_norm" if len(weights) > 1 else "plain_layer_norm"
            made: F32 = getattr(references, name)(parts, *weights, eps=op.number)
            return made
        if op.kind in ("rms_norm", "head_layer_norm"):
            normed: F32 = getattr(references, op.kind)(parts, *weights, eps=op.number)
            return normed
        if op.kind == "scale":
            return references.scale(a, factor=op.number)
        if op.kind == "softcap":
            return references.softcap(a, cap=op.number)
        inputs = [a] if op.b is None else [a, self._read(op.b, op.width * op.heads)]
        result: F32 = getattr(references, op.kind)(*inputs)
        return result

    def _turned(self, op: RowOp, heads: F32) -> F32:
        cos, sin = (table[self.positions][:, None] for table in self.ropes.tables[op.rope])
        first, second = slice(0, op.pairs), slice(op.pairs, 2 * op.pairs)
        if op.interleaved:
            first, second = slice(0, 2 * op.pairs, 2), slice(1, 2 * op.pairs, 2)
        out = heads.copy()
        out[..., first] = heads[..., first] * cos - heads[..., second] * sin
        out[..., second] = heads[..., second] * cos + heads[..., first] * sin
        return out

    def _attention(self, step: AttentionStep) -> None:
        q = self._read(step.q, step.heads * step.width)
        keys, values = self.caches[step.state]
        assert keys.shape[::2] == (step.groups, step.width)
        pad = ((0, 0), (0, -keys.shape[1] % references.TILE), (0, 0))
        mixed = references.attention(
            q.reshape(len(q), step.heads, step.width),
            np.pad(keys, pad),
            np.pad(values, pad),
            self.positions,
            scale=step.scale,
            window=step.window or None,
            softcap=step.softcap or None,
            slopes=step.slopes or None,
        )
        self._write(step.out, mixed)
        if step.quantize:
            self._quantize(step.out)

    def _host(self, step: HostStep) -> None:
        node = self.graph.nodes[step.node]
        inputs: list[Any] = []
        for value, view in zip(node.inputs, step.inputs, strict=True):
            if view.value == self.graph.tokens:
                inputs.append(np.array(self.tokens))
            elif view.value == self.graph.positions:
                inputs.append(self.positions)
            else:
                shape = [int(size) for size in value.shape[1:]]
                inputs.append(self._read(view, int(np.prod(shape))).reshape(-1, *shape))
        inputs += [self.weights.numpy(weight.name) for weight in node.weights]
        self._write(step.out, getattr(references, node.op.name)(*inputs, **node.attributes))
