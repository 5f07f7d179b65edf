"""Three hundred mutations of config.json, and as many of a GGUF's metadata.

Each ends in an error raised on purpose or in a load that takes the mutation into account. The
mutations are the same on every run: the generators are seeded.
"""

from __future__ import annotations

import json
import math
import random
from pathlib import Path

import pytest

from backends.tiny import CONFIGS
from backends.tiny_llama import TINY_LLAMA
from backends.tiny_moe import TINY_MOE
from config.gguf_metadata import METADATA, SHAPES_OF
from forwardpass.architectures import family, gguf_family
from forwardpass.config import read_config
from forwardpass.config_gguf import config_from_gguf
from forwardpass.config_keys import NEUTRAL
from forwardpass.describe import Description, describe_config, read_json_object
from forwardpass.errors import ForwardpassError

VALUES: tuple[object, ...] = (
    *(None, True, False, 0, 1, 2, 3, -1, 7, 64, 4_097, 2**31, 2**63, 10**30, 10**400),
    *(0.0, -0.5, 1e-300, 1e300, math.nan, math.inf, -math.inf, 0.5, 2.0),
    *("", "silu", "gelu", "full_attention", "\x00", "é" * 1_000, "1"),
    *([], [1], ["full_attention"] * 2, ["sliding_attention"] * 2, [[]], {}, {"rope_type": "yarn"}),
    *({"rope_type": "linear", "factor": 2.0}, {"full_attention": {}}, {"factor": {}}, [None] * 9),
)
EACH = 60  # mutations a family and kind: 300 for five of them
NAMES = (
    *("gpt2", "llama-scaled", "qwen2", "qwen3", "gemma3", "stablelm-parallel", "starcoder2"),
    *("gpt_neox", "gptj", "phi", "falcon", "falcon-grouped", "bloom", "opt", "opt-after"),
    *TINY_LLAMA,
    *TINY_MOE,
)


def described(raw: dict[str, object]) -> Description:
    return describe_config("mutated", raw)


@pytest.mark.parametrize("name", NAMES)
def test_a_mutated_value_ends_in_an_error_or_in_a_load_that_shows_it(name: str) -> None:
    generator = random.Random(f"values {name}")
    base, plain = CONFIGS[name], described(CONFIGS[name])
    known = sorted(plain.family.spec.known | set(base) | {"unknown_key", "is_causal"})
    loads = 0
    for _ in range(EACH):
        raw = dict(base)
        keys = generator.sample(known, generator.choice((1, 1, 2)))
        for key in keys:
            raw[key] = generator.choice(VALUES)
        try:
            found = described(raw)
        except ForwardpassError:
            continue
        loads += 1
        if len(keys) == 1 and found.config == plain.config:
            assert is_neutral(keys[0], raw[keys[0]], plain, base), (keys, raw)
    assert 0 < loads < EACH


def is_neutral(key: str, value: object, plain: Description, base: dict[str, object]) -> bool:
    """Whether a load may look as if the key had not been touched."""
    spec = plain.family.spec
    says_nothing = value is None or value is False or value in ("", [], {}, {"full_attention": {}})
    built = [getattr(plain.config, key, None), base.get(key), spec.defaults.get(key)]
    same = value in built or (key == "is_causal" and value == 1)  # which is how true compares
    return key in NEUTRAL | spec.neutral or says_nothing or same


@pytest.mark.parametrize("name", NAMES)
def test_mutated_bytes_end_in_an_error_or_in_a_load(name: str, tmp_path: Path) -> None:
    generator = random.Random(f"bytes {name}")
    text = json.dumps(CONFIGS[name]).encode()
    path = tmp_path / "config.json"
    for _ in range(EACH):
        path.write_bytes(mutated(text, generator))
        try:
            found = described(read_json_object(path))
        except ForwardpassError:
            continue
        assert found.unique_parameters > 0


def mutated(text: bytes, generator: random.Random) -> bytes:
    """One to three bytes changed, a piece doubled, dropped or moved, or the text cut."""
    data = bytearray(text)
    start = generator.randrange(len(data))
    stop = min(len(data), start + generator.randrange(1, 12))
    kind = generator.randrange(5)
    if kind == 0:
        for _ in range(generator.randrange(1, 4)):
            data[generator.randrange(len(data))] = generator.choice(
                b'0123456789-.eE"[]{},:tfn\xff\x00'
            )
    elif kind == 1:
        data[start:start] = data[start:stop] * generator.choice((1, 2, 50))
    elif kind == 2:
        del data[start:stop]
    elif kind == 3:
        data[start:stop] = reversed(data[start:stop])
    else:
        del data[start:]
    return bytes(data)


@pytest.mark.parametrize("architecture", list(METADATA))
def test_mutated_gguf_metadata_end_in_an_error_or_in_a_load(architecture: str) -> None:
    generator = random.Random(f"gguf {architecture}")
    base, shapes = METADATA[architecture], SHAPES_OF[architecture]
    found_family = gguf_family(architecture, "test")
    keys = [*base, f"{architecture}.rope.scaling.factor", f"{architecture}.rope.scaling.type"]
    keys += [f"{architecture}.attention.causal", f"{architecture}.something"]
    loads = 0
    for _ in range(EACH):
        metadata = dict(base)
        for key in generator.sample(keys, generator.choice((1, 1, 2))):
            if generator.random() < 0.2:
                metadata.pop(key, None)
            else:
                metadata[key] = generator.choice(VALUES)
        try:
            raw = config_from_gguf(metadata, shapes, found_family, "test")
            config = read_config(raw, found_family.spec, "test")
        except ForwardpassError:
            continue
        loads += 1
        assert family(config.model_type).build(config).weights
    assert loads < EACH
