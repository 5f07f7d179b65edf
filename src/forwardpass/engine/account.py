"""`Account`: what the passes of an answer did, counted from the graph, and how long they took."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from forwardpass.engine.runner import Pass
from forwardpass.graph.graph import Graph
from forwardpass.work.count import WeightBytes, count_pass, expected_experts
from forwardpass.work.passes import PassShape


@dataclass(frozen=True)
class Experts:
    """How many different experts a layer's tables were read of, summed over `passes`.

    `expected`: what it would be if each token chose on its own, every expert equally often. `of`:
    how many there are.
    """

    read: float
    expected: float
    of: int
    passes: int = 1

    def __add__(self, more: Experts) -> Experts:
        return Experts(
            self.read + more.read,
            self.expected + more.expected,
            max(self.of, more.of),
            self.passes + more.passes,
        )

    def as_dict(self) -> dict[str, object]:
        """Averages over the passes."""
        return {
            "read": self.read / self.passes,
            "expected": self.expected / self.passes,
            "of": self.of,
        }


def _added(one: Experts | None, more: Experts | None) -> Experts | None:
    return one + more if one is not None and more is not None else one or more


@dataclass(frozen=True)
class Account:
    """The work of some passes.

    `flop`: matrix products and attention. `weight_bytes`: tables as stored, once a pass.
    `cache_bytes`: KV cache read and written. Seconds are of the passes alone. `experts`: where a
    model has them, those that its layers read.
    """

    passes: int = 0
    flop: int = 0
    weight_bytes: int = 0
    cache_bytes: int = 0
    seconds_prefill: float = 0.0
    seconds_decode: float = 0.0
    experts: Experts | None = None

    @property
    def seconds(self) -> float:
        """Of all passes."""
        return self.seconds_prefill + self.seconds_decode

    def __add__(self, more: Account) -> Account:
        return Account(
            self.passes + more.passes,
            self.flop + more.flop,
            self.weight_bytes + more.weight_bytes,
            self.cache_bytes + more.cache_bytes,
            self.seconds_prefill + more.seconds_prefill,
            self.seconds_decode + more.seconds_decode,
            _added(self.experts, more.experts),
        )

    def as_dict(self) -> dict[str, object]:
        """The keys of `work` in JSON."""
        experts = {} if self.experts is None else {"experts": self.experts.as_dict()}
        return {
            "passes": self.passes,
            "flop": self.flop,
            "weight_bytes": self.weight_bytes,
            "cache_bytes": self.cache_bytes,
            "seconds": self.seconds,
            "seconds_prefill": self.seconds_prefill,
            "seconds_decode": self.seconds_decode,
            **experts,
        }


def account(
    graph: Graph, passes: Iterable[Pass], weight_bytes: WeightBytes, kv_width: int
) -> Account:
    """The account of `passes`, each of one sequence."""
    total = Account()
    ran = list(passes)
    prompts = [done for done in ran if done.prompt]
    decoded = [done for done in ran if not done.prompt]
    for done in prompts:
        total += _counted(graph, [done], weight_bytes, kv_width, prefill=True)
    if decoded:
        total += _counted(graph, decoded, weight_bytes, kv_width, prefill=False)
    return total


def _counted(
    graph: Graph, passes: list[Pass], weight_bytes: WeightBytes, kv_width: int, *, prefill: bool
) -> Account:
    """Passes of one token each counted in one reading of the graph.

    FLOP and cache bytes are sums over sequences, so passes may be read as one batch; weights are
    read anew in each pass.
    """
    together = PassShape(tuple(done.shape for done in passes))
    work = count_pass(graph, together, weight_bytes, kv_width)
    one = count_pass(graph, PassShape((passes[0].shape,)), weight_bytes, kv_width)
    seconds = sum(done.seconds for done in passes)
    return Account(
        passes=len(passes),
        flop=work.flop,
        weight_bytes=one.weight_bytes * len(passes),
        cache_bytes=work.total.cache_read + work.total.cache_written,
        seconds_prefill=seconds if prefill else 0.0,
        seconds_decode=0.0 if prefill else seconds,
        experts=_experts(graph, passes),
    )


def _experts(graph: Graph, passes: list[Pass]) -> Experts | None:
    """What the layers of these passes read of their experts."""
    ways: Counter[tuple[int, int]] = Counter()  # of how many experts how many are chosen
    for node in graph.nodes:
        chosen = node.sizes.get("k")
        if node.op.experts and isinstance(chosen, int):
            ways[node.weights[0].shape[0], chosen] += 1
    total: Experts | None = None
    for done in passes:
        if done.experts is not None:
            expected = math.fsum(
                tables * expected_experts(*way, done.shape.new) for way, tables in ways.items()
            )
            most = max(experts for experts, _ in ways)
            total = _added(total, Experts(done.experts, expected / ways.total(), most))
    return total
