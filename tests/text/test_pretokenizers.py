from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Regex, pre_tokenizers

from forwardpass.errors import TokenizerError
from forwardpass.text.library import BpeModel, byte_level_pipeline
from forwardpass.text.pretokenizers import PRE_TOKENIZERS, PreTokenizer, pre_tokenizer

GPT2 = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
CASED = PRE_TOKENIZERS["deepseek-llm"].patterns[0].removeprefix(r"[^\S\r\n]?")
MARKS = r"[!-/:-~\x{ff01}-\x{ff0f}\x{ff1a}-\x{ff5e}\x{2018}-\x{201f}\x{3000}-\x{3002}]+"
CJK = r"[\x{4e00}-\x{9fa5}\x{800}-\x{4e00}\x{ac00}-\x{d7ff}]+"
ALONE, DIGITS = r"[\r\n]", pre_tokenizers.Digits(individual_digits=True)
PUBLISHED: dict[str, list[str | pre_tokenizers.PreTokenizer]] = {
    "starcoder": [DIGITS, GPT2],
    "deepseek-llm": [ALONE, r"\s?" + CASED, r"\s?" + MARKS, r"\s+$", CJK, DIGITS],
    "deepseek-coder": [ALONE, r"\s?\p{L}+", r"\s?\p{P}+", CJK, DIGITS],
    "falcon": [
        pre_tokenizers.Punctuation("contiguous"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
        pre_tokenizers.Digits(individual_digits=False),
        "[0-9][0-9][0-9]",
    ],
}
TEXTS = st.text("aZñß  \t\r\n\u00a0\u3000129½३.,'!«，。st你ी한𝟙", max_size=30)


def pieces(rule: PreTokenizer, text: str) -> list[str]:
    library = byte_level_pipeline(rule, []).build(BpeModel({"a": 0}, []).build())
    assert library.pre_tokenizer is not None
    return [piece for piece, _ in library.pre_tokenizer.pre_tokenize_str(text)]


def published(name: str, text: str) -> list[str]:
    """The pieces by the steps as the vocabulary's own tokenizer.json has them."""
    steps = [
        pre_tokenizers.Split(Regex(step), "isolated") if isinstance(step, str) else step
        for step in PUBLISHED[name]
    ]
    if name != "falcon":
        steps.append(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False))
    return [piece for piece, _ in pre_tokenizers.Sequence(steps).pre_tokenize_str(text)]


@pytest.mark.parametrize("name", PUBLISHED)
@given(text=st.one_of(TEXTS, st.text(max_size=20)))
@settings(max_examples=300, deadline=None)
def test_text_is_cut_as_by_the_published_steps(name: str, text: str) -> None:
    assert pieces(PRE_TOKENIZERS[name], text) == published(name, text)


@pytest.mark.parametrize("name", PRE_TOKENIZERS)
@given(text=st.one_of(TEXTS, st.text(max_size=20)))
@settings(max_examples=5, deadline=None)
def test_a_rule_loses_no_text(name: str, text: str) -> None:
    assert len("".join(pieces(PRE_TOKENIZERS[name], text))) == len(text.encode())


def cut(name: str, text: str) -> list[str]:
    return [piece.replace("Ġ", " ") for piece in pieces(PRE_TOKENIZERS[name], text)]


def test_each_rule_cuts_numbers_contractions_and_capitals_its_own_way() -> None:
    text = "I'LL take 12345"
    ways = {
        ("gpt-2", "mpt", "olmo"): ["I", "'", "LL", " take", " 12345"],
        ("starcoder", "refact", "command-r", "smollm"): [
            *["I", "'", "LL", " take", " ", "1", "2", "3", "4", "5"]
        ],
        ("qwen2", "qwen35", "stablelm2", "hunyuan"): [
            *["I", "'LL", " take", " ", "1", "2", "3", "4", "5"]
        ],
        ("llama-bpe", "dbrx", "glm4", "minicpm5"): ["I", "'LL", " take", " ", "123", "45"],
        ("falcon", "default"): ["I", "'", "LL", " take", " ", "123", "45"],
        ("gpt-4o", "llama4"): ["I'LL", " take", " ", "123", "45"],
        ("tekken",): ["I", "'LL", " take", " ", "1", "2", "3", "4", "5"],
        ("deepseek-v3",): ["I", "'LL", " take", " ", "123", "45"],
        ("deepseek-llm", "deepseek-coder"): [
            *["I", "'", "LL", " take", " ", "1", "2", "3", "4", "5"]
        ],
        ("bloom", "poro-chat"): ["I'LL", " take", " 12345"],
        ("viking",): ["I'LL", " take", " ", "1", "2", "3", "4", "5"],
    }
    for names, wanted in ways.items():
        for name in names:
            assert cut(name, text) == wanted, name
    assert cut("gpt-4o", "camelCase HTTPServer") == ["camel", "Case", " HTTPServer"]
    assert cut("qwen35", "e\u0301a")[0] != cut("qwen2", "q\u0301a")[0]


def test_a_name_without_a_rule_is_refused_with_the_nearest_and_all_others() -> None:
    with pytest.raises(TokenizerError) as caught:
        pre_tokenizer("qwen36", where="m.gguf")
    said = str(caught.value)
    assert said.startswith("m.gguf: tokenizer.ggml.pre = 'qwen36' is not a rule")
    assert "did you mean qwen35?" in said
    assert all(name in said for name in PRE_TOKENIZERS)
    assert all(len(line) <= 98 for line in said.splitlines()[1:])
    assert said.endswith("--pre NAME loads it with the rule of that name, if you know that it fits")
