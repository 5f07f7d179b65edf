"""Fused steps do what the graph's nodes do, each of them once; and what is expected is fused."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from backends.plan_runner import PlanRunner
from backends.tiny import WITH_KERNELS, RandomWeights, random_tokens, tiny_graph
from forwardpass.backends.fusion import KERNELS, fuse
from forwardpass.backends.reference import Reference
from forwardpass.backends.slots import Use, assign, views
from forwardpass.backends.steps import AttentionStep, HostStep, LinearStep, Plan, RowStep, Sums
from forwardpass.errors import GraphError
from forwardpass.graph.builder import GraphBuilder
from forwardpass.graph.graph import Graph, Role, Value
from forwardpass.graph.references import F32

every_family = pytest.mark.parametrize("family", WITH_KERNELS)
WANTED = [0, 7, 33]


def always(name: str) -> bool:
    return True


def never(name: str) -> bool:
    return False


def some(name: str) -> bool:
    """Tables of both kinds, also among those that share an input."""
    return len(name) % 2 == 0


def both_ways(graph: Graph, plan: Plan, takes_blocks: Callable[[str], bool]) -> tuple[F32, F32]:
    """The logits by the steps, and by the reference."""
    weights, tokens = RandomWeights(graph), random_tokens(34)
    by_steps = PlanRunner(graph, plan, weights, takes_blocks, tokens, WANTED).run()
    model = Reference(graph, weights)
    return by_steps, model.run(model.new_cache(), tokens, wanted=WANTED)


@every_family
@pytest.mark.parametrize("takes_blocks", [always, never, some])
def test_the_steps_compute_what_the_graph_does(
    family: str, takes_blocks: Callable[[str], bool]
) -> None:
    graph = tiny_graph(family)
    by_steps, expected = both_ways(graph, fuse(graph, takes_blocks), takes_blocks)
    assert np.abs(by_steps - expected).max() <= 1e-5 * np.abs(expected).max()


@every_family
def test_each_node_is_in_one_step(family: str) -> None:
    graph = tiny_graph(family)
    plan = fuse(graph, some)
    assert sorted(n for step in plan.steps for n in step.nodes) == list(range(len(graph.nodes)))
    assert plan.fallbacks == ()


NEEDED = {"attention", "cache", "columns", "flat", "heads", "linear", "linear_bias", "wanted_rows"}


def test_a_pass_without_products_or_attention_is_refused() -> None:
    graph = tiny_graph("mistral")
    for lacking in ("linear", "attention", "cache", "wanted_rows"):
        with pytest.raises(GraphError, match=f"no kernel for {lacking}"):
            fuse(graph, always, KERNELS - {lacking})


def ops_of_families() -> list[tuple[str, str]]:
    """Each op that can be done without, in each family that has it."""
    pairs = {(f, node.op.name) for f in WITH_KERNELS for node in tiny_graph(f).nodes}
    return sorted((family, op) for family, op in pairs if op not in NEEDED)


@pytest.mark.parametrize(("family", "lacking"), ops_of_families())
def test_an_op_without_a_kernel_runs_through_its_reference(family: str, lacking: str) -> None:
    graph = tiny_graph(family)
    numbers = [n for n, node in enumerate(graph.nodes) if node.op.name == lacking]
    plan = fuse(graph, always, KERNELS - {lacking})
    assert list(plan.fallbacks) == numbers
    assert [step.node for step in plan.steps if isinstance(step, HostStep)] == numbers
    by_steps, expected = both_ways(graph, plan, always)
    assert np.abs(by_steps - expected).max() <= 1e-5 * np.abs(expected).max()


@every_family
def test_a_layer_waits_at_most_eight_times(family: str) -> None:
    graph = tiny_graph(family)
    plan = fuse(graph, always)
    layers = graph.config.num_hidden_layers
    assert plan.common <= 8 * layers + 3  # OPT 350M's embedding has a projection of its own
    assert len(plan.steps) - plan.common <= 3


@every_family
def test_steps_of_wanted_rows_are_the_last(family: str) -> None:
    plan = fuse(tiny_graph(family), always)
    assert [step.wanted for step in plan.steps[: plan.common]] == [False] * plan.common
    assert all(step.wanted for step in plan.steps[plan.common :])
    first = plan.steps[plan.common]
    assert isinstance(first, RowStep)
    assert first.ops[0].kind == "gather"


def kinds(plan: Plan) -> list[str]:
    """A step a text: row operations, or what each product takes up."""
    found = []
    for step in plan.steps:
        if isinstance(step, RowStep):
            found.append(" ".join(op.kind for op in step.ops))
        elif isinstance(step, LinearStep):
            found.append(" ".join(_words(segment.sums) for segment in step.segments))
        else:
            found.append("attention" if isinstance(step, AttentionStep) else "host")
    return found


def _words(sums: Sums) -> str:
    marks = {"up": "gate", "bias": "bias", "residual": "residual", "cap": "cap"}
    found = [mark for name, mark in marks.items() if getattr(sums, name)]
    return "+".join(["linear", *found, *([sums.act] if sums.act != "none" else [])])


def test_a_llama_layer_is_eight_steps() -> None:
    plan = fuse(tiny_graph("mistral"), always)
    layer = [
        "linear linear linear",
        "rope rope write_cache",
        "attention",
        "linear+residual",
        "rms_norm quantize",
        "linear+gate",
        "linear+residual",
    ]
    norm = "rms_norm quantize"
    assert kinds(plan) == [
        f"embed {norm}", *layer, norm, *layer, f"gather {norm}", "linear"
    ]  # fmt: skip


def test_attention_and_mlp_of_one_input_are_one_product() -> None:
    plan = fuse(tiny_graph("phi"), always)
    assert kinds(plan)[1] == "linear+bias linear+bias linear+bias linear+bias+gelu"
    assert kinds(plan)[4:6] == ["linear+bias+residual", "linear+bias+residual"]


def test_halves_of_one_table_are_gate_and_up() -> None:
    plan = fuse(tiny_graph("phi3"), always)
    gates = [
        segment.sums
        for step in plan.steps
        if isinstance(step, LinearStep)
        for segment in step.segments
        if segment.sums.up
    ]
    assert len(gates) == 2
    for sums in gates:
        assert sums.up is not None
        assert (sums.table.start, sums.table.stop) == (0, sums.up.start)
        assert sums.up.stop == 2 * sums.up.start


def test_a_soft_cap_is_part_of_the_head() -> None:
    assert kinds(fuse(tiny_graph("gemma3"), always))[-1] == "linear+cap"


def test_a_value_that_is_read_twice_is_not_taken_up() -> None:
    """gelu(y) + y: neither may swallow y."""
    graph = _built(lambda g, y: g.add(g.gelu(y), y))
    plan = fuse(graph, always)
    assert kinds(plan)[:3] == ["embed quantize", "linear", "gelu add"]
    _agree(graph, plan)


def test_a_product_of_a_part_of_a_value_gets_a_copy_of_it() -> None:
    width = tiny_graph("mistral").config.hidden_size
    graph = _built(lambda g, y: g.linear(g.columns(y, width, 2 * width), "b", width, Role.OTHER), 2)
    plan = fuse(graph, always)
    assert kinds(plan)[2] == "copy quantize"
    _agree(graph, plan)


def test_a_sum_of_two_products_is_taken_up_by_the_later() -> None:
    width = tiny_graph("mistral").config.hidden_size
    graph = _built(lambda g, y: g.add(g.linear(g.gelu(y), "b", width, Role.OTHER), y))
    plan = fuse(graph, always)
    assert "linear+residual" in kinds(plan)
    _agree(graph, plan)


def test_a_sum_with_a_value_that_comes_later_is_not_taken_up() -> None:
    """The other operand is made from the product's own input, behind it."""

    def late(g: GraphBuilder, y: Value) -> Value:
        width = g.config.hidden_size
        first = g.linear(y, "b", width, Role.OTHER)
        return g.add(first, g.gelu(g.gelu(y)))

    graph = _built(late)
    plan = fuse(graph, always)
    assert "linear+residual" not in kinds(plan)
    _agree(graph, plan)


def _built(middle: Callable[[GraphBuilder, Value], Value], times: int = 1) -> Graph:
    """embed, a product of `times` the width, what `middle` makes of it, the head."""
    g = GraphBuilder(tiny_graph("mistral").config)
    y = g.linear(g.embed("embed"), "a", times * g.config.hidden_size, Role.OTHER)
    return g.finish(g.linear(g.wanted_rows(middle(g, y)), "head", 61, Role.HEAD))


def _agree(graph: Graph, plan: Plan) -> None:
    by_steps, expected = both_ways(graph, plan, always)
    assert np.abs(by_steps - expected).max() <= 1e-5 * np.abs(expected).max()


def test_a_view_of_a_view_is_columns_of_the_first() -> None:
    graph = tiny_graph("phi3")
    found = views(graph)
    for node in graph.nodes:
        if node.op.name == "heads":
            (value,) = node.inputs
            assert found[node.output] == found[value]
    assert {view.column for view in found.values()} == {0, 40, 60}


def test_values_that_are_needed_at_once_have_slots_of_their_own() -> None:
    a, b, c, d = (Value(number, ("n", 8)) for number in range(4))
    wide, kept = Value(4, ("n", 16)), Value(5, ("r", 8))
    steps = [
        Use((), (a,)),
        Use((a,), (b,)),  # not in place: a is read meanwhile
        Use((b,), (c, wide)),
        Use((c, b), (d,)),
        Use((d,), (kept,)),
    ]
    found = assign(steps, [kept])
    assert found.of[a] == found.of[c]  # a is done when c is made
    assert len({found.of[value] for value in (b, c, d, wide, kept)}) == 5
    assert found.slots == ((8, False), (8, False), (16, False), (8, False), (8, True))
    with pytest.raises(GraphError, match="made twice"):
        assign([Use((), (a,)), Use((), (a,))], [])
