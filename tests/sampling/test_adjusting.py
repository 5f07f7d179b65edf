"""Penalties look at the tokens of their scope, as far back as their window."""

from __future__ import annotations

import numpy as np
import pytest

from forwardpass.sampling.adjusting import History
from forwardpass.sampling.chain import choose
from forwardpass.sampling.settings import resolve


def f32(*scores: float) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    return np.array(scores, dtype=np.float32)


WINDOWS: list[tuple[dict[str, object], list[float]]] = [
    # prompt 0 0 1, answer 1 2 2; scores are all 8
    ({"repetition_penalty": 2}, [4, 4, 4, 8]),
    ({"repetition_penalty": 2, "penalty_last_n": 3}, [8, 4, 4, 8]),
    ({"repetition_penalty": 2, "penalty_last_n": 2}, [8, 8, 4, 8]),
    ({"frequency_penalty": 1}, [8, 7, 6, 8]),
    ({"frequency_penalty": 1, "penalty_last_n": 1}, [8, 8, 7, 8]),
    ({"frequency_penalty": 1, "penalty_last_n": 99}, [8, 7, 6, 8]),
    ({"presence_penalty": 1}, [8, 7, 7, 8]),
    ({"frequency_penalty": 1, "sampler": "llama.cpp"}, [6, 6, 6, 8]),
    ({"presence_penalty": 1, "sampler": "llama.cpp"}, [7, 7, 7, 8]),
    ({"presence_penalty": 1, "sampler": "llama.cpp", "penalty_last_n": 4}, [8, 7, 7, 8]),
    ({"frequency_penalty": 1, "sampler": "transformers"}, [8, 7, 6, 8]),
]


@pytest.mark.parametrize(("request_", "scores"), WINDOWS)
def test_each_penalty_looks_at_its_scope_and_window(
    request_: dict[str, object], scores: list[float]
) -> None:
    history = History(prompt=[0, 0, 1], output=[1, 2, 2])
    choice = choose(f32(8, 8, 8, 8), resolve(request_), history=history, position=3)
    assert choice.adjusted[-1].scores.tolist() == scores


def test_the_window_of_the_llama_cpp_preset_is_64_tokens_unless_somebody_says() -> None:
    history = History(prompt=[0, *[1] * 63], output=[2])
    asked = {"repetition_penalty": 2, "sampler": "llama.cpp"}
    for request, scores in (
        (asked, [8, 4, 4]),
        ({**asked, "penalty_last_n": 65}, [4, 4, 4]),
        ({**asked, "sampler": "default"}, [4, 4, 4]),
    ):
        choice = choose(f32(8, 8, 8), resolve(request), history=history, position=1)
        assert choice.adjusted[-1].scores.tolist() == scores
