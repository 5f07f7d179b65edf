"""The running vector of every architecture that is run, found without knowing any of them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from backends.tiny import CONFIGS, tiny_graph
from forwardpass.architectures import model_types
from forwardpass.config import ModelConfig
from forwardpass.describe import describe_config
from forwardpass.errors import GraphError
from forwardpass.graph.builder import GraphBuilder
from forwardpass.graph.graph import Graph, Role, Value
from forwardpass.inspecting.residual import residual

# What the defaults of a family leave open.
_STATED: dict[str, dict[str, object]] = {
    "deepseek_v2": {"num_experts_per_tok": 6, "n_routed_experts": 64},
    "glm4_moe": {"head_dim": 128},
}


def default_graph(model_type: str) -> Graph:
    stated = _STATED.get(model_type, {})
    return describe_config(model_type, {"model_type": model_type, **stated}).graph


def is_run(graph: Graph) -> bool:
    return graph.proven and not graph.counted_only


GRAPHS = {name: default_graph(name) for name in model_types()}
RUN = [name for name, graph in GRAPHS.items() if is_run(graph)]


def checked(graph: Graph) -> None:
    found = residual(graph)
    assert [each.read.layer for each in found.layers] == list(range(graph.config.num_hidden_layers))
    for earlier, later in zip(found.layers, found.layers[1:], strict=False):
        assert earlier.after == later.before
    # Behind the last layer there is nothing but the rows that are wanted, and what reads those.
    (wanted,) = (node for node in graph.nodes if node.op.name == "wanted_rows")
    assert wanted.inputs[0] == found.layers[-1].after
    assert found.tail[0].inputs[0] == wanted.output
    assert found.tail[-1].output == graph.logits


@pytest.mark.parametrize("name", RUN)
def test_every_architecture_that_is_run_has_a_running_vector_through_all_layers(name: str) -> None:
    checked(GRAPHS[name])


@pytest.mark.parametrize("name", CONFIGS)
def test_so_does_every_variant_of_it(name: str) -> None:
    checked(tiny_graph(name))


def test_those_are_not_few() -> None:
    assert len(RUN) > 25


@pytest.mark.parametrize("name", ["mamba", "gemma4_text", "deepseek_v32", "qwen3_next"])
def test_an_architecture_without_one_is_refused_by_name(name: str) -> None:
    with pytest.raises(GraphError) as refused:
        residual(GRAPHS[name])
    assert refused.value.fact.startswith(f"{name}: the running vector cannot be followed: ")


def one_layer(adding: Callable[[GraphBuilder, Value, Value, Value], Value]) -> Graph:
    """A graph of one layer, whose attention and MLP are added as told."""
    g = GraphBuilder(config())
    x = g.embed("embed")
    with g.layer("layers.0", 0):
        y = g.rms_norm(x, "norm")
        q, k, v = (g.heads(g.linear(y, name, 24, Role.QKV)) for name in "qkv")
        attention = g.linear(g.flat(g.attention(q, k, v)), "o", 24, Role.ATTENTION_OUTPUT)
        mlp = g.linear(g.linear(y, "up", 40, Role.MLP_UP), "down", 24, Role.MLP_DOWN)
        x = adding(g, x, attention, mlp)
    return g.finish(g.head(g.rms_norm(g.wanted_rows(x), "last"), tied_to="embed"))


def config() -> ModelConfig:
    return tiny_graph("llama", num_key_value_heads=4, head_dim=6).config


def test_the_order_of_the_summands_does_not_matter() -> None:
    graph = one_layer(lambda g, x, attention, mlp: g.add(mlp, g.add(attention, x)))
    (layer,) = residual(graph).layers
    makers = {node.output: node for node in graph.nodes}
    assert makers[layer.attention.added].weights[0].name == "layers.0.o.weight"
    assert makers[layer.mlp.added].weights[0].name == "layers.0.down.weight"
    assert layer.attention.to == layer.before
    assert layer.mlp.to not in (layer.before, layer.after)


@pytest.mark.parametrize(
    ("adding", "why"),
    [
        (
            lambda g, x, attention, mlp: g.add(x, g.add(attention, mlp)),
            "layer 0 is not one attention and one MLP",
        ),
        (lambda g, x, attention, _: g.add(x, attention), "layer 0 is not one attention and one"),
        (
            lambda g, x, attention, mlp: g.add(g.add(x, attention), g.add(x, mlp)),
            "behind embed embed.weight, 2 of 3 readers add to it",
        ),
        (lambda g, x, attention, mlp: g.add(attention, mlp), "0 of 4 readers add"),
    ],
    ids=["both at once", "no MLP", "added twice", "never added"],
)
def test_a_layer_that_adds_otherwise_is_refused(
    adding: Callable[[GraphBuilder, Value, Value, Value], Value], why: str
) -> None:
    with pytest.raises(GraphError, match=why):
        residual(one_layer(adding))
