from __future__ import annotations

from pathlib import Path

import pytest

from forwardpass.formats import read_gguf
from forwardpass.formats.source import MappedFile
from forwardpass.text.from_gguf import from_gguf
from text.vocabularies import scored_gguf, small

NAMES = ("deepseek-llm", "falcon", "gpt-2", "llama-bpe", "llama-spm", "phi-3", "qwen2")
BETWEEN = "\n__ggml_vocab_test__\n"


@pytest.mark.parametrize("name", NAMES)
def test_ids_equal_the_goldens(name: str, cases: Path | None) -> None:
    if cases is None:
        _own_goldens()
        return
    path = cases / "vocab" / f"ggml-vocab-{name}.gguf"
    tokenizer = from_gguf(read_gguf(MappedFile(path)).metadata, name=name)
    texts = Path(f"{path}.inp").read_bytes().decode().split(BETWEEN)
    lines = Path(f"{path}.out").read_text().split("\n")
    assert len(texts) > 40
    for text, line in zip(texts, lines, strict=True):
        assert tokenizer.encode(text) == [int(token) for token in line.split()], repr(text)


def _own_goldens() -> None:
    """Worked by hand: merges in their order, and pieces by their score."""
    tokenizer = small()
    assert [tokenizer.token_text(i) for i in tokenizer.encode("the the")] == ["the", " the"]
    pieces = ("▁a", "ab", "▁", "a", "b")
    scored = from_gguf(scored_gguf(pieces), name="scored")
    texts = [scored.token_text(i) for i in scored.encode("abab")]
    assert texts == [" a", "b", "ab"]  # `▁a` has the best score, then `ab`
