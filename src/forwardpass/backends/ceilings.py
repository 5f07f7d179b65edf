"""What this machine can do at most, measured through NumPy: bytes read and FLOP a second.

These are the rates that NumPy and its BLAS reach here, not the vendor's: the bound that a NumPy
program should be judged against. Each is the best of a few tries, as other programs only take away.
All together take less than a second on an idle machine.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from forwardpass.graph.references import F32

READ_BYTES = 256 * 2**20  # more than most processors' caches hold
_TRIES = 4
_WIDTH = 4_096
_LONG_ENOUGH = 0.02
_LEAST_PRODUCT, _LARGEST_PRODUCT = 1_024, 4_096


def read_rates(threads: int, byte_count: int = READ_BYTES) -> tuple[float, float]:
    """Bytes a second that one thread reads from memory, and that all `threads` do.

    One thread takes the largest of all numbers; all do so in parts, and also multiply them as a
    matrix by a vector, as a pass does: the fastest way counts.
    """
    numbers: F32 = np.zeros((byte_count // 4 // _WIDTH, _WIDTH), np.float32)
    numbers += np.float32(1)  # pages that nobody wrote to are all the same page
    vector: F32 = np.ones(_WIDTH, np.float32)
    one = _fastest(numbers.max)
    parts = np.array_split(numbers, threads)
    with ThreadPoolExecutor(threads) as pool:
        every = _fastest(lambda: list(pool.map(np.max, parts)))
    product = _fastest(lambda: numbers @ vector)
    fastest = min(one, every, product)
    return numbers.nbytes / (one if threads > 1 else fastest), numbers.nbytes / fastest


def native_read_rate(threads: int, byte_count: int = READ_BYTES) -> float:
    """Bytes a second that `threads` threads read from memory with plain vector loads."""
    from forwardpass import _native

    return _native.read_rate(byte_count, threads, _TRIES)


def native_tile_rate(level: str, threads: int) -> float:
    """FLOP a second of `threads` threads that multiply bf16 tiles out of the first cache.

    In 20 ms, and once: processors go from one rate to half of it within a tenth of a second, and
    what is asked is what they do now.
    """
    from forwardpass import _native

    return _native.tile_rate(level, threads, _LONG_ENOUGH)


def product_rate() -> float:
    """FLOP a second of float32 matrix products, on the threads that BLAS uses.

    Square ones, doubled in size until one takes 20 ms. The small ones do not end it: another
    program that takes a core for a moment makes them look slow.
    """
    size, best = 256, 0.0
    while True:
        square: F32 = np.ones((size, size), np.float32)
        seconds = _fastest(lambda square=square: square @ square)  # type: ignore[misc]
        best = max(best, 2 * size**3 / seconds)
        if (seconds > _LONG_ENOUGH and size >= _LEAST_PRODUCT) or size >= _LARGEST_PRODUCT:
            return best
        size *= 2


def _fastest(action: Callable[[], Any]) -> float:
    """The least seconds of a few tries."""
    seconds = []
    for _ in range(_TRIES):
        start = time.perf_counter()
        action()
        seconds.append(time.perf_counter() - start)
    return min(seconds)
