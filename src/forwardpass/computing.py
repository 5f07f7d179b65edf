"""`Computing`: what is asked of whatever computes the passes, and the backend that follows.

The native backend is taken where it is here and has kernels for the model; otherwise the
reference, and a note says why.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from forwardpass.backends.levels import missing_reason
from forwardpass.backends.threads import native_threads, set_threads
from forwardpass.describe import Description
from forwardpass.errors import RequestError, did_you_mean
from forwardpass.memory import require_memory
from forwardpass.units import exact
from forwardpass.work.count import kv_bytes_per_token

# NumPy must not be loaded before `set_threads`, so what computes is imported where it is used.
if TYPE_CHECKING:
    from forwardpass.backends.backend import Backend, WeightSource
    from forwardpass.graph.graph import Graph

NATIVE, REFERENCE = "native", "reference"
BACKENDS = (NATIVE, REFERENCE)
KV_TYPES = ("f16", "bf16", "f32")
_MOST_HEAD_DIM, _HEAD_DIM_STEP = 512, 8  # of the attention kernel


@dataclass(frozen=True)
class Computing:
    """What was asked for; None leaves the choice to the program."""

    backend: str | None = None
    threads: int | None = None
    kv_type: str | None = None

    def check(self) -> None:
        """Raises RequestError for what there is not; sets the threads of NumPy for the reference.

        To be called before NumPy is loaded.
        """
        if self.backend not in (None, *BACKENDS):
            raise RequestError(
                f"there is no backend {self.backend!r}{did_you_mean(str(self.backend), BACKENDS)}",
                advice=f"this version has {', '.join(BACKENDS)}",
            )
        if self.kv_type not in (None, *KV_TYPES):
            raise RequestError(
                f"kv_type = {self.kv_type!r:.60}: wanted {', '.join(KV_TYPES)}"
                f"{did_you_mean(str(self.kv_type), KV_TYPES)}"
            )
        reason = missing_reason()
        if self.backend == NATIVE and reason is not None:
            raise RequestError(
                "the native backend is not here", reason, advice="--backend reference is"
            )
        if self.backend == REFERENCE or reason is not None:
            self._check_reference()
        elif self.threads is not None:
            native_threads(self.threads)

    def backend_for(
        self,
        description: Description,
        label: str,
        *,
        context: int | None = None,
        packing: Callable[[int, int], None] | None = None,
        meanwhile: Callable[[], None] | None = None,
    ) -> tuple[Backend, tuple[str, ...]]:
        """The backend with the description's weights, and what there is to say about it.

        `context`: the tokens that were asked for by number, whose cache has to fit beside the
        weights. `packing` is called with the bytes of tables that are packed, and of all;
        `meanwhile` is run while other threads pack, or before the reference takes the weights.

        Raises RequestError where the native backend was asked for and has no kernel for the model;
        WeightsError where memory does not hold weights and cache.
        """
        weights = description.weights
        assert weights is not None  # a model that is to be run has them
        return self.backend_of(
            description.graph,
            weights,
            label,
            context=context,
            packing=packing,
            meanwhile=meanwhile,
        )

    def backend_of(
        self,
        graph: Graph,
        weights: WeightSource,
        label: str,
        *,
        decode: bool = True,
        context: int | None = None,
        packing: Callable[[int, int], None] | None = None,
        meanwhile: Callable[[], None] | None = None,
    ) -> tuple[Backend, tuple[str, ...]]:
        """The same for a graph and any weights. `decode`: the reference decodes them at once."""
        if graph.counted_only or not graph.proven:
            why = f"no backend computes {', '.join(graph.counted_only)}"
            raise RequestError(
                f"{label}: {graph.config.model_type} is counted and planned by this version, not "
                f"run: {why if graph.counted_only else 'its logits are held to no other program'}"
            )
        reason = missing_reason()
        note = None if reason is None else f"reference backend (NumPy): {reason}"
        if self.backend != REFERENCE and reason is None:
            lacking = without_kernel(graph)
            if lacking is None:
                return self._native(graph, weights, label, context, packing, meanwhile)
            if self.backend == NATIVE:
                raise RequestError(
                    f"{label}: the native backend has no kernel for {lacking}",
                    advice="--backend reference runs it",
                )
            note = f"reference backend (NumPy): there is no kernel for {lacking}"
            self._check_reference()
        if meanwhile is not None:
            meanwhile()
        from forwardpass.backends.reference import Reference

        backend = Reference(graph, weights)
        if decode:
            elements = sum(weight.elements for weight in graph.parameters)
            what = f"{label}: {exact(elements)} weights in float32"
            if context is not None:
                what += f" and the cache of {exact(context)} tokens (--context)"
            cached = cache_bytes(graph, context or 0, 4)
            require_memory(4 * elements + cached, what)
            backend.load()
        return backend, () if note is None else (note,)

    def _native(
        self,
        graph: Graph,
        weights: WeightSource,
        label: str,
        context: int | None,
        packing: Callable[[int, int], None] | None,
        meanwhile: Callable[[], None] | None,
    ) -> tuple[Backend, tuple[str, ...]]:
        from forwardpass import _native
        from forwardpass.backends.native import KV_WIDTHS, Native, memory_needed

        kv_type = self.kv_type or KV_TYPES[0]
        block = _native.cache_block  # positions of which the cache makes room at a time
        tokens = block if context is None else context
        cached = cache_bytes(graph, math.ceil(tokens / block) * block, KV_WIDTHS[kv_type])
        asked = "" if context is None else " (--context)"
        what = f"{label}: its weights and the cache of {exact(tokens)} tokens{asked}"
        require_memory(memory_needed(graph, weights) + cached, what)
        backend = Native(
            graph,
            weights,
            self.threads or 0,
            kv_type,
            progress=packing,
            meanwhile=meanwhile,
        )
        return backend, backend.notes

    def _check_reference(self) -> None:
        if self.kv_type not in (None, "f32"):
            raise RequestError(
                f"kv_type = {self.kv_type}: the reference backend keeps its cache in f32"
            )
        if self.threads is not None:
            set_threads(self.threads)


def cache_bytes(graph: Graph, tokens: int, width: int) -> int:
    """Bytes of a cache with room for `tokens` tokens; both backends keep what windows passed."""
    return tokens * kv_bytes_per_token(graph, width)


def without_kernel(graph: Graph) -> str | None:
    """What keeps the graph from running natively, or None."""
    for node in graph.nodes:
        if node.op.experts:
            return "mixtures of experts"
        if node.op.name == "attention_sinks":
            return "attention sinks"
        if node.op.name == "join_heads":
            return "latent attention"
        if node.op.name == "attention" and node.sizes["e"] != node.sizes["w"]:
            return "values narrower than keys"
    for state in graph.states:
        width = state.shape[-1]
        if width % _HEAD_DIM_STEP or width > _MOST_HEAD_DIM:
            return f"heads of {width} elements"
    return None
