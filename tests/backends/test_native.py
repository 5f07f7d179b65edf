"""The native backend against the reference, on tiny models of every family."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

from backends.tiny import (
    CONFIGS,
    VOCABULARY,
    WITH_KERNELS,
    RandomWeights,
    random_tokens,
    tiny_graph,
)
from forwardpass.backends.levels import missing_reason
from forwardpass.backends.recorder import Recorder
from forwardpass.backends.reference import Reference
from forwardpass.backends.shares import StepTimes
from forwardpass.errors import ComputeError, ContextError, RequestError
from forwardpass.graph.graph import Graph
from forwardpass.graph.references import F32
from forwardpass.profiling import _RoleClock

if missing_reason() is not None:
    pytest.skip(f"native backend: {missing_reason()}", allow_module_level=True)

from forwardpass import _native
from forwardpass.backends.fusion import KERNELS
from forwardpass.backends.native import ROWS, Native

# Heads that the attention kernel has: a multiple of 8 wide.
WIDER: dict[str, object] = {"hidden_size": 64}
CHANGES: dict[str, dict[str, object]] = {
    **{name: {"head_dim": 16} for name, config in CONFIGS.items() if "head_dim" in config},
    "phi3": {"head_dim": 8, "partial_rotary_factor": 0.75},
    **dict.fromkeys(
        (
            *("stablelm-parallel", "starcoder2", "gpt_neox", "phi", "falcon"),
            *("falcon-grouped", "opt", "opt-after"),
        ),
        WIDER,
    ),
    "stablelm": {**WIDER, "partial_rotary_factor": 0.75},
}
every_family = pytest.mark.parametrize("family", WITH_KERNELS)
# The best level without tiles, where prompt and generated rows are computed alike; and the one
# with.
PLAIN = next(level for level in _native.levels() if not _native.has_tiles(level))
TILES = [level for level in _native.levels() if _native.has_tiles(level)]
at_levels = pytest.mark.parametrize("level", [PLAIN, *TILES])


def graph_of(family: str) -> Graph:
    return tiny_graph(family, **CHANGES.get(family, {}))


@cache
def native(family: str, kv_type: str = "f32", threads: int = 1, level: str = PLAIN) -> Native:
    graph = graph_of(family)
    return Native(graph, RandomWeights(graph), threads, kv_type, level, rows=ROWS)


@cache
def reference(family: str) -> Reference:
    graph = graph_of(family)
    return Reference(graph, RandomWeights(graph))


def far(ours: F32, theirs: F32) -> float:
    """The largest difference, as a part of the largest logit."""
    return float(np.abs(ours - theirs).max() / np.abs(theirs).max())


def whole(model: Any, tokens: list[int], generated: bool = False) -> F32:
    rows = range(len(tokens))
    logits: F32 = model.run(model.new_cache(), tokens, wanted=rows, generated=generated)
    return logits


@every_family
@at_levels
@pytest.mark.parametrize(("kv_type", "limit"), [("f32", 1e-5), ("f16", 5e-3), ("bf16", 5e-2)])
def test_logits_are_the_reference_s(family: str, level: str, kv_type: str, limit: float) -> None:
    tokens = random_tokens(2 * ROWS + 9)
    model, theirs = native(family, kv_type, level=level), whole(reference(family), tokens)
    ours = whole(model, tokens, generated=True)
    assert far(ours, theirs) <= limit
    if kv_type != "f32":
        assert far(ours, theirs) > 0
    prompt = whole(model, tokens)
    if level == PLAIN:
        np.testing.assert_array_equal(prompt, ours)
    else:  # every weight and activation rounded to 8 bits
        assert not np.array_equal(prompt, ours)
        assert far(prompt, theirs) <= limit + 5e-2


@every_family
@at_levels
@pytest.mark.parametrize("generated", [False, True])
def test_chunks_threads_and_wanted_rows_change_no_bit(
    family: str, level: str, generated: bool
) -> None:
    model, tokens = native(family, level=level), random_tokens(ROWS + 30)
    expected = whole(model, tokens, generated)
    for cuts in ([1, 8, 15, ROWS + 3], list(range(7, ROWS + 30, 7)), list(range(1, ROWS + 30))):
        cache_ = model.new_cache()
        for start, stop in zip([0, *cuts], [*cuts, len(tokens)], strict=True):
            found = model.run(cache_, tokens[start:stop], generated=generated)
            np.testing.assert_array_equal(found, expected[stop - 1 : stop])
        assert cache_.length == len(tokens)
    some = model.run(model.new_cache(), tokens, wanted=[70, 0, 33, 33], generated=generated)
    np.testing.assert_array_equal(some, expected[[70, 0, 33, 33]])
    others = native(family, threads=2, level=level)
    np.testing.assert_array_equal(whole(others, tokens, generated), expected)
    graph = graph_of(family)
    for rows in (0, 7):  # of a chunk: what suits the level, and few
        other = Native(graph, RandomWeights(graph), 1, "f32", level, rows=rows)
        np.testing.assert_array_equal(whole(other, tokens, generated), expected)


@every_family
@at_levels
def test_prompts_of_several_sequences_in_a_pass_have_the_bits_of_each_alone(
    family: str, level: str
) -> None:
    model = native(family, threads=2, level=level)
    texts = [random_tokens(length, seed=length) for length in (1, 40, ROWS + 5, 17)]
    parts = [(model.new_cache(), text, list(range(len(text)))) for text in texts]
    found = model._run(parts, prompt=True, recorder=None)
    for logits, text in zip(found, texts, strict=True):
        np.testing.assert_array_equal(logits, whole(native(family, level=level), text))


@every_family
@at_levels
def test_what_follows_a_prompt_sees_its_keys_and_is_computed_as_generated(
    family: str, level: str
) -> None:
    model, tokens = native(family, level=level), random_tokens(90)
    cut, one = model.new_cache(), model.new_cache()
    model.run(cut, tokens[:33])
    model.run(cut, tokens[33:70])
    model.run(one, tokens[:70])
    together = model.run(cut, tokens[70:], wanted=range(20), generated=True)
    for row, token in enumerate(tokens[70:]):
        alone = model.run(one, [token], generated=True)
        np.testing.assert_array_equal(alone, together[row : row + 1])


@every_family
@at_levels
def test_a_batch_has_the_bits_of_each_sequence_alone(family: str, level: str) -> None:
    model = native(family, level=level)
    lengths = [1, 40, ROWS, 3]
    caches = [model.new_cache() for _ in lengths]
    texts = [random_tokens(length + 20, seed=length) for length in lengths]
    for cache_, text, length in zip(caches, texts, lengths, strict=True):
        model.run(cache_, text[:length])
    counts = [20, 1, 5, 20]
    parts = [
        (cache_, text[length : length + count], None if count == 1 else [0, count - 1])
        for cache_, text, length, count in zip(caches, texts, lengths, counts, strict=True)
    ]
    found = model.run_batch(parts)
    for logits, text, length, count in zip(found, texts, lengths, counts, strict=True):
        alone = model.new_cache()
        model.run(alone, text[:length])
        rows = model.run(alone, text[length : length + count], wanted=range(count), generated=True)
        np.testing.assert_array_equal(logits, rows[[0] if count == 1 else [0, count - 1]])
        if level == PLAIN:
            as_prompt = whole(model, text[: length + count])[length:]
            np.testing.assert_array_equal(rows, as_prompt)
    with pytest.raises(ValueError, match="twice"):
        model.run_batch([parts[0], parts[0]])


@every_family
@at_levels
def test_a_cache_forks_and_forgets(family: str, level: str) -> None:
    model = native(family, level=level)
    tokens, others = random_tokens(90), random_tokens(90, seed=2)
    cache_ = model.new_cache()
    model.run(cache_, tokens[:70])
    fork = cache_.fork()
    fork.truncate(33)
    model.run(fork, others[:40])
    assert (cache_.length, fork.length) == (70, 73)
    alone = whole(model, [*tokens[:33], *others[:41]])
    np.testing.assert_array_equal(model.run(fork, others[40:41])[0], alone[-1])
    np.testing.assert_array_equal(model.run(cache_, tokens[70:71])[0], whole(model, tokens)[70])
    with pytest.raises(ValueError, match="80 of 71 tokens"):
        cache_.truncate(80)
    fork.fill_random(5)
    assert fork.length == 5
    assert np.isfinite(model.run(fork, [1])).all()


@pytest.mark.parametrize("lacking", ["gelu", "add", "layer_norm", "add_positions", "embed"])
def test_an_op_without_a_kernel_is_computed_by_its_reference(lacking: str) -> None:
    graph, tokens = graph_of("gpt2"), random_tokens(ROWS + 9)
    for level in (PLAIN, *TILES):
        model = Native(
            graph, RandomWeights(graph), 1, "f32", level, kernels=KERNELS - {lacking}, rows=ROWS
        )
        assert lacking in model.fallbacks[0]
        assert any(lacking in note for note in model.notes)
        theirs = whole(reference("gpt2"), tokens)
        assert far(whole(model, tokens, generated=True), theirs) <= 1e-5
        assert far(whole(model, tokens), theirs) <= (1e-5 if level == PLAIN else 5e-2)
    assert native("gpt2").fallbacks == ()


def test_a_pass_asks_for_nothing_that_the_model_does_not_have() -> None:
    for make in (native, reference):
        model: Any = make("gpt2")
        for tokens, wanted, says in (
            ([], None, "a pass needs at least one token"),
            ([1], [1], "row 1 of a pass of 1 tokens is wanted"),
            ([VOCABULARY], None, f"token {VOCABULARY} is not among the {VOCABULARY}"),
            ([1] * 161, None, "161 tokens, the model has 160 learned positions"),
        ):
            with pytest.raises(ContextError, match=says):
                model.run(model.new_cache(), tokens, wanted=wanted)


def broken(value: float, name: str, kv_type: str) -> Native:
    """A model one of whose weights holds the value."""
    graph = graph_of("mistral")
    array = RandomWeights(graph).numpy(name).copy()
    array[0] = value
    return Native(graph, RandomWeights(graph, replaced={name: array}), 1, kv_type, rows=ROWS)


def test_what_is_not_finite_is_an_error_that_names_the_node_and_leaves_the_cache() -> None:
    name = "model.layers.1.mlp.down_proj.weight"
    model = broken(float("nan"), name, "f32")
    cache_ = model.new_cache()
    cache_.fill_random(3)
    with pytest.raises(ComputeError, match=rf"layer 1, linear {name} made the first value"):
        model.run(cache_, random_tokens(ROWS + 2))
    assert cache_.length == 3


def test_a_key_beyond_the_cache_s_range_names_the_layer_and_the_way_out() -> None:
    name = "model.layers.1.self_attn.k_proj.weight"
    model = broken(1e6, name, "f16")
    cache_ = model.new_cache()
    with pytest.raises(
        ComputeError, match=r"layer 1: .* range of the cache's f16\n  --kv-type f32"
    ):
        model.run(cache_, random_tokens(5))
    assert cache_.length == 0
    wide = broken(1e6, name, "f32")
    assert np.isfinite(wide.run(wide.new_cache(), random_tokens(5))).all()


@every_family
@pytest.mark.parametrize("count", [1, 40, ROWS + 7])
def test_recorded_flop_are_the_reference_s_and_every_node_is_there(family: str, count: int) -> None:
    recorded = []
    for model in (native(family), reference(family)):
        recorder = Recorder()
        model.run(model.new_cache(), random_tokens(count), recorder=recorder)  # type: ignore[arg-type]
        recorded.append(recorder)
    ours, theirs = recorded
    assert [done.node.name for done in ours.nodes] == [done.node.name for done in theirs.nodes]
    assert ours.flop() == theirs.flop()
    assert sum(ours.seconds().values()) > 0
    assert ours.waiting > 0


def test_every_level_of_this_machine_has_the_same_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    graph, tokens = graph_of("llama"), random_tokens(40)
    expected = whole(native("llama"), tokens, generated=True)
    for level in _native.levels():
        monkeypatch.setenv("FORWARDPASS_ISA", level)
        model = Native(graph, RandomWeights(graph), 1, "f32")
        assert model.level == level
        assert level in model.words
        np.testing.assert_array_equal(whole(model, tokens, generated=True), expected)
        assert np.array_equal(whole(model, tokens), expected) == (level not in TILES)
    monkeypatch.setenv("FORWARDPASS_ISA", "sse9")
    with pytest.raises(RequestError, match=r"FORWARDPASS_ISA = 'sse9': this machine runs .*porta"):
        Native(graph, RandomWeights(graph), 1)


def test_the_cache_s_type_is_one_of_three() -> None:
    graph = graph_of("mistral")
    assert [native("mistral", kind).kv_width for kind in ("f16", "bf16", "f32")] == [2, 2, 4]
    with pytest.raises(RequestError, match=r"kv_type = 'f64': wanted f16, bf16, f32"):
        Native(graph, RandomWeights(graph), 1, "f64")
    with pytest.raises(RequestError, match="this process may use 1 to"):
        Native(graph, RandomWeights(graph), 10_000)


def test_a_profile_divides_the_sum_of_passes_as_the_passes_one_by_one() -> None:
    backend = native("llama")
    times = StepTimes(backend.graph, backend.plan)
    draw = np.random.default_rng(3)
    at_once, one_by_one = _RoleClock(), Recorder()
    for _ in range(3):
        seconds = draw.random((2, len(backend.plan.steps)))
        for recorder in (at_once, one_by_one):
            times.record(recorder, seconds, np.array([4]), 1)
    assert not any(at_once.spent.values())
    at_once.settle()
    assert at_once.spent == pytest.approx(one_by_one.seconds())
    assert at_once.waiting == pytest.approx(one_by_one.waiting)
