"""What a look into a pass shows: norms that add up, weights that mix, a lens that ends the pass."""

from __future__ import annotations

import math

import numpy as np
import pytest

from backends.tiny import (
    CONFIGS,
    RandomWeights,
    random_tokens,
    random_weight,
    tiny_graph,
    tiny_model,
)
from backends.tiny_llama import WINDOWS_LLAMA
from backends.tiny_moe import WINDOWS_MOE
from forwardpass.backends.reference import Reference
from forwardpass.errors import ComputeError, ContextError, RequestError
from forwardpass.graph.graph import Node, Role, Value
from forwardpass.graph.references import F32
from forwardpass.inspecting import looking
from forwardpass.inspecting.looking import Look, attention_weights, look
from forwardpass.inspecting.residual import residual
from forwardpass.sampling.distribution import Distribution

TOKENS = random_tokens(75)  # two whole tiles of the reference and a part of one
PLACES = (0, 31, 40, 74)
every_model = pytest.mark.parametrize("name", CONFIGS)
AFTER = "opt-after"  # whose norms stand on the running vector


def values_of(model: Reference, tokens: list[int]) -> dict[Value, F32]:
    """What every node of one pass made."""
    found: dict[Value, F32] = {}

    def watch(node: Node, made: F32) -> None:
        assert node.output not in found
        found[node.output] = made.copy()

    model.run(model.new_cache(), tokens, watch=watch)
    assert len(found) == len(model.graph.nodes)
    return found


def without(name: str, role: Role) -> Reference:
    """The model with zeros in the tables of that role."""
    graph = tiny_graph(name)
    weights = [weight for node in graph.nodes if node.role is role for weight in node.weights]
    zeros = {weight.name: np.zeros(weight.shape, np.float32) for weight in weights}
    assert zeros
    return Reference(graph, RandomWeights(graph, replaced=zeros))


@every_model
def test_before_and_both_updates_make_what_is_after(name: str) -> None:
    """By the law of cosines, from the figures that are shown."""
    found = look(tiny_model(name), TOKENS)
    assert found.normed == (name == AFTER)
    for layer in found.layers:
        square = layer.before**2
        for added in (layer.attention, layer.mlp):
            assert added.cosine is not None
            square += added.norm**2 + 2 * added.norm * math.sqrt(square) * added.cosine
        adds_up = math.isclose(math.sqrt(square), layer.after, rel_tol=1e-5)
        assert adds_up != found.normed


@every_model
def test_what_a_layer_leaves_comes_into_the_next(name: str) -> None:
    layers = look(tiny_model(name), TOKENS).layers
    assert [layer.after for layer in layers[:-1]] == [layer.before for layer in layers[1:]]


@every_model
def test_the_updates_are_those_of_attention_and_mlp(name: str) -> None:
    model = tiny_model(name)
    whole, silent, dull = (
        look(each, TOKENS)
        for each in (model, without(name, Role.ATTENTION_OUTPUT), without(name, Role.MLP_DOWN))
    )
    for layer in silent.layers:
        assert (layer.attention.norm, layer.attention.cosine) == (0, None)
        assert layer.mlp.norm > 0
    for layer in dull.layers:
        assert (layer.mlp.norm, layer.mlp.cosine) == (0, None)
        assert layer.attention.norm > 0
    assert dull.layers[0].attention == whole.layers[0].attention


@every_model
@pytest.mark.parametrize("place", PLACES)
def test_the_weights_of_every_head_add_up_to_1(name: str, place: int) -> None:
    model = tiny_model(name)
    values = values_of(model, TOKENS)
    for layer in residual(model.graph).layers:
        weights = attention_weights(model, layer.read, values, place)
        assert weights.shape == (layer.read.sizes["h"], place + 1)
        assert (weights >= 0).all()
        sums = weights.sum(axis=1)
        if layer.read.op.name == "attention_sinks":
            assert (sums <= 1 + 1e-6).all()  # test_a_sink_takes_what_the_tokens_leave
        else:
            np.testing.assert_allclose(sums, 1, rtol=1e-6)


@every_model
@pytest.mark.parametrize("place", PLACES)
def test_the_weights_mix_the_values_to_what_the_pass_has(name: str, place: int) -> None:
    model = tiny_model(name)
    values = values_of(model, TOKENS)
    for layer in residual(model.graph).layers:
        weights = attention_weights(model, layer.read, values, place)
        mixed_by_pass = values[layer.read.output][place]  # h w
        each = values[layer.read.inputs[2]][:, : place + 1]  # g s w
        share = len(weights) // len(each)
        mixed = [row @ each[head // share] for head, row in enumerate(weights)]
        scale = np.abs(mixed_by_pass).max()
        np.testing.assert_allclose(mixed, mixed_by_pass, atol=1e-5 * scale)


@pytest.mark.parametrize("name", [*WINDOWS_LLAMA, *WINDOWS_MOE])
def test_only_what_the_window_reaches_has_a_weight(name: str) -> None:
    model = tiny_model(name)
    for number, window in enumerate({**WINDOWS_LLAMA, **WINDOWS_MOE}[name]):
        for place in PLACES:
            weights = look(model, TOKENS, layer=number, position=place).attention.weights
            assert weights.shape == (len(TOKENS),)
            first = 0 if window is None else max(0, place + 1 - window)
            assert np.flatnonzero(weights).tolist() == list(range(first, place + 1))


def test_a_sink_takes_what_the_tokens_leave() -> None:
    """At the first token: e^sink of e^score + e^sink, the score from the pass's own rows."""
    model = tiny_model("gpt_oss")
    values = values_of(model, TOKENS)
    for number, layer in enumerate(residual(model.graph).layers):
        queries, keys = (values[value] for value in layer.read.inputs[:2])
        sinks = random_weight(layer.read.weights[0])
        for head in range(4):
            found = look(model, TOKENS, layer=number, head=head, position=0).attention
            score = float(queries[0, head] @ keys[head // 2, 0]) * 10**-0.5
            expected = 1 / (1 + math.exp(score - float(sinks[head])))
            assert found.sink == pytest.approx(expected, rel=1e-4)
            assert found.sum == pytest.approx(1)
            assert found.weights[0] == pytest.approx(1 - expected, rel=1e-4)


def test_models_without_sinks_have_none() -> None:
    assert look(tiny_model("llama"), TOKENS).attention.sink is None


@pytest.mark.parametrize("name", ["llama", "gemma2", "bloom", "gpt_oss"])
def test_how_many_tokens_are_asked_at_a_time_changes_no_weight(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = tiny_model(name)
    at_once = look(model, TOKENS).attention
    monkeypatch.setattr(looking, "_BLOCK", 8)
    np.testing.assert_allclose(look(model, TOKENS).attention.weights, at_once.weights, rtol=1e-5)


@every_model
def test_the_last_lens_is_the_pass(name: str) -> None:
    model = tiny_model(name)
    for place in PLACES:
        found = look(model, TOKENS, position=place)
        logits = model.run(model.new_cache(), TOKENS, wanted=[place])[0]
        np.testing.assert_array_equal(found.logits, logits)
        assert found.layers[-1].lens == Distribution(logits, logits.size).top(looking.BEST)
        assert found.layers[-1].rank == 1
        assert found.layers[-1].lens[0] == found.best


@every_model
def test_the_lens_of_a_layer_is_the_model_that_ends_there(name: str) -> None:
    layers = look(tiny_model(name), TOKENS).layers
    for count in range(1, len(layers)):
        config = {"n_layer": count} if "n_layer" in CONFIGS[name] else {"num_hidden_layers": count}
        kinds = tiny_graph(name).config.layer_types
        if kinds:
            config["layer_types"] = list(kinds[:count])  # type: ignore[assignment]
        shorter = tiny_model(name, **config)
        logits = shorter.run(shorter.new_cache(), TOKENS)[0]
        ours, theirs = layers[count - 1].lens, Distribution(logits, logits.size).top(looking.BEST)
        assert [ranked.id for ranked in ours] == [ranked.id for ranked in theirs]
        for one, other in zip(ours, theirs, strict=True):
            assert one.logprob == pytest.approx(other.logprob, abs=1e-4)


@every_model
def test_the_rank_is_the_place_of_the_final_token_in_each_lens(name: str) -> None:
    model = tiny_model(name)
    found = look(model, TOKENS)
    values = values_of(model, TOKENS)
    stream = residual(model.graph)
    vectors = np.stack([values[layer.after][-1] for layer in stream.layers])
    for scores, layer in zip(looking.logit_lens(model, stream, vectors), found.layers, strict=True):
        order = sorted(range(scores.size), key=lambda token: (-scores[token], token))
        assert order.index(found.best.id) + 1 == layer.rank
        assert [ranked.id for ranked in layer.lens] == order[: looking.BEST]


def test_of_equal_scores_the_lower_id_comes_first() -> None:
    found = look(tiny_model("llama"), TOKENS)
    name = "lm_head.weight"
    graph = tiny_graph("llama")
    table = random_weight(graph.weights[name])
    best = found.best.id
    before, behind = best - 1, best + 1
    for twin, first in ((behind, best), (before, before)):
        twice = table.copy()
        twice[twin] = table[best]
        model = Reference(graph, RandomWeights(graph, replaced={name: twice}))
        last = look(model, TOKENS).layers[-1]
        assert [ranked.id for ranked in last.lens[:2]] == sorted((twin, best))
        assert last.lens[0].logprob == last.lens[1].logprob
        assert (last.lens[0].id, last.rank) == (first, 1)


@every_model
def test_what_stands_behind_a_token_changes_nothing_of_it(name: str) -> None:
    model = tiny_model(name)
    inside, at_the_end = look(model, TOKENS, position=40), look(model, TOKENS[:41])
    assert at_the_end.position == 40
    assert_alike(inside, at_the_end)
    assert not inside.attention.weights[41:].any()


def assert_alike(one: Look, other: Look) -> None:
    for mine, its in zip(one.layers, other.layers, strict=True):
        assert mine.after == pytest.approx(its.after, rel=1e-5)
        assert mine.rank == its.rank
        assert mine.attention.norm == pytest.approx(its.attention.norm, rel=1e-5)
    seen = len(other.attention.weights)
    np.testing.assert_allclose(
        one.attention.weights[:seen], other.attention.weights, rtol=1e-4, atol=1e-7
    )


@every_model
def test_a_pass_that_is_watched_gives_the_same_bits(name: str) -> None:
    model = tiny_model(name)
    watched = model.run(model.new_cache(), TOKENS, watch=lambda node, made: None)
    np.testing.assert_array_equal(watched, model.run(model.new_cache(), TOKENS))


def test_a_token_alone_sees_itself() -> None:
    found = look(tiny_model("llama"), TOKENS[:1])
    assert (found.position, found.attention.weights.tolist()) == (0, [1.0])


def test_the_last_layer_the_first_head_and_the_last_token_unless_told_otherwise() -> None:
    model = tiny_model("smollm3")
    found, told = look(model, TOKENS), look(model, TOKENS, layer=3, head=0, position=74)
    assert (found.attention.layer, found.attention.head, found.position) == (3, 0, 74)
    np.testing.assert_array_equal(found.attention.weights, told.attention.weights)
    other = look(model, TOKENS, head=1).attention
    assert np.abs(other.weights - found.attention.weights).max() > 0.01


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ({"layer": 2}, "layer = 2: the model has layers 0 to 1"),
        ({"layer": -1}, "layer = -1: the model has layers 0 to 1"),
        ({"layer": 0, "head": 4}, "head = 4: layer 0 has heads 0 to 3"),
        ({"head": -1}, "head = -1: layer 1 has heads 0 to 3"),
        ({"position": 75}, "position = 75: the prompt has tokens 0 to 74"),
        ({"position": -1}, "position = -1: the prompt has tokens 0 to 74"),
    ],
)
def test_a_layer_head_or_position_that_is_not_there_is_refused(
    asked: dict[str, int], told: str
) -> None:
    with pytest.raises(RequestError) as refused:
        look(tiny_model("llama"), TOKENS, **asked)
    assert str(refused.value) == told


def test_what_a_pass_refuses_a_look_refuses() -> None:
    with pytest.raises(ContextError, match="token 61 is not among the 61"):
        look(tiny_model("llama"), [61])
    graph = tiny_graph("llama")
    name = "model.layers.1.mlp.down_proj.weight"
    broken = {name: np.full(graph.weights[name].shape, np.nan, np.float32)}
    with pytest.raises(ComputeError, match="layer 1, linear"):
        look(Reference(graph, RandomWeights(graph, replaced=broken)), TOKENS)
