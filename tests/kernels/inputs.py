"""Rows that kernels find hard: odd widths, one massive channel, zeros, denormals, edges."""

from __future__ import annotations

import numpy as np

from kernels.truths import F32, ROWS, Attention, Inputs

# Below, at and above a vector of 16, a block of 32, and the 512 of a partial sum.
WIDTHS = (1, 7, 15, 16, 17, 33, 96, 256, 288, 513, 1000)
ROPES = ((64, 32), (128, 32), (96, 48), (40, 20), (80, 8), (256, 128), (20, 9), (2, 1))
EPS = (1e-5, 1e-6)
CAP = 30.0
PARTS = ("silu_multiply", "gelu_multiply", "add")  # take two rows


def adversarial(width: int, rng: np.random.Generator) -> F32:
    """Ten rows of a width, n × width: see the names beside them."""
    x = rng.normal(size=(10, width))
    x[1] *= 0.1  # one massive channel, as in the residual stream of Gemma
    x[1, rng.integers(width)] = 104_000
    x[2] = 0
    x[3] *= 1e-40  # denormal
    x[4] *= 1e-30
    x[5] = 1e5  # all alike
    x[6] += 1000  # far from zero
    x[7] = rng.uniform(-1, 1, width)  # the greatest of a block at its edges
    x[7, ::32] = -2
    x[7, 31::32] = 2
    x[8] = np.sign(x[8]) * 10.0 ** rng.uniform(-30, 12, width)
    x[9] *= 4
    return x.astype(np.float32)


def row_inputs(op: str, seed: int = 0) -> list[Inputs]:
    """What an op on rows is tried with, every width at a time."""
    rng = np.random.default_rng([seed, sorted(ROWS).index(op)])
    if op.startswith("rope"):
        return [_rope(width, pairs, rng, way) for width, pairs in ROPES for way in (False, True)]
    found = []
    for width in WIDTHS:
        a = adversarial(width, rng)
        gain, bias = rng.normal(size=(2, width)).astype(np.float32)
        if op in PARTS:
            found.append(Inputs(a, b=rng.permutation(adversarial(width, rng))))
        elif op == "layer_norm":
            found += [Inputs(a, weight=gain, bias=bias, number=eps) for eps in EPS]
        elif op.endswith("norm"):
            found += [Inputs(a, weight=gain, number=eps) for eps in EPS]
        elif op == "scale":
            found += [Inputs(a, number=number) for number in (1.7, -0.25, 50.59644256269407)]
        elif op == "softcap":
            found.append(Inputs(a, number=CAP))
        else:
            found.append(Inputs(a))
    return found


def _rope(width: int, pairs: int, rng: np.random.Generator, interleaved: bool) -> Inputs:
    angles = rng.uniform(0, 1e4, pairs)
    return Inputs(
        adversarial(width, rng),
        pairs=pairs,
        interleaved=interleaved,
        cos=np.cos(angles).astype(np.float32),
        sin=np.sin(angles).astype(np.float32),
    )


KV_TYPES = ("f16", "bf16", "f32")
HEAD_SIZES = (32, 40, 64, 96, 128, 256)
GROUPS = (1, 3, 7)  # query heads that share a key
CONTEXTS = (1, 15, 16, 255, 256, 257, 700)
WINDOWS = (0, 1, 17, 256, 300)


def rounded(x: F32, kv_type: str) -> F32:
    """x as the cache keeps it."""
    if kv_type == "f16":
        return x.astype(np.float16).astype(np.float32)
    if kv_type == "bf16":
        bits = x.view(np.uint32)
        return ((bits + 0x7FFF + (bits >> 16 & 1)) & np.uint32(0xFFFF0000)).view(np.float32)
    return x


def attention_inputs(kv_type: str, seed: int = 0) -> list[Attention]:
    """Every head size, group and context, the rest taken in turn; values as the cache has them."""
    rng = np.random.default_rng([seed, KV_TYPES.index(kv_type)])
    found: list[Attention] = []
    for e in HEAD_SIZES:
        for share in GROUPS:
            for s in CONTEXTS:
                found.append(_attention(kv_type, e, share, s, len(found), rng))
    return found


def _attention(
    kv_type: str, e: int, share: int, s: int, number: int, rng: np.random.Generator
) -> Attention:
    groups = 1 + number % 2
    h = share * groups
    q = rng.normal(size=(h, e))
    keys, values = rng.normal(size=(2, s, groups, e))
    how = number % 5
    if how == 1:  # one massive channel in queries and keys
        q[:, e // 2] *= 100
        keys[:, :, e // 2] *= 100
    elif how == 2:  # all scores alike
        keys[:] = keys[:1]
    elif how == 3:  # one position takes it all, and large values
        keys[s // 2] *= 50
        values *= 1e4
    elif how == 4:  # zeros and denormals
        keys[::2] = 0
        values[::3] *= 1e-40
    return Attention(
        q.astype(np.float32),
        rounded(keys.astype(np.float32), kv_type),
        rounded(values.astype(np.float32), kv_type),
        scale=1 / np.sqrt(e),
        softcap=50.0 if number % 3 == 1 else 0.0,
        window=WINDOWS[number % 5],
        slopes=(2.0 ** -np.arange(1, h + 1)).astype(np.float32) if number % 4 == 2 else None,
        sinks=rng.normal(size=h).astype(np.float32) if number % 4 == 3 else None,
    )
