"""The native backend on files of every stored type, against the reference on the same files."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from backends.tiny import random_tokens, random_weight
from formats import packers
from formats.gguf_writer import TensorData, write_gguf
from formats.safetensors_writer import TensorData as Stored
from formats.safetensors_writer import write_safetensors
from forwardpass.backends.levels import missing_reason
from forwardpass.backends.reference import Reference
from forwardpass.describe import Description, describe_config, describe_file
from forwardpass.dtypes import DTYPES
from forwardpass.formats import blocks, open_tensors
from forwardpass.formats.source import MappedFile
from forwardpass.graph.references import F32

if missing_reason() is not None:
    pytest.skip(f"native backend: {missing_reason()}", allow_module_level=True)

from forwardpass import _native
from forwardpass.backends.native import Native
from forwardpass.backends.tables import bf16_of

VOCABULARY, WIDTH, INNER, HEADS, GROUPS, HEAD = 61, 256, 512, 16, 4, 16
CONFIG: Mapping[str, object] = {
    "model_type": "llama",
    "vocab_size": VOCABULARY,
    "hidden_size": WIDTH,
    "intermediate_size": INNER,
    "num_hidden_layers": 2,
    "num_attention_heads": HEADS,
    "num_key_value_heads": GROUPS,
    "head_dim": HEAD,
    "max_position_embeddings": 512,
    "rms_norm_eps": 1e-5,
}
METADATA: Mapping[str, object] = {
    "general.architecture": "llama",
    "llama.block_count": 2,
    "llama.context_length": 512,
    "llama.embedding_length": WIDTH,
    "llama.feed_forward_length": INNER,
    "llama.attention.head_count": HEADS,
    "llama.attention.head_count_kv": GROUPS,
    "llama.attention.layer_norm_rms_epsilon": 1e-5,
    "llama.vocab_size": VOCABULARY,
}
GGUF_SHAPES = {
    "token_embd": (VOCABULARY, WIDTH),
    "output": (VOCABULARY, WIDTH),
    **{
        f"blk.{layer}.{name}": shape
        for layer in range(2)
        for name, shape in {
            "attn_q": (HEADS * HEAD, WIDTH),
            "attn_k": (GROUPS * HEAD, WIDTH),
            "attn_v": (GROUPS * HEAD, WIDTH),
            "attn_output": (WIDTH, HEADS * HEAD),
            "ffn_gate": (INNER, WIDTH),
            "ffn_up": (INNER, WIDTH),
            "ffn_down": (WIDTH, INNER),
        }.items()
    },
}
NORMS = ("output_norm", *(f"blk.{i}.{n}_norm" for i in range(2) for n in ("attn", "ffn")))

# Of a block: where its scale is, where its minimum, and what that is of the scale.
SCALES: Mapping[str, tuple[int, int | None, float]] = {
    "q4_0": (0, None, 0),
    "q4_1": (0, 2, -7.5),
    "q5_0": (0, None, 0),
    "q5_1": (0, 2, -15.5),
    "q8_0": (0, None, 0),
    "q4_k": (0, 2, 7.5),
    "q5_k": (0, 2, 15.5),
    "q6_k": (208, None, 0),
    "iq4_nl": (0, None, 0),
    "iq4_xs": (0, None, 0),
    "q2_k": (80, 82, 1.5),
    "q3_k": (108, None, 0),
    "tq2_0": (64, None, 0),
}
FLOATS = ("f32", "f16", "bf16")
PACKED = ("q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "q4_k", "q5_k", "q6_k", *FLOATS)
CONVERTED = ("iq4_nl", "iq4_xs", "q2_k", "q3_k", "tq2_0", "mxfp4")


def stored(kind: str, shape: tuple[int, int], random: np.random.Generator) -> bytes:
    """A table of random values of about ±1.5 / sqrt(width), of any bits that the type has."""
    spread = 1.5 * shape[1] ** -0.5
    values = (random.standard_normal(shape) * spread).astype(np.float32)
    if kind in FLOATS:
        of: dict[str, NDArray[np.generic]] = {
            "f32": values,
            "f16": values.astype(np.float16),
            "bf16": bf16_of(values),
        }
        return of[kind].tobytes()
    dtype = DTYPES[kind]
    made = random.integers(0, 256, (shape[0] * shape[1] // dtype.block, dtype.bytes), np.uint8)
    if kind == "mxfp4":
        made[:, 0] = random.integers(120, 124, len(made))
        return made.tobytes()
    scale, least, share = SCALES[kind]

    def put(scales: NDArray[np.float64]) -> None:
        for at, factor in ((scale, 1.0), (least, share)):
            if at is not None:
                halves = (scales * factor).astype(np.float16)
                made[:, at : at + 2] = halves.view(np.uint8).reshape(-1, 2)

    put(np.ones(len(made)))
    size = float(blocks.decode(dtype, memoryview(made.tobytes())).std())
    put(spread / size * random.uniform(0.5, 1.5, len(made)))
    return made.tobytes()


def gguf(path: Path, kind: str) -> Description:
    """A llama whose tables are all of the type."""
    random = np.random.default_rng(7)
    tensors = {
        f"{name}.weight": TensorData(kind, shape, stored(kind, shape, random))
        for name, shape in GGUF_SHAPES.items()
    }
    for name in NORMS:
        gains = (1 + 0.3 * random.standard_normal(WIDTH)).astype(np.float32)
        tensors[f"{name}.weight"] = TensorData("f32", gains.shape, gains.tobytes())
    return describe_file(kind, open_tensors(write_gguf(path / "m.gguf", METADATA, tensors)))


def logits(model: Native | Reference) -> F32:
    tokens = random_tokens(77)
    if isinstance(model, Native):
        return model.run(model.new_cache(), tokens, wanted=range(len(tokens)))
    return model.run(model.new_cache(), tokens, wanted=range(len(tokens)))


def far(found: Description, native: Native) -> float:
    """The largest difference from the reference, as a part of the largest logit."""
    assert found.weights is not None
    theirs = logits(Reference(found.graph, found.weights))
    return float(np.abs(logits(native) - theirs).max() / np.abs(theirs).max())


def native(found: Description) -> Native:
    assert found.weights is not None
    return Native(found.graph, found.weights, 1, "f32")


@pytest.mark.parametrize("kind", PACKED)
def test_a_gguf_of_a_packed_type_gives_the_reference_s_logits(tmp_path: Path, kind: str) -> None:
    found = gguf(tmp_path, kind)
    model = native(found)
    assert far(found, model) <= 2e-4
    assert model.notes == ()
    assert set(model.packed.types.values()) == {kind}


@pytest.mark.parametrize("kind", CONVERTED)
def test_a_gguf_type_without_a_kernel_is_bf16_and_is_named(tmp_path: Path, kind: str) -> None:
    found = gguf(tmp_path, kind)
    model = native(found)
    assert far(found, model) <= 2e-2
    assert model.converted == {kind: len(GGUF_SHAPES)}
    assert any(f"{len(GGUF_SHAPES)} tables of {kind.upper()}" in note for note in model.notes)


Parts = Mapping[str, tuple[str, NDArray[np.generic]]]
Pack = Callable[[str, F32], Parts]


def folder(path: Path, pack: Pack, config: Mapping[str, object]) -> Description:
    """The llama of CONFIG as safetensors, its tables as `pack` stores them."""
    tensors: dict[str, Stored] = {}
    for name, weight in describe_config("tiny", CONFIG).graph.weights.items():
        for part, (kind, array) in pack(name, random_weight(weight)).items():
            tensors[part] = Stored(kind, array.shape, array.tobytes())
    file = open_tensors(write_safetensors(path / "model.safetensors", tensors))
    return describe_file("tiny", file, {**CONFIG, **config})


def mlx(bits: int, group: int, scales: str) -> Pack:
    """MLX's affine groups, each element rounded to the nearest of its levels."""

    def floats(x: F32) -> tuple[NDArray[np.generic], F32]:
        """As stored, and what that stands for."""
        if scales == "BF16":
            kept = bf16_of(x)
            return kept, (kept.astype(np.uint32) << 16).view(np.float32)
        halves = x.astype(np.float16 if scales == "F16" else np.float32)
        return halves, halves.astype(np.float32)

    def pack(name: str, table: F32) -> Parts:
        if table.ndim < 2:
            return {name: ("F32", table)}
        stem, rows, top = name.removesuffix(".weight"), len(table), 2**bits - 1
        grouped = table.reshape(rows, -1, group)
        low, high = grouped.min(axis=2), grouped.max(axis=2)
        (scale, d), (bias, m) = floats((high - low) / top), floats(low)
        q = np.clip(np.rint((grouped - m[:, :, None]) / d[:, :, None]), 0, top).astype(np.uint32)
        fields = q.reshape(rows, -1, 32 // bits) << np.arange(0, 32, bits).astype(np.uint32)
        words = np.bitwise_or.reduce(fields, axis=2).astype(np.uint32)
        return {
            f"{stem}.weight": ("U32", words),
            f"{stem}.scales": (scales, scale),
            f"{stem}.biases": (scales, bias),
        }

    return pack


def mlx_config(bits: int, group: int) -> Mapping[str, object]:
    return {"quantization": {"group_size": group, "bits": bits}}


@pytest.mark.parametrize("scales", ["F16", "BF16"])
@pytest.mark.parametrize("group", [32, 64, 128])
def test_mlx_s_four_bits_give_the_reference_s_logits(
    tmp_path: Path, group: int, scales: str
) -> None:
    found = folder(tmp_path, mlx(4, group, scales), mlx_config(4, group))
    model = native(found)
    assert far(found, model) <= 2e-4
    assert model.notes == ()
    assert set(model.packed.types.values()) == {f"mlx4_{scales.lower()}"}


@pytest.mark.parametrize(("bits", "scales"), [(4, "F32"), (8, "F16")])
def test_mlx_s_other_tables_are_bf16(tmp_path: Path, bits: int, scales: str) -> None:
    found = folder(tmp_path, mlx(bits, 64, scales), mlx_config(bits, 64))
    model = native(found)
    assert far(found, model) <= 2e-2
    assert model.converted == {f"mlx{bits}_g64": len(GGUF_SHAPES)}


def awq(name: str, table: F32) -> Parts:
    if "proj" not in name:
        return {name: ("F32", table)}
    parts = packers.as_awq(packers.grouped(table, np.arange(table.shape[1]) // 64))
    return _named(name, parts)


def gptq(name: str, table: F32) -> Parts:
    if "proj" not in name:
        return {name: ("F32", table)}
    parts = packers.as_gptq(packers.grouped(table, np.arange(table.shape[1]) // 64))
    return _named(name, parts)


def fp8(name: str, table: F32) -> Parts:
    """Any bytes but NaN, and tiles of 128 × 128 with a scale each."""
    if "proj" not in name:
        return {name: ("F32", table)}
    random = np.random.default_rng(len(name))
    data = random.integers(0, 0x78, table.shape, np.uint8)
    data |= random.integers(0, 2, table.shape, np.uint8) << 7
    tiles = tuple(-(-size // 128) for size in table.shape)
    scales = random.uniform(5e-4, 1e-3, tiles).astype(np.float32)
    return {name: ("F8_E4M3", data), f"{name}_scale_inv": ("F32", scales)}


def _named(name: str, parts: Mapping[str, NDArray[np.generic]]) -> Parts:
    kinds = {"float16": "F16", "int32": "I32"}
    stem = name.removesuffix(".weight")
    return {f"{stem}.{part}": (kinds[str(array.dtype)], array) for part, array in parts.items()}


@pytest.mark.parametrize(
    ("pack", "config", "kind"),
    [
        (awq, {"quant_method": "awq", "bits": 4, "group_size": 64, "version": "gemm"}, "awq4_g64"),
        (gptq, {"quant_method": "gptq", "bits": 4, "group_size": 64}, "gptq4_g64"),
        (fp8, {"quant_method": "fp8", "weight_block_size": [128, 128]}, "f8_e4m3"),
    ],
    ids=["awq", "gptq", "fp8"],
)
def test_tables_in_parts_of_other_kinds_are_bf16_and_are_named(
    tmp_path: Path, pack: Pack, config: dict[str, object], kind: str
) -> None:
    found = folder(tmp_path, pack, {"quantization_config": config})
    model = native(found)
    assert far(found, model) <= 2e-2
    assert list(model.converted.values()) == [len(GGUF_SHAPES) - 2]
    assert kind in "".join(model.notes).lower()


@pytest.mark.parametrize("kind", PACKED)
def test_a_table_packed_in_pieces_is_the_one_packed_at_once(kind: str) -> None:
    shape = (75, WIDTH)
    table = np.frombuffer(stored(kind, shape, np.random.default_rng(3)), np.uint8).reshape(75, -1)
    tables = _native.Tables(2)
    whole, parts = tables.add(kind, *shape, table.reshape(-1)), tables.room(kind, *shape)
    for first, last in ((32, 64), (64, 75), (0, 32)):
        tables.fill(parts, first, last - first, table[first:last].reshape(-1))
    for row in range(len(table)):
        np.testing.assert_array_equal(tables.decode_row(parts, row), tables.decode_row(whole, row))
    for first, last in ((8, 24), (0, 8), (64, 80), (-16, 0), (80, 96), (16, 16)):
        with pytest.raises(ValueError, match=r"rows from row .* whole panels of 16 rows"):
            tables.fill(parts, first, last - first, table[: last - first].reshape(-1))
    with pytest.raises(ValueError, match=r"11 x 256 .* bytes are offered"):
        tables.fill(parts, 64, 11, table[64:74].reshape(-1))


def test_a_large_table_is_packed_in_pieces_and_its_pages_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = gguf(tmp_path, "q4_k")
    expected = logits(native(found))
    given_up: list[tuple[int, int]] = []

    def forget(source: MappedFile, offset: int, length: int) -> None:
        given_up.append((offset, length))

    monkeypatch.setattr(MappedFile, "forget", forget)
    monkeypatch.setattr("forwardpass.backends.tables._PIECE", 4096)
    np.testing.assert_array_equal(logits(native(found)), expected)
    assert len(given_up) > 2 * len(set(given_up))
