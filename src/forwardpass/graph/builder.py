"""`GraphBuilder`: what families write a graph with, one op a call."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from forwardpass.config import ModelConfig
from forwardpass.errors import GraphError
from forwardpass.graph.axes import Dim, Shape, unify
from forwardpass.graph.graph import KV, LATENT, Attribute, Graph, Node, Role, State, Value, Weight
from forwardpass.graph.ops import ACTIVATIONS, OPS
from forwardpass.rope import Rope


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
        return self.apply("embed", [self.tokens], [table], role=Role.EMBEDDING)

    def add_positions(self, x: Value, name: str, offset: int = 0) -> Value:
        """x plus the learned row of each position, n d; that of the first is row `offset`."""
        count = self.config.max_position_embeddings + offset
        table = self.weight(f"{name}.weight", count, self.config.hidden_size)
        inputs = [x, self.positions]
        return self.apply("add_positions", inputs, [table], role=Role.EMBEDDING, offset=offset)

    def scale(self, x: Value, factor: float) -> Value:
        """x × factor."""
        return self.apply("scale", [x], factor=factor)

    def linear(self, x: Value, name: str, outputs: int, role: Role, bias: bool = False) -> Value:
        """x times the table `name.weight` (outputs × inputs), n o; with `name.bias` as start."""
        inputs = x.shape[-1]
        if not isinstance(inputs, int):
            raise GraphError(f"{name}: its input has no fixed width")
        weights = [self.weight(f"{name}.weight", outputs, inputs)]
        if bias:
            weights.append(self.weight(f"{name}.bias", outputs))
        return self.apply("linear_bias" if bias else "linear", [x], weights, role=role)

    def columns(self, x: Value, start: int, stop: int) -> Value:
        """Columns start to stop of x."""
        return self.apply("columns", [x], given={"o": stop - start}, start=start, stop=stop)

    def heads(self, x: Value, width: int | None = None) -> Value:
        """x seen by head, n h e; heads of `width` elements, head_dim unless given."""
        return self.apply("heads", [x], given={"e": width or self.config.head_dim})

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
        return self.apply("flat", [x])

    def rms_norm(self, x: Value, name: str, eps: float | None = None) -> Value:
        """x divided by its root mean square over the last axis, times a gain.

        `eps`: the config's unless given.
        """
        gain = self.weight(f"{name}.weight", self._width(x))
        return self.apply("rms_norm", [x], [gain], eps=eps or self.config.norm_eps)

    def layer_norm(self, x: Value, name: str, eps: float | None = None) -> Value:
        """x centered and divided by its deviation over the last axis, times a gain, plus a bias."""
        gain = self.weight(f"{name}.weight", self._width(x))
        bias = self.weight(f"{name}.bias", self._width(x))
        return self.apply("layer_norm", [x], [gain, bias], eps=eps or self.config.norm_eps)

    def plain_layer_norm(self, x: Value, name: str) -> Value:
        """x centered and divided by its deviation over the last axis, times a gain."""
        gain = self.weight(f"{name}.weight", self._width(x))
        return self.apply("plain_layer_norm", [x], [gain], eps=self.config.norm_eps)

    def head_layer_norm(self, x: Value, name: str) -> Value:
        """Each head of x centered and divided by its deviation, times its own gain, n h e."""
        gain = self.weight(f"{name}.weight", self._heads(x), self._width(x))
        return self.apply("head_layer_norm", [x], [gain], eps=self.config.norm_eps)

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
        return self.apply(
            name,
            [x, self.positions],
            weights,
            given={"dims": dims},
            rope=rope,
            dims=dims,
            interleaved=interleaved,
        )

    def state(
        self,
        name: str,
        kind: str,
        *shape: int,
        window: int | None = None,
        shared_with: str | None = None,
        selected: int | None = None,
    ) -> State:
        """The state of that name of this layer."""
        if self._layer is None:
            raise GraphError(f"the cache {name} belongs to no layer")
        shared = self._prefix + shared_with if shared_with else None
        return State(
            self._prefix + name, kind, shape, self._layer, window, shared, selected=selected
        )

    def cache(self, x: Value, state: State) -> Value:
        """x appended to the cache; all of it, g s e.

        Of a latent state x is what is expanded from its rows. The cache is counted as the latent
        rows; the reference keeps the expansion, so that a pass does the work that is counted.
        """
        return self.apply("cache", [x], role=Role.READ, given_dims={"s": "s"}, state=state)

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
        sinks: str | None = None,
        latent: tuple[int, int] | None = None,
        selection: tuple[Value, int] | None = None,
    ) -> Value:
        """Keys and values cached, then each query's softmax-weighted mix of values, n h w.

        `scale` multiplies the scores (1/√e unless given); `window` limits how far back is seen;
        each head's entry of `slopes` lowers its scores by so much a position of distance. `sinks`
        names a weight with one more score for each head. `latent`: keys and values are expanded
        from a latent row of (elements that make values, further ones that only turn), which is
        what the cache holds. `selection`: the tokens that each query sees, n k, and at most how
        many.
        """
        chosen, most = ([], None) if selection is None else ([selection[0]], selection[1])
        keys, values = self._caches(k, v, window, latent, most)
        factor = self._width(q) ** -0.5 if scale is None else scale
        op = "attention" if sinks is None else "attention_sinks"
        return self.apply(
            op if selection is None else "selected_attention",
            [q, keys, values, self.positions, *chosen],
            [] if sinks is None else [self.weight(sinks, self._heads(q))],
            role=Role.READ,
            scale=factor,
            window=window,
            softcap=softcap,
            slopes=slopes,
            absorbed=latent,
            **({} if most is None else {"selected": most}),  # type: ignore[arg-type]
        )

    def _caches(
        self,
        k: Value,
        v: Value,
        window: int | None,
        latent: tuple[int, int] | None,
        selected: int | None,
    ) -> tuple[Value, Value]:
        """The caches of keys and values, as attention reads them."""
        shapes = [tuple(size for size in x.shape[1:] if isinstance(size, int)) for x in (k, v)]
        kind, shared = KV, None
        if latent is not None:
            kind, shapes, shared = LATENT, [(sum(latent),)] * 2, "self_attn.key"
        key, value = (
            self.state(name, kind, *shape, window=window, shared_with=of, selected=selected)
            for name, shape, of in (
                ("self_attn.key", shapes[0], None),
                ("self_attn.value", shapes[1], shared),
            )
        )
        return self.cache(k, key), self.cache(v, value)

    @staticmethod
    def _heads(x: Value) -> int:
        heads = x.shape[1]
        assert isinstance(heads, int)
        return heads

    def gelu(self, x: Value) -> Value:
        """GELU of x, tanh form."""
        return self.apply("gelu", [x])

    def activation(self, x: Value) -> Value:
        """The config's `hidden_act` of x, n f."""
        return self.apply(ACTIVATIONS[self.config.hidden_act], [x])

    def silu_multiply(self, gate: Value, up: Value) -> Value:
        """silu(gate) × up, n f."""
        return self.apply("silu_multiply", [gate, up])

    def gelu_multiply(self, gate: Value, up: Value) -> Value:
        """gelu(gate) × up, n f."""
        return self.apply("gelu_multiply", [gate, up])

    def add(self, x: Value, y: Value) -> Value:
        """x + y, n d."""
        return self.apply("add", [x, y])

    def wanted_rows(self, x: Value) -> Value:
        """The rows of x whose logits are asked for, r d."""
        return self.apply("wanted_rows", [x, self.rows])

    def head(self, x: Value, tied_to: str, bias: bool = False) -> Value:
        """Scores of the vocabulary, r v: by `lm_head`, or by the embedding where they are tied."""
        name = tied_to if self.config.tie_word_embeddings else "lm_head"
        if not bias:
            return self.linear(x, name, self.config.vocab_size, Role.HEAD)
        table = self.weight(f"{name}.weight", self.config.vocab_size, self._width(x))
        starts = self.weight("lm_head.bias", self.config.vocab_size)
        return self.apply("linear_bias", [x], [table, starts], role=Role.HEAD)

    def softcap(self, x: Value, cap: float) -> Value:
        """cap × tanh(x / cap)."""
        return self.apply("softcap", [x], cap=cap)

    def finish(self, logits: Value, *, proven: bool = True) -> Graph:
        """The graph that ends in `logits`; `proven`: what runs it gives the right ones."""
        return Graph(
            self.config,
            tuple(self._nodes),
            self.tokens,
            self.positions,
            self.rows,
            logits,
            self._weights,
            proven,
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

    def apply(
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
        """The op of that name as the next node, and what it makes.

        `given`: sizes of axes that no input has; `attributes`: exactly those of the op's row.
        """
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
