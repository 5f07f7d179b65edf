from __future__ import annotations

import numpy as np
import pytest

from backends.tiny import CONFIGS, random_tokens, tiny_model
from forwardpass.engine.runner import Runner
from forwardpass.errors import ContextError
from forwardpass.work.passes import SequenceShape


@pytest.fixture
def runner() -> Runner:
    return Runner(tiny_model("llama"), context=20)


def test_a_sequence_holds_its_tokens_its_scores_and_a_record_of_its_passes(runner: Runner) -> None:
    prompt = random_tokens(7)
    sequence = runner.prefill(prompt)
    runner.decode(sequence, 5)
    runner.decode(sequence, 6)
    assert sequence.tokens == [*prompt, 5, 6]
    assert [done.shape for done in sequence.passes] == [
        SequenceShape(7), SequenceShape(1, 7), SequenceShape(1, 8)
    ]  # fmt: skip
    assert [done.prompt for done in sequence.passes] == [True, False, False]
    assert all(done.seconds > 0 for done in sequence.passes)
    cache = runner.backend.new_cache()
    runner.backend.run(cache, prompt)
    runner.backend.run(cache, [5], generated=True)
    (row,) = runner.backend.run(cache, [6], generated=True)
    np.testing.assert_array_equal(sequence.scores, row)


def test_a_fork_goes_on_alone(runner: Runner) -> None:
    prompt = random_tokens(7)
    sequence = runner.prefill(prompt)
    before = sequence.scores.copy()
    fork = sequence.fork()
    assert fork.passes == []
    runner.decode(fork, 5)
    assert sequence.tokens == prompt
    np.testing.assert_array_equal(sequence.scores, before)
    runner.decode(sequence, 5)
    np.testing.assert_array_equal(sequence.scores, fork.scores)


def test_a_prompt_that_is_empty_or_too_long_is_refused(runner: Runner) -> None:
    with pytest.raises(ContextError, match="the prompt has no tokens"):
        runner.prefill([])
    assert runner.prefill([1] * 20).tokens == [1] * 20
    positions = CONFIGS["llama"]["max_position_embeddings"]
    says = f"a prompt of 21 tokens, the context holds 20\n  shorten .*--context to {positions}"
    with pytest.raises(ContextError, match=says):
        runner.prefill([1] * 21)
    whole = Runner(tiny_model("llama"), context=512)
    with pytest.raises(ContextError, match=r"holds 512\n  shorten the prompt$"):
        whole.prefill([1] * 513)


def test_no_token_comes_behind_a_full_context(runner: Runner) -> None:
    sequence = runner.prefill([1] * 19)
    runner.decode(sequence, 2)
    with pytest.raises(ContextError, match="the context holds 20 tokens, and all are used"):
        runner.decode(sequence, 2)
