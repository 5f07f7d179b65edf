"""Writes docs/ops.md: every op of the table, what computes it, and how far that may be off.

    python scripts/ops_page.py

It is made from the op table and from what tests/kernels holds; nothing in it is measured here.
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "ops.md"
if str(ROOT / "tests") not in sys.path:
    sys.path.append(str(ROOT / "tests"))

from forwardpass.backends.tables import packed_bytes  # noqa: E402
from forwardpass.dtypes import DTYPES, PACKED_TYPES  # noqa: E402
from forwardpass.graph.graph import Weight  # noqa: E402
from kernels.harness import LEVELS, TILE_LEVELS, held  # noqa: E402
from kernels.stored import MLX, MLX_GROUPS, TYPES  # noqa: E402

_LEVELS = ", ".join(f"`{name}`" for name in LEVELS)
_TILE_LEVELS = ", ".join(f"`{name}`" for name in TILE_LEVELS)
_HEAD = f"""\
# Ops and their kernels

Written by `scripts/ops_page.py` from the op table and from what `tests/kernels` holds; a test
fails where this page is not what the script writes.

A kernel is held to float64 at every level that the machine runs ({_LEVELS}),
on odd shapes and hard inputs: one massive channel, zeros, denormals, blocks whose greatest value
stands at an edge. The error allowed follows from counting roundings; u is 2⁻²⁴, one rounding of a
float32. Every level has the same bits, and so has a row alone and among others. The products of a
prompt, attention's too, are the one exception: at {_TILE_LEVELS} they are those of bf16 tiles,
with bits of their own, the same for a row alone, among others and in any chunk of its prompt;
generated rows and the head have the bits of every level there too. *View*: columns under another
name, nothing is computed. *Reference*: there is no kernel yet, and the NumPy reference computes
it. *Counted only*: models that need it are counted and planned, not run.
"""

_TYPES = """\
## Types of packed tables

Tables are packed when a model is loaded: 16 output rows interleaved, scales and integers as the
file has them. A type that is not listed is rounded to bf16, which a run's account says.
Activations are float32 beside a table of floats; beside a table of blocks they are 16-bit
integers with a scale for 32. Where a prompt is multiplied in tiles, its activations and every
weight are rounded to bf16, the weight after it was decoded.
"""


def page() -> str:
    """The text of docs/ops.md."""
    return "\n".join((_HEAD, *_ops(), "", _TYPES, *_types(), ""))


def _ops() -> list[str]:
    lines = ["| op | axes | kernel | types | error allowed |", "|---|---|---|---|---|"]
    for name, (op, how) in held().items():
        kernel = "every level" if how.levels == LEVELS else ", ".join(how.levels) or how.by
        types = "all below" if how.types == TYPES else ", ".join(f"`{kind}`" for kind in how.types)
        lines.append(f"| `{name}` | {op.axes} | {kernel} | {types} | {how.error} |")
    return lines


def _types() -> list[str]:
    lines = ["| type | bits a weight as stored | as packed | activations |", "|---|---|---|---|"]
    for kind in TYPES:
        # As many columns as every block and group divides.
        weight = Weight(kind, (16, 256))
        packed = 8 * packed_bytes(kind, weight) / weight.elements
        if kind in MLX:
            groups = [PACKED_TYPES[f"mlx4_g{group}"].bits for group in MLX_GROUPS]
            stored = ", ".join(map(_number, groups))
            stored += f" in groups of {', '.join(map(str, MLX_GROUPS))}"
        else:
            stored = _number(DTYPES[kind].bits)
        whole = DTYPES[kind].block == 1 if kind in DTYPES else False
        takes = "float32" if whole else "16-bit integers"
        lines.append(f"| `{kind}` | {stored} | {_number(packed)} | {takes} |")
    return lines


def _number(bits: float) -> str:
    return f"{bits:.4f}".rstrip("0").rstrip(".")


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
