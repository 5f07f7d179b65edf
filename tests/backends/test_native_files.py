"""The native backend on files of every stored type, against the reference on the same files."""

from __future__ import annotations

import re
import weakref
from collections.abc import Callable, Mapping
from functools import partial
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
from forwardpass.graph.references import F32

if missing_reason() is not None:
    pytest.skip(f"native backend: {missing_reason()}", allow_module_level=True)

from forwardpass import _native
from forwardpass.backends.native import Native
from forwardpass.backends.tables import bf16_of

SMAPS = Path("/proc/self/smaps")
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


def logits(model: Native | Reference, generated: bool = True) -> F32:
    tokens = random_tokens(77)
    wanted = range(len(tokens))
    if isinstance(model, Native):
        return model.run(model.new_cache(), tokens, wanted=wanted, generated=generated)
    return model.run(model.new_cache(), tokens, wanted=wanted)


def far(found: Description, native: Native) -> float:
    """The largest difference from the reference, as a part of the largest logit.

    Of generated rows; those of a prompt are the same, or at a level with tiles not far off.
    """
    assert found.weights is not None
    theirs = logits(Reference(found.graph, found.weights))
    ours, prompt = logits(native), logits(native, generated=False)
    if _native.has_tiles(native.level):
        assert 0 < np.abs(prompt - ours).max() <= 5e-2 * np.abs(theirs).max()
    else:
        np.testing.assert_array_equal(prompt, ours)
    return float(np.abs(ours - theirs).max() / np.abs(theirs).max())


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
def test_a_table_that_other_threads_pack_is_the_one_packed_at_once(kind: str) -> None:
    """In many pieces of about 1 MB: rows of all of them are looked at, and the last."""
    rows, rng = 16 * 1_200 + 5, np.random.default_rng(3)
    few = np.frombuffer(stored(kind, (75, WIDTH), rng), np.uint8).reshape(75, -1)
    table = np.tile(few, (rows // 75 + 1, 1))[:rows].reshape(-1)
    order = rng.permutation(rows)[: rows - 3]
    tables = _native.Tables(2)
    pairs = [
        (
            tables.queue(kind, count, WIDTH, table, given, mapped=False),
            tables.add(kind, count, WIDTH, table, given),
        )
        for count, given in ((rows, None), (len(order), order))
    ]
    while not tables.wait(0.01):
        pass
    assert tables.packed == (rows + len(order)) * few.shape[1]
    looked = [*rng.integers(0, rows - 3, 200), *range(40), *range(rows - 40, rows - 3)]
    for queued, whole in pairs:
        for row in looked:
            found, expected = tables.decode_row(queued, row), tables.decode_row(whole, row)
            np.testing.assert_array_equal(found, expected)
            assert found.any()


def test_what_is_queued_is_checked_and_let_go_when_it_is_packed_or_given_up() -> None:
    tables = _native.Tables(2)
    table = np.ones(64 * 4 * WIDTH, np.uint8)
    with pytest.raises(ValueError, match=r"63 x 256 f32: 65536 bytes are offered, a row has 1024"):
        tables.queue("f32", 63, WIDTH, table, None, mapped=False)
    order = np.array([0, 64])
    with pytest.raises(ValueError, match=r"order\[1\] = 64, but 64 rows are stored"):
        tables.queue("f32", 2, WIDTH, table, order, mapped=False)
    with pytest.raises(ValueError, match="order has 2 numbers, the table 3 rows"):
        tables.queue("f32", 3, WIDTH, table, order, mapped=False)
    assert tables.wait(0)
    for end in (partial(tables.wait, 60), tables.stop):
        held = weakref.ref(table)
        for _ in range(100):
            tables.queue("f32", 64, WIDTH, table, None, mapped=False)
        del table
        assert held() is not None
        end()
        assert held() is None
        table = np.ones(64 * 4 * WIDTH, np.uint8)
    for _ in range(100):
        tables.queue("f32", 64, WIDTH, table, None, mapped=False)
    del tables, end  # in the middle of it


@pytest.mark.skipif(not SMAPS.exists(), reason="no list of what is in memory of each file")
def test_nothing_of_the_file_is_in_memory_when_it_is_packed(tmp_path: Path) -> None:
    found = gguf(tmp_path, "q4_k")
    assert found.file is not None
    for tensor in found.file.tensors.values():
        assert tensor.raw().tobytes()
    assert _resident(tmp_path) > 0
    model = native(found)
    assert _resident(tmp_path) == 0
    assert np.isfinite(logits(model)).all()


def _resident(folder: Path) -> int:
    """KB that are in memory of files in a folder that are mapped."""
    found, counts = 0, False
    for line in SMAPS.read_text("utf-8").splitlines():
        if re.match(r"[0-9a-f]+-[0-9a-f]+ ", line):
            counts = str(folder) in line
        elif counts and line.startswith("Rss:"):
            found += int(line.split()[1])
    return found
