"""The random number of one token, from its seed, choice and position alone.

Philox4x64-10: a counter-based generator, so that a draw depends on what it is for and on no
state: not on the order of draws, nor on what else is being generated.

Source: J. Salmon, M. Moraes, R. Dror, D. Shaw, "Parallel random numbers: as easy as 1, 2, 3",
SC 2011, section 4; constants as in Random123, include/Random123/philox.h.
"""

from __future__ import annotations

import secrets

from forwardpass.errors import RequestError
from forwardpass.sampling.ranges import LARGEST_SEED, SMALLEST_SEED

_MASK = 2**64 - 1
_MULTIPLIERS = (0xD2E7470EE14C6C93, 0xCA5A826395121157)
_WEYL = (0x9E3779B97F4A7C15, 0xBB67AE8584CAA73B)  # golden ratio, √3 - 1
_ROUNDS = 10
DRAW, XTC = 0, 1  # which word a stage takes, so that each has a number of its own

Counter = tuple[int, int, int, int]
Key = tuple[int, int]


def philox4x64(counter: Counter, key: Key) -> Counter:
    """Four 64-bit words, a bijection of the counter for each key."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(_ROUNDS):
        first, second = _MULTIPLIERS[0] * c0, _MULTIPLIERS[1] * c2
        c0, c1, c2, c3 = (
            (second >> 64) ^ c1 ^ k0,
            second & _MASK,
            (first >> 64) ^ c3 ^ k1,
            first & _MASK,
        )
        k0, k1 = (k0 + _WEYL[0]) & _MASK, (k1 + _WEYL[1]) & _MASK
    return c0, c1, c2, c3


def uniform(seed: int, choice: int, position: int, word: int = DRAW) -> float:
    """A number in [0, 1), a multiple of 2⁻⁵³: the upper 53 bits of one of Philox's four words.

    Key (seed, 0), counter (position, choice, 0, 0). `seed` is any signed 64-bit number, taken as
    its two's complement, so no two seeds share a key; `choice` counts the answers to one prompt,
    `position` the tokens of an answer, both from 0.
    """
    if not SMALLEST_SEED <= seed <= LARGEST_SEED:
        raise RequestError(f"seed = {seed}: wanted a whole number from -2⁶³ to 2⁶³ - 1")
    if not (0 <= choice <= _MASK and 0 <= position <= _MASK):
        raise RequestError(
            f"choice {choice}, position {position}: wanted numbers from 0 to 2⁶⁴ - 1"
        )
    bits = philox4x64((position, choice, 0, 0), (seed & _MASK, 0))[word]
    return (bits >> 11) * 2.0**-53


def fresh_seed() -> int:
    """A seed from the system's own randomness: 32 bits, short enough to type again."""
    return secrets.randbits(32)
