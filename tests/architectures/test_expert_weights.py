"""Experts' tables: rows under names of their own, and several tables in one tensor."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from architectures.test_weights import checkpoint, described, refusal
from backends.tiny import CONFIGS
from formats.safetensors_writer import TensorData, write_safetensors
from forwardpass.backends.reference import Reference
from forwardpass.describe import describe_file
from forwardpass.formats import open_tensors
from forwardpass.graph.references import F32

ROUTED = "model.layers.1.block_sparse_moe.experts"
IN_ONE = "model.layers.1.mlp.experts"
_FP4 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)


def test_an_expert_that_is_missing_or_misshapen_is_named(tmp_path: Path) -> None:
    arrays = checkpoint("mixtral")
    without = {key: array for key, array in arrays.items() if key != f"{ROUTED}.2.w3.weight"}
    error = refusal(tmp_path, "mixtral", without)
    assert f"missing: {ROUTED}.w3.weight 5 × 40 × 24" in error.details
    assert f"left over: {ROUTED}.0.w3.weight 40 × 24" in error.details
    turned = arrays[f"{ROUTED}.2.w3.weight"].T.copy()
    error = refusal(tmp_path, "mixtral", {**arrays, f"{ROUTED}.2.w3.weight": turned})
    assert f"left over: {ROUTED}.2.w3.weight 24 × 40" in error.details
    more = {
        **arrays,
        **{f"{ROUTED}.5.w{i}.weight": arrays[f"{ROUTED}.0.w{i}.weight"] for i in (1, 2, 3)},
    }
    error = refusal(tmp_path, "mixtral", more)
    assert f"{ROUTED}.w1.weight is 6 × 40 × 24, the config asks for 5 × 40 × 24" in error.details


@pytest.mark.parametrize("kind", ["gate_up_proj", "down_proj", "gate_up_proj_bias"])
def test_a_tensor_of_several_tables_that_does_not_fit_is_named(tmp_path: Path, kind: str) -> None:
    arrays, name = checkpoint("gpt_oss"), f"{IN_ONE}.{kind}"
    narrower = np.ascontiguousarray(arrays[name][..., 2:])
    part = kind.replace("gate_up", "gate").replace("_bias", ".bias")
    part += "" if part.endswith("bias") else ".weight"
    error = refusal(tmp_path, "gpt_oss", {**arrays, name: narrower})
    assert any(
        "the config asks for" in line and f"{IN_ONE}.{part} is" in line for line in error.details
    )
    odd = np.ascontiguousarray(arrays[name][..., 1:])
    error = refusal(tmp_path, "gpt_oss", {**arrays, name: odd})
    assert any(name in line or part in line for line in error.details)
    without = {key: array for key, array in arrays.items() if key != name}
    error = refusal(tmp_path, "gpt_oss", without)
    assert any(line.startswith(f"missing: {IN_ONE}.{part}") for line in error.details)


def test_a_part_has_its_share_of_the_bytes_and_reads_experts_one_by_one(tmp_path: Path) -> None:
    arrays = checkpoint("gpt_oss")
    weights = described(tmp_path, "gpt_oss", arrays).weights
    assert weights is not None
    stored = weights.placed[f"{IN_ONE}.up_proj.weight"].stored
    whole = arrays[f"{IN_ONE}.gate_up_proj"]
    assert stored.shape == (6, 40, 24)
    assert stored.nbytes == whole.nbytes // 2
    np.testing.assert_array_equal(stored.rows(2, 4), whole[2:4, :, 1::2].swapaxes(1, 2))
    assert stored.rows(3, 3).shape == (0, 40, 24)
    assert bytes(stored.raw()) == whole.tobytes()


def packed(tables: F32, random: np.random.Generator) -> tuple[F32, TensorData, TensorData]:
    """Random MXFP4 of the tables' shape (x o i): what they mean, blocks and scales."""
    x, o, i = tables.shape
    fields = random.integers(0, 16, (x, o, i // 32, 32))
    scales = random.integers(122, 128, (x, o, i // 32))
    values = np.array([*_FP4, *(-value for value in _FP4)], np.float32)[fields]
    values = values * np.exp2(scales - 127.0)[..., None].astype(np.float32)
    blocks = (fields[..., 0::2] | fields[..., 1::2] << 4).astype(np.uint8)
    return (
        values.reshape(x, o, i).astype(np.float32),
        TensorData("U8", blocks.shape, blocks.tobytes()),
        TensorData("U8", scales.shape, scales.astype(np.uint8).tobytes()),
    )


@pytest.mark.parametrize("width", [32, 64])
def test_mxfp4_tables_are_stored_the_other_way_round(tmp_path: Path, width: int) -> None:
    """Also where inputs and outputs are as many, so that no shape says which way."""
    config = {**CONFIGS["gpt_oss"], "hidden_size": 32, "intermediate_size": width}
    plain = checkpoint("gpt_oss", hidden_size=32, intermediate_size=width)
    random = np.random.default_rng(4)
    tensors: dict[str, TensorData] = {}
    meant: dict[str, F32] = {}
    for name, array in plain.items():
        if array.ndim == 3:
            values, blocks, scales = packed(array.swapaxes(1, 2), random)
            tensors |= {f"{name}_blocks": blocks, f"{name}_scales": scales}
            meant[name] = values
        else:
            tensors[name] = TensorData("F32", array.shape, array.tobytes())
    file = open_tensors(write_safetensors(tmp_path / "model.safetensors", tensors))
    raw = {**config, "quantization_config": {"quant_method": "mxfp4"}}
    found = describe_file("gpt_oss", file, raw)
    assert found.weights is not None
    both = meant[f"{IN_ONE}.gate_up_proj"]
    for part, expected in {
        "gate_proj": both[:, ::2],
        "up_proj": both[:, 1::2],
        "down_proj": meant[f"{IN_ONE}.down_proj"],
    }.items():
        name = f"{IN_ONE}.{part}.weight"
        np.testing.assert_array_equal(found.weights.numpy(name), expected)
        stored = found.weights.placed[name].stored
        assert (stored.dtype.name, stored.nbytes) == ("mxfp4", expected.size * 17 // 32)
    model = Reference(found.graph, found.weights)
    assert np.isfinite(model.run(model.new_cache(), [1, 2, 3])).all()
