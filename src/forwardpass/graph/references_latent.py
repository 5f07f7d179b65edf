"""The NumPy references of the ops of latent attention; conventions as in `references.py`."""

from __future__ import annotations

import numpy as np

from forwardpass.graph.references import F32


def head_columns(x: F32, *, start: int, stop: int) -> F32:
    """Elements start to stop of each head, n h o."""
    return np.ascontiguousarray(x[..., start:stop])


def join_heads(first: F32, second: F32) -> F32:
    """Each head's first part, and behind it its second, or the one of all heads, n h c."""
    shared = np.broadcast_to(second, (*first.shape[:2], second.shape[-1]))
    return np.concatenate([first, shared], axis=-1)
