from __future__ import annotations

from typing import Any

import pytest

from forwardpass.errors import RequestError, TokenizerError
from forwardpass.text.from_gguf import from_gguf
from forwardpass.text.pretokenizers import PRE_TOKENIZERS
from text.vocabularies import gguf_of, scored_gguf, trained_bpe

P = "tokenizer.ggml."


def refused(metadata: dict[str, Any], **changes: Any) -> str:
    for key, value in changes.items():
        metadata[P + key] = value
    with pytest.raises(TokenizerError) as caught:
        from_gguf(metadata, name="m.gguf")
    return str(caught.value)


def byte_level() -> dict[str, Any]:
    return gguf_of(trained_bpe())


def scored() -> dict[str, Any]:
    return scored_gguf(["▁", "a", "▁a"])


def test_an_unknown_rule_for_cutting_text_is_refused_with_the_way_out() -> None:
    text = refused(byte_level(), pre="qwen36")
    assert "tokenizer.ggml.pre = 'qwen36'" in text
    assert "did you mean qwen35?" in text
    assert "--pre NAME" in text
    assert all(name in text for name in PRE_TOKENIZERS)
    named = from_gguf(byte_level() | {P + "pre": "qwen36"}, pre="gpt-2")
    assert named.encode("the dog") == from_gguf(byte_level()).encode("the dog")
    with pytest.raises(RequestError, match=r"--pre 'qwen36' .*did you mean qwen35\?"):
        from_gguf(byte_level(), pre="qwen36")


def test_a_rule_for_cutting_text_is_refused_where_text_is_not_cut() -> None:
    with pytest.raises(RequestError, match=r"--pre gpt-2: its vocabulary .* has no rule to name"):
        from_gguf(scored(), pre="gpt-2")


def test_a_missing_rule_for_cutting_text_is_refused() -> None:
    metadata = byte_level()
    del metadata[P + "pre"]
    assert "tokenizer.ggml.pre is missing" in refused(metadata)


def test_an_unknown_kind_of_model_is_refused_by_name() -> None:
    assert "tokenizer.ggml.model = 'rwkv' (RWKV" in refused(byte_level(), model="rwkv")
    said = refused(byte_level(), model="bert")
    assert "tokenizer.ggml.model = 'bert' (WordPiece) is not read" in said
    assert "known: gpt2, llama, t5" in said
    assert "tokenizer.ggml.model = None" in refused({})


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("tokens", ["a", 3], "tokens[1] is not a string"),
        ("tokens", "abc", "tokens is not an array"),
        ("tokens", [], "0 entries"),
        ("tokens", ["\ud800"], "is not UTF-8"),
        ("token_type", [1], "token_type has 1 entries"),
        ("token_type", None, "token_type"),
        ("merges", ["a"], "merges[0] = 'a' needs the token ''"),
        ("merges", ["a zzz"], "needs the token 'zzz'"),
        ("merges", [7], "merges[0] is not a string"),
        ("bos_token_id", 10**6, "bos_token_id = 1000000"),
        ("bos_token_id", -1, "bos_token_id = -1"),
        ("bos_token_id", True, "bos_token_id = True"),
        ("eos_token_id", "2", "eos_token_id = '2'"),
        ("add_bos_token", 1, "add_bos_token = 1 is not true or false"),
        ("pre", 3, "pre is not a string"),
    ],
)
def test_a_hostile_key_of_a_byte_level_vocabulary_is_named(
    key: str, value: object, says: str
) -> None:
    metadata = byte_level()
    if key == "token_type" and value is None:
        value = [9] * len(metadata[P + "tokens"])
    assert says in refused(metadata, **{key: value})


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("scores", [0.0], "scores has 1 entries"),
        ("scores", ["x"], "scores"),
        ("scores", [float("nan")], "not finite"),
        ("precompiled_charsmap", [1, 2], "cannot apply it"),
    ],
)
def test_a_hostile_key_of_a_scored_vocabulary_is_named(key: str, value: Any, says: str) -> None:
    metadata = scored()
    if key == "scores" and value != [0.0]:
        value = value * len(metadata[P + "tokens"])
    assert says in refused(metadata, **{key: value})


def test_a_byte_token_that_names_no_byte_is_refused() -> None:
    metadata = scored()
    metadata[P + "tokens"][3] = "<0xZZ>"
    assert "is no byte like <0x0A>" in refused(metadata)


def test_a_vocabulary_that_could_drop_text_is_refused() -> None:
    metadata = scored()
    metadata[P + "token_type"] = [1] * len(metadata[P + "tokens"])
    assert "some text has no tokens" in refused(metadata)


def test_a_merge_that_makes_a_control_token_is_left_out() -> None:
    metadata = byte_level()
    tokens, types = metadata[P + "tokens"], metadata[P + "token_type"]
    the = tokens.index("the")
    types[the] = 3
    metadata[P + "merges"] = [
        merge for merge in metadata[P + "merges"] if not merge.startswith("the ")
    ]
    assert the not in from_gguf(metadata).encode("the")


def test_a_control_token_of_a_scored_vocabulary_is_never_merged() -> None:
    tokenizer = from_gguf(scored_gguf(["▁", "<", "s", ">", "<s", "s>", "/", "</"]))
    for text in ("<s>", "</s>", "<unk>", "<0x41>"):
        ids = tokenizer.encode(text)
        assert not any(tokenizer.is_control(i) for i in ids)
        assert tokenizer.decode(ids) == f" {text}"


def test_a_run_of_one_character_is_a_matter_of_its_length() -> None:
    """Each tenfold the text takes about tenfold the time: here, that it ends at all."""
    for metadata in (byte_level(), scored_gguf(["▁", "a", "aa", "\n", "▁▁"])):
        tokenizer = from_gguf(metadata)
        for character in "a \n":
            text = character * 100_000
            assert tokenizer.decode(tokenizer.encode(text)).lstrip(" ") == text.lstrip(" ")


def unigram(**keys: Any) -> dict[str, Any]:
    pieces = ["▁", "a", "b", "▁a", "ab"]
    return {
        P + "model": "t5",
        P + "tokens": ["<pad>", "</s>", "<unk>", *pieces, "<x>"],
        P + "token_type": [3, 3, 2, 1, 1, 1, 1, 1, 4],
        P + "scores": [0.0, 0.0, 0.0, -2.0, -3.0, -3.5, -4.0, -4.5, 0.0],
        P + "unknown_token_id": 2,
        P + "eos_token_id": 1,
        **{P + key: value for key, value in keys.items()},
    }


def test_a_unigram_vocabulary_takes_the_likeliest_pieces() -> None:
    tokenizer = from_gguf(unigram())

    def shown(text: str) -> list[str]:
        return [tokenizer.token_text(i) for i in tokenizer.encode(text)]

    assert shown("a") == [" a"]
    assert shown("ab") == [" ", "ab"]  # -6.5, and -7.5 for ` a` `b`
    assert shown("b<x>a") == [" ", "b", "<x>", " a"]
    assert shown("cc</s>")[:2] == [" ", "<unk>"]
    assert not tokenizer.add_bos
    assert tokenizer.eos_ids == (1,)
    assert from_gguf(unigram(add_space_prefix=False)).encode("a") == [4]
    assert from_gguf(unigram(remove_extra_whitespaces=True)).encode("  a  a ") == [6, 6]


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("unknown_token_id", None, "unknown_token_id is missing"),
        ("token_type", [3, 3, 2, 1, 1, 1, 1, 6, 4], "byte tokens in a unigram vocabulary"),
        ("precompiled_charsmap", ["x"], "precompiled_charsmap is not bytes"),
        ("precompiled_charsmap", [9, 9], "the tokenizer cannot be used"),
        ("precompiled_charsmap", [255] * 40, "the tokenizer cannot be used"),
        ("scores", [0.0], "scores has 1 entries"),
    ],
)
def test_a_hostile_key_of_a_unigram_vocabulary_is_named(key: str, value: Any, says: str) -> None:
    assert says in refused(unigram(), **{key: value})


def test_the_tokens_of_phi_3_swallow_the_blanks_behind_them() -> None:
    metadata = scored_gguf(["▁", "a", "▁a", "\n"])
    metadata[P + "tokens"][1] = "<|user|>"
    tokens = from_gguf(metadata).encode("<|user|>\na", control=True)
    assert len(tokens) == 4  # <|user|>, a blank, the line feed, a
    named = from_gguf({"general.name": "Phi 3", **metadata} | {"general.name": "Phi3 mini"})
    assert named.encode("<|user|>\na", control=True) == [tokens[0], named.find("▁a")]


def test_line_ends_stand_alone_whether_or_not_a_merge_has_them() -> None:
    metadata = byte_level()
    text = "a\n\n \r\n  the\n\t7"
    with_them = [merge for merge in metadata[P + "merges"] if "\u010a" in merge]
    assert with_them
    others = [merge for merge in metadata[P + "merges"] if merge not in with_them]
    plain = from_gguf({**metadata, P + "merges": others}, pre="deepseek-llm")
    assert from_gguf(metadata, pre="deepseek-llm").encode(text) == plain.encode(text)
    assert from_gguf(metadata, pre="gpt-2").encode(text) != plain.encode(text)
