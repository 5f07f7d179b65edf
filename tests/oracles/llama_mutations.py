"""What can be wrong in the families that are written as differences from Llama."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from forwardpass.architectures import family
from forwardpass.graph import references
from forwardpass.graph.graph import Graph, Node, Value
from forwardpass.graph.references import F32

Values = Iterator[tuple[str, Callable[[object], object]]]


def wrong_score_caps(graph: Graph) -> Values:
    if graph.config.attn_logit_softcapping:
        yield "no cap on scores", lambda _: None
        yield "a cap on scores 1 % too high", lambda cap: cap * 1.01  # type: ignore[operator]


def wrong_norms(graph: Graph) -> Iterator[tuple[str, Mapping[str, Callable[..., F32]]]]:
    """Queries normalised head by head where all heads are one norm, and the other way round."""
    config = graph.config
    width = config.num_attention_heads * config.head_dim

    def by_head(x: F32, gain: F32, *, eps: float) -> F32:
        if x.shape[-1] != width:
            return references.rms_norm(x, gain, eps=eps)
        heads = (x.shape[0], config.num_attention_heads, config.head_dim)
        rows = references.rms_norm(x.reshape(heads), gain.reshape(heads[1:]), eps=eps)
        return rows.reshape(x.shape)

    names = [w.name for node in graph.nodes if node.op.name == "rms_norm" for w in node.weights]
    wide = [graph.weights[name] for name in names if name.endswith("q_norm.weight")]
    if wide and wide[0].shape == (width,) and width != config.hidden_size:
        yield "queries normalised by head", {"rms_norm": by_head}


def other_graphs(graph: Graph) -> Iterator[tuple[str, Graph]]:
    """The graph with layers turned that are not, fused parts exchanged, an MLP fed otherwise."""
    config = graph.config
    if config.no_rope_layers:
        turned = config.no_rope_layers
        for what, layers in {
            "every layer turned": (1,) * len(turned),
            "no layer turned": (0,) * len(turned),
            "other layers not turned": turned[1:] + turned[:1],
        }.items():
            if layers != turned:
                other = replace(config, no_rope_layers=layers)
                yield what, family(config.model_type).build(other)
    for what, parts in _fused(graph).items():
        yield f"{what} exchanged", _exchanged(graph, parts)
    if config.model_type == "cohere":
        yield "the MLP fed with what attention added to", _fed_with_sum(graph)


def _fused(graph: Graph) -> dict[str, list[tuple[Node, Node]]]:
    """The last two parts of each fused table, where they are equally wide, by the table's kind."""
    made = {node.output: node for node in graph.nodes}
    groups: dict[Value, list[Node]] = {}
    for node in graph.nodes:
        if node.op.name == "columns":
            groups.setdefault(node.inputs[0], []).append(node)
    found: dict[str, list[tuple[Node, Node]]] = {}
    for whole, parts in groups.items():
        if len(parts) > 1 and parts[-1].output.shape == parts[-2].output.shape:
            name = made[whole].weights[0].name.split(".", 3)[-1]
            found.setdefault(f"the last parts of {name}", []).append((parts[-2], parts[-1]))
    return found


def _exchanged(graph: Graph, parts: list[tuple[Node, Node]]) -> Graph:
    new = {one.output: other.attributes for pair in parts for one, other in (pair, pair[::-1])}
    nodes = tuple(
        replace(node, attributes=new.get(node.output, node.attributes)) for node in graph.nodes
    )
    return replace(graph, nodes=nodes)


def _fed_with_sum(graph: Graph) -> Graph:
    sums: dict[int | None, Value] = {}
    nodes: list[Node] = []
    for node in graph.nodes:
        if node.op.name == "add":
            sums.setdefault(node.layer, node.output)
        if node.weights and node.weights[0].name.endswith(("gate_proj.weight", "up_proj.weight")):
            node = replace(node, inputs=(sums[node.layer],))
        nodes.append(node)
    return replace(graph, nodes=tuple(nodes))
