"""The native backend: the graph as one program of fused steps, run without the interpreter.

Weights stay in the blocks that the file stores them in. A pass runs in chunks of rows, and only the
last steps, behind which are the logits, run on the rows that are wanted. An op without a kernel
runs through its reference between two parts of the program.

At a level with tiles the rows of a prompt are multiplied in bf16, generated ones and the head as at
every other level. Which way a row goes depends on nothing else, and each way has the same bits
however rows are cut into passes and chunks.
"""

from __future__ import annotations

import os
import time
from bisect import bisect_left
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from forwardpass import _native
from forwardpass.backends.backend import Part, WeightSource, check_pass, has_learned_positions
from forwardpass.backends.fusion import KERNELS, fuse
from forwardpass.backends.pass_rows import PassRows
from forwardpass.backends.program import Part as ProgramPart
from forwardpass.backends.program import compiled
from forwardpass.backends.recorder import Recorder
from forwardpass.backends.ropes import RopeTables
from forwardpass.backends.shares import StepTimes
from forwardpass.backends.slots import row_width
from forwardpass.backends.steps import HostStep, LinearStep, Plan, Rows, RowStep
from forwardpass.backends.tables import (
    PackedWeights,
    Progress,
    packed_bytes,
    packed_type,
    table_weights,
    takes_blocks,
)
from forwardpass.backends.threads import native_threads
from forwardpass.errors import ComputeError, RequestError, did_you_mean
from forwardpass.graph.graph import Graph, Weight
from forwardpass.graph.reference_table import REFERENCES
from forwardpass.graph.references import F32, Ids

ROWS = 64  # of a chunk: as many activations as the second cache keeps
TILE_ROWS = 512  # of a chunk at a level with tiles: weights are turned into tiles for each chunk
LEVEL_VARIABLE = "FORWARDPASS_ISA"
KV_WIDTHS = {"f16": 2, "bf16": 2, "f32": 4}


@dataclass
class NativeCache:
    """One sequence's keys and values in the blocks of the program."""

    inner: _native.Cache

    @property
    def length(self) -> int:
        """Tokens that are in."""
        return self.inner.length

    def fork(self) -> NativeCache:
        """A copy that grows on its own."""
        return NativeCache(self.inner.fork())

    def truncate(self, length: int) -> None:
        """Forgets all but the first `length` tokens."""
        if not 0 <= length <= self.length:
            raise ValueError(f"{length} of {self.length} tokens")
        self.inner.length = length

    def reserve(self, tokens: int) -> None:
        """Makes room for `tokens` tokens."""
        self.inner.reserve(tokens)

    def fill_random(self, tokens: int, seed: int = 0) -> None:
        """Makes `tokens` tokens of random keys and values the content, as if they had been run."""
        self.inner.fill_random(tokens, seed)


@dataclass
class Native:
    """Runs passes of one graph; its weights are packed when it is made.

    `threads`: how many (0: all cores that this process may use). `kv_type`: type of the cache.
    `level`: of instructions, the best unless given. `progress` is called while
    weights are packed, `meanwhile` runs beside it. `kernels`: ops that may run in the program.
    `rows`: the most of a chunk (0: what suits the level); changes no bit.
    """

    graph: Graph
    weights: WeightSource
    threads: int = 0
    kv_type: str = "f16"
    level: str = ""
    progress: Progress | None = None
    meanwhile: Callable[[], None] | None = None
    kernels: Collection[str] = KERNELS
    rows: int = 0
    name = "native"
    plan: Plan = field(init=False, repr=False)
    packed: PackedWeights = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if self.kv_type not in KV_WIDTHS:
            raise RequestError(
                f"kv_type = {self.kv_type!r:.60}: wanted {', '.join(KV_WIDTHS)}"
                f"{did_you_mean(str(self.kv_type), KV_WIDTHS)}"
            )
        self.threads = native_threads(self.threads or None)
        self.level = _level(self.level)
        kinds = set(_native.Tables.types)
        types = {
            weight.name: packed_type(self.weights, weight.name, kinds)
            for weight in table_weights(self.graph)
        }
        tiles = self.has_tiles
        self.rows = self.rows or (TILE_ROWS if tiles else ROWS)
        self.plan = fuse(self.graph, lambda name: tiles or takes_blocks(types[name]), self.kernels)
        tables = _native.Tables(self.threads)
        self.packed = PackedWeights(self.graph, self.weights, tables, types)
        self.packed.add(_tables_of(self.plan), self.progress, self.meanwhile)
        self._compiled = compiled(
            self.plan,
            self.packed,
            kv_type=self.kv_type,
            rows=self.rows,
            threads=self.threads,
            level=self.level,
        )
        self._ropes = RopeTables(self.plan.ropes, self.weights.numpy)
        self._times = StepTimes(self.graph, self.plan)
        self._learned = has_learned_positions(self.graph)
        self._vocabulary = row_width(self.plan.logits)

    @property
    def _program(self) -> _native.Program:
        return self._compiled.program

    @property
    def has_tiles(self) -> bool:
        """Whether prompts are multiplied in bf16 tiles."""
        return _native.has_tiles(self.level)

    @property
    def words(self) -> str:
        """The backend, its instruction-set level and its cache's type."""
        return f"native backend ({self.level}), {self.kv_type} cache"

    @property
    def kv_width(self) -> int:
        return KV_WIDTHS[self.kv_type]

    @property
    def notes(self) -> tuple[str, ...]:
        """What has no kernel."""
        tables = [
            f"{count} {'table' if count == 1 else 'tables'} of {kind.upper()}"
            for kind, count in self.converted.items()
        ]
        notes = [f"rounded to BF16, without a kernel of their own: {', '.join(tables)}"]
        names = sorted({self.graph.nodes[number].op.name for number in self.plan.fallbacks})
        computed = f"computed by the reference, without a kernel: {', '.join(names)}"
        return (*(notes if tables else ()), *([computed] if names else ()))

    def weight_bytes(self, weight: Weight) -> int:
        """About what its packed table takes; vectors are float32."""
        kind = self.packed.types.get(weight.name)
        return 4 * weight.elements if kind is None else packed_bytes(kind, weight)

    @property
    def fallbacks(self) -> tuple[str, ...]:
        """The nodes without a kernel, by name."""
        return tuple(self.graph.nodes[number].name for number in self.plan.fallbacks)

    @property
    def converted(self) -> dict[str, int]:
        """How many tables of each stored type were rounded to bf16."""
        return self.packed.converted

    def new_cache(self) -> NativeCache:
        """An empty cache for one sequence."""
        return NativeCache(_native.Cache(self._program))

    def run(
        self,
        cache: NativeCache,
        tokens: Sequence[int],
        *,
        wanted: Sequence[int] | None = None,
        generated: bool = False,
        recorder: Recorder | None = None,
    ) -> F32:
        """One pass over `tokens` behind what is cached; logits of the wanted rows, r v.

        As `Backend.run`; prompt and generated rows are computed alike at a level without tiles.
        """
        return self._run([(cache, tokens, wanted)], not generated, recorder)[0]

    def run_batch(self, parts: Sequence[Part[NativeCache]]) -> list[F32]:
        """One pass over tokens of several sequences; the logits of each as `run` has."""
        if len({id(cache) for cache, _, _ in parts}) != len(parts):
            raise ValueError("a sequence is twice in a pass")
        return self._run(parts, False, None) if parts else []

    def _run(
        self, parts: Sequence[Part[NativeCache]], prompt: bool, recorder: Recorder | None
    ) -> list[F32]:
        asked: list[Sequence[int]] = []
        for cache, tokens, wanted in parts:
            asked.append([len(tokens) - 1] if wanted is None else list(wanted))
            check_pass(self.graph, tokens, asked[-1], cache.length, self._learned)
        rows = self._rows(parts, asked, prompt)
        lengths = [cache.length for cache, _, _ in parts]
        done = False
        try:
            logits = self._pass(rows, recorder, check=False)
            if not np.isfinite(logits).all():
                _cut(parts, lengths)
                self._pass(rows, None, check=True)
                raise ComputeError("the logits are not finite")
            done = True
        finally:
            if not done:
                _cut(parts, lengths)
        return rows.by_part([len(tokens) for _, tokens, _ in parts], asked, logits)

    def _rows(
        self, parts: Sequence[Part[NativeCache]], asked: list[Sequence[int]], prompt: bool
    ) -> PassRows:
        """The rows of all parts; makes room for them."""
        positions, sequences, start = [], [], 0
        wanted: set[int] = set()
        for number, ((cache, tokens, _), rows) in enumerate(zip(parts, asked, strict=True)):
            end = cache.length + len(tokens)
            cache.reserve(end)
            positions.append(np.arange(cache.length, end, dtype=np.int64))
            sequences.append(np.full(len(tokens), number, np.int32))
            wanted.update(start + row for row in rows)
            start += len(tokens)
            if self._ropes.grow(end):
                for rope, (cos, sin) in enumerate(self._ropes.tables):
                    self._program.set_rope(rope, cos, sin)
        return PassRows(
            np.concatenate([np.array(tokens, np.int64) for _, tokens, _ in parts]),
            np.concatenate(positions),
            np.concatenate(sequences),
            [cache.inner for cache, _, _ in parts],
            np.array(sorted(wanted), np.int64),
            prompt,
        )

    def _pass(self, rows: PassRows, recorder: Recorder | None, check: bool) -> F32:
        """All chunks; the logits of the wanted rows."""
        logits: F32 = np.empty((len(rows.wanted), self._vocabulary), np.float32)
        seconds = None if recorder is None else self._times.empty()
        for which in rows.chunks(self.rows):
            low, high = (bisect_left(rows.wanted, edge) for edge in (which.start, which.stop))
            wanted = rows.wanted[low:high] - which.start
            _Chunk(self, rows, which, wanted, check, seconds).run()
            if high > low:
                slot = self._compiled.slots.of[self.plan.logits]
                logits[low:high] = self._program.slot(slot, high - low)
        if recorder is not None and seconds is not None:
            self._times.record(recorder, seconds, rows.positions, len(rows.wanted))
        return logits

    def failure(self, fault: _native.StepFault) -> ComputeError:
        """What a step's fault means."""
        node = self.graph.nodes[fault.node]
        if fault.kind != "cache":
            return ComputeError(f"{node.name} made the first value that is not finite")
        return ComputeError(
            f"layer {node.layer}: a key or a value is beyond the range of the cache's "
            f"{self.kv_type}",
            advice="--kv-type f32 holds it",
        )


@dataclass(frozen=True)
class _Chunk:
    """Some rows of a pass on their way through the program."""

    backend: Native
    rows: PassRows
    which: slice
    wanted: Ids
    check: bool
    seconds: npt.NDArray[np.float64] | None

    def run(self) -> None:
        for part in self.backend._compiled.parts:
            if part.host is None:
                self._program(part)
            elif len(self.wanted) or not part.host.wanted:
                self._host(part.host, part.plan[0])

    def _of(self, array: Ids) -> Ids:
        return array[self.which]

    def _program(self, part: ProgramPart) -> None:
        program = self.backend._program
        try:
            program.run(
                self._of(self.rows.tokens),
                self._of(self.rows.positions),
                self.rows.sequences[self.which],
                self.rows.caches,
                self.wanted,
                first=part.first,
                last=part.last,
                prompt=self.rows.prompt,
                check=self.check,
                stamps=self.seconds is not None,
            )
        except _native.StepFault as fault:
            raise self.backend.failure(fault) from None
        if self.seconds is not None:
            work, wait = program.stamps()
            self.seconds[0, list(part.plan)] += work[part.first : part.last]
            self.seconds[1, list(part.plan)] += wait[part.first : part.last]

    def _host(self, step: HostStep, number: int) -> None:
        """The node's reference on the rows of its slots."""
        backend, began = self.backend, time.perf_counter()
        node = backend.graph.nodes[step.node]
        arguments: list[F32 | Ids] = []
        for value, view in zip(node.inputs, step.inputs, strict=True):
            if view.value == backend.graph.tokens:
                arguments.append(self._of(self.rows.tokens))
            elif view.value == backend.graph.positions:
                arguments.append(self._of(self.rows.positions))
            else:
                slot = self._slot(step, backend._compiled.slots.of[view.value])
                found = slot[:, view.column : view.column + row_width(value)]
                shape = [size for size in value.shape[1:] if isinstance(size, int)]
                arguments.append(found.reshape(len(found), *shape))
        arguments += [backend.weights.numpy(weight.name) for weight in node.weights]
        function: Callable[..., F32] = REFERENCES[node.op.name]
        with np.errstate(all="ignore"):
            made = function(*arguments, **node.attributes)
        if self.check and not np.isfinite(made).all():
            raise ComputeError(f"{node.name} made the first value that is not finite")
        out = self._slot(step, backend._compiled.slots.of[step.out.value])
        out[:] = made.reshape(len(made), -1)
        if self.seconds is not None:
            self.seconds[0, number] += time.perf_counter() - began

    def _slot(self, step: HostStep, number: int) -> F32:
        count = len(self.wanted) if step.wanted else len(self._of(self.rows.tokens))
        return self.backend._program.slot(number, count)


def _level(asked: str) -> str:
    """The level that was asked for, the one that FORWARDPASS_ISA names, or the best one."""
    levels = _native.levels()
    named = asked or os.environ.get(LEVEL_VARIABLE, "")
    if named and named not in levels:
        where = "level" if asked else LEVEL_VARIABLE
        raise RequestError(f"{where} = {named!r:.60}: this machine runs {', '.join(levels)}")
    return named or levels[0]


def _cut(parts: Sequence[Part[NativeCache]], lengths: Sequence[int]) -> None:
    """Forgets what a pass wrote."""
    for (cache, _, _), length in zip(parts, lengths, strict=True):
        cache.inner.length = length


def memory_needed(graph: Graph, weights: WeightSource) -> int:
    """About the bytes that the packed tables of a graph will take."""
    kinds = set(_native.Tables.types)
    return sum(
        packed_bytes(packed_type(weights, weight.name, kinds), weight)
        for weight in table_weights(graph)
    )


def _tables_of(plan: Plan) -> list[Rows]:
    """Every table of the steps, in their order."""
    found: list[Rows | None] = []
    for step in plan.steps:
        if isinstance(step, RowStep):
            found += [op.table for op in step.ops]
        elif isinstance(step, LinearStep):
            for segment in step.segments:
                found += [segment.sums.table, segment.sums.up]
    return [rows for rows in found if rows is not None]
