from __future__ import annotations

from collections.abc import Iterable

import pytest

from backends.tiny import CONFIGS, tiny_graph
from forwardpass.engine.account import Account, account
from forwardpass.engine.runner import Pass
from forwardpass.graph.graph import Weight
from forwardpass.work.count import count_pass
from forwardpass.work.passes import PassShape, SequenceShape

WIDTH = 4


def stored(weight: Weight) -> int:
    """An odd size, so that no other number could be it by chance."""
    return 3 * weight.elements


def passes(prompt: int, answer: int) -> list[Pass]:
    """A prompt and the decode passes of an answer; pass k takes k seconds."""
    shapes = [SequenceShape(prompt), *(SequenceShape(1, prompt + k) for k in range(answer - 1))]
    return [Pass(shape, k, k == 1) for k, shape in enumerate(shapes, start=1)]


@pytest.mark.parametrize("name", CONFIGS)
def test_an_account_is_the_sum_of_its_passes_counted_one_by_one(name: str) -> None:
    graph = tiny_graph(name)
    ran = passes(prompt=7, answer=9)
    works = [count_pass(graph, PassShape((done.shape,)), stored, WIDTH) for done in ran]
    found = account(graph, ran, stored, WIDTH)
    assert found == Account(
        passes=9,
        flop=sum(work.flop for work in works),
        weight_bytes=sum(work.weight_bytes for work in works),
        cache_bytes=sum(work.by_role[role].cache_read + work.by_role[role].cache_written
                        for work in works for role in work.by_role),
        seconds_prefill=1,
        seconds_decode=sum(range(2, 10)),
    )  # fmt: skip
    assert found.seconds == sum(range(1, 10))
    apart: Iterable[Account] = (account(graph, [done], stored, WIDTH) for done in ran)
    assert sum(apart, Account()) == found


def test_no_pass_is_no_work() -> None:
    assert account(tiny_graph("llama"), [], stored, WIDTH) == Account()
    assert set(Account().as_dict().values()) == {0}
