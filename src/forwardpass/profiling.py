"""Runs passes and times them by role, each beside its counted work and its predicted time.

Time belongs to the node that took it, work to the rule that counts it: the arithmetic of softmax
counts as `other`, its time is in `attention.read`, whose node computes it. What a cache costs,
writing included, is `attention.read` in both. Seconds between the nodes are kept apart, so that
all parts add up to the whole.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from forwardpass.backends import ceilings
from forwardpass.backends.backend import Backend, Cache
from forwardpass.backends.recorder import Recorder
from forwardpass.backends.threads import threads_in_force, usable_cores
from forwardpass.graph.graph import Graph, Node, Role, Weight
from forwardpass.graph.references import Ids
from forwardpass.work.count import PassWork, Work, count_pass, node_flop
from forwardpass.work.machine import Ceilings, Machine, cpu_name
from forwardpass.work.passes import PassShape
from forwardpass.work.predict import PassPrediction, Prediction, predict_pass

WIDTH = 4  # bytes of a float32: weights, keys and values as the reference backend holds them


@dataclass(frozen=True)
class Repeat:
    """How often is measured: `times` repetitions of as many passes as `tokens` tokens take."""

    tokens: int = 30
    times: int = 3

    def passes(self, tokens: int) -> int:
        """Passes of `tokens` tokens in one repetition."""
        return -(-self.tokens // tokens)


@dataclass(frozen=True)
class Trial:
    """One repetition: seconds a pass, and of them by role and of waiting for other threads."""

    seconds: float
    by_role: Mapping[Role, float]
    waiting: float = 0.0


@dataclass(frozen=True)
class RoleTime:
    """A role in one pass: its work, the seconds that its nodes took, and those predicted."""

    role: Role
    work: Work
    seconds: float
    predicted: Prediction


@dataclass(frozen=True)
class Row:
    """One kind of pass, measured: `tokens` tokens, the last of which sees `visible`.

    `seconds` is a pass of the repetition in the middle, and `roles` are of that same repetition;
    `spread` is half the distance between the fastest and the slowest repetition. `waiting`: seconds
    that the first thread waited for others, which belong to no role.
    """

    visible: int
    tokens: int
    passes: int
    repetitions: int
    seconds: float
    spread: float
    roles: tuple[RoleTime, ...]
    work: PassWork
    predicted: PassPrediction
    waiting: float = 0.0

    @property
    def between(self) -> float:
        """Seconds of a pass that belong to no node: the interpreter going from one to the next."""
        return self.seconds - self.waiting - sum(role.seconds for role in self.roles)

    @property
    def flop(self) -> int:
        """FLOP of a pass, `other` included."""
        return self.work.flop + self.work.other.flop

    @property
    def bytes(self) -> int:
        """Bytes of weights and cache that a pass moves."""
        return self.work.total.bytes + self.work.other.bytes

    def as_dict(self) -> dict[str, object]:
        """The keys of a row in JSON."""
        return {
            "visible": self.visible,
            "tokens": self.tokens,
            "seconds": self.seconds,
            "flop": self.flop,
            "bytes": self.bytes,
            "roles": [
                {
                    "role": part.role,
                    "flop": part.work.flop,
                    "bytes": part.work.bytes,
                    "seconds": part.seconds,
                    "predicted_seconds": part.predicted.seconds,
                    "bound": part.predicted.bound,
                }
                for part in self.roles
            ],
            "seconds_waiting": self.waiting,
            "seconds_between_nodes": self.between,
            "predicted_seconds": self.predicted.seconds,
            "bound": list(self.predicted.bounds),
            "passes": self.passes,
            "repetitions": self.repetitions,
            "spread_seconds": self.spread,
        }


@dataclass(frozen=True)
class Profiler:
    """Measures passes of one model on one backend.

    `advance` is called after each pass. Token ids, and the keys and values that stand for earlier
    tokens, are random with `seed`: they change no time.
    """

    backend: Backend
    ceilings: Ceilings
    repeat: Repeat = field(default_factory=Repeat)
    seed: int = 0
    advance: Callable[[], None] = lambda: None

    def decode(self, visible: int) -> Row:
        """Passes of one generated token that sees `visible` tokens, itself included."""
        cache = self.backend.new_cache()
        cache.fill_random(visible - 1, self.seed)
        return self._row(cache, PassShape.decode(visible))

    def prompt(self, tokens: int) -> Row:
        """Passes of a whole prompt of `tokens` tokens; a single one runs as a generated token."""
        return self._row(self.backend.new_cache(), PassShape.prompt(tokens))

    def passes(self, tokens: int) -> int:
        """How often `advance` is called for a row of passes of `tokens` tokens."""
        return 1 + self.repeat.times * self.repeat.passes(tokens)

    def _row(self, cache: Cache, shape: PassShape) -> Row:
        draw = random.Random(self.seed)
        vocabulary = self.backend.graph.config.vocab_size
        tokens = [draw.randrange(vocabulary) for _ in range(shape.tokens)]
        self._trial(cache, tokens, 1)  # fills caches, decodes weights, starts threads
        passes = self.repeat.passes(len(tokens))
        trials = [self._trial(cache, tokens, passes) for _ in range(self.repeat.times)]
        trials.sort(key=lambda trial: trial.seconds)
        middle = trials[(len(trials) - 1) // 2]
        backend = self.backend
        work = count_pass(backend.graph, shape, backend.weight_bytes, backend.kv_width)
        predicted = predict_pass(work, self.ceilings)
        return Row(
            visible=shape.visible(None),
            tokens=shape.tokens,
            passes=passes,
            repetitions=len(trials),
            seconds=middle.seconds,
            spread=(trials[-1].seconds - trials[0].seconds) / 2,
            roles=tuple(
                RoleTime(role, work.by_role[role], middle.by_role[role], predicted.by_role[role])
                for role in backend.graph.roles
            ),
            work=work,
            predicted=predicted,
            waiting=middle.waiting,
        )

    def _trial(self, cache: Cache, tokens: list[int], passes: int) -> Trial:
        """Passes over the same tokens behind the same cache, one after another."""
        cached = cache.length
        clock = _RoleClock()
        seconds = 0.0
        for _ in range(passes):
            start = time.perf_counter()
            self.backend.run(cache, tokens, generated=len(tokens) == 1, recorder=clock)
            seconds += time.perf_counter() - start
            cache.truncate(cached)
            self.advance()
        clock.settle()
        by_role = {role: spent / passes for role, spent in clock.spent.items()}
        return Trial(seconds / passes, by_role, clock.waiting / passes)


def this_machine(native_threads: int | None = None) -> Machine:
    """This machine's ceilings, measured now; takes about a second and 256 MB.

    As NumPy reaches them; with `native_threads`, reads are plain vector loads by so many.
    """
    threads = native_threads or threads_in_force()
    source = "measured through NumPy"
    if native_threads is None:
        one, every = ceilings.read_rates(threads)
    else:
        one, every = ceilings.native_read_rate(1), ceilings.native_read_rate(threads)
        source = "reads measured by plain vector loads, products through NumPy"
    return Machine(
        cpu=cpu_name(),
        cores=usable_cores(),
        threads=threads,
        load=os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
        ceilings=Ceilings(read_rate=every, flop_rate=ceilings.product_rate()),
        read_rate_one=one,
        source=source,
    )


def float32_work(graph: Graph, shape: PassShape) -> PassWork:
    """The work of a pass of the reference backend, which keeps float32 whatever the file does."""
    return count_pass(graph, shape, _float32_bytes, kv_width=WIDTH)


def memory_needed(graph: Graph, tokens: int) -> int:
    """Bytes of all weights and of a cache of `tokens` tokens, in float32."""
    weights = sum(weight.elements for weight in graph.weights.values())
    row = sum(state.elements_per_token for state in graph.states)
    return WIDTH * (weights + row * tokens)


def small_steps(graph: Graph) -> tuple[int, int]:
    """Nodes that do arithmetic of `other` alone: those in the layers, and those outside."""
    one = PassShape.decode(1)
    steps = [node for node in graph.nodes if node.role is Role.OTHER and node_flop(node, one)[1]]
    inside = sum(node.layer is not None for node in steps)
    return inside, len(steps) - inside


@dataclass
class _RoleClock(Recorder):
    """A recorder that only adds up seconds, so that recording takes next to none of them.

    Fused steps are added as arrays and divided among roles once, by `settle`: the passes of a
    trial are all of one shape.
    """

    spent: dict[Role, float] = field(default_factory=lambda: dict.fromkeys(Role, 0.0))
    _fold: Callable[[], None] | None = None
    _seconds: npt.NDArray[np.float64] | None = None

    def steps(
        self,
        fold: Callable[[Recorder, npt.NDArray[np.float64], Ids, int], None],
        seconds: npt.NDArray[np.float64],
        positions: Ids,
        wanted: int,
    ) -> None:
        total = seconds if self._seconds is None else self._seconds + seconds
        self._seconds = total
        self._fold = lambda: fold(self, total, positions, wanted)

    def settle(self) -> None:
        """Divides what the steps took, once."""
        if self._fold is not None:
            self._fold()
            self._fold, self._seconds = None, None

    def add(
        self,
        node: Node,
        shapes: object,
        output: tuple[int, ...],
        pairs: int,
        seconds: float,
        experts: int | None = None,
    ) -> None:
        self.spent[node.role] += seconds


def _float32_bytes(weight: Weight) -> int:
    return WIDTH * weight.elements
