"""The native backend among threads, forks and signals."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from backends.test_native import graph_of
from backends.tiny import RandomWeights, random_tokens
from forwardpass.backends.levels import missing_reason
from forwardpass.backends.threads import usable_cores
from forwardpass.engine.runner import Runner
from forwardpass.engine.turns import Turns
from forwardpass.errors import ComputeError
from forwardpass.graph.references import F32

if missing_reason() is not None:
    pytest.skip(f"native backend: {missing_reason()}", allow_module_level=True)

from forwardpass.backends.fusion import fuse
from forwardpass.backends.native import ROWS, Native
from forwardpass.backends.ropes import RopeTables

ROOT = Path(__file__).resolve().parents[2]
THREADS = min(2, usable_cores())
forks = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")


def runner(threads: int = THREADS) -> Runner:
    graph = graph_of("llama")
    return Runner(Native(graph, RandomWeights(graph), threads, "f32", rows=ROWS), 512)


def scores(model: Runner, seed: int, count: int = 150, steps: int = 40) -> list[F32]:
    """Of a prompt that has several chunks, and of tokens behind it."""
    tokens = random_tokens(count + steps, seed=seed)
    sequence = model.prefill(tokens[:count])
    found = [sequence.scores]
    for token in tokens[count:]:
        model.decode(sequence, token)
        found.append(sequence.scores)
    return found


def same(found: list[F32], expected: list[F32]) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(found, expected, strict=True))


def together(work: list[Callable[[], None]]) -> None:
    threads = [threading.Thread(target=each, daemon=True) for each in work]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
        assert not thread.is_alive()


@pytest.mark.parametrize("threads", sorted({1, THREADS}))
def test_threads_that_ask_at_once_get_what_each_gets_alone(threads: int) -> None:
    expected = [scores(runner(1), seed) for seed in range(4)]
    model = runner(threads)
    wrong: list[object] = []

    def work(seed: int) -> None:
        try:
            for _ in range(10):
                if not same(scores(model, seed), expected[seed]):
                    wrong.append(seed)
        except Exception as error:
            wrong.append(error)

    together([lambda seed=seed: work(seed) for seed in range(4)])  # type: ignore[misc]
    assert wrong == []


def ends_well(check: Callable[[], bool]) -> int:
    """A forked child that checks something and ends; its id."""
    child = os.fork()
    if child == 0:
        signal.alarm(60)  # a child that hangs dies
        os._exit(0 if check() else 1)
    return child


@forks
def test_a_child_and_its_parent_both_go_on_computing() -> None:
    model, expected = runner(), scores(runner(1), 3)
    assert same(scores(model, 3), expected)
    child = ends_well(lambda: same(scores(model, 3), expected))
    assert same(scores(model, 3), expected)
    assert os.waitpid(child, 0)[1] == 0


@forks
def test_a_child_that_is_made_while_another_thread_computes_computes_too() -> None:
    model, expected = runner(), scores(runner(1), 3)
    going, found = threading.Event(), []

    def work() -> None:
        while not going.is_set():
            found.append(same(scores(model, 3), expected))

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    children = [ends_well(lambda: same(scores(model, 3), expected)) for _ in range(5)]
    ends = [os.waitpid(child, 0)[1] for child in children]
    going.set()
    thread.join(120)
    assert ends == [0] * 5
    assert found
    assert all(found)


@forks
def test_a_child_gives_its_program_the_angles_of_rope_again() -> None:
    graph = graph_of("llama")
    ropes = RopeTables(fuse(graph, lambda name: True).ropes, RandomWeights(graph).numpy)
    assert ropes.grow(5)
    child = ends_well(lambda: ropes.grow(5) and not ropes.grow(5))
    assert os.waitpid(child, 0)[1] == 0
    assert not ropes.grow(5)


@forks
def test_in_a_child_nobody_has_the_turn() -> None:
    turns, taken, done = Turns(), threading.Event(), threading.Event()

    def work() -> None:
        with turns:
            taken.set()
            done.wait(60)

    def take() -> bool:
        with turns:
            return True

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    taken.wait(60)
    child = ends_well(take)
    assert os.waitpid(child, 0)[1] == 0
    done.set()
    thread.join(60)
    assert take()


@pytest.mark.parametrize("kv_type", ["f16", "bf16"])
def test_a_request_after_one_that_failed_is_answered(kv_type: str) -> None:
    graph = graph_of("mistral")
    table = RandomWeights(graph).numpy("model.embed_tokens.weight").copy()
    table[5] = np.nan
    weights = RandomWeights(graph, replaced={"model.embed_tokens.weight": table})
    model, tokens = (
        Runner(Native(graph, weights, THREADS, kv_type, rows=ROWS), 512),
        random_tokens(ROWS + 5),
    )
    tokens = [token for token in tokens if token != 5]
    expected = model.prefill(tokens).scores
    with pytest.raises(ComputeError, match=r"^embed model.embed_tokens.weight made the first"):
        model.prefill([*tokens, 5])
    np.testing.assert_array_equal(model.prefill(tokens).scores, expected)


def test_a_request_after_a_key_beyond_the_cache_s_range_is_answered() -> None:
    graph = graph_of("mistral")
    name = "model.layers.1.self_attn.k_proj.weight"
    large = RandomWeights(graph).numpy(name) * np.float32(2e4)
    native = Native(graph, RandomWeights(graph, replaced={name: large}), THREADS, "f16")
    model, tokens = Runner(native, 512), range(61)
    refused = {token for token in tokens if not _is_read(model, token)}
    assert 0 < len(refused) < len(tokens), "keys of some tokens are beyond 65,504"
    assert refused == {token for token in tokens if not _is_read(model, token)}


def _is_read(model: Runner, token: int) -> bool:
    try:
        return bool(np.isfinite(model.prefill([token]).scores).all())
    except ComputeError as error:
        return _beyond(str(error))


def _beyond(text: str) -> bool:
    """False, for what that error says."""
    assert text.startswith("layer 1: a key or a value is beyond the range of the cache's f16")
    assert "--kv-type f32" in text
    return False


def test_a_model_that_is_dropped_leaves_no_thread() -> None:
    if not Path("/proc/self/task").is_dir():
        pytest.skip("this system does not list its threads")
    program = """
import gc, os
from backends.test_native_processes import runner, scores
def count(): return len(os.listdir("/proc/self/task"))
model = runner()
scores(model, 1)
before = count()
del model
gc.collect()
print(before - count())
"""
    assert int(python(program)) == THREADS - 1


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="no affinity here")
def test_a_process_of_one_core_has_one_thread() -> None:
    program = """
import os
os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])
from backends.test_native import RandomWeights, graph_of
from forwardpass.backends.native import Native
print(Native(graph_of("llama"), RandomWeights(graph_of("llama"))).threads)
"""
    assert python(program).split() == ["1"]


def python(program: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "tests")}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout
