"""Quantized checkpoints against the packers that wrote them: logits of the dequantized twin.

MLX files are packed by MLX itself, on the CPU; F8 by torch; AWQ and GPTQ by the packers of the
tests, whose vectors `tests/formats/test_packed.py` works out by hand.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
import safetensors.torch
import torch
from transformers import PreTrainedModel

from formats.packers import as_awq, as_gptq, grouped
from forwardpass.dtypes import DTYPES
from forwardpass.errors import WeightsError
from forwardpass.formats import PackedTensor, TensorFile, blocks, open_tensors
from forwardpass.work.summary import count_model
from oracles.families import Case, random_model
from oracles.loading import described
from oracles.packed_models import SIZES, Packed, State, check_logits, is_linear, of, write


@pytest.fixture(scope="module", autouse=True)
def on_the_cpu() -> None:
    mx.set_default_device(mx.cpu)


@pytest.fixture
def model() -> PreTrainedModel:
    return random_model(Case("packed", "llama", SIZES))


# ----------------------------------------------------------------------------- MLX


def mlx_packer(bits: int, group: int, dtype: mx.Dtype) -> Callable[[str, torch.Tensor], Any]:
    def pack(name: str, tensor: torch.Tensor) -> Packed | None:
        if tensor.dim() < 2:
            return None
        parts = mx.quantize(mx.array(tensor.numpy()).astype(dtype), group_size=group, bits=bits)
        weight, scales, biases = parts
        exact = {"scales": scales.astype(mx.float32), "biases": biases.astype(mx.float32)}
        table = mx.dequantize(weight, **exact, group_size=group, bits=bits)  # type: ignore[arg-type,unused-ignore]
        stem = name.removesuffix(".weight")
        kinds = {mx.float32: torch.float32, mx.float16: torch.float16, mx.bfloat16: torch.bfloat16}
        stored: State = {f"{stem}.weight": torch.from_numpy(np.array(weight))}
        for part, values in exact.items():
            stored[f"{stem}.{part}"] = torch.from_numpy(np.array(values)).to(kinds[dtype])
        return stored, {name: torch.from_numpy(np.array(table))}

    return pack


@pytest.mark.parametrize("dtype", [mx.float32, mx.float16, mx.bfloat16], ids=str)
@pytest.mark.parametrize("group", [32, 64, 128])
@pytest.mark.parametrize("bits", [4, 8])
def test_a_model_that_mlx_packed_gives_the_logits_of_what_mlx_unpacks(
    model: PreTrainedModel, tmp_path: Path, bits: int, group: int, dtype: mx.Dtype
) -> None:
    quantization = {"group_size": group, "bits": bits, "mode": "affine"}
    both = {"quantization": quantization, "quantization_config": quantization}
    write(tmp_path, model, mlx_packer(bits, group, dtype), both)
    check_logits(tmp_path, model)


def test_a_file_that_mlx_wrote_is_read_back_row_by_row(tmp_path: Path) -> None:
    values = np.random.default_rng(5).normal(size=(11, 256)).astype(np.float32)
    weight, scales, biases = mx.quantize(mx.array(values), group_size=64, bits=4)
    parts = {"t.weight": weight, "t.scales": scales, "t.biases": biases}
    mx.save_safetensors(str(tmp_path / "model.safetensors"), parts, {"format": "mlx"})
    theirs = np.array(mx.dequantize(weight, scales, biases, group_size=64, bits=4))
    table = tables(tmp_path, {"quantization": {"group_size": 64, "bits": 4}})["t.weight"]
    np.testing.assert_allclose(table.numpy(), theirs, rtol=1e-6, atol=1e-7)
    for start, stop in ((0, 11), (3, 4), (10, 11), (5, 5)):
        np.testing.assert_array_equal(table.rows(start, stop), table.numpy()[start:stop])
    assert table.nbytes == sum(part.nbytes for part in parts.values())


def test_modules_of_an_mlx_file_have_the_bits_that_the_config_gives_them(
    model: PreTrainedModel, tmp_path: Path
) -> None:
    four, eight = (mlx_packer(bits, 64, mx.float16) for bits in (4, 8))

    def pack(name: str, tensor: torch.Tensor) -> Packed | None:
        if "layers.1.mlp" in name:
            return None
        packed: Packed | None = (eight if "lm_head" in name else four)(name, tensor)
        return packed

    overrides = {
        "lm_head": {"group_size": 64, "bits": 8},
        **{f"model.layers.1.mlp.{side}_proj": False for side in ("gate", "up", "down")},
    }
    write(tmp_path, model, pack, {"quantization": {"group_size": 64, "bits": 4, **overrides}})
    check_logits(tmp_path, model)
    assert count_model(described(tmp_path)).bytes.dtype == "f32 8, mlx4_g64 12, mlx8_g64 1"


# --------------------------------------------------------------------------- AWQ, GPTQ


@pytest.mark.parametrize("group", [32, 64, 128])
def test_an_awq_model_gives_the_logits_of_its_dequantized_twin(
    model: PreTrainedModel, tmp_path: Path, group: int
) -> None:
    def pack(name: str, tensor: torch.Tensor) -> Packed | None:
        if not is_linear(name):
            return None
        table = grouped(tensor.numpy(), np.arange(tensor.shape[1]) // group)
        twin = torch.from_numpy(table.values())
        return of(as_awq(table), name.removesuffix(".weight")), {name: twin}

    config = {"quant_method": "awq", "bits": 4, "group_size": group, "zero_point": True}
    extra = {"version": "gemm", "modules_to_not_convert": ["lm_head"], "backend": "autoawq"}
    write(tmp_path, model, pack, {"quantization_config": {**config, **extra}})
    check_logits(tmp_path, model)


@pytest.mark.parametrize("version", ["gptq", "gptq_v2"])
@pytest.mark.parametrize("ordered", [False, True], ids=["in order", "desc_act"])
@pytest.mark.parametrize("group", [32, 64, 128, -1])
def test_a_gptq_model_gives_the_logits_of_its_dequantized_twin(
    model: PreTrainedModel, tmp_path: Path, group: int, ordered: bool, version: str
) -> None:
    rng = np.random.default_rng(9)

    def pack(name: str, tensor: torch.Tensor) -> Packed | None:
        if not is_linear(name):
            return None
        inputs = tensor.shape[1]
        groups = np.arange(inputs) // (inputs if group == -1 else group)
        table = grouped(tensor.numpy(), rng.permutation(groups) if ordered else groups)
        stored = of(as_gptq(table, 1 if version == "gptq" else 0), name.removesuffix(".weight"))
        return stored, {name: torch.from_numpy(table.values())}

    config = {"quant_method": "gptq", "bits": 4, "group_size": group, "desc_act": ordered}
    extra = {"checkpoint_format": version, "sym": False, "damp_percent": 0.1, "lm_head": False}
    write(tmp_path, model, pack, {"quantization_config": {**config, **extra}})
    check_logits(tmp_path, model)


@pytest.mark.parametrize("value", [0.0, 0.5])
def test_a_bias_that_gptq_writers_add_to_every_table_is_one_of_zeros_or_refused(
    model: PreTrainedModel, tmp_path: Path, value: float
) -> None:
    def pack(name: str, tensor: torch.Tensor) -> Packed | None:
        if not is_linear(name):
            return None
        table = grouped(tensor.numpy(), np.arange(tensor.shape[1]) // 128)
        stem = name.removesuffix(".weight")
        bias = {f"{stem}.bias": torch.full((len(tensor),), value)}
        return {**of(as_gptq(table), stem), **bias}, {name: torch.from_numpy(table.values())}

    config = {"quant_method": "gptq", "bits": 4, "group_size": 128, "desc_act": False}
    write(tmp_path, model, pack, {"quantization_config": config})
    if value:
        with pytest.raises(WeightsError, match="14 tensors are not what") as error:
            described(tmp_path)
        assert "left over: model.layers.0.mlp.down_proj.bias 128" in error.value.details
    else:
        check_logits(tmp_path, model)
        assert len((described(tmp_path).weights or pytest.fail("none")).buffers) == 14


# --------------------------------------------------------------------------------- F8


def f8_packer(
    part: str, tile: tuple[int, int], dtype: torch.dtype = torch.float32, flat: bool = False
) -> Callable[[str, torch.Tensor], Packed | None]:
    """Tiles of (rows, columns), 0 for all; scales that round nothing but the numbers of 8 bits."""

    def pack(name: str, tensor: torch.Tensor) -> Packed | None:
        if not is_linear(name):
            return None
        rows, columns = (tile[axis] or tensor.shape[axis] for axis in (0, 1))
        shape = [-(-tensor.shape[0] // rows), -(-tensor.shape[1] // columns)]
        scale = torch.zeros(shape, dtype=dtype)
        eight = torch.zeros_like(tensor).to(torch.float8_e4m3fn)
        twin = torch.zeros_like(tensor)
        for i in range(shape[0]):
            for j in range(shape[1]):
                here = (slice(i * rows, (i + 1) * rows), slice(j * columns, (j + 1) * columns))
                scale[i, j] = tensor[here].abs().max() / 448
                factor = scale[i, j].float()
                inside = (tensor[here] / factor).clamp(-448, 448).to(torch.float8_e4m3fn)
                eight[here] = inside
                twin[here] = inside.float() * factor
        stem = name.removesuffix(".weight")
        stored = scale.reshape(()) if flat and not tile[0] else scale
        return {name: eight, f"{stem}.{part}": stored}, {name: twin}

    return pack


def compressed(strategy: str, **weights: object) -> dict[str, object]:
    group = {
        "weights": {
            "num_bits": 8,
            "type": "float",
            "strategy": strategy,
            "symmetric": True,
            "dynamic": False,
            "group_size": None,
            "observer": "minmax",
            **weights,
        },
        "input_activations": {"num_bits": 8, "type": "float", "dynamic": True},
        "output_activations": None,
        "targets": ["Linear"],
    }
    return {
        "quant_method": "compressed-tensors",
        "format": "float-quantized",
        "config_groups": {"group_0": group},
        "ignore": ["lm_head", "re:.*embed.*"],
        "kv_cache_scheme": None,
        "quantization_status": "compressed",
    }


BLOCKS: dict[str, object] = {
    "quant_method": "fp8",
    "activation_scheme": "dynamic",
    "weight_block_size": [128, 128],
}
F8: dict[str, tuple[dict[str, object], Callable[[str, torch.Tensor], Packed | None]]] = {
    "fp8": ({**BLOCKS, "fmt": "e4m3"}, f8_packer("weight_scale_inv", (128, 128))),
    "fp8 bf16": (BLOCKS, f8_packer("weight_scale_inv", (128, 128), torch.bfloat16)),
    "fp8 table": (
        {"quant_method": "fp8", "weight_block_size": None},
        f8_packer("weight_scale_inv", (0, 0), flat=True),
    ),
    "fbgemm": (
        {"quant_method": "fbgemm_fp8", "modules_to_not_convert": ["lm_head"]},
        f8_packer("weight_scale", (1, 0)),
    ),
    "channel": (compressed("channel"), f8_packer("weight_scale", (1, 0), torch.bfloat16)),
    "tensor": (compressed("tensor"), f8_packer("weight_scale", (0, 0))),
    "block": (
        compressed("block", block_structure=[128, 128]),
        f8_packer("weight_scale", (128, 128)),
    ),
}


@pytest.mark.parametrize("name", F8)
def test_an_f8_model_with_scales_gives_the_logits_of_its_dequantized_twin(
    tmp_path: Path, name: str
) -> None:
    # 192 is one tile and a half.
    model = random_model(Case("f8", "llama", {**SIZES, "intermediate_size": 192}))
    config, pack = F8[name]
    write(tmp_path, model, pack, {"quantization_config": config})
    check_logits(tmp_path, model)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("f8_e4m3", torch.float8_e4m3fn),
        ("f8_e5m2", torch.float8_e5m2),
        ("f8_e8m0", torch.float8_e8m0fnu),
    ],
)
def test_every_f8_number_is_what_torch_says(name: str, kind: torch.dtype) -> None:
    every = torch.arange(256, dtype=torch.uint8)
    theirs = every.view(kind).float().numpy()
    ours = blocks.decode(DTYPES[name], every.numpy().tobytes())
    np.testing.assert_array_equal(ours, theirs)
    signs = np.signbit(ours[~np.isnan(ours)]), np.signbit(theirs[~np.isnan(theirs)])
    np.testing.assert_array_equal(*signs)


# ------------------------------------------------------------------------------- MXFP4


def test_mxfp4_tables_are_what_transformers_makes_of_them(tmp_path: Path) -> None:
    from transformers.integrations.mxfp4 import convert_moe_packed_tensors

    rng = np.random.default_rng(6)
    packed = torch.from_numpy(rng.integers(0, 256, (2, 6, 4, 16), dtype=np.uint8))
    scales = torch.from_numpy(rng.integers(100, 140, (2, 6, 4), dtype=np.uint8))
    parts = {"e.up_proj_blocks": packed, "e.up_proj_scales": scales}
    safetensors.torch.save_file(parts, tmp_path / "model.safetensors")
    table = tables(tmp_path, {"quantization_config": {"quant_method": "mxfp4"}})["e.up_proj"]
    theirs = convert_moe_packed_tensors(packed, scales, dtype=torch.float32)
    assert table.shape == (2, 6, 128)
    np.testing.assert_array_equal(table.numpy(), theirs.transpose(1, 2).numpy())


# ------------------------------------------------------------------------------ counts


def tables(folder: Path, config: dict[str, object]) -> dict[str, PackedTensor]:
    from forwardpass.formats.packed import unpacked
    from forwardpass.formats.quantization import take_quantization

    _, scheme, _ = take_quantization(config, "config.json")
    file: TensorFile = unpacked(open_tensors(folder), scheme)
    return {name: t for name, t in file.tensors.items() if isinstance(t, PackedTensor)}


def test_a_quantized_folder_is_counted_in_elements_of_tables_and_in_bytes_of_the_file(
    model: PreTrainedModel, tmp_path: Path
) -> None:
    unique = sum(p.numel() for p in model.parameters())
    config = {"quantization": {"group_size": 64, "bits": 4}}
    write(tmp_path, model, mlx_packer(4, 64, mx.float16), config)
    count = count_model(described(tmp_path))
    data = safetensors.torch.load_file(tmp_path / "model.safetensors").values()
    assert count.parameters.unique == count.parameters.stored == unique
    in_bytes = sum(tensor.nbytes for tensor in data)
    assert count.bytes.unique == count.bytes.stored == in_bytes
    assert count.bytes.dtype == "mlx4_g64 16, f32 5"
    assert count.bytes.file == (tmp_path / "model.safetensors").stat().st_size
