"""Closed formula = counted from the graph = recorded while running, by role, for every family.

The formulas are written here by hand from the sizes alone: n tokens, r rows of logits, p pairs of
a query and a key that it sees (one number a layer), d hidden, h query heads, g key/value heads,
e head_dim, f intermediate, v vocabulary. A multiply-add is 2 FLOP.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import pytest

from backends.tiny import CONFIGS, random_tokens, tiny_graph, tiny_model
from backends.tiny_gpt import TINY_GPT
from backends.tiny_llama import WINDOWS_LLAMA
from backends.tiny_moe import WINDOWS_MOE
from forwardpass.backends.recorder import Recorder
from forwardpass.config import ModelConfig
from forwardpass.graph.graph import Role
from forwardpass.work.count import count_pass
from forwardpass.work.passes import PassShape, SequenceShape
from work.gpt_formulas import GPT_FORMULAS, GPT_WINDOWS
from work.llama_formulas import LLAMA_DIFFERENCES, Differences
from work.moe_formulas import MOE_FORMULAS

Formula = Callable[[ModelConfig, int, int, Sequence[int]], dict[Role, int]]
every_family = pytest.mark.parametrize("family", list(CONFIGS))


def gpt2(c: ModelConfig, n: int, r: int, p: Sequence[int]) -> dict[Role, int]:
    d, f, v, layers = c.hidden_size, c.intermediate_size, c.vocab_size, c.num_hidden_layers
    norms, adds, activation = 2 * 4 * n * d, 2 * n * d, 8 * n * f
    return {
        Role.EMBEDDING: 0,
        Role.QKV: layers * 2 * n * d * 3 * d,
        Role.READ: 4 * d * sum(p),
        Role.ATTENTION_OUTPUT: layers * 2 * n * d * d,
        Role.MLP_UP: layers * 2 * n * d * f,
        Role.MLP_DOWN: layers * 2 * n * f * d,
        Role.HEAD: 2 * r * d * v,
        Role.OTHER: layers * (norms + adds + activation)
        + 3 * c.num_attention_heads * sum(p)
        + 4 * r * d,
    }


def gated(
    c: ModelConfig,
    n: int,
    r: int,
    p: Sequence[int],
    *,
    norms: int = 2,
    head_norms: bool = False,
    activation: int = 4,
    extra: int = 0,
) -> dict[Role, int]:
    """What Llama and those after it share; `activation` is FLOP an element, its product apart."""
    d, f, v, layers = c.hidden_size, c.intermediate_size, c.vocab_size, c.num_hidden_layers
    h, g, e = c.num_attention_heads, c.num_key_value_heads, c.head_dim
    rope = 3 * n * (h + g) * e
    head_norm = 4 * n * (h + g) * e if head_norms else 0
    layer = norms * 4 * n * d + head_norm + rope + (activation + 1) * n * f + 2 * n * d
    return {
        Role.EMBEDDING: 0,
        Role.QKV: layers * 2 * n * d * (h + 2 * g) * e,
        Role.READ: 4 * h * e * sum(p),
        Role.ATTENTION_OUTPUT: layers * 2 * n * h * e * d,
        Role.MLP_UP: layers * 2 * n * d * 2 * f,
        Role.MLP_DOWN: layers * 2 * n * f * d,
        Role.HEAD: 2 * r * d * v,
        Role.OTHER: layers * layer + 3 * h * sum(p) + 4 * r * d + extra,
    }


def qwen3(c: ModelConfig, n: int, r: int, p: Sequence[int]) -> dict[Role, int]:
    return gated(c, n, r, p, head_norms=True)


def gemma3(c: ModelConfig, n: int, r: int, p: Sequence[int]) -> dict[Role, int]:
    scale_and_cap = n * c.hidden_size + 3 * r * c.vocab_size
    return gated(c, n, r, p, norms=4, head_norms=True, activation=8, extra=scale_and_cap)


def beside_llama(differences: Differences) -> Formula:
    return lambda c, n, r, p: gated(c, n, r, p, **differences(c, n, r))  # type: ignore[arg-type]


FORMULAS: Mapping[str, Formula] = {
    "gpt2": gpt2,
    "llama": gated,
    "qwen2": gated,
    "qwen3": qwen3,
    "gemma3_text": gemma3,
    **{kind: beside_llama(differences) for kind, differences in LLAMA_DIFFERENCES.items()},
    **GPT_FORMULAS,
    **MOE_FORMULAS,
}
# Which layers of the tiny configs see how many positions back.
WINDOWS: Mapping[str, Sequence[int | None]] = {
    "gpt2": (None, None),
    "llama": (None, None),
    "llama-scaled": (None, None),
    "llama-factors": (None, None),
    "qwen2": (None, 7),
    "qwen3": (None, None),
    "gemma3": (9, 9, None),
    **WINDOWS_LLAMA,
    **dict.fromkeys(TINY_GPT, (None, None)),
    **GPT_WINDOWS,
    **WINDOWS_MOE,
}


def pairs(new: int, cached: int, window: int | None) -> int:
    """(query, visible key) pairs of one sequence, counted one by one."""
    return sum(min(cached + i + 1, window or cached + i + 1) for i in range(new))


def closed(family: str, sequences: Sequence[SequenceShape]) -> dict[Role, int]:
    config = tiny_graph(family).config
    by_layer = [
        sum(pairs(one.new, one.cached, window) for one in sequences) for window in WINDOWS[family]
    ]
    n, r = sum(one.new for one in sequences), sum(one.wanted for one in sequences)
    return dict.fromkeys(Role, 0) | FORMULAS[config.model_type](config, n, r, by_layer)


def counted(family: str, sequences: Sequence[SequenceShape]) -> dict[Role, int]:
    shape = PassShape(tuple(sequences))
    work = count_pass(tiny_graph(family), shape, lambda weight: 4 * weight.elements, 4)
    return {role: part.flop for role, part in work.by_role.items()}


SINGLE = [
    SequenceShape(new, cached, wanted)
    for new, cached in ((1, 0), (1, 5), (1, 6), (1, 50), (4, 0), (9, 3), (33, 0), (40, 20))
    for wanted in sorted({0, 1, new})
]
SEVERAL = [
    (SequenceShape(1, 0), SequenceShape(1, 30)),
    (SequenceShape(12, 0, 12), SequenceShape(1, 8), SequenceShape(5, 5, 0)),
    tuple(SequenceShape(1, cached) for cached in range(20)),
]


@pytest.mark.parametrize("one", SINGLE, ids=str)
@every_family
def test_closed_formula_counted_and_executed_work_are_equal(
    family: str, one: SequenceShape
) -> None:
    model, tokens = tiny_model(family), random_tokens(one.cached + one.new)
    cache, recorder = model.new_cache(), Recorder()
    if one.cached:
        model.run(cache, tokens[: one.cached], wanted=[])
    model.run(
        cache,
        tokens[one.cached :],
        wanted=range(one.new - one.wanted, one.new),
        generated=one.new == 1,
        recorder=recorder,
    )
    expected = closed(family, [one])
    assert set(expected) == set(Role)
    assert counted(family, [one]) == expected
    assert recorder.flop() == expected


@pytest.mark.parametrize("sequences", SEVERAL, ids=len)
@every_family
def test_closed_formula_and_counted_work_are_equal_for_several_sequences(
    family: str, sequences: tuple[SequenceShape, ...]
) -> None:
    assert counted(family, sequences) == closed(family, sequences)


@every_family
def test_decode_steps_recorded_one_by_one_add_up_to_the_sum_of_their_counts(family: str) -> None:
    model, recorder = tiny_model(family), Recorder()
    cache = model.new_cache()
    for token in random_tokens(25):
        model.run(cache, [token], generated=True, recorder=recorder)
    expected = dict.fromkeys(Role, 0)
    for cached in range(25):
        for role, flop in closed(family, [SequenceShape(1, cached)]).items():
            expected[role] += flop
    assert recorder.flop() == expected


@every_family
def test_a_prompt_costs_what_its_tokens_cost_one_by_one_but_for_the_head(family: str) -> None:
    whole = closed(family, [SequenceShape(30, 0, 30)])
    steps = [closed(family, [SequenceShape(1, cached)]) for cached in range(30)]
    assert whole == {role: sum(step[role] for step in steps) for role in Role}


@every_family
def test_a_recorder_notes_every_node_with_its_seconds(family: str) -> None:
    model, recorder = tiny_model(family), Recorder()
    model.run(model.new_cache(), random_tokens(3), recorder=recorder)
    assert [done.node for done in recorder.nodes] == list(model.graph.nodes)
    assert all(done.seconds >= 0 for done in recorder.nodes)
    assert sum(recorder.seconds().values()) == pytest.approx(
        sum(done.seconds for done in recorder.nodes)
    )
