"""The `tokenizers` library, fed only with what was checked before.

The library is handed plain text between control tokens and never knows a control token, so no
text can become one. A fault inside it surfaces as a TokenizerError.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers

from forwardpass.errors import ForwardpassError, TokenizerError
from forwardpass.text.pretokenizers import PreTokenizer
from forwardpass.text.vocabulary import BLANK

Merge = tuple[str, str]


@contextmanager
def faults_are_tokenizer_errors(where: str) -> Iterator[None]:
    """Turns whatever the library raises into a TokenizerError, a Rust panic included."""
    try:
        yield
    except ForwardpassError:
        raise
    except BaseException as error:
        # A panic derives from BaseException so that `except Exception` lets it pass.
        if isinstance(error, Exception) or type(error).__name__ == "PanicException":
            raise TokenizerError(f"{where}: the tokenizer cannot be used: {error}"[:500]) from error
        raise


@dataclass(frozen=True)
class BpeModel:
    """Byte-pair encoding: merges in order of rank, best first."""

    vocab: Mapping[str, int]
    merges: Sequence[Merge]
    unknown: str | None = None
    fuse_unknown: bool = False
    byte_fallback: bool = False
    whole_words: bool = False

    def build(self) -> models.Model:
        """The library's model."""
        return models.BPE(
            vocab=self.vocab if isinstance(self.vocab, dict) else dict(self.vocab),
            merges=self.merges,
            unk_token=self.unknown,
            fuse_unk=self.fuse_unknown,
            byte_fallback=self.byte_fallback,
            ignore_merges=self.whole_words,
        )


@dataclass(frozen=True)
class UnigramModel:
    """A unigram language model over pieces with log-probabilities."""

    pieces: Sequence[tuple[str, float]]
    unknown_id: int | None
    byte_fallback: bool = False

    def build(self) -> models.Model:
        """The library's model."""
        return models.Unigram(
            list(self.pieces), unk_id=self.unknown_id, byte_fallback=self.byte_fallback
        )


@dataclass(frozen=True)
class AddedText:
    """A token that is found in plain text before anything else looks at it."""

    text: str
    id: int
    single_word: bool = False
    lstrip: bool = False
    rstrip: bool = False
    normalized: bool = False


@dataclass(frozen=True)
class Pipeline:
    """Normalizer and pre-tokenizer as `tokenizer.json` writes them, and the added tokens."""

    normalizer: object = None
    pre_tokenizer: object = None
    added: Sequence[AddedText] = ()

    def build(self, model: models.Model) -> Tokenizer:
        """The library's tokenizer around `model`."""
        shell: dict[str, Any] = {
            "version": "1.0",
            "truncation": None,
            "padding": None,
            "added_tokens": [],
            "normalizer": self.normalizer,
            "pre_tokenizer": self.pre_tokenizer,
            "post_processor": None,
            "decoder": None,
            "model": {"type": "BPE", "vocab": {}, "merges": []},
        }
        library = Tokenizer.from_str(json.dumps(shell))
        library.model = model
        library.add_tokens(
            [
                AddedToken(
                    token.text,
                    single_word=token.single_word,
                    lstrip=token.lstrip,
                    rstrip=token.rstrip,
                    normalized=token.normalized,
                    special=False,
                )
                for token in self.added
            ]
        )
        for token in self.added:
            if library.token_to_id(token.text) != token.id:
                raise TokenizerError(f"added token {token.text!r:.60} cannot have id {token.id}")
        return library


def byte_level_pipeline(
    rule: PreTokenizer,
    added: Sequence[AddedText],
    *,
    prefix: bool = False,
    merged_line_ends: bool = True,
) -> Pipeline:
    """Cuts by the rule's patterns, writes bytes in the byte alphabet, and cuts that once more.

    Where no merge has a line end in it (`merged_line_ends`), to cut each out is a second's work
    for a megabyte of them, and changes nothing.
    """
    cuts: list[pre_tokenizers.PreTokenizer] = [
        pre_tokenizers.Split(Regex(pattern), behavior="isolated") for pattern in rule.patterns
    ]
    if rule.lone_line_ends and merged_line_ends:
        cuts.append(pre_tokenizers.Split(Regex(r"[\r\n]"), behavior="isolated"))
    cuts.append(pre_tokenizers.ByteLevel(add_prefix_space=prefix, use_regex=False))
    cuts += [
        pre_tokenizers.Split(Regex(pattern), behavior="isolated") for pattern in rule.byte_patterns
    ]
    return Pipeline(
        {"type": "NFC"} if rule.nfc else None,
        _written(pre_tokenizers.Sequence(cuts)),
        added,
    )


def sentencepiece_pipeline(
    added: Sequence[AddedText], *, prefix: bool, charsmap: bytes = b"", squeeze: bool = False
) -> Pipeline:
    """Writes blanks as U+2581, with one more in front where `prefix` says so.

    Before that, characters are replaced as `charsmap` says, SentencePiece's own table; `squeeze`
    leaves single blanks inside the text and none around it.
    """
    steps: list[normalizers.Normalizer] = [normalizers.Precompiled(charsmap)] if charsmap else []
    if squeeze:
        around, inside = Regex(r"\A +|(?<! ) +\z"), Regex(" {2,}")
        steps += [normalizers.Replace(around, ""), normalizers.Replace(inside, " ")]
    if prefix:
        steps.append(normalizers.Prepend(BLANK))
    steps.append(normalizers.Replace(" ", BLANK))
    return Pipeline(_written(normalizers.Sequence(steps)), None, added)


def _written(part: normalizers.Normalizer | pre_tokenizers.PreTokenizer) -> object:
    state = part.__getstate__()
    return json.loads(state)
