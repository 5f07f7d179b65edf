"""Text from tokens as they come, never half a character."""

from __future__ import annotations

import codecs
from collections.abc import Callable


class TextStream:
    """Turns token ids into text one at a time.

    The pieces that `push` and `finish` return, joined, equal decoding all ids at once: bytes that
    do not yet make a character are held back, and bytes that never will are replaced by U+FFFD as
    the Unicode standard says (one for each maximal part, section 3.9).
    """

    def __init__(self, token_bytes: Callable[[int], bytes]) -> None:
        self._token_bytes = token_bytes
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def push(self, token_id: int) -> str:
        """The text that became certain with this token; empty inside a character."""
        return self._decoder.decode(self._token_bytes(token_id))

    def finish(self) -> str:
        """What is left: U+FFFD where the last character was never finished."""
        return self._decoder.decode(b"", final=True)
