"""The reference backend: the graph run op by op in float32 NumPy, the plain truth for all others.

Each op is the function of its name in `graph/references.py`. After each one the result's type is
checked: a float64 scalar that slips into a pass promotes all that follows, in silence and at
several times the cost.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from forwardpass.backends.backend import Part, WeightSource, check_pass, has_learned_positions
from forwardpass.backends.recorder import Recorder, visible_pairs
from forwardpass.backends.threads import threads_in_force
from forwardpass.errors import ComputeError
from forwardpass.graph.graph import Graph, Node, Value, Weight
from forwardpass.graph.reference_table import REFERENCES
from forwardpass.graph.references import F32, TILE, Ids

References = Mapping[str, Callable[..., F32]]
Watch = Callable[[Node, F32], None]
"""Is shown what each node of a pass made; the array is the pass's own."""
_FIRST_CAPACITY = 256


@dataclass
class Cache:
    """One sequence's states: for each, g × capacity × e; `length` tokens are in."""

    stores: dict[str, F32]
    length: int = 0

    def fork(self) -> Cache:
        """A copy that grows on its own."""
        return Cache({name: store.copy() for name, store in self.stores.items()}, self.length)

    def truncate(self, length: int) -> None:
        """Forgets all but the first `length` tokens."""
        if not 0 <= length <= self.length:
            raise ValueError(f"{length} of {self.length} tokens")
        self.length = length

    def reserve(self, tokens: int) -> None:
        """Makes room for `tokens` tokens and the padding of the last tile."""
        wanted = tokens + TILE
        for name, store in self.stores.items():
            groups, capacity, width = store.shape
            if capacity < wanted:
                grown = np.zeros((groups, max(wanted, 2 * capacity), width), np.float32)
                grown[:, : self.length] = store[:, : self.length]
                self.stores[name] = grown

    def fill_random(self, tokens: int, seed: int = 0) -> None:
        """Makes `tokens` tokens of random keys and values the content, as if they had been run.

        For measuring: every store of one shape gets the same numbers, uniform within ±½.
        """
        self.length = 0
        self.reserve(tokens)
        rows: dict[tuple[int, int], F32] = {}
        generator = np.random.default_rng(seed)
        for store in self.stores.values():
            groups, _, width = store.shape
            if (groups, width) not in rows:
                numbers = generator.random((groups, tokens, width), dtype=np.float32)
                rows[groups, width] = numbers - np.float32(0.5)
            store[:, :tokens] = rows[groups, width]
        self.length = tokens


@dataclass
class Reference:
    """Runs passes of one graph with one set of weights; decoded weights are kept."""

    graph: Graph
    weights: WeightSource
    functions: References = field(default_factory=lambda: dict(REFERENCES))
    _decoded: dict[str, F32] = field(default_factory=dict)

    name = "reference"
    words = "reference backend (NumPy)"
    notes = ()
    kv_width = 4  # bytes of a float32

    @property
    def threads(self) -> int:
        """Threads that matrix products run on."""
        return threads_in_force()

    def weight_bytes(self, weight: Weight) -> int:
        """Its float32 elements, whatever the file does."""
        return 4 * weight.elements

    def load(self) -> None:
        """Decodes every weight now instead of at its first use."""
        for name in self.graph.weights:
            self._weight(name)

    def new_cache(self) -> Cache:
        """An empty cache for one sequence."""
        stores: dict[str, F32] = {}
        for node in self.graph.nodes:
            if node.op.state and node.state is not None:
                groups, _, width = node.output.shape  # of a latent state: what is expanded from it
                shape = (groups, _FIRST_CAPACITY, width)
                stores[node.state.name] = np.zeros(shape, np.float32)  # type: ignore[arg-type]
        return Cache(stores)

    def run(
        self,
        cache: Cache,
        tokens: Sequence[int],
        *,
        wanted: Sequence[int] | None = None,
        generated: bool = False,
        recorder: Recorder | None = None,
        watch: Watch | None = None,
    ) -> F32:
        """One pass over `tokens` behind what is cached; logits of the wanted rows, r v.

        As `Backend.run`; generated tokens are computed one by one. `watch` sees the nodes' values.
        Raises ComputeError also where an op leaves float32.
        """
        logits = self._pass(cache, tokens, wanted, generated, recorder, watch, check_finite=False)
        if not np.isfinite(logits).all():
            # Once more, looking at every op: the cached rows are written again with the same
            # values.
            self._pass(cache, tokens, wanted, generated, None, None, check_finite=True)
        cache.length += len(tokens)
        return logits

    def apply(self, node: Node, inputs: Sequence[F32 | Ids], *, generated: bool = False) -> F32:
        """What one node makes of other inputs than those of a pass; one that keeps no state."""
        arguments = [*inputs, *(self._weight(weight.name) for weight in node.weights)]
        with np.errstate(all="ignore"):
            return self._apply(node, arguments, None, generated)

    def run_batch(self, parts: Sequence[Part[Cache]]) -> list[F32]:
        """Each sequence's generated tokens, one sequence after another."""
        return [
            self.run(cache, tokens, wanted=wanted, generated=True)
            for cache, tokens, wanted in parts
        ]

    def _pass(
        self,
        cache: Cache,
        tokens: Sequence[int],
        wanted: Sequence[int] | None,
        generated: bool,
        recorder: Recorder | None,
        watch: Watch | None,
        check_finite: bool,
    ) -> F32:
        rows = [len(tokens) - 1] if wanted is None else list(wanted)
        check_pass(self.graph, tokens, rows, cache.length, has_learned_positions(self.graph))
        cache.reserve(cache.length + len(tokens))
        positions = np.arange(cache.length, cache.length + len(tokens), dtype=np.int64)
        values: dict[Value, F32 | Ids] = {
            self.graph.tokens: np.array(tokens, dtype=np.int64),
            self.graph.positions: positions,
            self.graph.rows: np.array(rows, dtype=np.int64),
        }
        last_use = {value: node for node in self.graph.nodes for value in node.inputs}
        for node in self.graph.nodes:
            arguments = [values[value] for value in node.inputs]
            arguments += [self._weight(weight.name) for weight in node.weights]
            start = time.perf_counter()
            # What overflows is found below, by its place; a warning would not say where.
            with np.errstate(all="ignore"):
                result = self._apply(node, arguments, cache, generated)
            seconds = time.perf_counter() - start
            wanted_type = np.int64 if node.op.integers else np.float32
            if result.dtype != wanted_type:
                raise ComputeError(
                    f"{node.name} made {result.dtype}, where {wanted_type.__name__} is wanted",
                    advice="A float64 scalar in the op promotes its result; wrap it in np.float32.",
                )
            if check_finite and not np.isfinite(result).all():
                raise ComputeError(f"{node.name} made the first value that is not finite")
            values[node.output] = result
            if watch is not None:
                watch(node, result)
            if recorder is not None:
                shapes = [array.shape for array in arguments]
                # Behind the rows, the experts that each of them goes to.
                read = len(np.unique(arguments[1])) if node.op.experts else None
                pairs = visible_pairs(node, positions)
                recorder.add(node, shapes, result.shape, pairs, seconds, read)
            for value in node.inputs:
                if last_use[value] is node:
                    values.pop(value, None)
        return values[self.graph.logits]  # type: ignore[return-value]

    def _apply(
        self, node: Node, arguments: list[F32 | Ids], cache: Cache | None, generated: bool
    ) -> F32:
        function = self.functions[node.op.name]
        options = dict(node.attributes)
        if node.op.phased:
            options["generated"] = generated
        if node.op.name == "heads":
            options["e"] = node.output.shape[-1]
        if node.state is not None:
            assert cache is not None  # only a pass runs such nodes
            arguments = [*arguments, cache.stores[node.state.name]]
            options["start"] = cache.length
        return function(*arguments, **options)

    def _weight(self, name: str) -> F32:
        if name not in self._decoded:
            self._decoded[name] = self.weights.numpy(name)
        return self._decoded[name]
