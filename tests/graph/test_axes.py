"""Named axes: sizes that agree, and errors that repeat the pattern and the shapes."""

from __future__ import annotations

import pytest

from forwardpass.errors import GraphError
from forwardpass.graph.axes import Dim, Shape, parse, unify


def test_a_pattern_is_a_list_of_names_for_each_input_and_one_for_the_output() -> None:
    assert parse("n (h e), k -> n h e") == (
        ((("n",), ("h", "e")), (("k",),)),
        (("n",), ("h",), ("e",)),
    )
    assert parse("... d, d -> ... d")[0][0] == (("...",), ("d",))


@pytest.mark.parametrize(
    ("pattern", "shapes", "given", "expected"),
    [
        ("n i, o i -> n o", [("n", 3), (5, 3)], {}, ("n", 5)),
        ("n (h e) -> n h e", [("n", 12)], {"e": 4}, ("n", 3, 4)),
        ("n h e -> n (h e)", [("n", 3, 4)], {}, ("n", 12)),
        ("... d, d -> ... d", [("n", 3, 4), (4,)], {}, ("n", 3, 4)),
        ("... d, d -> ... d", [(4,), (4,)], {}, (4,)),
        ("n g e -> g s e", [("n", 2, 4)], {"s": "s"}, (2, "s", 4)),
        ("n d, r -> r d", [("n", 7), ("r",)], {}, ("r", 7)),
        ("n, v d -> n d", [(6,), (9, 2)], {}, (6, 2)),
    ],
)
def test_the_output_has_the_sizes_that_the_inputs_give(
    pattern: str, shapes: list[Shape], given: dict[str, Dim], expected: Shape
) -> None:
    assert unify(pattern, shapes, given, "op")[1] == expected


@pytest.mark.parametrize(
    ("pattern", "shapes", "given", "reason"),
    [
        ("n i, o i -> n o", [("n", 3), (5, 4)], {}, "axis i is 4, not 3"),
        ("n i, o i -> n o", [("n", 3)], {}, "1 inputs where 2 are wanted"),
        ("n i, o i -> n o", [("n", 3), (5,)], {}, "1 axes where 2 are wanted"),
        ("n (h e) -> n h e", [("n", 13)], {"e": 4}, "axis h e is 13"),
        ("n (h e) -> n h e", [("n", 12)], {}, "axis h e is 12"),
        ("n h e -> n (h e)", [("n", "s", 4)], {}, "axis h e of the output has no size"),
        ("n g e -> g s e", [("n", 2, 4)], {}, "axis s of the output has no size"),
        ("... d, d -> ... d", [(), (4,)], {}, "too few axes"),
        ("... d, ... d -> ... d", [(2, 4), (3, 4)], {}, "leading axes differ"),
        ("n d, n d -> n d", [("n", 4), ("r", 4)], {}, "axis n is r, not n"),
    ],
)
def test_sizes_that_do_not_fit_are_refused_with_the_pattern_and_the_shapes(
    pattern: str, shapes: list[Shape], given: dict[str, Dim], reason: str
) -> None:
    with pytest.raises(GraphError) as caught:
        unify(pattern, shapes, given, "op")
    text = str(caught.value)
    assert text.startswith(f"op: {reason}")
    assert f'pattern "{pattern}"' in text
    for shape in shapes:
        assert "(" + " ".join(map(str, shape)) + ")" in text
