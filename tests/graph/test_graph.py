"""Graphs and their builder: what is refused where it is written, and what a graph tells."""

from __future__ import annotations

from collections import Counter

import pytest

from backends.tiny import CONFIGS, RandomWeights, tiny_graph
from backends.tiny_moe import CACHED_ROWS, TINY_MOE
from forwardpass.computing import Computing
from forwardpass.errors import GraphError, RequestError
from forwardpass.graph.builder import GraphBuilder
from forwardpass.graph.graph import KV, Role, State
from forwardpass.graph.ops import OPS

every_family = pytest.mark.parametrize("family", list(CONFIGS))


def builder() -> GraphBuilder:
    return GraphBuilder(tiny_graph("llama").config)


@every_family
def test_every_value_is_made_before_it_is_used_and_the_logits_come_last(family: str) -> None:
    graph = tiny_graph(family)
    made = {graph.tokens, graph.positions, graph.rows}
    for node in graph.nodes:
        assert made.issuperset(node.inputs)
        assert node.output not in made
        made.add(node.output)
    assert graph.logits == graph.nodes[-1].output
    assert graph.logits.shape == ("r", graph.config.vocab_size)


@every_family
def test_every_made_value_is_used(family: str) -> None:
    graph = tiny_graph(family)
    used = {value for node in graph.nodes for value in node.inputs} | {graph.logits}
    assert {node.output for node in graph.nodes} <= used


@every_family
def test_a_graph_lists_its_weights_once_in_the_order_of_first_use(family: str) -> None:
    graph = tiny_graph(family)
    order = dict.fromkeys(w.name for node in graph.nodes for w in node.weights)
    assert list(graph.weights) == list(order)


@every_family
def test_every_layer_keeps_a_key_and_a_value(family: str) -> None:
    graph = tiny_graph(family)
    config = graph.config
    row: tuple[int, ...] = (config.num_key_value_heads, config.head_dim)
    if family in CACHED_ROWS:
        row = (CACHED_ROWS[family],)
    for layer in range(config.num_hidden_layers):
        kept = [state for state in graph.states if state.layer == layer]
        assert [state.shape for state in kept] == [row, row]
        assert {state.window for state in kept} == {config.window(layer)}
        assert [state.name.rpartition(".")[2] for state in kept] == ["key", "value"]
    assert len({state.name for state in graph.states}) == 2 * config.num_hidden_layers


@every_family
def test_a_node_has_the_layer_of_its_weights(family: str) -> None:
    for node in tiny_graph(family).nodes:
        for weight in node.weights:
            numbered = weight.name.startswith(("model.layers.", "layers.", "h."))
            assert (f".{node.layer}." in weight.name) == numbered


@pytest.mark.parametrize("family", [name for name in CONFIGS if name not in TINY_MOE])
def test_roles_are_those_of_the_parts(family: str) -> None:
    graph = tiny_graph(family)
    layers = graph.config.num_hidden_layers
    count = Counter(node.role for node in graph.nodes)
    fused = graph.config.model_type in ("gpt2", "gpt_neox", "falcon", "bloom", "phi3")
    one_up = fused or graph.config.model_type in ("starcoder2", "gptj", "phi", "opt")
    projected = family == "opt-after"
    assert count[Role.QKV] == (1 if fused else 3) * layers
    assert count[Role.ATTENTION_OUTPUT] == count[Role.MLP_DOWN] == layers
    assert count[Role.READ] == 3 * layers  # two caches written, and read by one attention
    assert count[Role.MLP_UP] == (1 if one_up else 2) * layers
    assert count[Role.HEAD] == 1 + projected
    learned = graph.config.model_type in ("gpt2", "opt")
    assert count[Role.EMBEDDING] == 1 + learned + projected


@pytest.mark.parametrize(
    ("family", "routers", "ups", "downs"),
    [
        ("mixtral", 2, 4, 2),
        ("qwen2_moe", 2, 10, 5),  # one layer of four has experts, a shared one and its gate
        ("qwen3_moe", 1, 8, 4),
        ("olmoe", 2, 4, 2),
        ("gpt_oss", 2, 4, 2),
        ("deepseek_v3", 2, 10, 5),  # two of three, with a shared one
    ],
)
def test_roles_of_mixtures(family: str, routers: int, ups: int, downs: int) -> None:
    count = Counter(node.role for node in tiny_graph(family).nodes)
    found = (count[Role.MLP_ROUTER], count[Role.MLP_UP], count[Role.MLP_DOWN])
    assert found == (routers, ups, downs)


def test_a_tied_table_is_one_weight_that_is_multiplied() -> None:
    tied, untied = tiny_graph("llama-scaled"), tiny_graph("llama")
    assert "lm_head.weight" not in tied.weights
    assert tied.embedding_only == ()
    assert [w.name for w in untied.embedding_only] == ["model.embed_tokens.weight"]


def test_a_node_says_where_it_is() -> None:
    names = [node.name for node in tiny_graph("llama").nodes]
    assert names[0] == "embed model.embed_tokens.weight"
    assert "layer 1, linear_bias model.layers.1.mlp.up_proj.weight" in names
    assert "layer 0, attention" in names


def test_a_table_that_does_not_fit_is_refused_where_it_is_written() -> None:
    g = builder()
    x = g.embed("model.embed_tokens")
    with pytest.raises(GraphError, match=r"add: axis d is 7, not 24; pattern .n d, n d"):
        g.add(x, g.linear(x, "short", 7, Role.OTHER))
    with pytest.raises(GraphError, match=r"heads: axis h e is 24"):
        g.heads(x)


def test_a_weight_has_one_shape() -> None:
    g = builder()
    x = g.embed("model.embed_tokens")
    g.linear(x, "a", 5, Role.OTHER)
    with pytest.raises(GraphError, match=r"a\.weight is asked for as \(6, 24\) and as \(5, 24\)"):
        g.linear(x, "a", 6, Role.OTHER)


def test_a_cache_belongs_to_a_layer() -> None:
    g = builder()
    x = g.heads(g.linear(g.embed("model.embed_tokens"), "q", 40, Role.QKV))
    with pytest.raises(GraphError, match="the cache key belongs to no layer"):
        g.cache(x, g.state("key", KV, 5, 8))


def test_an_input_without_a_fixed_width_is_refused() -> None:
    g = builder()
    with pytest.raises(GraphError, match="a: its input has no fixed width"):
        g.linear(g.tokens, "a", 3, Role.OTHER)
    with pytest.raises(GraphError, match="a norm needs a fixed width"):
        g.rms_norm(g.rows, "b")


def test_a_layer_ends_with_its_block() -> None:
    g = builder()
    with g.layer("block.4", 4):
        assert g.weight("a", 2).name == "block.4.a"
    assert g.weight("a", 2).name == "a"


def test_a_state_s_row_is_its_elements_a_token() -> None:
    assert State("a", "kv", (2, 10), 0).elements_per_token == 20


WORKING = {
    *("linear", "linear_bias", "expert_linear", "expert_linear_bias"),
    *("attention", "attention_sinks", "causal_conv", "causal_conv_bias"),
    *("select_tokens", "selected_attention"),
    *("selective_scan", "state_space_scan", "gated_delta_rule", "chunked_attention"),
}
"""Ops whose FLOP count for the node's own role."""


def test_rules_of_the_table_take_sizes_by_name_and_ignore_the_rest() -> None:
    names = (*"nrsiodhgewfvkpxczm", "pairs", "elements", "dims")
    sizes = dict.fromkeys(names, 3)
    for op in OPS.values():
        assert op.flops(**sizes) >= 0
        assert op.other(**sizes) >= 0
        assert (op.flops(**sizes) > 0) == (op.name in WORKING)


def test_a_graph_that_nothing_proved_is_counted_and_never_run() -> None:
    g = builder()
    graph = g.finish(g.head(g.wanted_rows(g.embed("model.embed_tokens")), "lm_head"), proven=False)
    assert graph.counted_only == ()
    with pytest.raises(RequestError, match="counted and planned by this version, not run: its log"):
        Computing("reference").backend_of(graph, RandomWeights(graph), "unproven")
