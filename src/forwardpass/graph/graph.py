"""`Graph`: a flat list of ops over named values, and `GraphBuilder`, which families write it with.

An architecture is written once as such a list. Counting reads it with sizes and no weights,
running reads it with weights; nothing else knows what a family is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from math import prod

from forwardpass.config import ModelConfig
from forwardpass.errors import GraphError
from forwardpass.graph.axes import Dim, Shape, unify
from forwardpass.graph.ops import ACTIVATIONS, OPS, Op
from forwardpass.rope import Rope

Attribute = int | float | Rope | tuple[float, ...] | None


class Role(StrEnum):
    """What a node's work counts as; the order is the order of a pass."""

    EMBEDDING = "embedding"
    QKV = "attention.qkv"
    READ = "attention.read"
    ATTENTION_OUTPUT = "attention.output"
    MLP_UP = "mlp.up"
    MLP_DOWN = "mlp.down"
    HEAD = "head"
    OTHER = "other"


@dataclass(frozen=True)
class Value:
    """An intermediate result: its place in the list of values, and its shape."""

    index: int
    shape: Shape


@dataclass(frozen=True)
class Weight:
    """A tensor that the graph reads, under its checkpoint name."""

    name: str
    shape: tuple[int, ...]

    @property
    def elements(self) -> int:
        return prod(self.shape)


@dataclass(frozen=True)
class State:
    """What a sequence keeps between passes: for `kv`, one row of `shape` a token.

    With a `window` only that many rows are ever visible again.
    """

    name: str
    kind: str
    shape: tuple[int, ...]
    layer: int
    window: int | None = None

    @property
    def elements_per_token(self) -> int:
        return prod(self.shape)


@dataclass(frozen=True)
class Node:
    """One op applied: to values, then weights; what it makes; whose work it is."""

    op: Op
    inputs: tuple[Value, ...]
    weights: tuple[Weight, ...]
    attributes: Mapping[str, Attribute]
    sizes: Mapping[str, Dim]
    output: Value
    role: Role
    layer: int | None
    state: State | None = None

    @property
    def name(self) -> str:
        """Where the node is, for messages: `layer 3, linear model.layers.3.mlp.up_proj.weight`."""
        place = "" if self.layer is None else f"layer {self.layer}, "
        return place + " ".join([self.op.name, *(w.name for w in self.weights[:1])])


@dataclass(frozen=True)
class Graph:
    """One architecture with the sizes of one config.

    `tokens`, `positions` (n each) and `rows` (r) are the inputs; `logits` (r v) is the output.
    `weights` are in the order of first use; a tied table occurs once.
    """

    config: ModelConfig
    nodes: tuple[Node, ...]
    tokens: Value
    positions: Value
    rows: Value
    logits: Value
    weights: Mapping[str, Weight] = field(default_factory=dict)

    @property
    def states(self) -> tuple[State, ...]:
        """Every state of a sequence, in the order of the layers."""
        return tuple(node.state for node in self.nodes if node.state is not None)

    @property
    def parameters(self) -> tuple[Weight, ...]:
        """The weights that were learned: all but the constants that a file happens to store."""
        constant = {w.name for node in self.nodes if node.op.constant for w in node.weights}
        return tuple(w for w in self.weights.values() if w.name not in constant)

    @property
    def embedding_only(self) -> tuple[Weight, ...]:
        """Tables that are looked up and never multiplied."""
        multiplied = {w.name for node in self.nodes if not node.op.lookup for w in node.weights}
        return tuple(w for w in self.weights.values() if w.name not in multiplied)


class GraphBuilder:
    """Adds one op a call; each method returns the value that the op makes.

    Weight names are completed with the name of the enclosing `layer`. Shapes are checked at once
    against the op table, so that a family that does not fit together fails where it is written.
    """

    def __init__(self, config: ModelConfig) -> None:
        self.config = config
        self._nodes: list[Node] = []
        self._weights: dict[str, Weight] = {}
        self._values = 0
        self._layer: int | None = None
        self._prefix = ""
        self.tokens = self._value(("n",))
        self.positions = self._value(("n",))
        self.rows = self._value(("r",))

    @contextmanager
    def layer(self, prefix: str, number: int) -> Iterator[None]:
        """Names weights `prefix.…` and marks the nodes as layer `number`."""
        self._prefix, self._layer = f"{prefix}.", number
        yield
        self._prefix, self._layer = "", None

    def weight(self, name: str, *shape: int) -> Weight:
        """The tensor of that name below the current layer."""
        full = self._prefix + name
        made = Weight(full, shape)
        known = self._weights.setdefault(full, made)
        if known.shape != shape:
            raise GraphError(f"{full} is asked for as {shape} and as {known.shape}")
        return known

    def embed(self, name: str, width: int | None = None) -> Value:
        """Token rows, n d; of `width` where the embedding is narrower than the layers."""
        width = width or self.config.hidden_size
        table = self.weight(f"{name}.weight", self.config.vocab_size, width)
        return self._add("embed", [self.tokens], [table], role=Role.EMBEDDING)

    def add_positions(self, x: Value, name: str, offset: int = 0) -> Value:
        """x plus the learned row of each position, n d; that of the first is row `offset`."""
        count = self.config.max_position_embeddings + offset
        table = self.weight(f"{name}.weight", count, self.config.hidden_size)
        inputs = [x, self.positions]
        return self._add("add_positions", inputs, [table], role=Role.EMBEDDING, offset=offset)

    def scale(self, x: Value, factor: float) -> Value:
        """x × factor."""
        return self._add("scale", [x], factor=factor)

    def linear(self, x: Value, name: str, outputs: int, role: Role, bias: bool = False) -> Value:
        """x times the table `name.weight` (outputs × inputs), n o; with `name.bias` as start."""
        inputs = x.shape[-1]
        if not isinstance(inputs, int):
            raise GraphError(f"{name}: its input has no fixed width")
        weights = [self.weight(f"{name}.weight", outputs, inputs)]
        if bias:
            weights.append(self.weight(f"{name}.bias", outputs))
        return self._add("linear_bias" if bias else "linear", [x], weights, role=role)

    def columns(self, x: Value, start: int, stop: int) -> Value:
        """Columns start to stop of x."""
        return self._add("columns", [x], given={"o": stop - start}, start=start, stop=stop)

    def heads(self, x: Value) -> Value:
        """x seen by head, n h e."""
        return self._add("heads", [x], given={"e": self.config.head_dim})

    def split_heads(self, qkv: Value) -> tuple[Value, Value, Value]:
        """Query (n h e), key and value (n g e) heads of a fused projection, n ((h + 2g) e)."""
        config = self.config
        q = config.num_attention_heads * config.head_dim
        k = q + config.num_key_value_heads * config.head_dim
        v = k + config.num_key_value_heads * config.head_dim
        query, key, value = (self.columns(qkv, *ends) for ends in ((0, q), (q, k), (k, v)))
        return self.heads(query), self.heads(key), self.heads(value)

    def flat(self, x: Value) -> Value:
        """Heads joined, n (h e)."""
        return self._add("flat", [x])

    def rms_norm(self, x: Value, name: str) -> Value:
        """x divided by its root mean square over the last axis, times a gain."""
        gain = self.weight(f"{name}.weight", self._width(x))
        return self._add("rms_norm", [x], [gain], eps=self.config.norm_eps)

    def layer_norm(self, x: Value, name: str) -> Value:
        """x centered and divided by its deviation over the last axis, times a gain, plus a bias."""
        gain = self.weight(f"{name}.weight", self._width(x))
        bias = self.weight(f"{name}.bias", self._width(x))
        return self._add("layer_norm", [x], [gain, bias], eps=self.config.norm_eps)

    def plain_layer_norm(self, x: Value, name: str) -> Value:
        """x centered and divided by its deviation over the last axis, times a gain."""
        gain = self.weight(f"{name}.weight", self._width(x))
        return self._add("plain_layer_norm", [x], [gain], eps=self.config.norm_eps)

    def head_layer_norm(self, x: Value, name: str) -> Value:
        """Each head of x centered and divided by its deviation, times its own gain, n h e."""
        heads = x.shape[1]
        assert isinstance(heads, int)
        gain = self.weight(f"{name}.weight", heads, self._width(x))
        return self._add("head_layer_norm", [x], [gain], eps=self.config.norm_eps)

    def rope(
        self, x: Value, rope: Rope, *, dims: int | None = None, interleaved: bool = False
    ) -> Value:
        """x turned by position, n h e: the first `dims` elements of each head.

        `dims` are head_dim × the rope's partial_rotary_factor unless given. `interleaved` turns
        pairs of neighbors instead of the halves of those elements.
        """
        if dims is None:
            dims = int(self._width(x) * rope.partial_rotary_factor)
        name, weights = "rope", []
        if self.config.rope_factors:
            stored = "rope_factors_short" if rope.kind == "longrope" else "rope_freqs"
            name, weights = "rope_factors", [self._global_weight(f"{stored}.weight", dims // 2)]
        return self._add(
            name,
            [x, self.positions],
            weights,
            given={"dims": dims},
            rope=rope,
            dims=dims,
            interleaved=interleaved,
        )

    def cache(self, x: Value, name: str, window: int | None = None) -> Value:
        """x appended to the cache `name` of this layer; all of it, g s e."""
        if self._layer is None:
            raise GraphError(f"the cache {name} belongs to no layer")
        shape = tuple(size for size in x.shape[1:] if isinstance(size, int))
        state = State(self._prefix + name, "kv", shape, self._layer, window)
        return self._add("cache", [x], role=Role.READ, given_dims={"s": "s"}, state=state)

    def attention(
        self,
        q: Value,
        k: Value,
        v: Value,
        *,
        scale: float | None = None,
        window: int | None = None,
        softcap: float | None = None,
        slopes: tuple[float, ...] | None = None,
    ) -> Value:
        """Keys and values cached, then each query's softmax-weighted mix of values, n h e.

        `scale` multiplies the scores (1/√e unless given); `window` limits how far back is seen;
        each head's entry of `slopes` lowers its scores by so much a position of distance.
        """
        keys = self.cache(k, "self_attn.key", window)
        values = self.cache(v, "self_attn.value", window)
        factor = self.config.head_dim**-0.5 if scale is None else scale
        return self._add(
            "attention",
            [q, keys, values, self.positions],
            role=Role.READ,
            scale=factor,
            window=window,
            softcap=softcap,
            slopes=slopes,
        )

    def gelu(self, x: Value) -> Value:
        """GELU of x, tanh form."""
        return self._add("gelu", [x])

    def activation(self, x: Value) -> Value:
        """The config's `hidden_act` of x, n f."""
        return self._add(ACTIVATIONS[self.config.hidden_act], [x])

    def silu_multiply(self, gate: Value, up: Value) -> Value:
        """silu(gate) × up, n f."""
        return self._add("silu_multiply", [gate, up])

    def gelu_multiply(self, gate: Value, up: Value) -> Value:
        """gelu(gate) × up, n f."""
        return self._add("gelu_multiply", [gate, up])

    def add(self, x: Value, y: Value) -> Value:
        """x + y, n d."""
        return self._add("add", [x, y])

    def wanted_rows(self, x: Value) -> Value:
        """The rows of x whose logits are asked for, r d."""
        return self._add("wanted_rows", [x, self.rows])

    def head(self, x: Value, tied_to: str, bias: bool = False) -> Value:
        """Scores of the vocabulary, r v: by `lm_head`, or by the embedding where they are tied."""
        name = tied_to if self.config.tie_word_embeddings else "lm_head"
        if not bias:
            return self.linear(x, name, self.config.vocab_size, Role.HEAD)
        table = self.weight(f"{name}.weight", self.config.vocab_size, self._width(x))
        starts = self.weight("lm_head.bias", self.config.vocab_size)
        return self._add("linear_bias", [x], [table, starts], role=Role.HEAD)

    def softcap(self, x: Value, cap: float) -> Value:
        """cap × tanh(x / cap)."""
        return self._add("softcap", [x], cap=cap)

    def finish(self, logits: Value) -> Graph:
        """The graph that ends in `logits`."""
        return Graph(
            self.config,
            tuple(self._nodes),
            self.tokens,
            self.positions,
            self.rows,
            logits,
            self._weights,
        )

    def _global_weight(self, name: str, *shape: int) -> Weight:
        return self._weights.setdefault(name, Weight(name, shape))

    @staticmethod
    def _width(x: Value) -> int:
        width = x.shape[-1]
        if not isinstance(width, int):
            raise GraphError("a norm needs a fixed width")
        return width

    def _value(self, shape: Shape) -> Value:
        self._values += 1
        return Value(self._values - 1, shape)

    def _add(
        self,
        name: str,
        inputs: list[Value],
        weights: list[Weight] | None = None,
        *,
        role: Role = Role.OTHER,
        state: State | None = None,
        given: Mapping[str, int] | None = None,
        given_dims: Mapping[str, Dim] | None = None,
        **attributes: Attribute,
    ) -> Value:
        op = OPS[name]
        if set(attributes) != set(op.attributes):
            raise GraphError(f"{name} takes {op.attributes}, not {tuple(attributes)}")
        shapes: list[Shape] = [value.shape for value in inputs]
        shapes += [weight.shape for weight in weights or []]
        known: dict[str, Dim] = {**(given or {}), **(given_dims or {})}
        sizes, shape = unify(op.axes, shapes, known, name)
        output = self._value(shape)
        self._nodes.append(
            Node(
                op,
                tuple(inputs),
                tuple(weights or ()),
                attributes,
                sizes,
                output,
                role,
                self._layer,
                state,
            )
        )
        return output
