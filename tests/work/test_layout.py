from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from forwardpass.work.layout import WIDTH, Row, ledger, wrapped

words = st.text("abc 0", min_size=0, max_size=12).map(str.strip)
rows = st.lists(
    st.builds(Row, label=words, cells=st.tuples(words, words, words), note=words), max_size=6
)


def test_cells_end_at_the_edges_and_an_empty_one_leaves_its_room() -> None:
    lines = ledger(
        [Row("a", ("1", "22"), "x"), Row("a long label over it", ("", "333")), Row("b", ("4",))],
        (10, 24),
    )
    assert lines == [
        "a        1             22  x",
        "a long label over it  333",
        "b        4",
    ]


@given(rows)
def test_all_cells_of_a_column_end_at_one_column_and_none_touch(table: list[Row]) -> None:
    lines = ledger(table, (8, 12, 20))
    for column in range(3):
        ends = set()
        for row, line in zip(table, lines, strict=True):
            text, end = row.label, 0
            for cell in row.cells[: column + 1]:
                if cell:
                    end = line.index("  " + cell, len(text)) + 2 + len(cell)
                    text = line[:end]
            if row.cells[column]:
                ends.add(end)
        assert len(ends) <= 1


@given(st.lists(st.text("ab", min_size=1, max_size=40), min_size=1, max_size=20))
def test_wrapped_lines_are_short_and_lose_no_word(parts: list[str]) -> None:
    lines = wrapped(parts, " · ", "  ")
    assert all(len(line) <= WIDTH for line in lines)
    assert " · ".join(line.strip() for line in lines).split(" · ") == parts


def test_a_comma_ends_the_line_before_a_break() -> None:
    assert wrapped(["a" * 60, "b" * 60], ", ", "  ") == ["a" * 60 + ",", "  " + "b" * 60]
