"""The references of latent attention's ops against plain loops; both only move numbers."""

from __future__ import annotations

import numpy as np
import pytest

from forwardpass.graph.references_latent import head_columns, join_heads


def numbers(*shape: int) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    return np.random.default_rng([*shape]).standard_normal(shape).astype(np.float32)


def test_a_part_of_each_head_is_its_elements() -> None:
    x = numbers(3, 4, 9)
    found = head_columns(x, start=2, stop=7)
    assert found.shape == (3, 4, 5)
    assert found.flags.c_contiguous
    for n in range(3):
        for h in range(4):
            assert found[n, h].tolist() == [x[n, h, e] for e in range(2, 7)]


@pytest.mark.parametrize("shared", [False, True])
def test_two_parts_of_a_head_follow_each_other(shared: bool) -> None:
    first, second = numbers(3, 4, 5), numbers(3, 1 if shared else 4, 2)
    found = join_heads(first, second)
    assert found.shape == (3, 4, 7)
    for n in range(3):
        for h in range(4):
            behind = second[n, 0 if shared else h]
            assert found[n, h].tolist() == [*first[n, h].tolist(), *behind.tolist()]
