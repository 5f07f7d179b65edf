"""What a tokenizer's file says, whatever kind of file it was."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from forwardpass.errors import TokenizerError
from forwardpass.text.bytelevel import byte_of_character, to_bytes

MAX_TOKENS = 1 << 22
BLANK = "\u2581"  # SentencePiece writes a blank so


@dataclass(frozen=True)
class ControlToken:
    """A token that only a template, never a user's text, may write.

    `lstrip` and `rstrip`: it swallows the white space before or after it.
    """

    id: int
    text: str
    lstrip: bool = False
    rstrip: bool = False
    single_word: bool = False


@dataclass(frozen=True)
class Vocabulary:
    """The tokens of a model by id, and the ids with a meaning.

    `texts[id]` is the token as the file writes it, None for an id without a token.
    `literal` holds the ids whose text stands for itself (added and control tokens);
    `byte_ids` maps byte-fallback ids to their byte.
    """

    texts: tuple[str | None, ...]
    byte_level: bool
    control: tuple[ControlToken, ...] = ()
    literal: frozenset[int] = frozenset()
    byte_ids: Mapping[int, int] = field(default_factory=dict)
    bos_id: int | None = None
    eos_ids: tuple[int, ...] = ()
    unknown_id: int | None = None
    add_bos: bool = False
    special_tokens: Mapping[str, str] = field(default_factory=dict)

    def all_bytes(self) -> list[bytes]:
        """`bytes_of` every id, in a fraction of the time."""
        if not self.byte_level or not self._in_alphabet:
            return [self.bytes_of(token_id) for token_id in range(len(self.texts))]
        # One character of a byte-level text is one byte, so all are turned in one go.
        special = self.literal | self.byte_ids.keys()
        texts = ["" if t is None or i in special else t for i, t in enumerate(self.texts)]
        joined, out, at = to_bytes("".join(texts)), list[bytes](), 0
        for token_id, text in enumerate(texts):
            end = at + len(text)
            out.append(self.bytes_of(token_id) if token_id in special else joined[at:end])
            at = end
        return out

    @property
    def _in_alphabet(self) -> bool:
        """Whether each character of each text stands for one byte."""
        letters = set().union(*(t for i, t in enumerate(self.texts) if t and i not in self.literal))
        return letters <= byte_of_character().keys()

    def bytes_of(self, token_id: int) -> bytes:
        """The exact bytes that a token stands for; none for an id without a token."""
        text = self.texts[token_id]
        if text is None:
            return b""
        if token_id in self.literal:
            return text.encode("utf-8", "replace")
        if token_id in self.byte_ids:
            return bytes([self.byte_ids[token_id]])
        if self.byte_level:
            return to_bytes(text)
        return text.replace(BLANK, " ").encode("utf-8", "replace")


def fallback_byte(text: str) -> int | None:
    """The byte that a token named like `<0x0A>` stands for, else None."""
    if len(text) == 6 and text.startswith("<0x") and text.endswith(">"):
        try:
            return int(text[3:5], 16)
        except ValueError:
            return None
    return None


def checked_id(value: object, count: int, where: str) -> int:
    """`value` as a token id below `count`; a TokenizerError naming `where` otherwise."""
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < count:
        raise TokenizerError(f"{where} = {value!r:.60}: not one of the {count:,} token ids")
    return value
