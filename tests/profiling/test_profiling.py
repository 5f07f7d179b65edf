"""Work exact, time consistent: the parts of a profile and how they add up."""

from __future__ import annotations

import json
from functools import cache

import numpy as np
import pytest

from forwardpass.backends.random_weights import RandomWeights
from forwardpass.backends.recorder import Recorder
from forwardpass.backends.reference import Reference
from forwardpass.describe import Description, describe_config
from forwardpass.graph.graph import Role
from forwardpass.profiling import (
    Profiler,
    Repeat,
    Trial,
    float32_work,
    memory_needed,
    small_steps,
    this_machine,
)
from forwardpass.shapes import SHAPES
from forwardpass.work.machine import Ceilings
from forwardpass.work.passes import PassShape
from forwardpass.work.predict import Bound
from profiling.shapes import TINY, tiny

CEILINGS = Ceilings(read_rate=2e9, flop_rate=8e9)
FAMILIES = list(TINY)
VISIBLE = (1, 5, 40)


@cache
def backend(name: str) -> Reference:
    graph = tiny(name).graph
    return Reference(graph, RandomWeights(graph, seed=1))


def profiler(name: str, tokens: int = 4, times: int = 3) -> Profiler:
    return Profiler(backend(name), CEILINGS, Repeat(tokens, times))


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("visible", VISIBLE)
def test_the_flop_shown_are_those_recorded_while_running(name: str, visible: int) -> None:
    row = profiler(name).decode(visible)
    recorder = Recorder()
    store = backend(name).new_cache()
    store.fill_random(visible - 1)
    backend(name).run(store, [3], generated=True, recorder=recorder)
    ran = recorder.flop()
    assert {part.role: part.work.flop for part in row.roles} == {
        role: ran[role] for role in backend(name).graph.roles
    }
    assert row.flop == sum(recorder.flop().values())


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("tokens", [1, 7, 33])
def test_a_prompt_pass_counts_what_it_runs(name: str, tokens: int) -> None:
    row = profiler(name).prompt(tokens)
    recorder = Recorder()
    backend(name).run(backend(name).new_cache(), [1] * tokens, recorder=recorder)
    assert (row.tokens, row.visible) == (tokens, tokens)
    assert row.flop == sum(recorder.flop().values())


@pytest.mark.parametrize("name", FAMILIES)
def test_the_parts_of_a_pass_add_up_to_the_whole(name: str) -> None:
    row = profiler(name).decode(9)
    assert [part.role for part in row.roles] == list(backend(name).graph.roles)
    assert all(part.seconds > 0 for part in row.roles)
    assert row.between > 0
    assert sum(part.seconds for part in row.roles) + row.between == pytest.approx(row.seconds)
    assert sum(part.work.bytes for part in row.roles) == row.bytes
    assert sum(part.predicted.seconds for part in row.roles) == row.predicted.seconds


def test_a_prediction_is_the_larger_of_bytes_and_flop_over_their_rates() -> None:
    for row in (profiler("llama").decode(40), profiler("llama").prompt(40)):
        for part in row.roles:
            wanted = max(part.work.bytes / 2e9, part.work.flop / 8e9)
            assert part.predicted.seconds == wanted
    bounds = {part.role: part.predicted.bound for part in row.roles}
    assert bounds[Role.MLP_UP] is Bound.PRODUCTS  # 40 rows a table
    assert bounds[Role.HEAD] is Bound.READING  # one


def test_weights_and_cache_are_counted_in_the_float32_that_the_reference_reads() -> None:
    graph = tiny("llama").graph
    work = float32_work(graph, PassShape.decode(40)).by_role
    assert work[Role.HEAD].bytes == 4 * 89 * 32
    assert work[Role.MLP_UP].bytes == 4 * 2 * 2 * 48 * 32
    # a key and a value of 2 heads × 8, in 2 layers: 40 rows read, one written
    assert work[Role.READ].bytes == 4 * 2 * 2 * 16 * (40 + 1)
    assert work[Role.OTHER].bytes == 4 * 5 * 32  # the norms' gains


def test_a_window_bounds_the_bytes_that_attention_reads() -> None:
    graph = tiny("gemma3_text").graph
    work = float32_work(graph, PassShape.decode(40)).by_role[Role.READ]
    assert work.cache_read == 4 * 2 * 16 * (5 * 8 + 40)


def test_memory_holds_all_weights_and_the_cache() -> None:
    description = tiny("gpt2")
    cache_row = 2 * 3 * 24
    assert memory_needed(description.graph, 0) == 4 * description.unique_parameters
    with_cache = memory_needed(description.graph, 10)
    assert with_cache == 4 * (description.unique_parameters + 10 * cache_row)


def test_repetitions_have_as_many_passes_as_the_tokens_need() -> None:
    calls: list[int] = []
    profiler = Profiler(
        backend("gpt2"), CEILINGS, Repeat(tokens=30, times=2), advance=lambda: calls.append(1)
    )
    assert [Repeat(tokens=30).passes(n) for n in (1, 16, 30, 31)] == [30, 2, 1, 1]
    row = profiler.prompt(16)
    assert (row.passes, row.repetitions) == (2, 2)
    assert len(calls) == profiler.passes(16) == 1 + 2 * 2


@pytest.mark.parametrize(
    ("repetitions", "middle", "spread"),
    [([7.0], 7.0, 0.0), ([7.0, 4.0], 4.0, 1.5), ([9.0, 4.0, 5.0], 5.0, 2.5)],
)
def test_the_repetition_in_the_middle_is_shown_with_half_the_range(
    repetitions: list[float], middle: float, spread: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = iter([100.0, *repetitions])  # the first warms up

    def scripted(*_: object) -> Trial:
        seconds = next(script)
        return Trial(seconds, dict.fromkeys(Role, seconds / 16))

    monkeypatch.setattr(Profiler, "_trial", scripted)
    row = profiler("gpt2", 1, len(repetitions)).decode(3)
    assert (row.seconds, row.spread) == (middle, spread)
    assert row.between == middle / 2


def test_every_pass_sees_what_the_row_says() -> None:
    store = backend("gpt2").new_cache()
    store.fill_random(300)
    assert store.length == 300
    first, other = list(store.stores.values())[:2]
    assert np.isfinite(first[:, :300]).all()
    assert np.ptp(first[:, :300]) > 0.9
    np.testing.assert_array_equal(first[:, :300], other[:, :300])


@pytest.mark.parametrize(
    ("name", "steps"),
    [
        ("gpt2", (3 * 5, 1)),  # two norms, GELU, two adds; the last norm
        ("llama", (2 * 7, 1)),  # two norms, two ropes, SwiGLU, two adds; the last norm
        ("gemma3_text", (6 * 11, 2)),  # two norms more, two head norms; the embedding's scale
    ],
)
def test_small_steps_are_the_nodes_of_other_that_compute(name: str, steps: tuple[int, int]) -> None:
    assert small_steps(tiny(name).graph) == steps


def longer(name: str, positions: int) -> Description:
    return describe_config(name, {**SHAPES[name], "n_positions": positions})


@pytest.mark.parametrize(
    ("visible", "mega", "other", "share"),
    [
        (128, 252.2, 445_440, 1.9),
        (1_024, 285.6, 832_512, 13.2),
        (8_192, 553.0, 3_929_088, 54.6),
    ],
)
def test_gpt2_does_the_work_of_the_known_table(
    visible: int, mega: float, other: int, share: float
) -> None:
    work = float32_work(longer("gpt2", 8_192).graph, PassShape.decode(visible))
    total = work.flop + work.other.flop
    assert round(total / 1e6, 1) == mega
    assert work.other.flop == other
    assert round(100 * work.by_role[Role.READ].flop / total, 1) == share


def test_gpt2_has_sixty_small_steps_in_its_layers() -> None:
    assert small_steps(describe_config("gpt2", SHAPES["gpt2"]).graph) == (60, 1)


def test_this_machine_is_named_with_its_ceilings() -> None:
    machine = this_machine()
    assert machine.cpu
    assert machine.threads >= 1
    assert machine.ceilings.read_rate >= machine.read_rate_one > 1e7
    assert machine.ceilings.flop_rate > 1e7
    assert json.loads(json.dumps(machine.as_dict()))["threads"] == machine.threads


def test_random_weights_depend_on_seed_and_name_alone() -> None:
    graph = tiny("llama").graph
    first, again, other = RandomWeights(graph, 1), RandomWeights(graph, 1), RandomWeights(graph, 2)
    names = list(graph.weights)
    ordered = {name: first.numpy(name) for name in names}
    for name in reversed(names):
        assert ordered[name].shape == graph.weights[name].shape
        assert ordered[name].dtype == np.float32
        np.testing.assert_array_equal(again.numpy(name), ordered[name])
    assert not np.array_equal(other.numpy(names[0]), ordered[names[0]])
    assert not np.array_equal(ordered[names[1]].ravel()[:16], ordered[names[2]].ravel()[:16])


@pytest.mark.parametrize("name", FAMILIES)
def test_activations_of_random_weights_stay_moderate(name: str) -> None:
    logits = backend(name).run(backend(name).new_cache(), list(range(40)), wanted=range(40))
    assert 0.01 < np.abs(logits).max() < 1e3  # of 40 rows, with seed 1
