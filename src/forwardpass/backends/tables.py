"""From the weights of a model to the packed tables of the program.

A table keeps the type that its file stores it in; what has no kernel is rounded to bf16, and that
is reported. Rows that a file stores in another order are taken in the graph's while packing, so
nothing is decoded. Tables that a mapped file holds as they are wanted are packed by threads that
need no interpreter, which meanwhile does something else; pages of the file are given up on the way.
At no time is much more in memory than the packed tables and, of what is converted, one tensor.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, cast

import numpy as np
import numpy.typing as npt

from forwardpass.architectures.family import Transform
from forwardpass.backends.backend import WeightSource
from forwardpass.backends.steps import Rows
from forwardpass.formats.packed import PackedTensor
from forwardpass.formats.packings import Mlx
from forwardpass.formats.source import MappedFile
from forwardpass.formats.tensors import StoredTensor, Tensor
from forwardpass.graph.graph import Graph, Weight
from forwardpass.graph.references import F32
from forwardpass.weights import Placed, Weights

if TYPE_CHECKING:
    from forwardpass import _native

Progress = Callable[[int, int], None]
"""Called with the bytes of tables that are packed, and those of all."""

TABLES = frozenset({"embed", "add_positions", "linear", "linear_bias"})
"""Ops whose first weight is a table: the others' are vectors."""
FLOATS = {"f32": np.uint32, "f16": np.uint16, "bf16": np.uint16}
_MLX_SCALES = ("f16", "bf16")
_CHUNK = 1 << 22  # elements converted at a time
_LOOK = 0.05  # seconds between two looks at how far the packing is


def table_weights(graph: Graph) -> list[Weight]:
    """The weights that become tables, each once."""
    found = {n.weights[0].name: n.weights[0] for n in graph.nodes if n.op.name in TABLES}
    return list(found.values())


def packed_type(source: WeightSource, name: str, types: Collection[str]) -> str:
    """The type that a weight's table is packed in: its own where `types` has it, else bf16.

    Weights that no file stores are float32.
    """
    if not isinstance(source, Weights):
        return "f32"
    placed = source.placed[name]
    stored, found = placed.stored, placed.stored.dtype.name
    if _is_mlx4(stored):
        assert isinstance(stored, PackedTensor)
        scale = stored.parts["scales"].dtype.name
        same = scale == stored.parts["biases"].dtype.name
        found = f"mlx4_{scale}" if same and scale in _MLX_SCALES else ""
    elif not isinstance(stored, StoredTensor):
        found = ""
    if placed.transform is Transform.TRANSPOSE and found not in FLOATS:
        found = ""
    return found if found in types else "bf16"


def packed_bytes(kind: str, weight: Weight) -> int:
    """About the bytes of a packed table: those of its elements in the type."""
    from forwardpass.dtypes import DTYPES

    if kind.startswith("mlx4"):
        return weight.elements // 32 * 20
    dtype = DTYPES[kind]
    rows, cols = weight.shape
    return rows * math.ceil(cols / dtype.block) * dtype.bytes


def takes_blocks(kind: str) -> bool:
    """Whether products with a table of that type read their input as integers."""
    return kind not in FLOATS


def row_order(source: WeightSource, name: str) -> npt.NDArray[np.int64] | None:
    """The stored row of each row of a table; None where they are the same."""
    if not isinstance(source, Weights):
        return None
    placed = source.placed[name]
    if placed.transform in (Transform.AS_STORED, Transform.TRANSPOSE):
        return None
    if placed.transform is Transform.ADD_ONE:
        raise ValueError(f"{name}: a table has no gains")
    # What the transform makes of the rows, it makes of their numbers.
    numbered = cast("Tensor", _Numbers(placed.weight.shape[0]))
    alone = replace(source, placed={name: Placed(placed.weight, numbered, placed.transform)})
    return cast("npt.NDArray[np.int64]", alone.numpy(name))


@dataclass(frozen=True)
class _Numbers:
    """A tensor of the numbers of its rows."""

    rows: int

    def numpy(self) -> npt.NDArray[np.int64]:
        return np.arange(self.rows, dtype=np.int64)


@dataclass
class PackedWeights:
    """The tables of a graph, each packed once, and its vectors.

    `converted`: how many tables of each stored type were rounded to bf16.
    """

    graph: Graph
    source: WeightSource
    tables: _native.Tables
    types: Mapping[str, str]
    numbers: dict[Rows, int] = field(default_factory=dict)
    converted: dict[str, int] = field(default_factory=dict)
    _vectors: dict[str, F32] = field(default_factory=dict)

    def add(
        self,
        wanted: Iterable[Rows],
        progress: Progress | None = None,
        meanwhile: Callable[[], None] | None = None,
    ) -> None:
        """Packs the tables; runs `meanwhile` while other threads do.

        An error in it, or an interrupt, ends the packing.
        """
        by_name: dict[str, list[Rows]] = {}
        for rows in dict.fromkeys(wanted):
            by_name.setdefault(rows.weight, []).append(rows)
        total = sum(self._bytes(name, ranges) for name, ranges in by_name.items())
        told = 0

        def tell(done: int) -> None:
            nonlocal told
            if progress is not None and done > told:
                told = done
                progress(done, total)

        try:
            done = self._pack(by_name, tell)
            if meanwhile is not None:
                meanwhile()
            while not self.tables.wait(_LOOK):
                tell(done + self.tables.packed)
        except BaseException:
            self.tables.stop()
            raise
        tell(total)

    def _pack(self, by_name: Mapping[str, list[Rows]], tell: Callable[[int], None]) -> int:
        """Queues what a mapped file holds as it is wanted, packs the rest; the bytes of these."""
        done = 0
        for name, ranges in by_name.items():
            queued = self._as_stored(name)
            pack = self._packer(name)
            for rows in ranges:
                self.numbers[rows] = pack(rows)
            done += 0 if queued else self._bytes(name, ranges)
            tell(done + self.tables.packed)
        return done

    def _as_stored(self, name: str) -> bool:
        """Whether a mapped file holds the rows of the table, of its type, in whatever order."""
        if not isinstance(self.source, Weights):
            return False
        placed = self.source.placed[name]
        stored = placed.stored
        return (
            isinstance(stored, StoredTensor)
            and isinstance(stored.source, MappedFile)
            and stored.dtype.name == self.types[name]
            and placed.transform is not Transform.TRANSPOSE
        )

    def vector(self, name: str) -> F32:
        """A gain or bias as float32, flat; kept."""
        if name not in self._vectors:
            # A copy: what lies in a mapped file would keep it. A system that reads a page of it may
            # bring up to 2 MB around, so all of the file is given up.
            self._vectors[name] = np.array(self.source.numpy(name)).ravel()
            if isinstance(self.source, Weights):
                _forget(self.source.placed[name].stored, whole_file=True)
        return self._vectors[name]

    def _bytes(self, name: str, ranges: list[Rows]) -> int:
        return sum(
            packed_bytes(self.types[name], Weight(name, (r.stop - r.start, self._cols(name))))
            for r in ranges
        )

    def _cols(self, name: str) -> int:
        return self.graph.weights[name].shape[-1]

    def _packer(self, name: str) -> Callable[[Rows], int]:
        """What packs ranges of one weight's rows."""
        kind, order = self.types[name], row_order(self.source, name)
        if not isinstance(self.source, Weights):
            return self._plain("f32", _bytes_of(self.source.numpy(name)), None)
        placed = self.source.placed[name]
        stored = placed.stored
        if kind.startswith("mlx4"):
            assert isinstance(stored, PackedTensor)
            return self._mlx4(kind, stored, order)
        if stored.dtype.name != kind or not isinstance(stored, StoredTensor):
            named = stored.dtype.name
            self.converted[named] = self.converted.get(named, 0) + 1
            return self._plain("bf16", _as_bf16(self.source, name), None)
        if placed.transform is Transform.TRANSPOSE:
            turned = np.frombuffer(stored.raw(), FLOATS[kind]).reshape(stored.shape).T
            return self._plain(kind, _bytes_of(np.ascontiguousarray(turned)), None)
        rows = np.frombuffer(stored.raw(), np.uint8).reshape(placed.weight.shape[0], -1)
        return self._plain(kind, rows, order, queued=self._as_stored(name))

    def _plain(
        self,
        kind: str,
        stored: npt.NDArray[np.uint8],
        order: npt.NDArray[np.int64] | None,
        *,
        queued: bool = False,
    ) -> Callable[[Rows], int]:
        """Packs rows from their bytes, rows × bytes of a row, in the given order.

        `queued`: by other threads, and the bytes are those of a mapped file.
        """

        def pack(rows: Rows) -> int:
            cols, count = self._cols(rows.weight), rows.stop - rows.start
            some = None if order is None else order[rows.start : rows.stop]
            read = (stored[rows.start : rows.stop] if some is None else stored).reshape(-1)
            if queued:
                return self.tables.queue(kind, count, cols, read, some, mapped=True)
            return self.tables.add(kind, count, cols, read, some)

        return pack

    def _mlx4(
        self, kind: str, stored: PackedTensor, order: npt.NDArray[np.int64] | None
    ) -> Callable[[Rows], int]:
        assert isinstance(stored.packing, Mlx)
        group = stored.packing.group
        parts = [
            np.frombuffer(stored.parts[part].raw(), dtype).reshape(stored.shape[0], -1)
            for part, dtype in (("weight", np.uint32), ("scales", np.uint16), ("biases", np.uint16))
        ]
        if order is not None:
            parts = [part[order] for part in parts]

        def pack(rows: Rows) -> int:
            words, scales, biases = (
                np.ascontiguousarray(part[rows.start : rows.stop]) for part in parts
            )
            cols, count = self._cols(rows.weight), rows.stop - rows.start
            number = self.tables.add_mlx4(kind, count, cols, group, words, scales, biases, None)
            for part in stored.parts.values():
                _forget(part)
            return number

        return pack


def bf16_of(x: F32) -> npt.NDArray[np.uint16]:
    """x rounded to bf16, ties to even, as its upper 16 bits; NaN stays NaN."""
    bits = np.ascontiguousarray(x).view(np.uint32)
    rounded = (bits + (0x7FFF + ((bits >> 16) & 1))) >> 16
    return np.where(np.isnan(x), (bits >> 16) | 0x40, rounded).astype(np.uint16)


def _as_bf16(source: Weights, name: str) -> npt.NDArray[np.uint8]:
    """A weight in the graph's shape, rounded: rows × bytes of a row."""
    placed = source.placed[name]
    rows, cols = placed.weight.shape
    out = np.empty((rows, cols), np.uint16)
    if placed.transform is not Transform.AS_STORED:
        out[:] = bf16_of(source.numpy(name))
        return _bytes_of(out)
    step = max(1, _CHUNK // cols)
    for start in range(0, rows, step):
        stop = min(start + step, rows)
        out[start:stop] = bf16_of(placed.stored.rows(start, stop))
        _forget(placed.stored)
    return _bytes_of(out)


def _bytes_of(rows: npt.NDArray[np.generic]) -> npt.NDArray[np.uint8]:
    return np.ascontiguousarray(rows).view(np.uint8).reshape(rows.shape[0], -1)


def _is_mlx4(stored: Tensor) -> bool:
    packing = stored.packing if isinstance(stored, PackedTensor) else None
    return isinstance(packing, Mlx) and packing.bits == 4


def _forget(tensor: Tensor, *, whole_file: bool = False) -> None:
    if isinstance(tensor, StoredTensor) and isinstance(tensor.source, MappedFile):
        source = tensor.source
        if whole_file:
            source.forget(0, source.size)
        else:
            source.forget(tensor.offset, tensor.nbytes)
