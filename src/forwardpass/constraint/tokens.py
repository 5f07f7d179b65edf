"""A vocabulary as masks see it: which ids are text, and how few of them write a text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from forwardpass.constraint.free_text import FreeText
from forwardpass.errors import RequestError

if TYPE_CHECKING:
    from forwardpass.constraint.common import Common

# No text of a grammar is written with tokens longer than this; they are few, and blanks mostly.
LONGEST = 4_096
Words = npt.NDArray[np.uint32]


class Trie(Protocol):
    """All texts of a vocabulary as a tree of bytes."""

    def segment(self, text: bytes) -> list[int]:
        """The fewest ids that write a text. Raises ValueError where none do."""
        ...

    def segment_count(self, text: bytes) -> int:
        """How many these are."""
        ...

    def find(self, text: bytes) -> list[int]:
        """The ids of exactly this text."""
        ...


class Flat(NamedTuple):
    """The ids that are text, ascending, and their texts: the i-th from offset i to i + 1."""

    ids: npt.NDArray[np.int32]
    blob: bytes
    offsets: npt.NDArray[np.int64]


class Tokens:
    """The tokens of one model that stand for text.

    `texts[id]` are the exact bytes of a token, None for one that is never text (control tokens,
    ids without a token). `size` is the number of scores in a row: ids from `len(texts)` on are
    never text.
    """

    def __init__(self, texts: Sequence[bytes | None], size: int) -> None:
        self.size = max(size, len(texts))
        self.texts = tuple(t if t and len(t) <= LONGEST else None for t in texts)

    @cached_property
    def flat(self) -> Flat:
        """The texts one behind the other."""
        ids = [i for i, text in enumerate(self.texts) if text]
        texts = [self.texts[i] or b"" for i in ids]
        offsets = np.zeros(len(texts) + 1, dtype=np.int64)
        np.cumsum(list(map(len, texts)), out=offsets[1:])
        return Flat(np.array(ids, dtype=np.int32), b"".join(texts), offsets)

    @cached_property
    def trie(self) -> Trie:
        """The tree of all texts; in C++ where that is built."""
        try:
            from forwardpass import _native
        except ImportError:
            from forwardpass.constraint.plain_trie import PlainTrie

            return PlainTrie(self.texts)
        return _native.Trie(*self.flat, self.size)

    @cached_property
    def free_text(self) -> FreeText:
        """What the tokens do inside free strings; with the C++ part alone."""
        return FreeText(self)

    @cached_property
    def common(self) -> Common:
        """What the tokens do where values of simple types stand; with the C++ part alone."""
        from forwardpass.constraint.common import Common  # which needs tables, and these tokens

        return Common(self)

    def text(self, token: int) -> bytes:
        """The bytes of a token; none of one that is never text."""
        return (self.texts[token] if 0 <= token < len(self.texts) else None) or b""

    def write(self, text: bytes) -> list[int]:
        """The fewest tokens that write a text.

        Raises RequestError where the vocabulary has no token for one of its bytes.
        """
        try:
            return self.trie.segment(text)
        except ValueError as error:
            raise _unwritable(error) from None

    def count(self, text: bytes) -> int:
        """How many tokens `write` gives."""
        try:
            return self.trie.segment_count(text)
        except ValueError as error:
            raise _unwritable(error) from None

    @property
    def words(self) -> int:
        """The number of 32-bit words in a mask."""
        return -(-self.size // 32)


def _unwritable(error: ValueError) -> RequestError:
    return RequestError(f"the model's vocabulary cannot write what is asked for: {error}")


def bits(ids: Iterable[int], words: int) -> Words:
    """A mask of some ids: bit i % 32 of word i // 32."""
    out = np.zeros(words, dtype=np.uint32)
    for token in ids:
        out[token >> 5] |= np.uint32(1 << (token & 31))
    return out


def is_set(mask: Words, token: int) -> bool:
    """Whether a mask has a token."""
    return 0 <= token >> 5 < len(mask) and bool(
        mask[token >> 5] >> np.uint32(token & 31) & np.uint32(1)
    )


def ids_of(mask: Words) -> npt.NDArray[np.int64]:
    """The ids of a mask, ascending."""
    return np.flatnonzero(np.unpackbits(mask.astype("<u4").view(np.uint8), bitorder="little"))
