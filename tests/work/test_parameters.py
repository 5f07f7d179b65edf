from __future__ import annotations

from forwardpass.architectures import family
from forwardpass.config import ModelConfig, read_config
from forwardpass.describe import describe_config
from forwardpass.graph.builder import GraphBuilder
from forwardpass.graph.graph import Graph, Role
from forwardpass.shapes import SHAPES
from forwardpass.work.parameters import LayerKind, Part, parameter_table
from forwardpass.work.token import weights_flop

TINY: dict[str, object] = {
    "model_type": "llama",
    "vocab_size": 50,
    "hidden_size": 12,
    "num_hidden_layers": 4,
    "num_attention_heads": 3,
    "num_key_value_heads": 1,
    "head_dim": 6,
    "intermediate_size": 20,
}


def config_of(raw: dict[str, object]) -> ModelConfig:
    return read_config(raw, family(str(raw["model_type"])).spec)


def graph_of(shape: str) -> Graph:
    return describe_config(shape, SHAPES[shape]).graph


def labels(parts: tuple[Part, ...]) -> dict[str, tuple[tuple[int, ...], int]]:
    return {part.label: (part.shape, part.tables) for part in parts}


def test_the_parts_of_llama_are_those_of_its_paper() -> None:
    table = parameter_table(graph_of("llama-3.1-8b"))
    assert table.in_embedding == table.in_head == 525_336_576
    assert table.in_layers == 6_979_584_000
    assert not table.tied
    (kind,) = table.layers
    assert kind.layers == tuple(range(32))
    assert kind.elements == 218_112_000
    assert labels(kind.attention) == {
        "query": ((4096, 4096), 1),
        "key": ((4096, 1024), 1),
        "value": ((4096, 1024), 1),
        "output": ((4096, 4096), 1),
    }
    assert labels(kind.mlp) == {"gate, up, down": ((4096, 14336), 3)}
    assert labels(kind.norms) == {"two norms": ((4096,), 2)}
    assert labels(table.outside) == {"final norm": ((4096,), 1)}


def test_head_norms_belong_to_attention_and_a_tied_head_to_the_embedding() -> None:
    table = parameter_table(graph_of("qwen3-0.6b"))
    (kind,) = table.layers
    assert sum(part.elements for part in kind.attention) == 6_291_712
    assert sum(part.elements for part in kind.mlp) == 9_437_184
    assert labels(kind.attention)["two head norms"] == ((128,), 2)
    assert table.tied
    assert table.in_head == 0
    assert table.in_embedding == 155_582_464
    assert table.in_layers == 440_466_432


def test_biases_and_positions_have_lines_of_their_own() -> None:
    table = parameter_table(graph_of("gpt2"))
    assert labels(table.embedding) == {
        "embedding": ((50257, 768), 1),
        "positions": ((1024, 768), 1),
    }
    (kind,) = table.layers
    assert labels(kind.attention)["query, key, value"] == ((768, 2304), 1)
    assert labels(kind.attention)["biases"] == ((2304 + 768,), 1)
    assert labels(kind.mlp) == {"expand, shrink": ((768, 3072), 2), "biases": ((3072 + 768,), 1)}
    assert labels(kind.norms) == {"two norms, gain and bias": ((768,), 4)}


def test_every_parameter_is_in_one_part_and_under_one_role() -> None:
    for name in SHAPES:
        graph = graph_of(name)
        table = parameter_table(graph)
        unique = sum(weight.elements for weight in graph.parameters)
        outside = sum(part.elements for part in table.outside)
        assert table.in_embedding + table.in_layers + outside + table.in_head == unique
        assert sum(table.by_role.values()) == unique
        sinks = sum(w.elements for w in graph.parameters if w.name.endswith("self_attn.sinks"))
        assert table.by_role[Role.READ] == sinks


def layer(g: GraphBuilder, number: int, width: int) -> None:
    x = g.rms_norm(g.embed("model.embed_tokens"), "model.norm")
    with g.layer(f"blocks.{number}", number):
        y = g.linear(g.rms_norm(x, "norm"), "mlp.w_in", width, Role.MLP_UP)
        g.linear(g.gelu(y), "mlp.w_out", g.config.hidden_size, Role.MLP_DOWN)


def test_layers_that_differ_are_put_together_by_what_they_consist_of() -> None:
    g = GraphBuilder(config_of(TINY))
    for number, width in enumerate((20, 32, 20, 32, 32)):
        layer(g, number, width)
    x = g.wanted_rows(g.embed("model.embed_tokens"))
    table = parameter_table(g.finish(g.head(x, tied_to="model.embed_tokens")))
    assert [kind.layers for kind in table.layers] == [(0, 2), (1, 3, 4)]
    narrow, wide = table.layers
    assert narrow.elements == 12 + 2 * 12 * 20
    assert wide.elements == 12 + 2 * 12 * 32
    assert labels(wide.mlp) == {"expand, shrink": ((12, 32), 2)}
    assert table.in_layers == 2 * narrow.elements + 3 * wide.elements


def test_divisors_of_the_ropes_angles_are_constants_and_no_parameters() -> None:
    from dataclasses import replace

    config = replace(config_of(TINY), rope_factors=True)
    graph, plain = family("llama").build(config), family("llama").build(config_of(TINY))
    assert "rope_freqs.weight" in graph.weights
    assert graph.parameters == plain.parameters
    assert weights_flop(graph) == weights_flop(plain)
    table = parameter_table(graph)
    assert labels(table.outside) == {"final norm": ((12,), 1)}
    assert len(table.layers) == 1
    assert isinstance(table.layers[0], LayerKind)
    assert len(table.layers[0].layers) == 4
