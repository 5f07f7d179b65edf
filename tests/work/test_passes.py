"""Shapes of passes: the pairs and the rows that windows leave, against plain counting."""

from __future__ import annotations

import pytest

from forwardpass.work.passes import PassShape, SequenceShape

CASES = [
    (new, cached, window)
    for new in (1, 2, 5, 16)
    for cached in (0, 1, 4, 15, 16, 40)
    for window in (None, 1, 2, 5, 16, 17, 100)
]


@pytest.mark.parametrize(("new", "cached", "window"), CASES)
def test_pairs_and_visible_rows_are_those_of_plain_counting(
    new: int, cached: int, window: int | None
) -> None:
    seen = [
        range(0 if window is None else max(0, cached + i + 1 - window), cached + i + 1)
        for i in range(new)
    ]
    one = SequenceShape(new, cached)
    assert one.pairs(window) == sum(map(len, seen))
    assert one.visible(window) == len({key for keys in seen for key in keys})


def test_a_pass_is_the_sum_of_its_sequences() -> None:
    shape = PassShape((SequenceShape(5, 0, 0), SequenceShape(1, 9), SequenceShape(3, 2, 3)))
    assert (shape.tokens, shape.rows) == (9, 4)
    assert shape.pairs(None) == 15 + 10 + 12
    assert shape.visible(4) == 5 + 4 + 5


def test_a_decoded_token_sees_itself() -> None:
    assert PassShape.decode(128).pairs(None) == 128
    assert PassShape.prompt(3).pairs(None) == 6


@pytest.mark.parametrize(
    ("new", "cached", "wanted"), [(0, 0, 0), (1, -1, 1), (1, 0, 2), (2, 0, -1)]
)
def test_an_impossible_sequence_is_refused(new: int, cached: int, wanted: int) -> None:
    with pytest.raises(ValueError, match="no pass has"):
        SequenceShape(new, cached, wanted)
