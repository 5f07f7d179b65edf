"""How many experts passes really read, beside how many are to be expected."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from backends.tiny import random_tokens, tiny_model
from forwardpass.backends.recorder import Recorder
from forwardpass.engine.account import Account, Experts, account
from forwardpass.engine.runner import Runner

# Layers with experts, experts, and those that a token chooses.
SIZES = {
    "mixtral": (2, 5, 2),
    "qwen2_moe": (1, 6, 3),
    "qwen3_moe": (1, 6, 3),
    "olmoe": (2, 8, 3),
    "gpt_oss": (2, 6, 3),
}
every_mixture = pytest.mark.parametrize("name", list(SIZES))


@every_mixture
@pytest.mark.parametrize("generated", [False, True])
def test_a_node_reads_the_experts_that_its_tokens_chose(name: str, generated: bool) -> None:
    model, chosen = tiny_model(name), []
    route = model.functions["route"]

    def watched(*arguments: Any, **options: Any) -> Any:
        chosen.append(route(*arguments, **options))
        return chosen[-1]

    model.functions = {**model.functions, "route": watched}
    recorder = Recorder()
    model.run(model.new_cache(), random_tokens(4), generated=generated, recorder=recorder)
    layers, experts, most = SIZES[name]
    assert len(chosen) == layers
    hit = [len({int(expert) for expert in np.ravel(ids)}) for ids in chosen]
    assert all(most <= count <= experts for count in hit)
    read = [done.experts for done in recorder.nodes if done.node.op.experts]
    assert read == [count for count in hit for _ in ("gate", "up", "down")]
    others = [done.experts for done in recorder.nodes if not done.node.op.experts]
    assert set(others) == {None}
    assert recorder.experts() == pytest.approx(sum(hit) / layers)


@every_mixture
def test_an_account_has_what_was_read_and_what_was_to_be_expected(name: str) -> None:
    model = tiny_model(name)
    runner, tokens = Runner(model, 100), random_tokens(9)
    sequence = runner.prefill(tokens)
    for token in (1, 2):
        runner.decode(sequence, token)
    first, *steps = sequence.passes
    _, experts, chosen = SIZES[name]
    assert [step.experts for step in steps] == [chosen, chosen]
    assert first.experts is not None
    assert chosen < first.experts <= experts
    found = account(model.graph, sequence.passes, model.weight_bytes, 4).experts
    assert found is not None
    expected = experts * (1 - (1 - chosen / experts) ** 9)
    assert (found.of, found.passes) == (experts, 3)
    assert found.expected == pytest.approx(expected + 2 * chosen)
    assert found.read == pytest.approx(first.experts + 2 * chosen)
    assert found.as_dict() == {
        "read": pytest.approx((first.experts + 2 * chosen) / 3),
        "expected": pytest.approx((expected + 2 * chosen) / 3),
        "of": experts,
    }


def test_a_dense_model_has_none() -> None:
    model = tiny_model("llama")
    sequence = Runner(model, 100).prefill([1, 2, 3])
    assert [done.experts for done in sequence.passes] == [None]
    assert account(model.graph, sequence.passes, model.weight_bytes, 4).experts is None
    recorder = Recorder()
    model.run(model.new_cache(), [1], recorder=recorder)
    assert recorder.experts() is None


def test_accounts_with_and_without_experts_add_up() -> None:
    some = Account(experts=Experts(3.0, 2.5, 8))
    assert (some + Account()).experts == (Account() + some).experts == some.experts
    assert (some + some).experts == Experts(6.0, 5.0, 8, 2)
    assert (Account() + Account()).experts is None
