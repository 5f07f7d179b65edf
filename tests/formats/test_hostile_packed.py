"""Split files and quantized checkpoints made to hurt: each is refused, or read as what it says."""

from __future__ import annotations

import json
import random
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from formats.gguf_writer import TensorData as GgufTensor
from formats.gguf_writer import Typed, gguf_bytes
from formats.safetensors_writer import TensorData, write_safetensors
from formats.test_hostile_files import BYTES, MUTATIONS, SECONDS, SEED, mutated
from forwardpass.dtypes import DTYPES
from forwardpass.errors import ConfigError, FormatError
from forwardpass.formats import TensorFile, open_tensors, unpacked
from forwardpass.formats.blocks import DECODERS
from forwardpass.formats.packed import PackedTensor
from forwardpass.formats.quantization import take_quantization

RNG = random.Random(SEED)


def tensor(kind: str, *shape: int) -> TensorData:
    size = {"U32": 4, "I32": 4, "F16": 2, "F32": 4, "U8": 1, "F8_E4M3": 1}[kind]
    return TensorData(kind, shape, RNG.randbytes(int(np.prod(shape)) * size))


def grouped(inputs: int, outputs: int, stem: str) -> dict[str, TensorData]:
    return {
        f"{stem}.qzeros": tensor("I32", inputs // 32, outputs // 8),
        f"{stem}.scales": tensor("F16", inputs // 32, outputs),
    }


ORDER = np.random.default_rng(SEED).permutation(np.arange(64) // 32).astype("<i4").tobytes()
CHECKPOINTS: dict[str, tuple[dict[str, object], dict[str, TensorData]]] = {
    "mlx": (
        {"quantization": {"group_size": 32, "bits": 4, "b": {"bits": 8}, "c": False}},
        {
            "a.weight": tensor("U32", 3, 8),
            "a.scales": tensor("F16", 3, 2),
            "a.biases": tensor("F16", 3, 2),
            "b.weight": tensor("U32", 3, 16),
            "b.scales": tensor("F16", 3, 2),
            "b.biases": tensor("F16", 3, 2),
            "c.weight": tensor("F32", 3, 3),
        },
    ),
    "awq": (
        {
            "quantization_config": {
                "quant_method": "awq",
                "bits": 4,
                "group_size": 32,
                "zero_point": True,
                "version": "gemm",
                "modules_to_not_convert": ["lm_head"],
            }
        },
        {"a.qweight": tensor("I32", 64, 2), **grouped(64, 16, "a"), "n.weight": tensor("F32", 3)},
    ),
    "gptq": (
        {
            "quantization_config": {
                "quant_method": "gptq",
                "bits": 4,
                "group_size": 32,
                "desc_act": True,
            }
        },
        {
            "a.qweight": tensor("I32", 8, 16),
            **grouped(64, 16, "a"),
            "a.g_idx": TensorData("I32", (64,), ORDER),
        },
    ),
    "f8": (
        {"quantization_config": {"quant_method": "fp8", "weight_block_size": [16, 16]}},
        {
            "a.weight": tensor("F8_E4M3", 24, 40),
            "a.weight_scale_inv": tensor("F32", 2, 3),
            "n.weight": tensor("F32", 3),
        },
    ),
    "mxfp4": (
        {"quantization_config": {"quant_method": "mxfp4"}},
        {"e_blocks": tensor("U8", 2, 5, 2, 16), "e_scales": tensor("U8", 2, 5, 2)},
    ),
}


def use(file: TensorFile) -> None:
    """Decodes all tables; a refusal is an answer."""
    for found in file.tensors.values():
        if not isinstance(found, PackedTensor) and found.dtype.name not in DECODERS:
            continue
        try:
            values = found.numpy()
        except FormatError:
            continue
        assert values.shape == found.shape
        assert values.dtype == np.float32
        if len(found.shape) > 1:
            rows = found.rows(found.shape[0] // 2, found.shape[0])
            np.testing.assert_array_equal(rows, values[found.shape[0] // 2 :])


def opens(path: Path, content: bytes, config: bytes) -> bool:
    """Whether the checkpoint is read, and then holds together; False where refused."""
    path.write_bytes(content)
    try:
        raw = json.loads(config)
        if not isinstance(raw, dict):
            return False
        _, scheme, _ = take_quantization(raw, "config.json")
        with open_tensors(path) as file:
            use(unpacked(file, scheme))
    except (ValueError, RecursionError):
        return False  # no JSON, which is refused before
    except (FormatError, ConfigError) as error:
        assert str(path) in error.fact or "config.json" in error.fact  # noqa: PT017
        return False
    return True


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_mutated_checkpoints_are_refused_clearly_or_load(tmp_path: Path, name: str) -> None:
    config, tensors = CHECKPOINTS[name]
    path = write_safetensors(tmp_path / "model.safetensors", tensors)
    content, text = path.read_bytes(), json.dumps(config).encode()
    header = open_tensors(path).header_bytes
    assert opens(path, content, text)
    rng = random.Random(SEED)
    third = MUTATIONS // 3
    in_header = [opens(path, mutated(content, 0, header, rng), text) for _ in range(third // 2)]
    in_config = [opens(path, content, mutated(text, 0, len(text), rng)) for _ in range(third // 2)]
    in_data = [
        opens(path, mutated(content, header, len(content), rng), text)
        for _ in range(MUTATIONS - 2 * (third // 2))
    ]
    assert in_header.count(False) > third // 4
    assert in_config.count(False) > third // 8
    assert in_data.count(True) > MUTATIONS // 8


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_a_checkpoint_cut_at_any_byte_is_refused(tmp_path: Path, name: str) -> None:
    config, tensors = CHECKPOINTS[name]
    path = write_safetensors(tmp_path / "model.safetensors", tensors)
    content, text = path.read_bytes(), json.dumps(config).encode()
    whole = [size for size in range(0, len(content), 7) if opens(path, content[:size], text)]
    assert whole == []


def part(number: int) -> bytes:
    metadata: dict[str, object] = {
        "split.no": Typed("uint16", number),
        "split.count": Typed("uint16", 2),
        "split.tensors.count": Typed("int32", 4),
    }
    if not number:
        metadata |= {"general.architecture": "llama", "words": ["a", "bc"]}
    tensors = {
        f"t{number}.{kind}": GgufTensor(kind, (2, 256), RNG.randbytes(DTYPES[kind].nbytes(512)))
        for kind in ("iq4_xs", "mxfp4")
    }
    return gguf_bytes(metadata, tensors)


@pytest.mark.parametrize("which", [1, 2])
def test_mutated_parts_are_refused_clearly_or_load(tmp_path: Path, which: int) -> None:
    paths = [tmp_path / f"m-0000{number}-of-00002.gguf" for number in (1, 2)]
    contents = [part(0), part(1)]
    for path, content in zip(paths, contents, strict=True):
        path.write_bytes(content)
    changed, content = paths[which - 1], contents[which - 1]

    def opens_with(mutation: bytes) -> bool:
        changed.write_bytes(mutation)
        try:
            with open_tensors(paths[0]) as file:
                use(file)
        except FormatError as error:
            assert str(tmp_path) in error.fact  # noqa: PT017
            return False
        return True

    assert opens_with(content)
    header = len(content) - 2 * DTYPES["iq4_xs"].nbytes(256) - 2 * DTYPES["mxfp4"].nbytes(256)
    rng = random.Random(SEED)
    half = MUTATIONS // 2
    in_header = [opens_with(mutated(content, 0, header, rng)) for _ in range(half)]
    in_data = [opens_with(mutated(content, header, len(content), rng)) for _ in range(half)]
    assert in_header.count(False) > half // 2
    assert in_data.count(True) > half // 4
    end = len(content) - 16  # padding behind the last tensor
    assert [size for size in range(0, end, 5) if opens_with(content[:size])] == []


def many_patterns() -> dict[str, object]:
    """A config whose names and expressions would take hours if they were run as they stand."""
    evil = "re:" + "(a*)*" * 50 + "b"
    slow = ["*a" * 150] * 50
    return {
        "quantization_config": {
            "quant_method": "awq",
            "bits": 4,
            "group_size": 32,
            "zero_point": True,
            "modules_to_not_convert": [evil, *slow],
        }
    }


HOSTILE: dict[str, Callable[[], dict[str, object]]] = {
    "patterns that never end": many_patterns,
    "a million names": lambda: {
        "quantization_config": {"quant_method": "mxfp4", "modules_to_not_convert": ["a"] * 10**6}
    },
    "a long method": lambda: {"quantization_config": {"quant_method": "a" * 10**7}},
    "a name of a megabyte": lambda: {"quantization": {"bits": 4, "group_size": 32, "a" * 10**6: 1}},
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_config_is_refused_within_50_ms_and_50_mb(tmp_path: Path, name: str) -> None:
    config = HOSTILE[name]()
    long = "a" * 300
    tensors = {
        f"{long}.0.qweight": tensor("I32", 32, 1),
        **grouped(32, 8, f"{long}.0"),
        **{f"{long}.{i}.weight": tensor("F32", 2, 2) for i in range(1, 20)},
    }
    path = write_safetensors(tmp_path / "model.safetensors", tensors)

    def refused() -> float:
        start = time.perf_counter()
        with pytest.raises((FormatError, ConfigError)) as error, open_tensors(path) as file:
            unpacked(file, take_quantization(config, "config.json")[1])
        assert len(str(error.value)) < 4_000
        return time.perf_counter() - start

    assert min(refused() for _ in range(5)) < SECONDS
    tracemalloc.start()
    try:
        refused()
        assert tracemalloc.get_traced_memory()[1] < BYTES
    finally:
        tracemalloc.stop()
