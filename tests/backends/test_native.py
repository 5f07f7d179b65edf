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


def graph_of(family: str) -> Graph:
    return tiny_graph(family, **CHANGES.get(family, {}))


@cache
def native(family: str, kv_type: str = "f32", threads: int = 1) -> Native:
    graph = graph_of(family)
    return Native(graph, RandomWeights(graph), threads, kv_type)


@cache
def reference(family: str) -> Reference:
    graph = graph_of(family)
    return Reference(graph, RandomWeights(graph))


def far(ours: F32, theirs: F32) -> float:
    """The largest difference, as a part of the largest logit."""
    return float(np.abs(ours - theirs).max() / np.abs(theirs).max())


def whole(model: Any, tokens: list[int]) -> F32:
    logits: F32 = model.run(model.new_cache(), tokens, wanted=range(len(tokens)))
    return logits


@every_family
@pytest.mark.parametrize(("kv_type", "limit"), [("f32", 1e-5), ("f16", 5e-3), ("bf16", 5e-2)])
def test_logits_are_the_reference_s(family: str, kv_type: str, limit: float) -> None:
    tokens = random_tokens(2 * ROWS + 9)
    ours, theirs = whole(native(family, kv_type), tokens), whole(reference(family), tokens)
    assert far(ours, theirs) <= limit
    if kv_type != "f32":
        assert far(ours, theirs) > 0


@every_family
def test_chunks_threads_and_wanted_rows_change_no_bit(family: str) -> None:
    model, tokens = native(family), random_tokens(ROWS + 30)
    expected = whole(model, tokens)
    for cuts in ([1, 8, 15, ROWS + 3], list(range(1, ROWS + 30))):
        cache_ = model.new_cache()
        for start, stop in zip([0, *cuts], [*cuts, len(tokens)], strict=True):
            found = model.run(cache_, tokens[start:stop])
            np.testing.assert_array_equal(found, expected[stop - 1 : stop])
        assert cache_.length == len(tokens)
    some = model.run(model.new_cache(), tokens, wanted=[70, 0, 33, 33])
    np.testing.assert_array_equal(some, expected[[70, 0, 33, 33]])
    np.testing.assert_array_equal(whole(native(family, threads=2), tokens), expected)


@every_family
def test_a_batch_has_the_bits_of_each_sequence_alone(family: str) -> None:
    model = native(family)
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
        rows = whole(model, text[: length + count])
        wanted = [length + count - 1] if count == 1 else [length, length + count - 1]
        np.testing.assert_array_equal(logits, rows[wanted])
    with pytest.raises(ValueError, match="twice"):
        model.run_batch([parts[0], parts[0]])


@every_family
def test_a_cache_forks_and_forgets(family: str) -> None:
    model, tokens, others = native(family), random_tokens(90), random_tokens(90, seed=2)
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
    model = Native(graph, RandomWeights(graph), 1, "f32", kernels=KERNELS - {lacking})
    assert lacking in model.fallbacks[0]
    assert any(lacking in note for note in model.notes)
    assert far(whole(model, tokens), whole(reference("gpt2"), tokens)) <= 1e-5
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
    return Native(graph, RandomWeights(graph, replaced={name: array}), 1, kv_type)


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
    expected = whole(native("llama"), tokens)
    for level in _native.levels():
        monkeypatch.setenv("FORWARDPASS_ISA", level)
        model = Native(graph, RandomWeights(graph), 1, "f32")
        assert model.level == level
        assert level in model.words
        np.testing.assert_array_equal(whole(model, tokens), expected)
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
