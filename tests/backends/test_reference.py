"""Properties of the reference backend, on tiny models with random weights."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from backends.tiny import (
    CONFIGS,
    VOCABULARY,
    RandomWeights,
    prefilled,
    random_tokens,
    random_weight,
    tiny_graph,
    tiny_model,
    whole_pass,
)
from forwardpass.backends.reference import Reference
from forwardpass.errors import ComputeError, ContextError
from forwardpass.graph.ops import OPS
from forwardpass.graph.references import F32

FAMILIES = tuple(CONFIGS)
every_family = pytest.mark.parametrize("family", FAMILIES)


@every_family
def test_decode_steps_equal_one_whole_pass(family: str) -> None:
    model, tokens = tiny_model(family), random_tokens(80)
    whole = whole_pass(model, tokens)
    cache = model.new_cache()
    steps = [model.run(cache, tokens[:33])]
    steps += [model.run(cache, [token], generated=True) for token in tokens[33:]]
    difference = np.abs(np.concatenate(steps) - whole[32:]).max()
    assert difference <= 1e-5 * np.abs(whole).max()


@every_family
@pytest.mark.parametrize("length", [1, 2, 31, 32, 33, 64, 65])
def test_appending_tokens_changes_no_earlier_logit(family: str, length: int) -> None:
    model, tokens = tiny_model(family), random_tokens(length + 70)
    alone = whole_pass(model, tokens[:length])
    for appended in (1, 2, 30, 31, 32, 33, 64, 70):
        longer = whole_pass(model, tokens[: length + appended])
        np.testing.assert_array_equal(longer[:length], alone)


@every_family
def test_which_rows_are_wanted_changes_no_logit(family: str) -> None:
    model, tokens = tiny_model(family), random_tokens(67)
    whole = whole_pass(model, tokens)
    last = model.run(model.new_cache(), tokens)
    np.testing.assert_array_equal(last, whole[-1:])
    some = model.run(model.new_cache(), tokens, wanted=[66, 0, 33, 33])
    np.testing.assert_array_equal(some, whole[[66, 0, 33, 33]])


@every_family
def test_generated_tokens_do_not_depend_on_how_many_go_at_once(family: str) -> None:
    model, tokens = tiny_model(family), random_tokens(40)
    together = prefilled(model, tokens[:20])
    whole = model.run(together, tokens[20:], wanted=range(20), generated=True)
    one_by_one = prefilled(model, tokens[:20])
    steps = [model.run(one_by_one, [token], generated=True) for token in tokens[20:]]
    np.testing.assert_array_equal(whole, np.concatenate(steps))


@every_family
def test_the_same_prompt_twice_differs_by_nothing(family: str) -> None:
    model, tokens = tiny_model(family), random_tokens(50)
    difference = whole_pass(model, tokens) - whole_pass(model, tokens)
    assert np.abs(difference).max() == 0.0


@every_family
def test_a_forked_cache_and_its_origin_do_not_touch_each_other(family: str) -> None:
    model, tokens, others = tiny_model(family), random_tokens(45), random_tokens(45, seed=2)
    origin = prefilled(model, tokens[:40])
    fork = origin.fork()
    for cache, more in ((fork, others[:5]), (origin, tokens[40:]), (fork, others[5:9])):
        model.run(cache, more, generated=True)
    assert (origin.length, fork.length) == (45, 49)
    for cache, more in ((fork, others[:9]), (origin, tokens[40:])):
        alone = prefilled(model, tokens[:40])
        model.run(alone, more, generated=True)
        expected = model.run(alone, [7], generated=True)
        np.testing.assert_array_equal(model.run(cache, [7], generated=True), expected)


@every_family
@pytest.mark.parametrize("kept", [0, 1, 31, 32, 40])
def test_truncating_a_cache_and_going_on_gives_the_bits_of_never_having_been_there(
    family: str, kept: int
) -> None:
    model, tokens, others = tiny_model(family), random_tokens(70), random_tokens(70, seed=2)
    cache = prefilled(model, [*tokens[:kept], *others[: 70 - kept]])
    cache.truncate(kept)
    straight = prefilled(model, tokens[:kept]) if kept else model.new_cache()
    for part, generated in ((tokens[kept:60], False), (tokens[60:65], True)):
        rows = range(len(part))
        np.testing.assert_array_equal(
            model.run(cache, part, wanted=rows, generated=generated),
            model.run(straight, part, wanted=rows, generated=generated),
        )


def test_a_cache_grows_without_losing_what_is_in_it() -> None:
    model, tokens = tiny_model("llama"), random_tokens(400)
    cache = model.new_cache()
    steps = [model.run(cache, [token], generated=True) for token in tokens]
    whole = whole_pass(model, tokens)
    difference = np.abs(np.concatenate(steps) - whole).max()
    assert difference <= 1e-5 * np.abs(whole).max()


def test_a_cache_cannot_be_truncated_to_more_than_it_holds() -> None:
    cache = prefilled(tiny_model("llama"), [1, 2])
    for length in (3, -1):
        with pytest.raises(ValueError, match="of 2 tokens"):
            cache.truncate(length)


@every_family
def test_no_wanted_row_gives_no_logits_and_still_fills_the_cache(family: str) -> None:
    model, tokens = tiny_model(family), random_tokens(9)
    cache = model.new_cache()
    assert model.run(cache, tokens[:8], wanted=[]).shape == (0, VOCABULARY)
    expected = model.run(prefilled(model, tokens[:8]), tokens[8:], generated=True)
    np.testing.assert_array_equal(model.run(cache, tokens[8:], generated=True), expected)


def poisoned(family: str, name: str, value: float) -> Reference:
    graph = tiny_graph(family)
    bad = random_weight(graph.weights[name]).copy()
    bad.flat[3] = value
    return Reference(graph, RandomWeights(graph, replaced={name: bad}))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize(
    ("family", "name", "place"),
    [
        ("llama", "model.layers.1.mlp.up_proj.weight", "layer 1, linear_bias"),
        ("qwen2", "model.layers.0.self_attn.k_proj.bias", "layer 0, linear_bias"),
        ("gemma3", "model.layers.2.pre_feedforward_layernorm.weight", "layer 2, rms_norm"),
        ("gpt2", "ln_f.bias", "layer_norm ln_f"),
        ("qwen3", "lm_head.weight", "linear lm_head"),
    ],
)
@pytest.mark.parametrize("generated", [False, True])
def test_a_weight_that_is_not_finite_fails_the_pass_where_it_began(
    family: str, name: str, place: str, value: float, generated: bool
) -> None:
    model = poisoned(family, name, value)
    with pytest.raises(ComputeError, match=rf"^{place}.*first value that is not finite"):
        model.run(model.new_cache(), random_tokens(5), generated=generated)


def test_a_failed_pass_leaves_the_cache_as_it_was() -> None:
    graph = tiny_graph("llama")
    table = random_weight(graph.weights["model.embed_tokens.weight"]).copy()
    table[5] = np.nan
    weights = RandomWeights(graph, replaced={"model.embed_tokens.weight": table})
    model = Reference(graph, weights)
    cache = prefilled(model, [1, 2, 3])
    with pytest.raises(ComputeError, match=r"^embed model\.embed_tokens\.weight made"):
        model.run(cache, [4, 5])
    assert cache.length == 3
    expected = model.run(prefilled(model, [1, 2, 3]), [4])
    np.testing.assert_array_equal(model.run(cache, [4]), expected)


OPS_BY_FAMILY = [
    (family, op)
    for family in FAMILIES
    for op in sorted({n.op.name for n in tiny_graph(family).nodes})
]


def test_the_tiny_models_use_every_op_of_the_table() -> None:
    computed = {name for name, op in OPS.items() if not op.counted_only}
    assert {op for _, op in OPS_BY_FAMILY} == computed


@pytest.mark.parametrize("generated", [False, True])
@pytest.mark.parametrize(("family", "op"), OPS_BY_FAMILY)
def test_a_float64_scalar_slipped_into_an_op_fails_the_pass(
    family: str, op: str, generated: bool
) -> None:
    model = tiny_model(family)
    first = next(node for node in model.graph.nodes if node.op.name == op)
    right = model.functions[op]

    def slipped(*arguments: object, **options: object) -> Any:
        return right(*arguments, **options) * np.float64(1.0)

    wrong = replace(model, functions={**model.functions, op: slipped})
    with pytest.raises(ComputeError) as error:
        wrong.run(wrong.new_cache(), random_tokens(4), generated=generated)
    wanted = "int64" if OPS[op].integers else "float32"
    assert error.value.fact == f"{first.name} made float64, where {wanted} is wanted"
    assert op in first.name
    assert first.layer is None or f"layer {first.layer}, " in first.name


@pytest.mark.parametrize("token", [-1, VOCABULARY, 10**12])
def test_a_token_outside_the_vocabulary_is_refused(token: int) -> None:
    model = tiny_model("llama")
    with pytest.raises(ContextError, match=f"token {token} is not among the 61"):
        model.run(model.new_cache(), [1, token])


@pytest.mark.parametrize("rows", [[-1], [0, 2], [5]])
def test_a_row_outside_the_pass_is_refused(rows: list[int]) -> None:
    model = tiny_model("llama")
    with pytest.raises(ContextError, match=f"row {rows[-1]} of a pass of 2 tokens"):
        model.run(model.new_cache(), [1, 2], wanted=rows)


def test_an_empty_pass_is_refused() -> None:
    model = tiny_model("llama")
    with pytest.raises(ContextError, match="at least one token"):
        model.run(model.new_cache(), [])


def test_learned_positions_end_where_their_table_ends() -> None:
    model = tiny_model("gpt2", n_positions=40)
    cache = prefilled(model, random_tokens(39))
    model.run(cache, [1], generated=True)
    with pytest.raises(ContextError, match="41 tokens, the model has 40 learned positions"):
        model.run(cache, [1], generated=True)


def test_turned_positions_do_not_end() -> None:
    model = tiny_model("llama", max_position_embeddings=40)
    assert np.isfinite(model.run(model.new_cache(), random_tokens(50))).all()


@every_family
def test_loading_decodes_every_weight_once(family: str) -> None:
    model = tiny_model(family)
    asked: list[str] = []

    class Counted:
        def numpy(self, name: str) -> F32:
            asked.append(name)
            return model.weights.numpy(name)

    counted = replace(model, weights=Counted(), _decoded={})
    counted.load()
    counted.run(counted.new_cache(), [1, 2])
    assert sorted(asked) == sorted(model.graph.weights)


@pytest.mark.parametrize("generated", [False, True])
def test_a_rope_that_changes_with_the_length_ends_where_it_would(generated: bool) -> None:
    model, tokens = tiny_model("phi3"), random_tokens(256)
    cache = model.new_cache()
    model.run(cache, tokens)
    with pytest.raises(ContextError, match="257 tokens, the model's longrope rope holds for 256"):
        model.run(cache, [1], generated=generated)
