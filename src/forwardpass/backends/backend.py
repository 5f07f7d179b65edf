"""`Backend`: what runs the passes of a graph, and `Cache`, what it keeps of a sequence.

Both backends are one: the reference in NumPy (`reference.py`), and the native program
(`native.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol, TypeVar

from forwardpass.backends.recorder import Recorder
from forwardpass.errors import ContextError
from forwardpass.graph.graph import Graph, Weight
from forwardpass.graph.references import F32


class WeightSource(Protocol):
    """Gives a weight by its graph name, as float32 in the graph's shape."""

    def numpy(self, name: str) -> F32: ...


class Cache(Protocol):
    """One sequence's states; `length` tokens are in."""

    @property
    def length(self) -> int: ...

    def fork(self) -> Cache:
        """A copy that grows on its own."""

    def truncate(self, length: int) -> None:
        """Forgets all but the first `length` tokens."""

    def reserve(self, tokens: int) -> None:
        """Makes room for `tokens` tokens."""

    def fill_random(self, tokens: int, seed: int = 0) -> None:
        """Makes `tokens` tokens of random keys and values the content, as if they had been run."""


AnyCache = TypeVar("AnyCache")
Part = tuple[AnyCache, Sequence[int], Sequence[int] | None]
"""A sequence's part in a pass: its cache, its new tokens, and which of those rows are wanted."""


class Backend(Protocol):
    """Runs passes of one graph with one set of weights.

    `kv_width`: bytes of a cache element. `words`: its name and what it computes with, for people.
    `notes`: what is special about how it computes this model, a line each.
    """

    @property
    def graph(self) -> Graph: ...

    @property
    def name(self) -> str: ...

    @property
    def words(self) -> str: ...

    @property
    def notes(self) -> Sequence[str]: ...

    @property
    def threads(self) -> int: ...

    @property
    def kv_width(self) -> int: ...

    def weight_bytes(self, weight: Weight) -> int:
        """Bytes that a pass reads where it multiplies by the whole weight."""

    # Any: a backend takes no other caches than its own.
    def new_cache(self) -> Any:
        """An empty cache for one sequence."""

    def run(
        self,
        cache: Any,
        tokens: Sequence[int],
        *,
        wanted: Sequence[int] | None = None,
        generated: bool = False,
        recorder: Recorder | None = None,
    ) -> F32:
        """One pass over `tokens` behind what is cached; logits of the wanted rows, r v.

        `wanted`: row numbers within `tokens` (the last unless given). `generated`: these tokens
        were drawn by the model. Raises ContextError for tokens that the model does not have, rows
        that the pass does not have, and beyond the learned positions; ComputeError where the
        logits are not finite.
        """

    def run_batch(self, parts: Sequence[Part[Any]]) -> list[F32]:
        """One pass over generated tokens of several sequences; the logits of each as `run` has.

        No cache may be there twice. Errors: as `run`.
        """


def check_pass(
    graph: Graph, tokens: Sequence[int], rows: Iterable[int], cached: int, learned: bool
) -> None:
    """Raises ContextError where a pass asks for what the model does not have.

    `learned`: whether its positions are a table (`has_learned_positions`).
    """
    config = graph.config
    if not len(tokens):
        raise ContextError("a pass needs at least one token")
    outside = next((row for row in rows if not 0 <= row < len(tokens)), None)
    if outside is not None:
        raise ContextError(f"row {outside} of a pass of {len(tokens):,} tokens is wanted")
    wrong = next((t for t in tokens if not 0 <= t < config.vocab_size), None)
    if wrong is not None:
        raise ContextError(f"token {wrong} is not among the {config.vocab_size:,} of the model")
    if learned and cached + len(tokens) > config.max_position_embeddings:
        raise ContextError(
            f"{cached + len(tokens):,} tokens, the model has "
            f"{config.max_position_embeddings:,} learned positions"
        )
    for rope in config.rope_parameters.values():
        if rope.limit is not None and cached + len(tokens) > rope.limit:
            raise ContextError(
                f"{cached + len(tokens):,} tokens, the model's {rope.kind} rope holds for "
                f"{rope.limit:,}: beyond, all earlier tokens would be turned anew"
            )


def has_learned_positions(graph: Graph) -> bool:
    """Whether a table of the model ends its positions."""
    return any(node.op.name == "add_positions" for node in graph.nodes)
