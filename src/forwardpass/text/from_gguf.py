"""A tokenizer from the metadata of a GGUF file.

Three kinds of `tokenizer.ggml.model` are known: `gpt2` (byte-level BPE, its merges in the file, the
rule for cutting text named by `tokenizer.ggml.pre`), `llama` (SentencePiece BPE, its merges implied
by scores) and `t5` (SentencePiece's unigram model). Source: the GGUF specification, section
"Tokenizer" (ggml, docs/gguf.md).
"""

from __future__ import annotations

import math
import re
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import compress
from operator import methodcaller
from typing import Any

from tokenizers import models

from forwardpass.errors import RequestError, TokenizerError
from forwardpass.text.library import (
    AddedText,
    BpeModel,
    Merge,
    UnigramModel,
    byte_level_pipeline,
    faults_are_tokenizer_errors,
    sentencepiece_pipeline,
)
from forwardpass.text.pretokenizers import pre_tokenizer
from forwardpass.text.spm import ScoredPieces
from forwardpass.text.tokenizer import Libraries, Tokenizer
from forwardpass.text.vocabulary import (
    MAX_TOKENS,
    ControlToken,
    Vocabulary,
    checked_id,
    fallback_byte,
)

_NORMAL, _UNKNOWN, _CONTROL, _USER_DEFINED, _UNUSED, _BYTE = range(1, 7)
_P = "tokenizer.ggml."
_KINDS = ("gpt2", "llama", "t5")
_OTHER_KINDS = {
    "bert": "WordPiece",
    "rwkv": "RWKV's longest match",
    "plamo2": "PLaMo 2's",
    "gemma4": "Gemma 4's",
    "no_vocab": "no vocabulary at all",
    "none": "no vocabulary at all",
}
_STRINGS_AT_A_TIME = 4_096
# Types by token id are bytes: what is asked of each of a quarter of a million is one call then.
_KNOWN = bytes(range(_BYTE + 1))
_KEPT = bytes(kind in (_NORMAL, _USER_DEFINED, _BYTE) for kind in range(256))
_IS_NORMAL = bytes(kind == _NORMAL for kind in range(256))
_OTHER = re.compile(rb"[^\x%02x]" % _NORMAL)
_LINE_ENDS = frozenset("\u010a\u010d")  # \n and \r in the byte alphabet
# A piece renamed to this is not found in text.
_HIDDEN = "\U0010ffff hidden "
_NAMED = {
    "bos_token": "bos_token_id",
    "eos_token": "eos_token_id",
    "unk_token": "unknown_token_id",
    "pad_token": "padding_token_id",
    "sep_token": "seperator_token_id",
    "mask_token": "mask_token_id",
}


class _Metadata:
    """Typed, checked reads of the tokenizer's keys."""

    def __init__(self, metadata: Mapping[str, object], name: str) -> None:
        self.name = name
        self._metadata = metadata

    def fail(self, fact: str, *details: str) -> TokenizerError:
        return TokenizerError(f"{self.name}: {fact}", *details)

    def text(self, key: str) -> str | None:
        value = self._metadata.get(_P + key)
        if value is not None and not isinstance(value, str):
            raise self.fail(f"{_P}{key} is not a string")
        return value

    def flag(self, key: str, default: bool) -> bool:
        value = self._metadata.get(_P + key, default)
        if not isinstance(value, bool):
            raise self.fail(f"{_P}{key} = {value!r:.60} is not true or false")
        return value

    def array(self, key: str) -> list[object]:
        return list(self.values(key))

    def values(self, key: str) -> Any:
        """The elements of an array, which may be decoded while they are read."""
        value = self._metadata.get(_P + key)
        if value is None:
            raise self.fail(f"{_P}{key} is missing")
        if isinstance(value, (str, bytes)) or not hasattr(value, "__len__"):
            raise self.fail(f"{_P}{key} is not an array")
        return value

    def charsmap(self) -> bytes:
        """SentencePiece's table of replaced characters, empty where there is none."""
        if not self.has("precompiled_charsmap"):
            return b""
        # Signed in some files, unsigned in others.
        values = self.array("precompiled_charsmap")
        try:
            return bytes(value & 0xFF for value in values)  # type: ignore[operator]
        except TypeError:
            raise self.fail(f"{_P}precompiled_charsmap is not bytes") from None

    def has(self, key: str) -> bool:
        return _P + key in self._metadata

    def is_phi3(self) -> bool:
        """Whether the model calls itself Phi-3, whose files leave the flags of its tokens out."""
        named = self._metadata.get("general.name")
        return isinstance(named, str) and any(n in named.lower() for n in ("phi-3", "phi3"))

    def token_id(self, key: str, count: int) -> int | None:
        value = self._metadata.get(_P + key)
        return None if value is None else checked_id(value, count, f"{self.name}: {_P}{key}")


def from_gguf(
    metadata: Mapping[str, object],
    *,
    name: str = "tokenizer",
    pre: str | None = None,
    eos_ids: Iterable[int] = (),
) -> Tokenizer:
    """The tokenizer that a GGUF file's metadata describes.

    `pre` overrules `tokenizer.ggml.pre`. `eos_ids` are further ids that end an answer.
    Errors: TokenizerError naming the key; RequestError for a `pre` where text is not cut.
    """
    meta = _Metadata(metadata, name)
    kind = meta.text("model")
    if kind not in _KINDS:
        means = f" ({_OTHER_KINDS[kind]})" if kind in _OTHER_KINDS else ""
        raise meta.fail(
            f"{_P}model = {kind!r:.60}{means} is not read", f"known: {', '.join(_KINDS)}"
        )
    if pre is not None and kind != "gpt2":
        raise RequestError(
            f"{name}: --pre {pre}: its vocabulary ({_P}model = {kind!r}) has no rule to name"
        )
    texts = _strings(meta, "tokens")
    if not 0 < len(texts) <= MAX_TOKENS:
        raise meta.fail(f"{_P}tokens has {len(texts):,} entries, wanted 1 to {MAX_TOKENS:,}")
    types = _types(meta, len(texts))
    with faults_are_tokenizer_errors(name):
        if kind == "gpt2":
            libraries, add_bos = _byte_level(meta, texts, types, pre)
        elif kind == "llama":
            libraries, add_bos = _sentencepiece(meta, texts, types), True
        else:
            libraries, add_bos = _unigram(meta, texts, types), False
    vocabulary = _vocabulary(meta, texts, types, kind == "gpt2", add_bos, eos_ids)
    return Tokenizer(vocabulary, libraries, name=name)


def _strings(meta: _Metadata, key: str) -> list[str]:
    values: list[str] = meta.array(key)  # type: ignore[assignment]
    for start in range(0, len(values), _STRINGS_AT_A_TIME):
        some = values[start : start + _STRINGS_AT_A_TIME]
        try:
            "".join(some).encode()
        except (TypeError, UnicodeEncodeError):
            for place, value in enumerate(some, start):
                if not isinstance(value, str):
                    raise meta.fail(f"{_P}{key}[{place:,}] is not a string") from None
                if not _is_unicode(value):
                    raise meta.fail(f"{_P}{key}[{place:,}] is not UTF-8") from None
    return values


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:  # half a surrogate pair stands for a byte that was not UTF-8
        return False
    return True


def _types(meta: _Metadata, count: int) -> bytes:
    if not meta.has("token_type"):
        return bytes([_NORMAL]) * count
    values = meta.array("token_type")
    if len(values) != count:
        raise meta.fail(f"{_P}token_type has {len(values):,} entries for {count:,} tokens")
    try:
        types = bytes(values)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        types = b"\xff"
    if types.translate(None, _KNOWN):
        raise meta.fail(f"{_P}token_type holds something that is not a type from 0 to 6")
    return types.replace(b"\0", bytes([_NORMAL]))  # 0: not stated


def _others(types: bytes) -> list[int]:
    """The ids of the tokens that are not normal: few of many."""
    return [match.start() for match in _OTHER.finditer(types)]


def _added(meta: _Metadata, texts: Sequence[str], types: bytes) -> list[AddedText]:
    found = {}
    for place in _others(types):
        if types[place] == _USER_DEFINED and texts[place]:
            found[texts[place]] = AddedText(texts[place], place, rstrip=meta.is_phi3())
    return list(found.values())


def _byte_level(
    meta: _Metadata, texts: Sequence[str], types: bytes, pre: str | None
) -> tuple[Libraries, bool]:
    rule = pre_tokenizer(meta.text("pre"), where=meta.name, asked=pre)
    kept = types.translate(_KEPT)
    vocab = dict(compress(zip(texts, range(len(texts)), strict=True), kept))
    vocab.pop("", None)
    prefix = meta.flag("add_space_prefix", False)

    def model_of(merges: Sequence[Merge]) -> tuple[models.Model, bool]:
        model = BpeModel(vocab, merges, whole_words=rule.whole_words).build()
        line_ends = not rule.lone_line_ends or any(
            _LINE_ENDS.intersection(left + right) for left, right in merges
        )
        return model, line_ends

    try:
        # The library refuses merges of what is no token; only then is it asked which these are.
        model, line_ends = model_of(_Merges(meta.values("merges")))
    except Exception:
        control = {texts[place] for place in _others(types) if not kept[place]}
        model, line_ends = model_of(_merges(meta, vocab, control))
    pipeline = byte_level_pipeline(
        rule, _added(meta, texts, types), prefix=prefix, merged_line_ends=line_ends
    )
    library = pipeline.build(model)
    return lambda text, first: library, rule.add_bos


class _Merges(Sequence[Merge]):
    """The merges in a file's lines, taken apart while they are read: there are many."""

    def __init__(self, lines: Sequence[str]) -> None:
        self._lines = lines

    def __len__(self) -> int:
        return len(self._lines)

    def __iter__(self) -> Iterator[Merge]:
        for left, _, right in map(methodcaller("partition", " "), self._lines):
            yield left, right

    def __getitem__(self, index: Any) -> Any:
        return list(self)[index]


def _merges(meta: _Metadata, vocab: Mapping[str, int], control: set[str]) -> list[Merge]:
    merges: list[Merge] = []
    for place, line in enumerate(_strings(meta, "merges")):
        left, _, right = line.partition(" ")
        if left in vocab and right in vocab and left + right in vocab:
            merges.append((left, right))
        elif left + right not in control:  # text must not become a control token
            missing = next(part for part in (left, right, left + right) if part not in vocab)
            raise meta.fail(
                f"{_P}merges[{place:,}] = {line!r:.80} needs the token {missing!r:.60}",
                "which the vocabulary does not have",
            )
    return merges


def _sentencepiece(meta: _Metadata, texts: Sequence[str], types: bytes) -> Libraries:
    if meta.has("precompiled_charsmap"):
        raise meta.fail(f"{_P}precompiled_charsmap: this version cannot apply it")
    scores = _scores(meta, len(texts))
    normal = types.translate(_IS_NORMAL)
    mergeable = dict(compress(zip(texts, range(len(texts)), strict=True), normal))
    mergeable.pop("", None)
    fixed: dict[str, int] = {}
    bytes_named: set[int] = set()
    unknown = None
    for place in _others(types):
        text, kind = texts[place], types[place]
        if kind == _USER_DEFINED or (kind == _UNKNOWN and unknown is None):
            if text not in mergeable:
                fixed.setdefault(text, place)
            unknown = text if kind == _UNKNOWN else unknown
        elif kind == _BYTE:
            byte = fallback_byte(text)
            if byte is None:
                raise meta.fail(f"{_P}tokens[{place:,}] = {text!r:.60} is no byte like <0x0A>")
            bytes_named.add(byte)
            fixed[f"<0x{byte:02X}>"] = place
    fallback = len(bytes_named) == 256
    if unknown is None and not fallback:
        raise meta.fail("no unknown token and not all 256 byte tokens: some text has no tokens")
    pipeline = sentencepiece_pipeline(
        _added(meta, texts, types), prefix=meta.flag("add_space_prefix", True)
    )
    pieces = ScoredPieces(mergeable, scores, fixed, pipeline, unknown, fallback)
    return lambda text, first: pieces.library_for(text)


def _unigram(meta: _Metadata, texts: Sequence[str], types: bytes) -> Libraries:
    scores = _scores(meta, len(texts))
    if _BYTE in types:
        raise meta.fail(f"{_P}token_type: byte tokens in a unigram vocabulary are not read")
    unknown = meta.token_id("unknown_token_id", len(texts))
    if unknown is None:
        raise meta.fail(f"{_P}unknown_token_id is missing: some text has no tokens")
    pieces = [
        (text if kind in (_NORMAL, _USER_DEFINED) and text else f"{_HIDDEN}{place}", score)
        for place, (text, kind, score) in enumerate(zip(texts, types, scores, strict=True))
    ]
    pipeline = sentencepiece_pipeline(
        _added(meta, texts, types),
        prefix=meta.flag("add_space_prefix", True),
        charsmap=meta.charsmap(),
        squeeze=meta.flag("remove_extra_whitespaces", False),
    )
    library = pipeline.build(UnigramModel(pieces, unknown).build())
    return lambda text, first: library


def _scores(meta: _Metadata, count: int) -> Sequence[float]:
    values = meta.values("scores")
    if len(values) != count:
        raise meta.fail(f"{_P}scores has {len(values):,} entries for {count:,} tokens")
    try:
        scores = array("d", values)
    except (TypeError, ValueError):
        raise meta.fail(f"{_P}scores holds something that is not a number") from None
    if not math.isfinite(sum(scores)) and not all(map(math.isfinite, scores)):
        raise meta.fail(f"{_P}scores holds a value that is not finite")
    return scores


def _vocabulary(
    meta: _Metadata,
    texts: list[str],
    types: bytes,
    byte_level: bool,
    add_bos: bool,
    eos_ids: Iterable[int],
) -> Vocabulary:
    count = len(texts)
    others = _others(types)
    control = [i for i in others if types[i] in (_CONTROL, _UNKNOWN) and texts[i]]
    named = {role: meta.token_id(key, count) for role, key in _NAMED.items()}
    ends = [meta.token_id(f"{key}_token_id", count) for key in ("eos", "eot", "eom")]
    ends += [checked_id(i, count, f"{meta.name}: end-of-text id") for i in eos_ids]
    byte_ids = {}
    for place in others:
        byte = fallback_byte(texts[place]) if types[place] == _BYTE else None
        if byte is not None:
            byte_ids[place] = byte
    literal_kinds = {_UNKNOWN, _CONTROL, _USER_DEFINED, _UNUSED}
    return Vocabulary(
        texts=tuple(texts),
        byte_level=byte_level,
        control=tuple(_control(meta, i, texts[i]) for i in control),
        literal=frozenset(i for i in others if types[i] in literal_kinds),
        byte_ids=byte_ids,
        bos_id=named["bos_token"],
        eos_ids=tuple(dict.fromkeys(i for i in ends if i is not None)),
        unknown_id=named["unk_token"],
        add_bos=meta.flag("add_bos_token", add_bos),
        special_tokens={role: texts[i] for role, i in named.items() if i is not None},
    )


def _control(meta: _Metadata, token_id: int, text: str) -> ControlToken:
    """A control token. Those of Phi-3 but three swallow the white space behind them.

    Source: tokenizer.json of Phi-3; llama.cpp, src/llama-vocab.cpp, goes by the name as well.
    """
    rstrip = meta.is_phi3() and text not in ("<unk>", "<s>", "<|endoftext|>")
    return ControlToken(token_id, text, rstrip=rstrip)
