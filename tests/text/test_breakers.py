"""DRY's sequence breakers are the tokens that hold one of the texts whole."""

from __future__ import annotations

import pytest

from forwardpass.sampling.ranges import ENGINE_DEFAULTS
from forwardpass.text.breakers import breakers
from forwardpass.text.tokenizer import Tokenizer
from text.vocabularies import small


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return small()


def test_every_token_that_holds_a_text_breaks_and_no_other(tokenizer: Tokenizer) -> None:
    for texts in (["\n"], ["th"], ["\n", ":", '"', "*"], ["ü"], ["<|im_end|>"]):
        found = breakers(tokenizer, texts)
        for token in range(tokenizer.vocab_size):
            data = tokenizer.token_bytes(token)
            assert (token in found) == any(text.encode() in data for text in texts)


def test_longer_tokens_around_a_breaker_break_too(tokenizer: Tokenizer) -> None:
    found = breakers(tokenizer, ["h"])
    pieces = {tokenizer.token_bytes(token) for token in found}
    assert b"h" in pieces
    assert any(len(piece) > 1 for piece in pieces)


def test_a_text_that_no_single_token_holds_breaks_nothing(tokenizer: Tokenizer) -> None:
    assert breakers(tokenizer, ["the quick brown fox"]) == frozenset()
    assert breakers(tokenizer, []) == frozenset()
    assert breakers(tokenizer, ["€"]) == frozenset()  # three tokens of one byte each


def test_a_control_token_breaks_by_its_name(tokenizer: Tokenizer) -> None:
    end = tokenizer.find("<|im_end|>")
    assert end in breakers(tokenizer, ["im_end"])


def test_the_breakers_that_nobody_set_are_found_in_a_vocabulary(tokenizer: Tokenizer) -> None:
    texts = ENGINE_DEFAULTS["dry_sequence_breakers"]
    assert isinstance(texts, tuple)
    for text in texts:
        assert breakers(tokenizer, [text])
