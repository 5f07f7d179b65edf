from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forwardpass.errors import RequestError, TokenizerError
from forwardpass.text.from_gguf import from_gguf
from forwardpass.text.spm import merges_of
from text.vocabularies import CONTROLS, gguf_of, scored_gguf, small, trained_bpe

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=60)
WITH_CONTROL = st.lists(st.one_of(TEXT, st.sampled_from([*CONTROLS, "<think>"])), max_size=8)


@given(WITH_CONTROL.map("".join))
def test_decoding_what_was_encoded_gives_the_text_back(text: str) -> None:
    tokenizer = small()
    assert tokenizer.decode(tokenizer.encode(text)) == text
    assert tokenizer.decode(tokenizer.encode(text, control=True), control=True) == text


@given(WITH_CONTROL.map("".join))
def test_plain_text_never_becomes_a_control_token(text: str) -> None:
    tokenizer = small()
    assert not any(tokenizer.is_control(i) for i in tokenizer.encode(text))


def test_control_tokens_in_text_are_found_only_when_asked_for() -> None:
    tokenizer = small()
    end = tokenizer.find("<|im_end|>")
    assert end is not None
    assert end not in tokenizer.encode("bye<|im_end|>")
    assert tokenizer.encode("bye<|im_end|>", control=True)[-1] == end
    assert tokenizer.encode("bye", control=True) == tokenizer.encode("bye")


def test_an_added_token_that_is_no_control_token_is_ordinary_vocabulary() -> None:
    tokenizer = small()
    think = tokenizer.find("<think>")
    assert think is not None
    assert think in tokenizer.encode("a <think> b")
    assert not tokenizer.is_control(think)
    assert tokenizer.decode([think]) == "<think>"


def test_a_control_token_s_bytes_are_its_name_and_decoding_leaves_it_out() -> None:
    tokenizer = small()
    ids = tokenizer.encode("a<|im_end|>b", control=True)
    assert tokenizer.token_bytes(ids[1]) == b"<|im_end|>"
    assert tokenizer.decode(ids) == "ab"
    assert tokenizer.decode(ids, control=True) == "a<|im_end|>b"


def test_part_of_a_character_is_shown_by_its_bytes() -> None:
    tokenizer = small()
    first = tokenizer.encode("\U00012345")[0]
    assert tokenizer.token_bytes(first) == b"\xf0"
    assert tokenizer.token_text(first) == "\\xf0"


@pytest.mark.parametrize("token_id", [-1, 10**9])
def test_an_id_outside_the_vocabulary_is_refused(token_id: int) -> None:
    tokenizer = small()
    for use in (
        tokenizer.token_bytes,
        tokenizer.token_text,
        tokenizer.is_control,
        tokenizer.stream().push,
        lambda i: tokenizer.decode([i]),
    ):
        with pytest.raises(TokenizerError, match="outside 0 to"):
            use(token_id)


@pytest.mark.parametrize("control", [True, False])
def test_half_a_surrogate_pair_is_refused_as_a_request(control: bool) -> None:
    with pytest.raises(RequestError, match="half a surrogate pair at character 2"):
        small().encode("ab\ud800", control=control)


@pytest.mark.parametrize("add", [True, False])
def test_bos_comes_first_exactly_once_where_the_file_asks_for_it(add: bool) -> None:
    metadata = gguf_of(trained_bpe()) | {"tokenizer.ggml.add_bos_token": add}
    tokenizer = from_gguf(metadata)
    bos = tokenizer.find("<|begin|>")
    assert tokenizer.bos_id == bos
    plain = tokenizer.encode("hello")
    assert tokenizer.encode_prompt("hello") == ([bos, *plain] if add else plain)
    assert tokenizer.encode_prompt("<|begin|>hello", control=True) == [bos, *plain]
    assert tokenizer.encode_prompt("") == ([bos] if add else [])


def test_every_id_that_ends_an_answer_is_known() -> None:
    metadata = gguf_of(trained_bpe())
    ids = {text: place for place, text in enumerate(metadata["tokenizer.ggml.tokens"])}
    metadata["tokenizer.ggml.eot_token_id"] = ids["<|endoftext|>"]
    metadata["tokenizer.ggml.eom_token_id"] = ids["<|im_end|>"]
    tokenizer = from_gguf(metadata, eos_ids=[ids["<|begin|>"]])
    assert tokenizer.eos_ids == (ids["<|im_end|>"], ids["<|endoftext|>"], ids["<|begin|>"])


@pytest.mark.parametrize("letter", ["a", " ", "\n", "é"])
def test_a_very_long_run_of_one_character_is_encoded(letter: str) -> None:
    text = letter * 200_000
    assert small().decode(small().encode(text)) == text
    scored = from_gguf(scored_gguf(["▁", "▁▁", "▁▁▁▁", "aa", "a"], add_space_prefix=False))
    assert scored.decode(scored.encode(text)) == text


@given(
    st.lists(st.text("ab▁", min_size=1, max_size=4), min_size=1, max_size=12, unique=True),
    st.text("abc ", max_size=24),
)
@settings(max_examples=300)
def test_pieces_merge_by_score_as_sentencepiece_does(pieces: list[str], text: str) -> None:
    pieces = [*pieces, *(char for char in "ab▁" if char not in pieces)]
    tokenizer = from_gguf(scored_gguf(pieces, add_space_prefix=False))
    scores = {piece: -place for place, piece in enumerate(pieces)}
    joined = _joined_by_score(text.replace(" ", "▁"), scores)
    # An equal text can be made at two places at once only in a run; then the order is open.
    if all(len(set(piece)) > 1 for piece in scores if len(piece) > 2):
        texts = [tokenizer.token_text(i) for i in tokenizer.encode(text)]
        assert texts == [piece.replace("▁", " ") for piece in joined]


def _joined_by_score(text: str, scores: dict[str, int]) -> list[str]:
    """SentencePiece's rule word for word: join the best-scored neighbours, leftmost first."""
    symbols = list(text)
    while True:
        joins = [
            (-scores[left + right], place)
            for place, (left, right) in enumerate(pairwise(symbols))
            if left + right in scores
        ]
        if not joins:
            return symbols
        place = min(joins)[1]
        symbols[place : place + 2] = [symbols[place] + symbols[place + 1]]


def test_a_short_text_gets_the_ids_that_all_merges_give() -> None:
    letters = "abcdefgh"
    pairs = [a + b for a in letters for b in letters]
    words = [a + b for a in pairs for b in pairs] + [f"▁{number:06d}" for number in range(70_000)]
    pieces = [*words, *pairs, *letters, *"0123456789▁"]
    tokenizer = from_gguf(scored_gguf(pieces))
    texts = ["abcdefgh hgfedcba", "000123 069999", "a", "", " é"]
    few = [tokenizer.encode(text) for text in texts]
    tokenizer.encode("".join(f" {number:06d}ab" for number in range(20_000)))  # derives all
    assert [tokenizer.encode(text) for text in texts] == few


def test_merges_come_best_score_first_and_longer_left_part_first() -> None:
    scores = {"a": -9.0, "b": -8.0, "ab": -1.0, "ba": -2.0, "aba": -3.0}
    assert merges_of(scores, scores) == [("a", "b"), ("b", "a"), ("ab", "a"), ("a", "ba")]


def test_bytes_stand_in_for_characters_that_have_no_piece() -> None:
    tokenizer = from_gguf(scored_gguf(["▁", "a"]))
    ids = tokenizer.encode("aé")
    assert [tokenizer.token_bytes(i) for i in ids] == [b" ", b"a", b"\xc3", b"\xa9"]
    assert tokenizer.decode(ids) == " aé"


def test_the_blank_before_a_text_is_as_the_file_says() -> None:
    pieces = ["▁a", "▁", "a"]
    assert len(from_gguf(scored_gguf(pieces)).encode("a")) == 1
    without = from_gguf(scored_gguf(pieces, add_space_prefix=False))
    assert [without.token_text(i) for i in without.encode("a a")] == ["a", " a"]


def test_user_defined_pieces_are_found_before_any_merge() -> None:
    tokenizer = from_gguf(
        scored_gguf(["▁", "a", "▁a"], added=["  ", "<b>"], add_space_prefix=False)
    )
    texts = [tokenizer.token_text(i) for i in tokenizer.encode("a  a<b>a")]
    assert texts == ["a", "  ", "a", "<b>", "a"]


def test_a_byte_without_a_token_is_named() -> None:
    metadata = gguf_of(trained_bpe())
    tokens = metadata["tokenizer.ggml.tokens"]
    tokens[tokens.index("Ą")] = "unused"  # stands for byte 4
    with pytest.raises(TokenizerError, match="no token stands for byte 0x04"):
        from_gguf(metadata).encode("a\x04b")
