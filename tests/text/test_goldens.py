from __future__ import annotations

import time
from functools import cache
from pathlib import Path

import pytest

from forwardpass.formats import read_gguf
from forwardpass.formats.source import MappedFile
from forwardpass.text.from_gguf import from_gguf
from forwardpass.text.tokenizer import Tokenizer
from text.vocabularies import scored_gguf, small

NAMES = ("deepseek-llm", "falcon", "gpt-2", "llama-bpe", "llama-spm", "phi-3", "qwen2")
BETWEEN = "\n__ggml_vocab_test__\n"


@pytest.mark.parametrize("name", NAMES)
def test_ids_equal_the_goldens(name: str, cases: Path | None) -> None:
    if cases is None:
        _own_goldens()
        return
    path = cases / "vocab" / f"ggml-vocab-{name}.gguf"
    tokenizer = _golden(name, cases)
    texts = Path(f"{path}.inp").read_bytes().decode().split(BETWEEN)
    lines = Path(f"{path}.out").read_text().split("\n")
    assert len(texts) > 40
    for text, line in zip(texts, lines, strict=True):
        assert tokenizer.encode(text) == [int(token) for token in line.split()], repr(text)


@cache
def _golden(name: str, cases: Path) -> Tokenizer:
    path = cases / "vocab" / f"ggml-vocab-{name}.gguf"
    return from_gguf(read_gguf(MappedFile(path)).metadata, name=name)


def _own_goldens() -> None:
    """Worked by hand: merges in their order, and pieces by their score."""
    tokenizer = small()
    assert [tokenizer.token_text(i) for i in tokenizer.encode("the the")] == ["the", " the"]
    pieces = ("▁a", "ab", "▁", "a", "b")
    scored = from_gguf(scored_gguf(pieces), name="scored")
    texts = [scored.token_text(i) for i in scored.encode("abab")]
    assert texts == [" a", "b", "ab"]  # `▁a` has the best score, then `ab`


@pytest.mark.parametrize("character", ["a", " ", "\n"], ids=["letters", "blanks", "line feeds"])
@pytest.mark.parametrize("name", NAMES)
def test_a_megabyte_of_one_character_is_tokenized_in_two_seconds(
    name: str, character: str, cases: Path | None
) -> None:
    """Of the processor's time, so that what else runs does not count; the better of two tries."""
    tokenizer = small() if cases is None else _golden(name, cases)
    text = character * 1_000_000
    taken = []
    for _ in range(2):
        start = time.process_time()
        ids = tokenizer.encode(text)
        taken.append(time.process_time() - start)
    assert tokenizer.decode(ids).lstrip(" ") == text.lstrip(" ")
    assert min(taken) < 2
