"""`tokenizer.json`, checked part by part before the library sees any of it."""

from __future__ import annotations

import copy
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from tokenizers import Tokenizer, models

from forwardpass.errors import TokenizerError
from forwardpass.text.library import (
    AddedText,
    BpeModel,
    Merge,
    Pipeline,
    UnigramModel,
)
from forwardpass.text.tokenizer import EncodeAll, Libraries
from forwardpass.text.vocabulary import MAX_TOKENS, fallback_byte

_PARTS = {
    "normalizer": {
        "Sequence", "NFC", "NFD", "NFKC", "NFKD", "Replace", "Prepend", "Strip", "Lowercase",
        "StripAccents", "Nmt", "Precompiled", "BertNormalizer", "ByteLevel",
    },
    "pre_tokenizer": {
        "Sequence", "ByteLevel", "Split", "Digits", "Metaspace", "Punctuation", "Whitespace",
        "WhitespaceSplit", "UnicodeScripts", "BertPreTokenizer", "CharDelimiterSplit",
    },
    "post_processor": {
        "Sequence", "TemplateProcessing", "ByteLevel", "RobertaProcessing", "BertProcessing",
    },
    "decoder": {"Sequence", "ByteLevel", "ByteFallback", "Fuse", "Replace", "Strip", "Metaspace"},
}  # fmt: skip
_MAX_DEPTH = 8
_MAX_GAPS = 1 << 16
# A piece renamed to this is not found in text.
_HIDDEN = "\U0010ffff hidden "


@dataclass(frozen=True)
class _Added:
    id: int
    text: str
    special: bool
    lstrip: bool
    rstrip: bool
    single_word: bool
    normalized: bool


class TokenizerJson:
    """A checked `tokenizer.json`.

    `config_tokens` are added tokens of `tokenizer_config.json`, used where the file lacks them;
    `named` are the texts that the config gives a role (`bos_token`, …): control tokens too.
    """

    def __init__(
        self,
        data: Mapping[str, Any],
        name: str,
        config_tokens: Sequence[Mapping[str, Any]] = (),
        named: Collection[str] = (),
    ) -> None:
        self._name = name
        self._data = data
        for part, known in _PARTS.items():
            for kind, _ in self._steps(part, data.get(part)):
                if kind not in known:
                    raise self._fail(f"{part} of type {kind!r:.40} is not known")
        model = data.get("model")
        if not isinstance(model, dict):
            raise self._fail("model is missing")
        self._model: Mapping[str, Any] = model
        # Files from before the field existed hold a BPE model.
        self._kind = model.get("type", "BPE")
        if self._kind not in ("BPE", "Unigram"):
            raise self._fail(f"model.type = {self._kind!r:.40} is not read; known: BPE, Unigram")
        self._vocab = self._bpe_vocab() if self._kind == "BPE" else self._unigram_vocab()
        added = self._added_tokens(config_tokens)
        self.control = [t for t in added if t.special or t.text in named]
        ordinary = [t for t in added if not (t.special or t.text in named)]
        self._ordinary = ordinary
        self.literal = frozenset(token.id for token in added)
        self.size = 1 + max([*self._vocab.values(), *self.literal], default=-1)
        if not 0 < self.size <= MAX_TOKENS:
            raise self._fail(f"ids up to {self.size - 1:,}; wanted 1 to {MAX_TOKENS:,} tokens")
        self._texts = self._texts_by_id()
        self._model_size = 1 + max(self._vocab.values(), default=-1)
        if self._model_size > len(self._vocab) + _MAX_GAPS:
            raise self._fail(f"model.vocab has ids up to {self._model_size - 1:,}, with wide gaps")
        self._byte_fallback = self._flag("byte_fallback")
        steps = [kind for kind, _ in self._steps("decoder", data.get("decoder"))]
        cuts = [kind for kind, _ in self._steps("pre_tokenizer", data.get("pre_tokenizer"))]
        self.byte_level = "ByteLevel" in (steps or cuts)
        self.unknown_id = self._unknown()

    def _fail(self, fact: str) -> TokenizerError:
        return TokenizerError(f"{self._name}: {fact}")

    def _flag(self, key: str) -> bool:
        value = self._model.get(key, False)
        if value is not None and not isinstance(value, bool):
            raise self._fail(f"model.{key} = {value!r:.40} is not true or false")
        return bool(value)

    def _steps(self, part: str, value: Any, depth: int = 0) -> Iterator[tuple[str, dict[str, Any]]]:
        """The steps of a part, sequences opened."""
        if value is None:
            return
        if not isinstance(value, dict) or not isinstance(value.get("type"), str):
            raise self._fail(f"{part} is not an object with a type")
        yield value["type"], value
        if value["type"] == "Sequence":
            inner = next((v for v in value.values() if isinstance(v, list)), None)
            if inner is None or depth == _MAX_DEPTH:
                raise self._fail(f"{part}: a sequence without steps, or too many inside each other")
            for step in inner:
                yield from self._steps(part, step, depth + 1)

    def _bpe_vocab(self) -> dict[str, int]:
        vocab = self._model.get("vocab")
        if not isinstance(vocab, dict):
            raise self._fail("model.vocab is not an object")
        for text, token_id in vocab.items():
            if type(token_id) is not int or not 0 <= token_id < MAX_TOKENS:
                raise self._fail(f"model.vocab[{text!r:.40}] = {token_id!r:.40} is not a token id")
            if not text.isascii():
                self._check_unicode(text)
        if len(set(vocab.values())) != len(vocab):
            raise self._fail("model.vocab gives one id to two tokens")
        return dict(vocab)

    def _unigram_vocab(self) -> dict[str, int]:
        vocab = self._model.get("vocab")
        if not isinstance(vocab, list):
            raise self._fail("model.vocab is not an array")
        for place, entry in enumerate(vocab):
            if (
                not isinstance(entry, list)
                or len(entry) != 2
                or not isinstance(entry[0], str)
                or type(entry[1]) not in (int, float)
                or not -1e30 < entry[1] < 1e30
            ):
                raise self._fail(f"model.vocab[{place:,}] is not [piece, score]")
            self._check_unicode(entry[0])
        return {entry[0]: place for place, entry in enumerate(vocab)}

    def _check_unicode(self, text: str) -> None:
        try:
            text.encode()
        except UnicodeEncodeError:
            raise self._fail(f"the token {text!r:.40} has half a surrogate pair") from None

    def _added_tokens(self, config_tokens: Sequence[Mapping[str, Any]]) -> list[_Added]:
        listed = self._data.get("added_tokens", [])
        if not isinstance(listed, list):
            raise self._fail("added_tokens is not an array")
        found: dict[int, _Added] = {}
        texts: set[str] = set()
        for place, entry in enumerate([*listed, *config_tokens]):
            token = self._added_token(entry, f"added_tokens[{place:,}]")
            late = place >= len(listed)
            if late and (token.id in found or token.text in texts):
                continue
            if found.get(token.id) == token:
                continue  # listed twice, the same both times
            taken = self._vocab.get(token.text, token.id)
            if token.id in found or token.text in texts or taken != token.id:
                raise self._fail(
                    f"added_tokens[{place:,}]: {token.text!r:.40} has two ids or names"
                )
            found[token.id] = token
            texts.add(token.text)
        by_id = {token_id: text for text, token_id in self._vocab.items()}
        for token in found.values():
            other = by_id.get(token.id, token.text)
            if other != token.text:
                raise self._fail(f"id {token.id:,} is {token.text!r:.40} and {other!r:.40}")
        return sorted(found.values(), key=lambda token: token.id)

    def _added_token(self, entry: Any, where: str) -> _Added:
        if not isinstance(entry, dict):
            raise self._fail(f"{where} is not an object")
        token_id, text = entry.get("id"), entry.get("content")
        if type(token_id) is not int or not 0 <= token_id < MAX_TOKENS:
            raise self._fail(f"{where}.id = {token_id!r:.40} is not a token id")
        if not isinstance(text, str) or not text:
            raise self._fail(f"{where}.content is not a text")
        self._check_unicode(text)
        flags = {key: entry.get(key, False) for key in ("special", "lstrip", "rstrip",
                                                        "single_word", "normalized")}  # fmt: skip
        for key, value in flags.items():
            if not isinstance(value, bool):
                raise self._fail(f"{where}.{key} = {value!r:.40} is not true or false")
        return _Added(token_id, text, **flags)

    def _unknown(self) -> int | None:
        if self._kind == "Unigram":
            value = self._model.get("unk_id")
            if value is not None and (type(value) is not int or not 0 <= value < len(self._vocab)):
                raise self._fail(f"model.unk_id = {value!r:.40} is not a token id")
            return value
        text = self._model.get("unk_token")
        if text is not None and (not isinstance(text, str) or self.find(text) is None):
            raise self._fail(f"model.unk_token = {text!r:.40} is not a token")
        return self.find(text)

    def find(self, text: str | None) -> int | None:
        """The id of the token written so, or None."""
        if text is None:
            return None
        added = {token.text: token.id for token in [*self.control, *self._ordinary]}
        return added.get(text, self._vocab.get(text))

    def texts(self) -> tuple[str | None, ...]:
        """The text of each id."""
        return self._texts

    def _texts_by_id(self) -> tuple[str | None, ...]:
        texts: list[str | None] = [None] * self.size
        for text, token_id in self._vocab.items():
            texts[token_id] = text
        for token in [*self.control, *self._ordinary]:
            texts[token.id] = token.text
        return tuple(texts)

    def byte_ids(self) -> dict[int, int]:
        """The byte-fallback tokens and their bytes."""
        if not self._byte_fallback:
            return {}
        named = {token_id: fallback_byte(text) for text, token_id in self._vocab.items()}
        return {i: byte for i, byte in named.items() if byte is not None and i not in self.literal}

    def begin(self) -> int | None:
        """The id that the file's post-processor puts before a text; None: it puts none.

        What it puts behind a text is left out: the text is going to be continued.
        """
        ids: list[int] = []
        for kind, step in self._steps("post_processor", self._data.get("post_processor")):
            if kind == "TemplateProcessing":
                ids += self._template_prefix(step)
            elif kind in ("RobertaProcessing", "BertProcessing"):
                ids.append(self._first_of_pair(kind, step))
        if len(ids) > 1:
            raise self._fail(f"post_processor puts {len(ids):,} tokens before a text; known: one")
        return ids[0] if ids else None

    def _first_of_pair(self, kind: str, step: Mapping[str, Any]) -> int:
        """The token that goes before a text, where `sep` would go behind it."""
        pair = step.get("cls")
        if isinstance(pair, list) and len(pair) == 2 and isinstance(pair[0], str):
            found = self.find(pair[0])
            if found is not None and type(pair[1]) is int and pair[1] == found:
                return found
        raise self._fail(f"post_processor: cls of {kind} is not a token and its id: {pair!r:.60}")

    def _template_prefix(self, step: Mapping[str, Any]) -> list[int]:
        ids: list[int] = []
        single = step.get("single")
        for entry in single if isinstance(single, list) else []:
            if not isinstance(entry, dict):
                break
            if "Sequence" in entry:
                return ids
            token = entry.get("SpecialToken")
            text = token.get("id") if isinstance(token, dict) else None
            token_id = self.find(text) if isinstance(text, str) else None
            if token_id is None:
                break
            ids.append(token_id)
        raise self._fail("post_processor.single is not special tokens around one text")

    def libraries(self) -> Libraries:
        """The library's tokenizer for plain text, at the start of a prompt and after it.

        It does not know the control tokens, so no text can become one.
        """
        model, added = self._build(self._ordinary), self._findable(self._ordinary)
        normalizer, cuts = self._data.get("normalizer"), self._data.get("pre_tokenizer")
        first = Pipeline(normalizer, cuts, added).build(model)
        later_cuts = _without_first_blank(cuts)
        later = (
            first if later_cuts == cuts else Pipeline(normalizer, later_cuts, added).build(model)
        )
        return lambda text, at_start: first if at_start else later

    def encode_all(self) -> EncodeAll:
        """Text → ids with control tokens found as the flags of the file say.

        The library that does it knows all tokens; it is built at its first use.
        """

        @cache
        def library() -> Tokenizer:
            known = [*self._ordinary, *self.control]
            normalizer, cuts = self._data.get("normalizer"), self._data.get("pre_tokenizer")
            return Pipeline(normalizer, cuts, self._findable(known)).build(self._build(known))

        def encode(text: str) -> list[int]:
            (found,) = library().encode_batch_fast([text], add_special_tokens=False)
            ids: list[int] = found.ids
            return ids

        return encode

    def _findable(self, known: Sequence[_Added]) -> list[AddedText]:
        """Added tokens that text may hold. The library numbers those that its model does not have
        itself, in order, so ids between them are held by tokens that no text has."""
        texts = {
            token.id: AddedText(
                token.text, token.id, token.single_word, token.lstrip, token.rstrip,
                token.normalized,
            )
            for token in known
        }  # fmt: skip
        beyond = range(self._model_size, 1 + max(texts, default=-1))
        if len(beyond) > len(texts) + _MAX_GAPS:
            raise self._fail(f"added tokens have ids up to {beyond.stop - 1:,}, with wide gaps")
        within = [texts[i] for i in sorted(texts) if i < self._model_size]
        return within + [texts.get(i) or AddedText(f"{_HIDDEN}{i}", i) for i in beyond]

    def _build(self, known: Sequence[_Added]) -> models.Model:
        """The library's model, which makes no control tokens but the `known` ones of text."""
        unknown = None if self.unknown_id is None else self._texts[self.unknown_id]
        hidden = {token.text for token in self.control} - {token.text for token in known}
        if self._kind == "Unigram":
            pieces = [
                (f"{_HIDDEN}{place}" if text in hidden else text, float(score))
                for place, (text, score) in enumerate(self._model["vocab"])
            ]
            return UnigramModel(pieces, self.unknown_id, self._byte_fallback).build()
        for key in ("dropout", "continuing_subword_prefix", "end_of_word_suffix"):
            if self._model.get(key):
                raise self._fail(f"model.{key} is set, which this version cannot honor")
        vocab = {}
        for place in range(self._model_size):
            text = self._texts[place]
            shown = text is not None and (text not in hidden or text == unknown)
            vocab[text if shown and text else f"{_HIDDEN}{place}"] = place
        return BpeModel(
            vocab,
            self._merges(vocab, hidden),
            unknown,
            self._flag("fuse_unk"),
            self._byte_fallback,
            self._flag("ignore_merges"),
        ).build()

    def _merges(self, vocab: Mapping[str, int], reserved: set[str]) -> list[Merge]:
        listed = self._model.get("merges")
        if not isinstance(listed, list):
            raise self._fail("model.merges is not an array")
        merges: list[Merge] = []
        for place, entry in enumerate(listed):
            parts = entry.split(" ") if isinstance(entry, str) else entry
            if not isinstance(parts, list) or len(parts) != 2:
                raise self._fail(f"model.merges[{place:,}] is not two tokens")
            left, right = parts
            if not isinstance(left, str) or not isinstance(right, str):
                raise self._fail(f"model.merges[{place:,}] is not two tokens")
            whole = left + right
            if not reserved.isdisjoint((left, right, whole)):
                continue  # text must not become a control token
            if left not in vocab or right not in vocab or whole not in vocab:
                raise self._fail(f"model.merges[{place:,}] = {parts!r:.80} names an unknown token")
            merges.append((left, right))
        return merges


def _without_first_blank(cuts: Any) -> Any:
    """The pre-tokenizer for a text that does not start the prompt.

    Metaspace with `prepend_scheme: first` puts its blank only before the very first word.
    """
    later = copy.deepcopy(cuts)
    waiting = [later]
    while waiting:
        step = waiting.pop()
        if isinstance(step, dict):
            if step.get("type") == "Metaspace" and step.get("prepend_scheme") == "first":
                step["prepend_scheme"] = "never"
            waiting.extend(v for v in step.values() if isinstance(v, (list, dict)))
        elif isinstance(step, list):
            waiting.extend(step)
    return later
