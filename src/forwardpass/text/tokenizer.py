"""Tokenizer: text to ids and back, the same whatever file it came from."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import tokenizers

from forwardpass.errors import RequestError, TokenizerError
from forwardpass.text.library import faults_are_tokenizer_errors
from forwardpass.text.splitter import Part, Splitter
from forwardpass.text.stream import TextStream
from forwardpass.text.vocabulary import ControlToken, Vocabulary

# A text, and whether it starts the prompt → the library's tokenizer for it.
Libraries = Callable[[str, bool], tokenizers.Tokenizer]
# A text → its ids, control tokens found in it.
EncodeAll = Callable[[str], list[int]]


@dataclass(frozen=True)
class Encoded:
    """Token ids, and for each the place in the text where it starts."""

    ids: list[int]
    starts: list[int]


class Tokenizer:
    """Text to token ids and back.

    Plain text never becomes a control token: those are found only where `control=True` asks for
    it. `name` is what errors call it. `encode_all` finds control tokens by the file's own rules
    where these say more than their texts do.
    """

    def __init__(
        self,
        vocabulary: Vocabulary,
        libraries: Libraries,
        *,
        name: str,
        encode_all: EncodeAll | None = None,
    ) -> None:
        self.name = name
        self._encode_all = encode_all
        self._vocabulary = vocabulary
        self._libraries = libraries
        self._control = {token.id: token for token in vocabulary.control}
        self._never_plain = frozenset(self._control) - {vocabulary.unknown_id}
        self._unwritable = _unwritable_bytes(vocabulary)

    @property
    def vocab_size(self) -> int:
        """One more than the largest id. The embedding may have more rows, never fewer."""
        return len(self._vocabulary.texts)

    @property
    def bos_id(self) -> int | None:
        """The id that begins a text, None where the file names none."""
        return self._vocabulary.bos_id

    @property
    def add_bos(self) -> bool:
        """Whether a prompt begins with BOS, as the file says."""
        return self._vocabulary.add_bos and self._vocabulary.bos_id is not None

    @property
    def eos_ids(self) -> tuple[int, ...]:
        """Every id that ends an answer: of the text, of the turn, of the message."""
        return self._vocabulary.eos_ids

    @property
    def special_tokens(self) -> Mapping[str, str]:
        """The texts that templates read as `bos_token`, `eos_token` and so on."""
        return self._vocabulary.special_tokens

    @property
    def control_tokens(self) -> tuple[ControlToken, ...]:
        """The tokens that no user text may write."""
        return self._vocabulary.control

    def encode(self, text: str, *, control: bool = False) -> list[int]:
        """The ids of `text`, without BOS. `control=True` also finds control tokens in it."""
        if control and self._encode_all is not None:
            _refuse_lone_surrogates(text)
            with faults_are_tokenizer_errors(self.name):
                self._check_writable(text)
                return self._encode_all(text)
        ids: list[int] = []
        for part in self.split(text, control=control):
            if part.control is not None:
                ids.append(part.control.id)
            else:
                ids += self._ids_of(text[part.start : part.end], part.start == 0)
        return ids

    def encode_inside(self, text: str) -> list[int]:
        """The ids of plain text that stands behind other text."""
        return self._ids_of(text, False) if text else []

    def encode_prompt(self, text: str, *, control: bool = False) -> list[int]:
        """The ids of a raw prompt: `encode`, with BOS exactly once where the file asks for it.

        EOS is never added: the text is going to be continued.
        """
        return self.with_bos(self.encode(text, control=control))

    def with_bos(self, ids: list[int]) -> list[int]:
        """`ids` beginning with BOS where the file asks for it and it is not there yet."""
        if self.add_bos and ids[:1] != [self.bos_id]:
            return [self._vocabulary.bos_id or 0, *ids]
        return ids

    def split(self, text: str, *, control: bool) -> list[Part]:
        """`text` as one part, or cut at the control tokens in it."""
        _refuse_lone_surrogates(text)
        if control:
            with faults_are_tokenizer_errors(self.name):
                return self._splitter.split(text)
        return [Part(0, len(text), None)] if text else []

    @cached_property
    def _splitter(self) -> Splitter:
        return Splitter((token.text, token) for token in self._vocabulary.control)

    def encode_parts(self, text: str, parts: Sequence[Part]) -> Encoded:
        """The ids of `text` cut into `parts`, and where each starts in `text`."""
        encoded = Encoded([], [])
        for part in parts:
            if part.control is not None:
                encoded.ids.append(part.control.id)
                encoded.starts.append(part.start)
            elif part.end > part.start:
                plain = text[part.start : part.end]
                with faults_are_tokenizer_errors(self.name):
                    library = self._library_for(plain, part.start == 0)
                    found = library.encode(plain, add_special_tokens=False)
                    encoded.ids.extend(self._plain(found.ids))
                    encoded.starts.extend(part.start + start for start, _ in found.offsets)
        return encoded

    def _ids_of(self, plain: str, first: bool) -> list[int]:
        with faults_are_tokenizer_errors(self.name):
            library = self._library_for(plain, first)
            # The batch call is the one that skips offsets, half the time of a long text.
            (found,) = library.encode_batch_fast([plain], add_special_tokens=False)
            return self._plain(found.ids)

    def _library_for(self, plain: str, first: bool) -> tokenizers.Tokenizer:
        self._check_writable(plain)
        return self._libraries(plain, first)

    def _check_writable(self, text: str) -> None:
        missing = self._unwritable and self._unwritable.intersection(text.encode())
        if missing:
            raise TokenizerError(
                f"{self.name}: no token stands for byte 0x{min(missing):02X} of the text"
            )

    def _plain(self, ids: list[int]) -> list[int]:
        if not self._never_plain.isdisjoint(ids):
            raise TokenizerError(f"{self.name}: plain text came out as a control token")
        return ids

    def decode(self, ids: Iterable[int], *, control: bool = False) -> str:
        """The text of `ids`; control tokens are left out unless `control=True`.

        Exactly the bytes of the tokens, in order. A blank that encoding put in front of a text
        (SentencePiece) is part of its first token and stays. Bytes that are not UTF-8 are
        replaced as the Unicode standard says.
        """
        pieces = (self.token_bytes(i) for i in ids if control or not self.is_control(i))
        return b"".join(pieces).decode("utf-8", "replace")

    def stream(self, *, control: bool = False) -> TextStream:
        """Decodes ids as they come; the pieces joined equal `decode` of all of them."""

        def shown(token_id: int) -> bytes:
            text = self.token_bytes(token_id)
            return text if control or not self.is_control(token_id) else b""

        return TextStream(shown)

    def token_bytes(self, token_id: int) -> bytes:
        """The exact bytes of one token; of a control token, its name."""
        self._check(token_id)
        return self._vocabulary.bytes_of(token_id)

    def all_bytes(self) -> list[bytes]:
        """`token_bytes` of every id."""
        return self._vocabulary.all_bytes()

    def token_text(self, token_id: int) -> str:
        r"""One token as shown to people; bytes that are no whole character as `\xe2`."""
        return self.token_bytes(token_id).decode("utf-8", "backslashreplace")

    def is_control(self, token_id: int) -> bool:
        """Whether the token belongs to the template, not to the text."""
        self._check(token_id)
        return token_id in self._control

    def find(self, text: str) -> int | None:
        """The id of the token that the file writes as `text`, or None."""
        return self._ids.get(text)

    @cached_property
    def _ids(self) -> Mapping[str | None, int]:
        texts = self._vocabulary.texts
        found = dict(zip(reversed(texts), range(len(texts) - 1, -1, -1), strict=True))
        found.pop(None, None)
        return found

    def _check(self, token_id: int) -> None:
        if not 0 <= token_id < self.vocab_size:
            raise TokenizerError(
                f"{self.name}: token id {token_id:,} is outside 0 to {self.vocab_size - 1:,}"
            )


def _refuse_lone_surrogates(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise RequestError(
            f"the text has half a surrogate pair at character {error.start:,}",
            advice="write the character itself instead of \\ud800-style halves",
        ) from None


def _unwritable_bytes(vocabulary: Vocabulary) -> frozenset[int]:
    """Bytes that occur in UTF-8 and that a byte-level vocabulary has no token for."""
    if not vocabulary.byte_level:
        return frozenset()
    from forwardpass.text.bytelevel import byte_of_character

    never = {0xC0, 0xC1, *range(0xF5, 0x100)}  # bytes that no UTF-8 text has
    table = byte_of_character()
    single = {text for text in vocabulary.texts if text is not None and len(text) == 1}
    return frozenset(byte for char, byte in table.items() if char not in single) - never
