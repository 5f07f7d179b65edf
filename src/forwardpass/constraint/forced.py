"""Runs of text that a grammar forces: where only one byte may come, time after time.

A single legal token is rare, because a longer one may cover more; it is the bytes that are forced.
"""

from __future__ import annotations

from collections.abc import Callable

from forwardpass.constraint.first_bytes import first_bytes
from forwardpass.constraint.frames import InName, InString
from forwardpass.constraint.masks import Masker
from forwardpass.constraint.states import State
from forwardpass.constraint.tokens import ids_of, is_set

MOST_BYTES = 1_024
_LEAST_BYTES = 2
_MOST_LEGAL = 256  # where more tokens are legal than a forced text begins with, it is none
_MOST_TRIED = 8  # where more bytes can come first, they are not tried one by one


def forced_bytes(state: State) -> bytes:
    """The bytes that have to come next, whatever comes after them (at most 1,024)."""
    out = bytearray()
    while len(out) < MOST_BYTES and (step := _only(state)) is not None:
        byte, state = step
        out.append(byte)
    return bytes(out)


def _only(state: State) -> tuple[int, State] | None:
    """The one byte that may come, and the state after it."""
    if state.complete or state.controls():
        return None
    tried: set[int] = set()
    for frame, _ in state.positions:
        if isinstance(frame, InString | InName):
            tried |= state.machine.strings.first_bytes(frame.state)
        else:
            tried |= first_bytes(state.machine, frame)
        if len(tried) > _MOST_TRIED:
            return None
    found = [(byte, after) for byte in tried if (after := state.advance(byte)) is not None]
    return found[0] if len(found) == 1 else None


def forced_run(
    masker: Masker, state: State, encode: Callable[[str], list[int]], left: int
) -> list[int]:
    """The tokens of the text that is forced from a state, as the tokenizer cuts it.

    Only as many as no legal token could do otherwise: none before whose place a token may begin
    that reaches beyond the forced text. None where fewer than two bytes are forced, or where
    `left` tokens (the one that ends the answer included) might not be enough after them.
    """
    run = forced_bytes(state)
    text = run[: _whole_characters(run)].decode()
    if len(run) < _LEAST_BYTES or not text:
        return []
    tokens = encode(text)
    texts = [masker.tokens.text(token) for token in tokens]
    if b"".join(texts) != text.encode():
        return []
    out: list[int] = []
    remaining = len(run)
    for token, own in zip(tokens, texts, strict=True):
        mask = masker.mask(state)
        reaching = mask.count > _MOST_LEGAL or any(
            len(masker.tokens.text(one)) > remaining for one in ids_of(mask.words).tolist()
        )
        # What is left of the limit must allow each of them, as it will be asked to.
        limit = left - len(out) - 2
        if reaching or limit < 0 or not is_set(masker.mask(state, limit).words, token):
            break
        after = state.feed(own)
        if after is None:
            break
        state, remaining = after, remaining - len(own)
        out.append(token)
    return out


def _whole_characters(text: bytes) -> int:
    """How many bytes of a text are whole characters of UTF-8."""
    end = len(text)
    while end and text[end - 1] & 0xC0 == 0x80:
        end -= 1
    if end and text[end - 1] >= 0xC0:
        size = 2 if text[end - 1] < 0xE0 else 3 if text[end - 1] < 0xF0 else 4
        return len(text) if len(text) - end + 1 == size else end - 1
    return len(text)
