"""How many experts a pass is expected to read, against drawing them."""

from __future__ import annotations

import random

import pytest

from forwardpass.describe import describe_config
from forwardpass.shapes import SHAPES
from forwardpass.work.count import count_pass, expected_experts
from forwardpass.work.experts import count_experts, expert_lines
from forwardpass.work.layout import WIDTH
from forwardpass.work.passes import PassShape, SequenceShape


@pytest.mark.parametrize(("experts", "chosen", "tokens"), [(8, 2, 1), (8, 2, 5), (64, 6, 20)])
def test_the_expectation_is_the_mean_of_many_draws(experts: int, chosen: int, tokens: int) -> None:
    draw, trials = random.Random(7), 4_000
    read = 0
    for _ in range(trials):
        read += len({e for _ in range(tokens) for e in draw.sample(range(experts), chosen)})
    # The deviation of one draw is below 2.5 experts, so 4,000 are within 0.2 but for 1 in 10⁶.
    assert read / trials == pytest.approx(expected_experts(experts, chosen, tokens), abs=0.2)


def test_a_pass_reads_the_tables_of_the_experts_that_it_is_expected_to_reach() -> None:
    graph = describe_config("m", SHAPES["mixtral-8x7b"]).graph
    expert = 3 * 4_096 * 14_336
    one = count_pass(graph, PassShape.decode(1), lambda weight: weight.elements, 2).weight_bytes
    eight = PassShape(tuple(SequenceShape(1) for _ in range(8)))
    batch = count_pass(graph, eight, lambda weight: weight.elements, 2).weight_bytes
    more = 32 * expert * (8 * (1 - 0.75**8) - 2)
    assert batch - one == pytest.approx(more + 7 * 4_096, abs=32 * 3)  # and 7 rows of the embedding


def test_mixtures_are_told_in_a_line_and_dense_models_are_not() -> None:
    (mixture,) = count_experts(describe_config("d", SHAPES["deepseek-v3"]).graph)
    assert (mixture.layers, mixture.of, mixture.chosen) == (58, 256, 8)
    assert mixture.expected["1"] == 8
    assert " ".join(line.strip() for line in expert_lines((mixture,))) == (
        "experts read, of 256 in 58 layers: 8 by one token, expected 57.4 by 8 tokens, "
        "222.4 by 64, 256.0 by 512"
    )
    assert all(len(line) <= WIDTH for line in expert_lines((mixture,)))
    assert count_experts(describe_config("l", SHAPES["llama-3.1-8b"]).graph) == ()
