"""Where a model's parameters are: embedding, layers part by part, final norm, head.

Read from the graph's nodes: a weight's part follows from the role and op of the node that reads
it and from the last word of its name, so that a new family needs nothing here. A table that two
nodes share belongs to the first of them; a tied head is therefore the embedding's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from math import prod

from forwardpass.graph.graph import Graph, Node, Role, Weight

ATTENTION = (Role.QKV, Role.READ, Role.ATTENTION_OUTPUT)
MIXER = (Role.MIXER_IN, Role.MIXER_SCAN, Role.MIXER_OUT)
MLP = (Role.MLP_ROUTER, Role.MLP_UP, Role.MLP_DOWN)

# The last word of a projection's name in checkpoints -> what it is called here.
_CALLED = {
    "q_proj": "query",
    "k_proj": "key",
    "v_proj": "value",
    "c_attn": "query, key, value",
    "query_key_value": "query, key, value",
    "qkv_proj": "query, key, value",
    "gate_up_proj": "gate and up",
    "gate_proj": "gate",
    "up_proj": "up",
    "down_proj": "down",
    "w1": "gate",
    "w3": "up",
    "w2": "down",
    "q_a_proj": "query, narrow",
    "q_b_proj": "query, wide",
    "kv_a_proj_with_mqa": "latent row",
    "kv_b_proj": "key and value of it",
    "wq_b": "indexer's query",
    "wk": "indexer's key",
    "weights_proj": "indexer's weights",
    "in_proj": "into the mixer",
    "x_proj": "time step, B and C",
    "dt_proj": "time step",
    "conv1d": "convolution",
    "conv": "convolution",
    "A_log": "decay",
    "D": "skip",
    "dt_bias": "time step's bias",
    "in_proj_qkvz": "query, key, value, gate",
    "in_proj_ba": "write and decay",
    "in_proj_qkv": "query, key, value",
    "in_proj_z": "gate",
    "in_proj_b": "write",
    "in_proj_a": "decay",
    "norm": "norm",
    "shared_expert_gate": "its gate",
    "per_layer_input_gate": "layer input's gate",
    "per_layer_projection": "layer input",
    "per_layer_model_projection": "to the layers' inputs",
    "input_linear": "gate and up",
    "output_linear": "down",
    "fc1_latent_proj": "into the latent",
    "fc2_latent_proj": "out of the latent",
    "embed": "embedding",
    "add_positions": "positions",
}
_CALLED_BY_ROLE = {
    Role.ATTENTION_OUTPUT: "output",
    Role.MLP_ROUTER: "router",
    Role.MIXER_OUT: "out of the mixer",
    Role.MLP_UP: "expand",
    Role.MLP_DOWN: "shrink",
    Role.HEAD: "head",
}
_OF_EXPERTS, _SHARED = "experts: ", "shared: "
_NUMBERS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")


@dataclass(frozen=True)
class Part:
    """`tables` tables of one `shape`: inputs × outputs, rows × columns if looked up, or a length.

    Vectors of different lengths are one part of their joint length.
    """

    label: str
    shape: tuple[int, ...]
    tables: int = 1

    @property
    def elements(self) -> int:
        """Elements of all its tables together."""
        return self.tables * prod(self.shape)


@dataclass(frozen=True)
class LayerKind:
    """Layers that consist of the same parts; `layers` are their numbers.

    `mixer`: the parts of a layer that mixes tokens otherwise than by attention.
    """

    layers: tuple[int, ...]
    attention: tuple[Part, ...]
    mixer: tuple[Part, ...]
    mlp: tuple[Part, ...]
    norms: tuple[Part, ...]

    @property
    def elements(self) -> int:
        """Elements of one such layer."""
        parts = (*self.attention, *self.mixer, *self.mlp, *self.norms)
        return sum(part.elements for part in parts)


@dataclass(frozen=True)
class ParameterTable:
    """All parameters of a graph, each once.

    `outside` holds what belongs neither to embedding, layers nor head: the final norm. `head` is
    there for its shape also where it is `tied`, but has no parameters of its own then.
    """

    embedding: tuple[Part, ...]
    layers: tuple[LayerKind, ...]
    outside: tuple[Part, ...]
    head: tuple[Part, ...]
    tied: bool
    by_role: Mapping[Role, int]

    @property
    def in_embedding(self) -> int:
        return sum(part.elements for part in self.embedding)

    @property
    def in_layers(self) -> int:
        return sum(kind.elements * len(kind.layers) for kind in self.layers)

    @property
    def in_head(self) -> int:
        return self.by_role[Role.HEAD]


def parameter_table(graph: Graph) -> ParameterTable:
    """The parameters of a graph by part and by role."""
    by_role = dict.fromkeys(Role, 0)
    kinds: dict[tuple[object, ...], tuple[list[int], list[Node]]] = {}
    seen: set[str] = set()
    inside: dict[int, list[Node]] = {}
    outside: list[Node] = []
    tied = False
    for node in graph.nodes:
        if not node.weights or node.op.constant:
            continue
        tied |= node.role is Role.HEAD and node.weights[0].name in seen
        for weight in node.weights:
            if weight.name not in seen:
                by_role[node.role] += weight.elements
        if node.layer is not None:
            inside.setdefault(node.layer, []).append(node)
        elif node.role is Role.HEAD or node.weights[0].name not in seen:
            outside.append(node)
        seen.update(weight.name for weight in node.weights)
    for layer, nodes in inside.items():
        signature = tuple(_signature(node) for node in nodes)
        kinds.setdefault(signature, ([], nodes))[0].append(layer)
    heads = [node for node in outside if node.role is Role.HEAD]
    rest = [node for node in outside if node.role is Role.OTHER]
    return ParameterTable(
        embedding=tuple(_tables(node for node in outside if node.role is Role.EMBEDDING)),
        layers=tuple(_kind(tuple(layers), nodes) for layers, nodes in kinds.values()),
        outside=tuple(_outside(rest)),
        head=(*_tables(heads), *_biases(heads)),
        tied=tied,
        by_role=by_role,
    )


def _signature(node: Node) -> tuple[object, ...]:
    shapes = tuple(weight.shape for weight in node.weights)
    return (node.op.name, node.role, shapes, _on_heads(node), _last_word(node.weights[0]))


def _kind(layers: tuple[int, ...], nodes: Sequence[Node]) -> LayerKind:
    attention = [node for node in nodes if node.role in ATTENTION]
    mixer = [node for node in nodes if node.role in MIXER]
    mlp = [node for node in nodes if node.role in MLP]
    rest = [node for node in nodes if node.role not in (*ATTENTION, *MIXER, *MLP)]
    on_heads = [node for node in rest if _on_heads(node)]
    return LayerKind(
        layers,
        (*_tables(attention), *_biases(attention), *_norms(on_heads, "head norm")),
        (*_mixer(mixer), *_biases([node for node in mixer if node.role is not Role.MIXER_SCAN])),
        (*_alike(list(_tables(mlp))), *_biases(mlp)),
        tuple(_norms([node for node in rest if node not in on_heads], "norm")),
    )


def _tables(nodes: Iterable[Node]) -> Iterator[Part]:
    """The table of each node: as stored where it is looked up, else inputs × outputs."""
    for node in nodes:
        table = node.weights[0]
        if node.op.experts:
            yield Part(f"{_OF_EXPERTS}{label(node)}", table.shape[:0:-1], table.shape[0])
        else:
            of = _SHARED if node.role in MLP and "shared" in table.name else ""
            shape = table.shape if node.op.lookup else table.shape[::-1]
            yield Part(f"{of}{label(node)}", shape)


def _mixer(nodes: Iterable[Node]) -> Iterator[Part]:
    """Each projection's table, and every weight of what mixes the tokens."""
    for node in nodes:
        if node.role is not Role.MIXER_SCAN:
            yield from _tables([node])
            continue
        for weight in node.weights:
            word = _last_word(weight)
            called = _CALLED.get(word, word)
            bias = ", bias" if weight.name.endswith(".bias") else ""
            yield Part(called + bias, tuple(size for size in weight.shape[::-1] if size > 1))


def label(node: Node) -> str:
    """What the table of a node is called: `query`, `expand`, `embedding`."""
    word = node.op.name if node.op.lookup else _last_word(node.weights[0])
    return _CALLED.get(word) or _CALLED_BY_ROLE.get(node.role, word)


def _last_word(weight: Weight) -> str:
    """`q_proj` of `model.layers.0.self_attn.q_proj.weight`, `D` of `model.layers.0.mamba.D`."""
    stem, _, last = weight.name.rpartition(".")
    return stem.rpartition(".")[2] if last in ("weight", "bias") else last


def _biases(nodes: Iterable[Node]) -> Iterator[Part]:
    lengths = [weight.elements for node in nodes for weight in node.weights[1:]]
    if lengths:
        yield Part("bias" if len(lengths) == 1 else "biases", (sum(lengths),))


def _alike(parts: list[Part]) -> Iterator[Part]:
    """Neighbors as one part, where they have the same two sizes in either order."""
    for _, group in groupby(parts, lambda part: (part.tables, sorted(part.shape))):
        first, *others = group
        of = next((of for of in (_OF_EXPERTS, _SHARED) if first.label.startswith(of)), "")
        labels = [part.label.removeprefix(of) for part in (first, *others)]
        yield Part(of + ", ".join(labels), first.shape, len(labels) * first.tables)


def _norms(nodes: Sequence[Node], word: str) -> Iterator[Part]:
    """The vectors of all norms of one width: `two norms`, 2 × 4096."""
    vectors: dict[int, list[Node]] = {}
    for node in nodes:
        vectors.setdefault(node.weights[0].shape[-1], []).append(node)
    for width, alike in vectors.items():
        tables = sum(weight.elements // width for node in alike for weight in node.weights)
        many = _NUMBERS[len(alike)] if len(alike) < len(_NUMBERS) else f"{len(alike)}"
        label = word if len(alike) == 1 else f"{many} {word}s"
        biased = any(len(node.weights) > 1 for node in alike)
        yield Part(label + (", gain and bias" if biased else ""), (width,), tables)


def _outside(nodes: Sequence[Node]) -> Iterator[Part]:
    norms = [node for node in nodes if node.op.name.endswith("_norm")]
    for node in nodes:
        if node not in norms:
            weight = node.weights[0]
            yield Part(weight.name.removesuffix(".weight"), weight.shape)
    early = [node for node in norms if "embed" in _last_word(node.weights[0])]
    yield from _norms(early, "embedding norm")
    yield from _norms([node for node in norms if node not in early], "final norm")


def _on_heads(node: Node) -> bool:
    """Whether the node works on vectors of head_dim elements, one a head."""
    return len(node.inputs[0].shape) == 3
