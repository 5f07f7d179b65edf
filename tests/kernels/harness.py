"""One list of what is held, driven by the op table, and the calls into the kernels.

`held()` says for every op of the table how its kernel is tried and how far it may be off; an op
that nothing here knows is listed as computed by its reference. docs/ops.md is made from it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from forwardpass.backends.levels import missing_reason
from forwardpass.graph.op import Op
from forwardpass.graph.ops import OPS
from kernels.stored import TYPES, Table
from kernels.truths import F32, Attention, Inputs

LEVELS = ("portable", "avx2", "avx512-vnni", "amx")
"""Levels that have kernels, lowest first."""
TILE_LEVELS = ("amx",)
"""Those that multiply prompts in bf16 tiles."""

# Why the C++ part may be missing without a fault: no compiler, or nobody built it. A compiler that
# failed is one.
_EXCUSES = ("no C++ compiler", "no Python headers", "its C++ part is not built in a source tree")


@dataclass(frozen=True)
class Held:
    """How an op is held: `by` the tests of rows, products, decode, attention, or the program.

    A `view` only renames columns and computes nothing; `reference` has no kernel, `counted only`
    not even that. `types` are
    those of the op's table or cache.
    """

    by: str
    error: str
    types: tuple[str, ...] = ("f32",)

    @property
    def levels(self) -> tuple[str, ...]:
        return () if self.by in ("view", "reference", "counted only") else LEVELS


SAME = "none: the same bits"
_NORM = "of (abs(x) + mean of abs(x)) · abs(gain) ÷ root, and of the bias"
_PRODUCTS = (
    "block types: of each block's greatest activation 1.55e-5 · Σ abs(weights), and (32-blocks, "
    "twice as many with minima or in q6_k, + 6) u of Σ abs(terms); float types: (inputs ÷ 4 + 4) u "
    "of Σ abs(terms); prompts in tiles: 2⁻⁸ of each activation and of each weight, and (inputs ÷ "
    "32 + 17) u of Σ abs(terms)"
)
_ATTENTION = (
    "scores: (e ÷ 2 + 4) u of scale · Σ abs(q · k), 8 u after a soft cap, 3 u after a slope; mix: "
    "what that does to the weights, and (positions of a split + splits + 8) u of Σ weight · "
    "abs(value); prompts in tiles: also 2⁻⁸ of each query, key, weight and value"
)
_CACHE = ("f16", "bf16", "f32")

_HELD = {
    "embed": Held("decode", SAME + " as formats/blocks.py", TYPES),
    "add_positions": Held("program", SAME, TYPES),
    "scale": Held("rows", SAME),
    "linear": Held("products", _PRODUCTS, TYPES),
    "linear_bias": Held("program", "that of `linear`, and u of the result", TYPES),
    "columns": Held("view", SAME),
    "heads": Held("view", SAME),
    "flat": Held("view", SAME),
    "rms_norm": Held("rows", "12 u of itself"),
    "layer_norm": Held("rows", f"16 u {_NORM}"),
    "plain_layer_norm": Held("rows", f"16 u {_NORM}"),
    "head_layer_norm": Held("rows", f"16 u {_NORM}"),
    "rope": Held("rows", "2 u of abs(left · cos) + abs(right · sin)"),
    "rope_factors": Held("rows", "that of `rope`"),
    "cache": Held("attention", "none: rounded to the cache's type, ties to even", _CACHE),
    "attention": Held("attention", _ATTENTION, _CACHE),
    "gelu": Held("rows", "8 u of abs(x)"),
    "gelu_erf": Held("rows", "8 u of abs(x)"),
    "relu": Held("rows", SAME),
    "silu_multiply": Held("rows", "8 u of abs(gate · up)"),
    "gelu_multiply": Held("rows", "9 u of abs(gate · up)"),
    "add": Held("rows", SAME),
    "softcap": Held("rows", "8 u of itself"),
    "wanted_rows": Held("program", SAME),
}


def held() -> dict[str, tuple[Op, Held]]:
    """Every op of the table, in its order, with how it is held."""
    reference = Held("reference", "the reference itself")
    counted = Held("counted only", "")
    return {
        name: (op, _HELD.get(name, counted if op.counted_only else reference))
        for name, op in OPS.items()
    }


def native() -> Any:
    """The C++ part; skips the test where this machine could not build it, fails where it should."""
    reason = missing_reason()
    if reason is not None and reason.startswith(_EXCUSES):
        pytest.skip(reason)
    assert reason is None, reason
    from forwardpass import _native

    return _native


def at_level(name: str) -> str:
    """The level, where this machine runs it; skips the test where it does not."""
    levels = native().levels()
    assert set(levels) <= set(LEVELS)
    assert levels[-1] == "portable"
    if name not in levels:
        pytest.skip(f"this machine and this build run {', '.join(levels)}")
    return name


def runnable() -> list[str]:
    """The levels of this machine, best first."""
    return list(native().levels())


def bits(x: F32) -> npt.NDArray[np.uint32]:
    """The bits of float32, every NaN the same one: which NaN an instruction makes is its own."""
    return np.where(np.isnan(x), np.float32(np.nan), x).astype(np.float32).view(np.uint32)


def same(first: F32, second: F32) -> bool:
    """Whether both have the same bits, as `bits` has them."""
    return np.array_equal(bits(first), bits(second))


_KINDS = {"plain_layer_norm": "layer_norm", "head_layer_norm": "layer_norm", "rope_factors": "rope"}


def rows(level: str, op: str, i: Inputs) -> F32:
    """An op on rows, n × width."""
    out: F32 = native().test_rows(
        level,
        _KINDS.get(op, op),
        i.a,
        b=i.b,
        weight=i.weight,
        bias=i.bias,
        number=i.number,
        pairs=i.pairs,
        interleaved=i.interleaved,
        cos=i.cos,
        sin=i.sin,
    )
    return out


def add_table(tables: Any, table: Table) -> int:
    """Packs a table among those of a program; its number."""
    if not table.group:
        return int(tables.add(table.kind, table.rows, table.cols, table.data))
    words = table.data.view(np.uint32).reshape(table.rows, -1)
    shape = (table.kind, table.rows, table.cols, table.group)
    return int(tables.add_mlx4(*shape, words, table.scales, table.biases))


def products(level: str, table: Table, x: F32) -> F32:
    """x tableᵀ, n × rows: quantized first where the type multiplies integers."""
    if not table.group:
        out: F32 = native().test_products(level, table.kind, table.data, table.rows, table.cols, x)
        return out
    tables = native().Tables(1)
    number = add_table(tables, table)
    n, cols = x.shape
    program = native().Program(tables, [(cols, False), (table.rows, False)], [], "f16", n, level, 1)
    steps = [{"kind": "quantize", "a": (0, 0), "width": cols}]
    program.row_step(steps, False)
    program.linear_step((0, 0), [{"table": number, "out": (1, 0)}], False)
    run_program(program, x)
    return np.array(program.slot(1, n))


def tile_products(level: str, table: Table, x: F32, threads: int = 1) -> F32:
    """x tableᵀ, n × rows, as the product of a prompt."""
    tables = native().Tables(1)
    number = add_table(tables, table)
    n, cols = x.shape
    slots = [(cols, False), (table.rows, False)]
    program = native().Program(tables, slots, [], "f16", n, level, threads)
    program.row_step([{"kind": "quantize", "a": (0, 0), "width": cols}], False)
    program.linear_step((0, 0), [{"table": number, "out": (1, 0)}], False)
    run_program(program, x, prompt=True)
    return np.array(program.slot(1, n))


def decode(level: str, table: Table) -> F32:
    """Every row of a packed table, rows × cols."""
    if not table.group:
        out: F32 = native().test_decode(level, table.kind, table.data, table.rows, table.cols)
        return out
    tables = native().Tables(1)
    number = add_table(tables, table)
    program = native().Program(tables, [(table.cols, False)], [], "f16", table.rows, level, 1)
    program.row_step(
        [{"kind": "embed", "table": number, "out": (0, 0), "width": table.cols}], False
    )
    run_program(program, rows=table.rows, tokens=np.arange(table.rows))
    return np.array(program.slot(0, table.rows))


def run_program(
    program: Any,
    x: F32 | None = None,
    *,
    rows: int = 0,
    tokens: npt.NDArray[np.int64] | None = None,
    wanted: tuple[int, ...] = (),
    prompt: bool = False,
) -> None:
    """One pass over rows of one sequence, from position 0 on; x goes into slot 0."""
    if x is not None:
        rows = len(x)
        program.slot(0, rows)[:] = x
    every = np.arange(rows, dtype=np.int64)
    which = np.zeros(rows, np.int32)
    caches = [native().Cache(program)]
    ids = every * 0 if tokens is None else tokens
    program.run(ids, every, which, caches, np.array(wanted, np.int64), prompt=prompt)


def attend(level: str, kv_type: str, i: Attention, threads: int = 1) -> F32:
    """The mix of one query, h × e, over a cache written by the level's own kernel."""
    out: F32 = attend_rows(level, kv_type, i, i.q[None], prompt=False, threads=threads)[0]
    return out


def attend_rows(
    level: str, kv_type: str, i: Attention, q: F32, *, prompt: bool = True, threads: int = 1
) -> F32:
    """The mixes of the queries q, n × h × e, at the last n positions of i: of a prompt or not."""
    out: F32 = native().test_attention(
        level,
        kv_type,
        q,
        i.keys,
        i.values,
        i.scale,
        softcap=i.softcap,
        window=i.window,
        slopes=i.slopes,
        sinks=i.sinks,
        prompt=prompt,
        threads=threads,
    )
    return out
