"""`Plan`: what a model needs and how fast it can be on a machine, before anything runs.

All work is counted from the graph; a machine's ceilings turn it into the least time that it can
take. The same request `concurrency` times at once shares what a pass reads of the weights; each
has a KV cache of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from forwardpass.describe import Description
from forwardpass.errors import RequestError
from forwardpass.graph.graph import Graph
from forwardpass.work.count import (
    WeightBytes,
    cache_moved,
    kv_bytes,
    state_bytes,
    weights_read,
)
from forwardpass.work.machines import Known
from forwardpass.work.passes import PassShape, SequenceShape
from forwardpass.work.plan_memory import Step, chunk, steps, work_bytes
from forwardpass.work.plan_price import Price
from forwardpass.work.plan_weights import checked_type, is_mix, weight_bytes
from forwardpass.work.summary import KV_WIDTH, MOST_TOKENS, Asked, Count, count_model

MOST_REQUESTS = 1_000_000


class Bound(StrEnum):
    """What sets the pace, or keeps the model from running at all."""

    MEMORY = "memory"
    ARITHMETIC = "arithmetic"
    CAPACITY = "capacity"


@dataclass(frozen=True)
class Request:
    """`concurrency` requests at once, each of `prompt` tokens and an answer of `answer` tokens.

    Errors: RequestError for a number or type that makes no sense.
    """

    prompt: int = 1_024
    answer: int = 256
    concurrency: int = 1
    kv_type: str = "bf16"

    def __post_init__(self) -> None:
        Asked((), self.prompt, self.answer, None, self.kv_type)
        number = self.concurrency
        if type(number) is not int or not 1 <= number <= MOST_REQUESTS:
            raise RequestError(
                f"concurrency = {number!r:.60}: wanted a number of requests from 1 to "
                f"{MOST_REQUESTS:,}"
            )

    @property
    def tokens(self) -> int:
        """Tokens of one request, prompt and answer."""
        return self.prompt + self.answer

    @property
    def width(self) -> int:
        """Bytes of a cache element."""
        return KV_WIDTH[self.kv_type]


@dataclass(frozen=True)
class Memory:
    """Bytes: of weights, of all requests' caches, of values in between; what the machine has.

    `kv` holds the rows of the cache, and the states of recurrent layers.
    """

    weights: int
    kv: int
    activations: int
    available: int | None

    @property
    def total(self) -> int:
        return self.weights + self.kv + self.activations

    @property
    def fits(self) -> bool | None:
        """None where nobody says how much memory there is."""
        return None if self.available is None else self.total <= self.available

    @property
    def binds(self) -> str | None:
        """What does not fit: the weights alone, with the values of a pass, or with the caches."""
        if self.available is None or self.fits:
            return None
        if self.weights > self.available:
            return "weights"
        return "activations" if self.weights + self.activations > self.available else "kv"


@dataclass(frozen=True)
class Least:
    """The least seconds of some work, and what sets them; None where no rate is known."""

    seconds: float | None
    bound: Bound | None


@dataclass(frozen=True)
class Plan:
    """One model on one machine.

    `prefill_flop` and `prefill_bytes` are those of all prompts, `answer_flop` those of all answers;
    `read_weights` and `read_cache` are bytes of weights and cache of one pass that gives each
    request a token, on average over the answer. Where the model does not fit no time is stated.
    """

    model: str
    machine: Known
    dtype: str
    request: Request
    memory: Memory
    prefill_flop: int
    prefill_bytes: int
    answer_flop: int
    read_weights: int
    read_cache: float
    max_concurrency: int | None
    price: Price | None = None

    @property
    def estimated(self) -> bool:
        """Whether the bytes of the weights are an estimate: those of a mix of types."""
        return is_mix(self.dtype)

    @property
    def fits(self) -> bool | None:
        return self.memory.fits

    @property
    def pass_flop(self) -> float:
        """FLOP of one pass that gives each request a token, on average over the answer."""
        return self.answer_flop / self.request.answer

    @property
    def prefill(self) -> Least:
        """All prompts. Unknown without a rate of products, which is what binds it."""
        least = self._least(self.prefill_flop, self.prefill_bytes)
        return least if self.machine.flop_rate is not None else Least(None, None)

    @property
    def decode(self) -> Least:
        """One pass that gives each request a token."""
        return self._least(self.pass_flop, self.read_weights + self.read_cache)

    @property
    def prefill_seconds(self) -> float | None:
        return self.prefill.seconds

    @property
    def decode_seconds_per_token(self) -> float | None:
        return self.decode.seconds

    @property
    def answer_seconds(self) -> float | None:
        """Seconds of all passes of the answer."""
        each = self.decode.seconds
        return None if each is None else self.request.answer * each

    @property
    def answer_arithmetic_seconds(self) -> float | None:
        """Seconds that the arithmetic of the answers would take alone."""
        rate = self.machine.flop_rate_together
        return None if rate is None else self.answer_flop / rate

    @property
    def tokens_per_second(self) -> float | None:
        """Tokens a second at most, of all requests together."""
        each = self.decode.seconds
        return None if each is None else self.request.concurrency / each

    @property
    def cost(self) -> float | None:
        """What the machine costs for these requests at least."""
        prefill, answer = self.prefill_seconds, self.answer_seconds
        if self.price is None or prefill is None or answer is None:
            return None
        return self.price.of(prefill + answer)

    @property
    def cost_per_million_tokens(self) -> float | None:
        """The same for a million tokens of answers."""
        tokens = self.request.concurrency * self.request.answer
        return None if self.cost is None else self.cost * 1e6 / tokens

    def _least(self, flop: float, byte_count: float) -> Least:
        """The larger of bytes ÷ read rate and FLOP ÷ FLOP rate: both overlap at best."""
        if self.fits is False:
            return Least(None, Bound.CAPACITY)
        reads, products = self.machine.read_rate_together, self.machine.flop_rate_together
        times = [
            (amount / rate, bound)
            for amount, rate, bound in (
                (flop, products, Bound.ARITHMETIC),
                (byte_count, reads, Bound.MEMORY),
            )
            if rate is not None
        ]
        return Least(*max(times, key=lambda time: time[0])) if times else Least(None, None)

    def as_dict(self) -> dict[str, object]:
        """The JSON object."""
        memory, together = self.memory, self.tokens_per_second
        return {
            "model": self.model,
            "machine": self.machine.as_dict(),
            "dtype": self.dtype,
            "estimated": self.estimated,
            "kv_type": self.request.kv_type,
            "prompt": self.request.prompt,
            "answer": self.request.answer,
            "concurrency": self.request.concurrency,
            "fits": self.fits,
            "memory": {
                "weights": memory.weights,
                "kv": memory.kv,
                "activations": memory.activations,
                "total": memory.total,
                "available": memory.available,
            },
            "binds": memory.binds,
            "prefill_seconds": self.prefill_seconds,
            "prefill_bound": self.prefill.bound,
            "prefill_flop": self.prefill_flop,
            "decode_seconds_per_token": self.decode_seconds_per_token,
            "tokens_per_second": together,
            "tokens_per_second_each": together and together / self.request.concurrency,
            "bound": self.decode.bound,
            "answer_flop": self.answer_flop,
            "weight_bytes_per_pass": self.read_weights,
            "cache_bytes_per_pass": self.read_cache,
            "max_concurrency": self.max_concurrency,
            "cost": self.cost,
            "cost_per_million_tokens": self.cost_per_million_tokens,
        }


def make_plan(
    description: Description,
    machine: Known,
    request: Request,
    dtype: str | None = None,
    price: Price | None = None,
) -> Plan:
    """The plan for a described model; its tables in `dtype` where that is given.

    Errors: RequestError for a type that is none or whose blocks the rows do not fill.
    """
    sizes = Sizes.of(description, request, dtype)
    once, answer = sizes.count.prompt, sizes.count.answer
    assert once is not None
    assert answer is not None
    many, graph, width = request.concurrency, description.graph, request.width
    first, token = SequenceShape(request.prompt), SequenceShape(1)
    prefill_cache = cache_moved(graph, PassShape((first,)), width)
    answer_cache = sum(_runs(graph, request))
    return Plan(
        model=description.label,
        machine=machine,
        dtype=sizes.dtype,
        request=request,
        memory=sizes.memory(many, machine),
        prefill_flop=many * once.flop,
        prefill_bytes=_read(graph, first, many, sizes.stored) + many * prefill_cache,
        answer_flop=many * answer.flop_total,
        read_weights=_read(graph, token, many, sizes.stored),
        read_cache=many * answer_cache / request.answer,
        max_concurrency=sizes.most_requests(machine),
        price=price,
    )


@dataclass(frozen=True)
class Sizes:
    """The bytes of a model's weights, caches and values, for requests of one kind."""

    graph: Graph
    request: Request
    dtype: str
    weights: int
    cache: int  # of one request
    stored: WeightBytes
    count: Count
    steps: tuple[Step, ...]

    @classmethod
    def of(cls, description: Description, request: Request, dtype: str | None) -> Sizes:
        """Those of a described model in `dtype`, or as its file or config says."""
        dtype = None if dtype is None else checked_type(dtype)
        single = "bf16" if is_mix(dtype) else dtype  # what is counted of a mix has no bytes
        asked = Asked((), request.prompt, request.answer, single, request.kv_type)
        count = count_model(description, asked)
        counted = count.bytes.unique
        assert counted is not None
        if dtype is None and description.weights is None:
            dtype = count.bytes.dtype
        stored = weight_bytes(description, dtype)
        if is_mix(dtype):
            counted = sum(map(stored, description.graph.parameters))
        cache = cache_bytes(description.graph, request.tokens, request.width)
        named = dtype or count.bytes.dtype
        return cls(
            description.graph,
            request,
            named,
            counted,
            cache,
            stored,
            count,
            steps(description.graph),
        )

    def memory(self, requests: int, machine: Known) -> Memory:
        """What so many requests at once take."""
        there = machine.memory_together
        return Memory(
            weights=self.weights,
            kv=requests * self.cache,
            activations=self.activations(requests, self.request.prompt),
            available=None if there is None else int(there),
        )

    def activations(self, requests: int, prompt: int) -> int:
        """Bytes of values: in a chunk of the prompts, or in a pass with a token of each request."""
        return work_bytes(self.steps, max(chunk(requests * prompt), requests), requests)

    def most_requests(self, machine: Known) -> int | None:
        """The most such requests that fit at once; None where the memory is not known."""
        there = machine.memory_together
        if there is None:
            return None
        # Between what fits with the values of one request and with those of so many more.
        left, prompt = int(there) - self.weights, self.request.prompt
        most = (left - self.activations(1, prompt)) // max(1, self.cache)
        most = min(max(0, most), MOST_REQUESTS)
        least = (left - self.activations(most, prompt)) // max(1, self.cache) if most else 0
        return largest(lambda n: bool(self.memory(n, machine).fits), most, max(0, least))

    def longest(self, machine: Known) -> int:
        """The most tokens that one request can have in this memory."""
        there = machine.memory_together or 0
        left = there - self.weights - self.activations(1, self.request.prompt)
        width = self.request.width
        return largest(lambda n: cache_bytes(self.graph, n, width) <= left, MOST_TOKENS)


def cache_bytes(graph: Graph, tokens: int, width: int) -> int:
    """Bytes that a sequence of so many tokens keeps: rows of the cache, and recurrent states."""
    return kv_bytes(graph, tokens, width) + state_bytes(graph, width)


def largest(holds: Callable[[int], bool], most: int, least: int = 0) -> int:
    """The largest number up to `most` for which something holds that ends somewhere.

    It is known to hold up to `least`.
    """
    low, step = min(least, most), 1
    while low + step <= most and holds(low + step):
        low, step = low + step, 2 * step
    high = min(low + step, most + 1)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low


def _read(graph: Graph, each: SequenceShape, times: int, stored: WeightBytes) -> int:
    """Bytes of weights read by a pass of so many alike sequences: as by one of all their tokens."""
    joint = SequenceShape(times * each.new, 0, times * each.wanted)
    return weights_read(graph, PassShape((joint,)), stored)


def _runs(graph: Graph, request: Request) -> Iterator[int]:
    """Bytes of cache of an answer's passes, added up over each run of passes.

    What a pass reads grows evenly with the tokens that it sees until a window is full, so that
    the first and the last pass of such a run tell its sum.
    """
    first, last = request.prompt, request.tokens - 1
    full = {state.reach for state in graph.states if state.reach is not None}
    ends = sorted({tokens for tokens in full if first <= tokens < last} | {last})
    for end in ends:
        shapes = (PassShape.decode(seen) for seen in (first, end))
        both = sum(cache_moved(graph, shape, request.width) for shape in shapes)
        yield both * (end - first + 1) // 2
        first = end + 1
