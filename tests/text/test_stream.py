from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from forwardpass.text.from_gguf import from_gguf
from text.vocabularies import scored_gguf, small

IDS = st.lists(st.integers(0, small().vocab_size - 1), max_size=40)


@given(IDS, st.booleans())
def test_the_pieces_of_a_stream_joined_are_the_decoded_text(ids: list[int], control: bool) -> None:
    tokenizer = small()
    stream = tokenizer.stream(control=control)
    pieces = [stream.push(token_id) for token_id in ids]
    assert "".join([*pieces, stream.finish()]) == tokenizer.decode(ids, control=control)


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=40))
def test_no_piece_holds_part_of_a_character(text: str) -> None:
    tokenizer = small()
    stream = tokenizer.stream()
    pieces = [stream.push(token_id) for token_id in tokenizer.encode(text)]
    assert "".join(pieces) == text
    assert stream.finish() == ""
    if "\ufffd" not in text:
        assert not any("\ufffd" in piece for piece in pieces)


def test_an_unfinished_character_is_held_back_and_then_replaced() -> None:
    tokenizer = from_gguf(scored_gguf(["▁", "a"], add_space_prefix=False))
    first, second, third = tokenizer.encode("€")
    stream = tokenizer.stream()
    assert [stream.push(first), stream.push(second)] == ["", ""]
    assert stream.push(third) == "€"
    assert [stream.push(first), stream.push(second)] == ["", ""]
    assert stream.finish() == "\ufffd"


def test_control_tokens_are_left_out_of_a_stream_and_do_not_break_a_character() -> None:
    tokenizer = from_gguf(scored_gguf(["▁", "a"], add_space_prefix=False))
    first, second, third = tokenizer.encode("€")
    stream = tokenizer.stream()
    assert "".join(map(stream.push, [first, 2, second, 2, third])) == "€"
