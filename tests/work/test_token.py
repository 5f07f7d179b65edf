from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from forwardpass.describe import Description, describe_config
from forwardpass.graph.graph import Role
from forwardpass.shapes import SHAPES
from forwardpass.work.answer import count_answer, count_prompt, pairs
from forwardpass.work.count import count_pass, kv_bytes, kv_bytes_per_token
from forwardpass.work.passes import PassShape, SequenceShape
from forwardpass.work.token import (
    Growth,
    alike,
    attention_at,
    crossover,
    flop_by_role,
    growth,
    total,
    weights_flop,
)

# Five of six layers see 512 tokens; sizes as in Gemma 3 270M.
GEMMA: dict[str, object] = {
    "model_type": "gemma3_text",
    "vocab_size": 262_144,
    "hidden_size": 640,
    "num_hidden_layers": 18,
    "num_attention_heads": 4,
    "num_key_value_heads": 1,
    "head_dim": 256,
    "intermediate_size": 2_048,
    "sliding_window": 512,
}


def described(raw: dict[str, object]) -> Description:
    return describe_config("a model", raw)


ALL = [described(raw) for raw in (*SHAPES.values(), GEMMA)]
PASSES = [
    PassShape.decode(1),
    PassShape.decode(700),
    PassShape.prompt(1_000),
    PassShape((SequenceShape(5, 600, 0), SequenceShape(1, 2, 1), SequenceShape(9, 0, 9))),
]


def test_counting_each_sort_of_node_once_equals_counting_every_node() -> None:
    for model in ALL:
        nodes = alike(model.graph)
        assert len(nodes) < 60
        for shape in PASSES:
            whole = count_pass(model.graph, shape, lambda weight: 0, 2)
            assert flop_by_role(nodes, shape) == {r: w.flop for r, w in whole.by_role.items()}


def test_llama_does_the_work_of_one_token_that_was_worked_out_by_hand() -> None:
    graph = described(SHAPES["llama-3.1-8b"]).graph
    parts = growth(graph, alike(graph))
    assert weights_flop(graph) == 15_009_849_344 == 2 * 7_504_924_672
    assert parts == (Growth(None, 32, 524_288, 65_536),)
    assert attention_at(parts, 12_060) == 6_322_913_280
    assert attention_at(parts, 131_072) > 4 * weights_flop(graph)
    assert crossover(weights_flop(graph), parts) == 28_629
    assert crossover(15_009_316_864, parts) == 28_628


def test_windows_stop_growing_and_the_rest_goes_on() -> None:
    graph = described(GEMMA).graph
    parts = growth(graph, alike(graph))
    assert parts == (Growth(512, 15, 61_440, 7_680), Growth(None, 3, 12_288, 1_536))
    for visible in (1, 511, 512, 513, 9_999):
        by_role = flop_by_role(alike(graph), PassShape.decode(visible))
        assert attention_at(parts, visible) == by_role[Role.READ]
        cached = sum(p.kv_elements * min(visible, p.window or visible) for p in parts)
        assert 2 * cached == kv_bytes(graph, visible, 2)
    assert 2 * sum(part.kv_elements for part in parts) == kv_bytes_per_token(graph, 2)


windows = st.lists(
    st.builds(
        Growth,
        window=st.none() | st.integers(1, 60),
        layers=st.just(1),
        flop=st.integers(1, 50),
        kv_elements=st.just(1),
    ),
    max_size=4,
)


@given(weights=st.integers(1, 5_000), parts=windows)
def test_the_crossover_is_the_last_context_whose_attention_costs_no_more_than_the_weights(
    weights: int, parts: list[Growth]
) -> None:
    found = crossover(weights, parts)
    if found is None:
        assert attention_at(parts, 10**9) <= weights
    else:
        assert attention_at(parts, found) <= weights < attention_at(parts, found + 1)


@given(
    prompt=st.integers(1, 40),
    answer=st.integers(1, 40),
    window=st.none() | st.integers(1, 50),
)
def test_an_answer_sees_what_its_passes_see_one_by_one(
    prompt: int, answer: int, window: int | None
) -> None:
    seen = [prompt + k - 1 for k in range(1, answer + 1)]
    assert pairs(prompt, answer, window) == sum(min(n, window or n) for n in seen)


def test_an_answer_of_300_tokens_after_12060_costs_what_was_worked_out_by_hand() -> None:
    graph = described(SHAPES["llama-3.1-8b"]).graph
    parts = growth(graph, alike(graph))
    assert pairs(12_060, 300, None) == 3_662_850
    answer = count_answer(12_060, 300, 32, weights_flop(graph), parts)
    assert (answer.passes, answer.layer_runs) == (300, 9_600)
    assert answer.flop_weights == 4_502_954_803_200
    assert answer.flop_attention == 1_920_388_300_800
    assert answer.flop_total == 6_423_343_104_000


def test_three_conventions_for_a_prompt_give_three_numbers() -> None:
    graph = described(SHAPES["llama-3.1-8b"]).graph
    nodes = alike(graph)
    prompt = count_prompt(512, nodes, growth(graph, nodes))
    assert prompt.flop_full_square == 7_822_209_187_840
    assert prompt.flop_causal == 7_753_623_928_832
    assert prompt.flop == 7_216_729_948_160


def test_a_prompt_is_its_rows_before_the_last_and_its_last_row() -> None:
    for model in ALL:
        nodes = alike(model.graph)
        for tokens in (1, 2, 600, 12_060):
            prompt = count_prompt(tokens, nodes, growth(model.graph, nodes))
            last = total(flop_by_role(nodes, PassShape.decode(tokens)))
            assert prompt.flop == prompt.flop_rows_before + last
