"""Small vocabularies of both kinds, as a GGUF file and as a Hugging Face folder would hold them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)

from forwardpass.text.bytelevel import byte_of_character
from forwardpass.text.from_gguf import from_gguf
from forwardpass.text.tokenizer import Tokenizer as OurTokenizer

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)
CONTROLS = ("<|begin|>", "<|im_start|>", "<|im_end|>", "<|endoftext|>")
CORPUS = [
    "the quick brown fox jumps over the lazy dog and the other dog",
    "what is the weather in Zürich today? It is 21 degrees, thanks.",
    "Name one herb to add to tomato soup. Answer with one word.",
    'def main():\n    print("hello, world")\n\n\treturn 0\n',
    "Äpfel, Öl, 你好世界, привет мир, 🎉🎊",
] * 4
GPT2_PATTERN = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"


@cache
def trained_bpe() -> str:
    """A byte-level BPE `tokenizer.json`, trained here, with control tokens and `<think>`."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(GPT2_PATTERN), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(
        CORPUS,
        trainers.BpeTrainer(
            vocab_size=400,
            initial_alphabet=sorted(byte_of_character()),
            show_progress=False,
        ),
    )
    tokenizer.add_tokens(["<think>", "</think>"])
    tokenizer.add_special_tokens([AddedToken(text, normalized=False) for text in CONTROLS])
    return str(tokenizer.to_str())


@cache
def trained_sentencepiece() -> str:
    """A `tokenizer.json` as SentencePiece models have: blanks as U+2581, bytes as a fallback."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")]
    )
    tokenizer.decoder = decoders.Sequence(
        [
            decoders.Replace("\u2581", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    bytes_ = [f"<0x{byte:02X}>" for byte in range(256)]
    tokenizer.train_from_iterator(
        [line for text in CORPUS for line in text.split()],
        trainers.BpeTrainer(
            vocab_size=500,
            special_tokens=["<unk>", "<s>", "</s>", *bytes_],
            show_progress=False,
        ),
    )
    data = json.loads(tokenizer.to_str())
    data["added_tokens"] = data["added_tokens"][:3]
    data["post_processor"] = json.loads(
        processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)]).__getstate__()
    )
    return json.dumps(data)


@cache
def trained_unigram() -> str:
    """A unigram `tokenizer.json` with Metaspace, its blank only before the first word."""
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")
    tokenizer.decoder = decoders.Metaspace(prepend_scheme="first")
    tokenizer.train_from_iterator(
        CORPUS,
        trainers.UnigramTrainer(
            vocab_size=150,
            special_tokens=["<unk>", "<s>", "</s>", "<sep>"],
            unk_token="<unk>",
            show_progress=False,
        ),
    )
    return str(tokenizer.to_str())


@cache
def unigram_with_bytes() -> str:
    """The same, with pieces for the bytes of what it does not have."""
    data = json.loads(trained_unigram())
    data["model"]["vocab"] += [[f"<0x{byte:02X}>", -20.0] for byte in range(256)]
    data["model"]["byte_fallback"] = True
    return json.dumps(data)


def folder_with(folder: Path, tokenizer_json: str, **config: Any) -> Path:
    """A folder that holds a `tokenizer.json` and, of what is given, a `tokenizer_config.json`."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tokenizer.json").write_text(tokenizer_json, "utf-8")
    if config:
        (folder / "tokenizer_config.json").write_text(json.dumps(config), "utf-8")
    return folder


def gguf_of(tokenizer_json: str, *, pre: str = "gpt-2", bos: str = "<|begin|>") -> dict[str, Any]:
    """The metadata of a GGUF file that holds the vocabulary of a byte-level `tokenizer.json`."""
    data = json.loads(tokenizer_json)
    texts = {token_id: text for text, token_id in data["model"]["vocab"].items()}
    types = dict.fromkeys(texts, NORMAL)
    for token in data["added_tokens"]:
        texts[token["id"]] = token["content"]
        types[token["id"]] = CONTROL if token["special"] else USER_DEFINED
    ids = {text: token_id for token_id, text in texts.items()}
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": pre,
        "tokenizer.ggml.tokens": [texts[i] for i in range(len(texts))],
        "tokenizer.ggml.token_type": [types[i] for i in range(len(texts))],
        "tokenizer.ggml.merges": [
            merge if isinstance(merge, str) else " ".join(merge)
            for merge in data["model"]["merges"]
        ],
        "tokenizer.ggml.bos_token_id": ids[bos],
        "tokenizer.ggml.eos_token_id": ids["<|im_end|>"],
    }


def scored_gguf(pieces: Sequence[str], *, added: Sequence[str] = (), **keys: Any) -> dict[str, Any]:
    """SentencePiece metadata: `pieces` from best to worst score, after control and byte tokens."""
    fixed = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    types = [UNKNOWN, CONTROL, CONTROL, *[BYTE] * 256]
    return {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": [*fixed, *added, *pieces],
        "tokenizer.ggml.token_type": [
            *types,
            *[USER_DEFINED] * len(added),
            *[NORMAL] * len(pieces),
        ],
        "tokenizer.ggml.scores": [
            *[0.0] * (len(fixed) + len(added)),
            *(-float(place) for place in range(len(pieces))),
        ],
        "tokenizer.ggml.unknown_token_id": 0,
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        **{f"tokenizer.ggml.{key}": value for key, value in keys.items()},
    }


@cache
def small() -> OurTokenizer:
    """A small byte-level tokenizer with four control tokens and `<think>`, which is none."""
    return from_gguf(gguf_of(trained_bpe()), name="small")
