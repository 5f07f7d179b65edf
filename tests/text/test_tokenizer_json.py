from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from forwardpass.errors import TokenizerError
from forwardpass.text.from_folder import from_folder
from forwardpass.text.from_gguf import from_gguf
from text.vocabularies import (
    CONTROLS,
    CORPUS,
    folder_with,
    gguf_of,
    trained_bpe,
    trained_sentencepiece,
    trained_unigram,
)

SEED = 20_240_726
MUTATIONS = 300
KINDS: dict[str, Callable[[], str]] = {
    "bpe": trained_bpe,
    "sentencepiece": trained_sentencepiece,
    "unigram": trained_unigram,
}


def test_the_gguf_and_the_folder_of_one_vocabulary_give_equal_ids(tmp_path: Path) -> None:
    folder = from_folder(folder_with(tmp_path / "m", trained_bpe(), bos_token="<|begin|>"))
    gguf = from_gguf(gguf_of(trained_bpe()))
    assert folder.vocab_size == gguf.vocab_size
    for text in [*CORPUS, "", " ", "a<|im_end|>b", "<think>x</think>"]:
        for control in (True, False):
            assert folder.encode(text, control=control) == gguf.encode(text, control=control)
    for token_id in range(gguf.vocab_size):
        assert folder.token_bytes(token_id) == gguf.token_bytes(token_id)
        assert folder.is_control(token_id) == gguf.is_control(token_id)


def test_bos_is_as_the_post_processor_says(tmp_path: Path) -> None:
    tokenizer = from_folder(folder_with(tmp_path, trained_sentencepiece(), bos_token="<s>"))
    assert tokenizer.add_bos
    assert tokenizer.encode_prompt("a")[0] == tokenizer.bos_id == tokenizer.find("<s>")


@pytest.mark.parametrize("add", [True, False])
def test_the_config_says_whether_bos_is_added_only_without_a_tokenizer_json(
    tmp_path: Path, add: bool
) -> None:
    folder = folder_with(tmp_path, trained_bpe(), bos_token="<|begin|>", add_bos_token=add)
    assert not from_folder(folder).add_bos
    model = json.loads(trained_bpe())["model"]
    model["vocab"]["<|begin|>"] = len(model["vocab"])
    (folder / "vocab.json").write_text(json.dumps(model["vocab"]))
    (folder / "merges.txt").write_text("\n".join(map(" ".join, model["merges"])))
    (folder / "tokenizer.json").unlink()
    assert from_folder(folder).add_bos is add
    folder_with(folder, trained_bpe(), add_bos_token="yes")
    (folder / "tokenizer.json").unlink()
    with pytest.raises(TokenizerError, match=r"add_bos_token = 'yes' is not true or false"):
        from_folder(folder)


def around(kind: str, first: str, last: str, ids: dict[str, int]) -> dict[str, Any]:
    return {"type": kind, "cls": [first, ids[first]], "sep": [last, ids[last]]}


@pytest.mark.parametrize("kind", ["RobertaProcessing", "BertProcessing"])
@pytest.mark.parametrize("named", [{}, {"bos_token": "<|begin|>"}, {"bos_token": "<|im_end|>"}])
def test_a_prompt_begins_with_what_the_post_processor_puts_there(
    tmp_path: Path, kind: str, named: dict[str, str]
) -> None:
    data = json.loads(trained_bpe())
    ids = {token["content"]: token["id"] for token in data["added_tokens"]}
    data["post_processor"] = around(kind, "<|begin|>", "<|im_end|>", ids)
    tokenizer = from_folder(folder_with(tmp_path, json.dumps(data), **named))
    assert tokenizer.encode_prompt("a") == [ids["<|begin|>"], *tokenizer.encode("a")]
    data["post_processor"]["cls"][1] += 1
    with pytest.raises(TokenizerError, match=rf"cls of {kind} is not a token and its id"):
        from_folder(folder_with(tmp_path, json.dumps(data)))


def test_more_than_one_token_before_a_text_is_refused(tmp_path: Path) -> None:
    data = json.loads(trained_bpe())
    ids = {token["content"]: token["id"] for token in data["added_tokens"]}
    steps = [around("BertProcessing", text, "<|im_end|>", ids) for text in CONTROLS[:2]]
    data["post_processor"] = {"type": "Sequence", "processors": steps}
    with pytest.raises(TokenizerError, match="puts 2 tokens before a text; known: one"):
        from_folder(folder_with(tmp_path, json.dumps(data)))


def test_an_added_token_may_be_listed_twice_if_nothing_differs(tmp_path: Path) -> None:
    data = json.loads(trained_bpe())
    data["added_tokens"] += [dict(token) for token in data["added_tokens"]]
    tokenizer = from_folder(folder_with(tmp_path, json.dumps(data)))
    text = "".join(CONTROLS)
    assert tokenizer.encode(text, control=True) == [tokenizer.find(name) for name in CONTROLS]
    data["added_tokens"][-1]["rstrip"] = True
    with pytest.raises(TokenizerError, match="has two ids or names"):
        from_folder(folder_with(tmp_path, json.dumps(data)))


def test_ends_come_from_the_config_and_from_the_caller(tmp_path: Path) -> None:
    folder = folder_with(tmp_path, trained_bpe(), eos_token={"content": "<|im_end|>"})
    plain = from_folder(folder)
    last = plain.find("<|endoftext|>")
    assert last is not None
    tokenizer = from_folder(folder, eos_ids=[last])
    assert tokenizer.eos_ids == (plain.find("<|im_end|>"), last)
    assert tokenizer.special_tokens["eos_token"] == "<|im_end|>"
    assert from_folder(folder, eos_ids=[100_000]).eos_ids[1:] == (100_000,)  # a row without a token


def test_special_tokens_may_stand_in_a_file_of_their_own(tmp_path: Path) -> None:
    folder = folder_with(tmp_path, trained_bpe())
    (folder / "special_tokens_map.json").write_text('{"bos_token": "<|begin|>"}')
    assert from_folder(folder).bos_id == from_folder(folder).find("<|begin|>")


def test_tokens_that_only_the_config_adds_are_there(tmp_path: Path) -> None:
    size = from_gguf(gguf_of(trained_bpe())).vocab_size
    added = {
        str(size): {"content": "<|eot|>", "special": True},
        str(size + 1): {"content": "<tool>", "special": False},
    }
    tokenizer = from_folder(folder_with(tmp_path, trained_bpe(), added_tokens_decoder=added))
    assert tokenizer.encode("a<|eot|>", control=True)[-1] == size
    assert tokenizer.encode("a<tool>")[-1] == size + 1
    assert tokenizer.vocab_size == size + 2


def test_a_folder_with_only_vocab_and_merges_is_read(tmp_path: Path) -> None:
    model = json.loads(trained_bpe())["model"]
    (tmp_path / "vocab.json").write_text(json.dumps(model["vocab"]))
    lines = [" ".join(merge) for merge in model["merges"]]
    (tmp_path / "merges.txt").write_text("\n".join(["#version: 0.2", *lines, ""]), "utf-8")
    tokenizer = from_folder(tmp_path)
    for text in CORPUS:
        assert tokenizer.encode(text) == from_gguf(gguf_of(trained_bpe())).encode(text)


def test_a_folder_without_a_tokenizer_says_what_is_missing(tmp_path: Path) -> None:
    with pytest.raises(TokenizerError, match=r"there is no tokenizer\.json$"):
        from_folder(tmp_path)
    (tmp_path / "tokenizer.model").write_bytes(b"")
    with pytest.raises(TokenizerError, match=r"tokenizer\.model alone is not read"):
        from_folder(tmp_path)


@pytest.mark.parametrize("kind", KINDS)
def test_no_text_becomes_a_control_token_of_a_folder(kind: str, tmp_path: Path) -> None:
    tokenizer = from_folder(folder_with(tmp_path, KINDS[kind]()))
    names = [token.text for token in tokenizer.control_tokens]
    assert names
    ids = tokenizer.encode("".join(names) + " x ".join(names))
    unknown = tokenizer.find("<unk>")
    assert not any(tokenizer.is_control(i) and i != unknown for i in ids)


def test_white_space_that_a_control_token_swallows_is_swallowed(tmp_path: Path) -> None:
    data = json.loads(trained_bpe())
    for token in data["added_tokens"]:
        if token["content"] == "<|im_end|>":
            token["rstrip"] = token["lstrip"] = True
    tokenizer = from_folder(folder_with(tmp_path, json.dumps(data)))
    end = tokenizer.find("<|im_end|>")
    ids = tokenizer.encode("a \n<|im_end|>\n b", control=True)
    assert ids == [*tokenizer.encode("a"), end, *tokenizer.encode("b")]


@pytest.mark.parametrize(
    ("path", "value", "says"),
    [
        (["model", "type"], "WordPiece", "known: BPE, Unigram"),
        (["model", "vocab", "the"], -1, "is not a token id"),
        (["model", "vocab", "the"], 2**40, "is not a token id"),
        (["model", "vocab", "the"], 1.5, "is not a token id"),
        (["model", "vocab", "the"], 0, "gives one id to two tokens"),
        (["model", "vocab"], [], "model.vocab is not an object"),
        (["model", "merges"], {}, "model.merges is not an array"),
        (["model", "merges", 0], ["a"], "is not two tokens"),
        (["model", "merges", 0], ["a", 1], "is not two tokens"),
        (["model", "merges", 0], ["zz", "zz"], "names an unknown token"),
        (["model", "unk_token"], "nope", "is not a token"),
        (["model", "byte_fallback"], "yes", "is not true or false"),
        (["model", "end_of_word_suffix"], "</w>", "cannot honor"),
        (["normalizer"], {"type": "Evil"}, "normalizer of type 'Evil'"),
        (["normalizer"], [], "not an object with a type"),
        (["pre_tokenizer", "pretokenizers", 0, "pattern"], {"Regex": "("}, "cannot be used"),
        (["post_processor"], {"type": "BertProcessing"}, "cls of BertProcessing is not a token"),
        (["post_processor"], {"type": "Evil"}, "post_processor of type 'Evil'"),
        (["decoder"], {"type": "CTC"}, "decoder of type"),
        (["added_tokens", 0, "id"], "1", "is not a token id"),
        (["added_tokens", 0, "id"], 0, "id 0 is '<think>' and '!'"),
        (["added_tokens", 0, "content"], "", "is not a text"),
        (["added_tokens", 0, "special"], 1, "is not true or false"),
        (["added_tokens", 0, "content"], "\ud800", "half a surrogate pair"),
        (["added_tokens"], {}, "added_tokens is not an array"),
        (["added_tokens"], 5, "added_tokens is not an array"),
    ],
)
def test_a_hostile_part_of_a_tokenizer_json_is_named(
    path: list[Any], value: Any, says: str, tmp_path: Path
) -> None:
    data = json.loads(trained_bpe())
    place = data
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    folder = folder_with(tmp_path, json.dumps(data))
    with pytest.raises(TokenizerError, match=r"tokenizer\.json") as caught:
        from_folder(folder)
    assert says in str(caught.value)


@pytest.mark.parametrize("text", ["", "[]", "{", "\xff", "[" * 100_000, '{"model": 1}', "NaN"])
def test_what_is_no_tokenizer_json_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text(text, "latin-1")
    with pytest.raises(TokenizerError, match=r"tokenizer\.json"):
        from_folder(tmp_path)


@pytest.mark.parametrize("kind", KINDS)
def test_a_mutated_tokenizer_json_loads_or_is_refused(
    kind: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """300 seeded mutations, half of them past the first kilobyte, shared by three vocabularies."""
    original = KINDS[kind]().encode()
    draw = random.Random(f"{SEED} {kind}")
    loaded = 0
    for number in range(MUTATIONS // len(KINDS)):
        data = bytearray(original)
        first, last = (0, 1024) if number % 2 else (1024, len(data))
        for _ in range(draw.choice((1, 1, 3, 20))):
            place = draw.randrange(first, last)
            match draw.randrange(4):
                case 0:
                    data[place] = draw.randrange(256)
                case 1:
                    data[place] ^= 1 << draw.randrange(8)
                case 2:
                    del data[place : place + draw.randrange(1, 40)]
                case 3:
                    start = draw.randrange(len(data))
                    data[place:place] = data[start : start + draw.randrange(1, 40)]
            last = min(last, len(data))
        loaded += _loads(tmp_path, bytes(data))
    assert 0 < loaded < MUTATIONS // len(KINDS)
    assert "panicked" not in capfd.readouterr().err


@pytest.mark.parametrize("kind", KINDS)
def test_a_truncated_tokenizer_json_is_refused(kind: str, tmp_path: Path) -> None:
    data = KINDS[kind]().rstrip().encode()
    for length in [*range(0, len(data), max(1, len(data) // 300)), len(data) - 1]:
        assert not _loads(tmp_path, data[:length])


def _loads(folder: Path, data: bytes) -> bool:
    """Whether the file loads, and then works; anything but a TokenizerError fails the test."""
    (folder / "tokenizer.json").write_bytes(data)
    try:
        tokenizer = from_folder(folder)
        for text in ("the dog<think>", "Zürich 🎉\n\t  " + CONTROLS[1]):
            tokenizer.decode(tokenizer.encode(text))
            tokenizer.decode(tokenizer.encode(text, control=True), control=True)
    except TokenizerError:
        return False
    return True
