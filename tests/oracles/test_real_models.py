"""Real models against an independent float32 evaluation of the same file.

Run the large ones one at a time: `pytest -m large tests/oracles/test_real_models.py -k 0.5b -s`.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from forwardpass.graph.references import F32
from oracles.independent import IndependentModel, longest_match
from oracles.loading import loaded

ModelPath = Callable[[str], Path]
POSITIONS = 200
CLOSE = 0.01  # a gap between the two best scores that rounding may turn round

TEXT = """\
The harbour wakes before the town does. At four in the morning the first lamps come on along the \
quay, one after another, and the men who carry the nets walk down from the hill without \
speaking. Nobody is in a hurry. The tide decides when the boats can leave, and the tide is still \
an hour away. Someone boils water on a small stove and shares out coffee in tin cups, too hot to \
hold, too strong for anyone who has not grown up with it. An old woman counts the boxes of ice \
that have arrived during the night: forty-one, although she ordered forty. She smiles and writes \
down forty. By the time the sun stands over the lighthouse, the boats are three miles out and \
the quay is empty again, except for two cats and a boy who should be at school. He throws a \
stone into the water, waits until the rings have reached the wall, and throws another. When the \
bell of the church strikes eight he picks up his bag and runs, because the teacher closes the \
door at ten past and never opens it for anyone, not even in winter, not even for the son of the \
mayor."""

MODELS = (
    "smollm2-135m",
    "gemma3-270m",
    pytest.param("qwen2.5-coder-0.5b", marks=pytest.mark.large),
    pytest.param("qwen2.5-coder-1.5b", marks=pytest.mark.large),
)


@pytest.mark.parametrize("alias", MODELS)
def test_the_best_token_at_every_position_is_that_of_an_independent_evaluation(
    model_path: ModelPath, alias: str
) -> None:
    path = model_path(alias)
    ids, theirs = judged(path)
    gc.collect()  # one model at a time: the largest takes 7 GB in float32
    model = loaded(path)
    ours = model.run(model.new_cache(), ids, wanted=range(len(ids)))
    two_best = np.sort(theirs, axis=1)[:, -2:]
    clear = two_best[:, 1] - two_best[:, 0] > CLOSE
    print(
        f"\n{alias}: {int(clear.sum())} of {len(ids)} positions clear, largest difference "
        f"{np.abs(ours - theirs).max():.1e} of scores up to {np.abs(theirs).max():.1f}, "
        f"of probabilities {np.abs(softmax(ours) - softmax(theirs)).max():.1e}"
    )
    assert clear.sum() > 0.9 * len(ids)
    np.testing.assert_array_equal(ours.argmax(axis=1)[clear], theirs.argmax(axis=1)[clear])
    assert np.abs(ours - theirs).max() <= 1e-4 * np.abs(theirs).max()


def judged(path: Path) -> tuple[list[int], F32]:
    """The first 200 tokens of the text, and the scores of an independent evaluation."""
    model = IndependentModel(path)
    ids = longest_match(model.metadata, TEXT)[:POSITIONS]
    assert len(ids) == POSITIONS
    return ids, model.logits(ids)


def softmax(scores: F32) -> F32:
    powers = np.exp(scores - scores.max(axis=1, keepdims=True))
    share: F32 = powers / powers.sum(axis=1, keepdims=True)
    return share
