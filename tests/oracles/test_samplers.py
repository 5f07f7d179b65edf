"""The preset `transformers` keeps what transformers' own processors keep.

transformers computes in float32, we in float64. A row where a mass, a probability, a rank or a
distance lies so near its bound that float32's rounding decides is not compared, and the test
holds that such rows are few: those whose kept set, by our own chain, is another when the
shares asked for are moved by EDGE in either direction.

Of equals at top-p's bound transformers keeps whichever its sort happens to put last, we the
lower ids: kept tokens are compared by their scores, as many of each.
"""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from transformers import GenerationConfig, GenerationMixin, LogitsProcessorList, PretrainedConfig

from forwardpass.sampling.adjusting import History
from forwardpass.sampling.chain import choose
from forwardpass.sampling.choice import Choice
from forwardpass.sampling.settings import resolve

Row = npt.NDArray[np.float32]

ROWS = 1_500
EDGE = 2e-5


class Processors(GenerationMixin):  # type: ignore[misc]
    """What of a model transformers' choice of processors looks at."""

    config = PretrainedConfig()

    def of(self, **values: object) -> LogitsProcessorList:
        config = GenerationConfig(do_sample=True, **{"top_k": 0, **values})
        return self._get_logits_processor(config, input_ids_seq_length=1)


def theirs(row: Row, history: History, values: dict[str, Any]) -> npt.NDArray[np.float32]:
    """Scores after transformers' processors, -inf for whoever was left out."""
    named = dict(values)
    if bias := named.pop("logit_bias", None):
        named["sequence_bias"] = {(token,): value for token, value in bias.items()}
    seen = torch.tensor(history.seen.tolist(), dtype=torch.long)[None]
    scores = Processors().of(**named)(seen, torch.tensor(row)[None].clone())
    return np.asarray(scores[0].numpy(), dtype=np.float32)


def ours(row: Row, history: History, values: dict[str, Any]) -> Choice:
    asked = {"temperature": 1.0, **values, "sampler": "transformers", "seed": 0}
    return choose(row, resolve(asked), history=history, position=0)


def kept(choice: Choice) -> list[int]:
    return [int(token) for token in choice.kept[-1].ids]


def is_near_a_bound(row: Row, history: History, values: dict[str, Any]) -> bool:
    """Whether another set is kept where a bound is moved by what float32 may be off."""
    found = set()
    for by in (1 - EDGE, 1, 1 + EDGE):
        moved = {
            name: min(value * by, 0.999999) if name in ("top_p", "min_p", "typical_p") else value
            for name, value in values.items()
        }
        found.add(tuple(kept(ours(row, history, moved))))
    return len(found) > 1


def scores_of(rng: random.Random, size: int) -> Row:
    kind = rng.choice(("normal", "wide", "ties", "all_equal", "one_far"))
    spread = {"normal": 2.0, "wide": 6.0}.get(kind, 1.0)
    scores = [rng.gauss(0, spread) for _ in range(size)]
    if kind == "ties":
        scores = [round(score * 2) / 2 for score in scores]
    elif kind == "all_equal":
        scores = [rng.choice((-3.0, 0.0, 7.0))] * size
    elif kind == "one_far":
        scores[rng.randrange(size)] = 12.0
    return np.array(scores, dtype=np.float32)


def values_of(rng: random.Random, size: int) -> dict[str, Any]:
    values: dict[str, Any] = {"temperature": rng.choice((0.3, 0.7, 1.0, 1.5, 4.0))}
    shares = (0.1, 0.3, 0.5, 0.7, 0.85, 0.9, 0.95, 0.99)
    offered: dict[str, Any] = {
        "top_k": rng.randrange(1, size + 5),
        "top_p": rng.choice(shares),
        "min_p": rng.choice((0.01, 0.05, 0.1, 0.3, 0.6)),
        "typical_p": rng.choice(shares),
        "repetition_penalty": rng.choice((0.7, 1.1, 1.5)),
        "logit_bias": {rng.randrange(size): rng.choice((-3.0, -0.5, 2.0)) for _ in range(3)},
    }
    return values | {name: value for name, value in offered.items() if rng.random() < 0.4}


@pytest.mark.oracle
def test_the_preset_keeps_the_sets_and_probabilities_of_transformers() -> None:
    rng = random.Random(24)
    compared = narrowed = typical = whole = undecided = 0
    while compared < ROWS:
        size = rng.choice((2, 5, 17, 60, 300))
        row, values = scores_of(rng, size), values_of(rng, size)
        history = History([rng.randrange(size) for _ in range(6)], [rng.randrange(size)])
        if is_near_a_bound(row, history, values):
            undecided += 1
            continue
        compared += 1
        choice = ours(row, history, values)
        left = theirs(row, history, values)
        found = np.flatnonzero(left > -np.inf)
        final = choice.adjusted[-1].scores.astype(np.float32)
        assert Counter(final[found].tolist()) == Counter(final[kept(choice)].tolist()), values
        p = torch.softmax(torch.tensor(left), dim=-1).numpy()
        expected = sorted(p[found].tolist(), reverse=True)
        mine = [entry.probability for entry in choice.sampled.top(size)]
        assert mine == pytest.approx(expected, abs=1e-6)
        if not set(final[found]) & set(np.delete(final, found)):  # else equals were parted
            assert sorted(kept(choice)) == found.tolist()
            whole += 1
        narrowed += found.size < size
        typical += "typical_p" in values
    assert narrowed > ROWS / 2
    assert typical > ROWS / 5
    assert whole > ROWS * 0.8
    assert undecided < ROWS / 50


@pytest.mark.oracle
def test_greedy_is_the_best_score_after_transformers_processors() -> None:
    rng = random.Random(25)
    for _ in range(300):
        size = rng.choice((2, 17, 300))
        row = scores_of(rng, size)
        history = History([rng.randrange(size) for _ in range(6)])
        values = {
            "repetition_penalty": rng.choice((0.7, 1.1, 1.5)),
            "logit_bias": {rng.randrange(size): rng.choice((-3.0, 2.0))},
        }
        left = theirs(row, history, values)
        chosen = ours(row, history, {**values, "temperature": 0})
        assert left[chosen.token] == left.max()


@pytest.mark.oracle
def test_top_p_of_zero_keeps_the_best_alone_in_both() -> None:
    row = np.array([0.1, 2.0, 1.0, -1.0], dtype=np.float32)
    assert np.flatnonzero(theirs(row, History(), {"top_p": 0.0}) > -np.inf).tolist() == [1]
    assert kept(ours(row, History(), {"top_p": 0.0})) == [1]
