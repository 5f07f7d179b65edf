"""The byte alphabet of byte-level BPE: each of the 256 bytes as one printable character.

Source: the published GPT-2 encoder. Bytes that print in Latin-1 stand for themselves; the other
68 become U+0100, U+0101, … in byte order.
"""

from __future__ import annotations

from functools import cache


@cache
def byte_of_character() -> dict[str, int]:
    """The byte that each of the 256 characters of the alphabet stands for."""
    printing = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in set(printing)]
    table = {chr(byte): byte for byte in printing}
    table.update({chr(0x100 + place): byte for place, byte in enumerate(others)})
    return table


def to_bytes(token: str) -> bytes:
    """The bytes of a token in the byte alphabet; its UTF-8 where it is not written in it."""
    table = byte_of_character()
    try:
        return bytes([table[character] for character in token])
    except KeyError:
        return token.encode("utf-8", "replace")
