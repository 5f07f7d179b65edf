"""Tables in several tensors: vectors worked out by hand, and what does not fit together."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest

from formats.packers import Grouped, as_awq, as_gptq
from formats.safetensors_writer import TensorData, write_safetensors
from forwardpass.errors import FormatError
from forwardpass.formats import PackedTensor, TensorFile, open_tensors, unpacked
from forwardpass.formats.module_names import ModuleNames
from forwardpass.formats.packed import Scheme
from forwardpass.formats.packings import (
    Awq,
    Gptq,
    InverselyNamedF8,
    Mlx,
    Mxfp4,
    Packing,
    ScaledF8,
)


def words(*numbers: int) -> bytes:
    return struct.pack(f"<{len(numbers)}I", *numbers)


def halves(*numbers: float) -> bytes:
    return struct.pack(f"<{len(numbers)}e", *numbers)


def folder(path: Path, tensors: dict[str, TensorData]) -> TensorFile:
    return open_tensors(write_safetensors(path / "model.safetensors", tensors))


def table(path: Path, packing: Packing, tensors: dict[str, TensorData]) -> PackedTensor:
    """The one table that the parts of `t` make."""
    parts = {f"t{name}": tensor for name, tensor in tensors.items()}
    (only,) = unpacked(folder(path, parts), Scheme(packing)).tensors.values()
    assert isinstance(only, PackedTensor)
    return only


def refused(path: Path, scheme: Scheme | Packing, tensors: dict[str, TensorData]) -> str:
    with pytest.raises(FormatError) as error:
        unpacked(folder(path, tensors), scheme if isinstance(scheme, Scheme) else Scheme(scheme))
    return str(error.value)


# Each word holds the fields 0 to 7 from its lowest bits up.
COUNTING = 0x76543210

MLX_PARTS = {
    ".weight": TensorData("U32", (2, 4), words(*[COUNTING] * 4, *[0xFFFFFFFF] * 4)),
    ".scales": TensorData("F16", (2, 1), halves(0.5, 2)),
    ".biases": TensorData("F16", (2, 1), halves(-1, 3)),
}
AWQ_PARTS = {
    ".qweight": TensorData("I32", (32, 1), words(0x75316420, *[0] * 31)),
    ".qzeros": TensorData("I32", (1, 1), words(0x11111111)),
    ".scales": TensorData("F16", (1, 8), halves(*[0.5] * 7, 4)),
}
GPTQ_PARTS = {
    ".qweight": TensorData("I32", (4, 8), words(*[COUNTING] * 8, *[0] * 24)),
    ".qzeros": TensorData("I32", (1, 1), words(COUNTING)),
    ".scales": TensorData("F16", (1, 8), halves(*[0.5] * 7, 4)),
    ".g_idx": TensorData("I32", (32,), bytes(128)),
}
F8_PARTS = {
    # 1, 448, the smallest above 0, -1.5; 0, -0, 0.5, 2
    ".weight": TensorData("F8_E4M3", (2, 4), bytes.fromhex("387e01bc 00803040")),
    ".weight_scale": TensorData("F32", (2, 1), struct.pack("<2f", 2, -3)),
}
MXFP4_PARTS = {
    "_blocks": TensorData("U8", (1, 1, 16), bytes([0x21, 0xF7]) + bytes(14)),
    "_scales": TensorData("U8", (1, 1), bytes([128])),
}


def test_mlx_words_hold_neighbors_from_the_lowest_bits_up(tmp_path: Path) -> None:
    found = table(tmp_path, Mlx(4, 32), MLX_PARTS)
    assert (found.name, found.shape, found.dtype.name) == ("t.weight", (2, 32), "mlx4_g32")
    assert found.nbytes == 2 * (16 + 4) == found.dtype.nbytes(64)
    assert found.numpy()[0, :8].tolist() == [-1, -0.5, 0, 0.5, 1, 1.5, 2, 2.5]
    assert found.numpy()[1].tolist() == [33] * 32
    assert found.raw().tobytes() == b"".join(part.data or b"" for part in MLX_PARTS.values())


def test_mlx_bytes_are_the_eight_bits_of_neighbors(tmp_path: Path) -> None:
    parts = {**MLX_PARTS, ".weight": TensorData("U32", (2, 8), bytes(range(64)))}
    found = table(tmp_path, Mlx(8, 32), parts)
    assert found.numpy()[0].tolist() == [0.5 * i - 1 for i in range(32)]
    assert found.numpy()[1].tolist() == [2 * i + 3 for i in range(32, 64)]


def test_awq_words_hold_the_even_outputs_before_the_odd_ones(tmp_path: Path) -> None:
    found = table(tmp_path, Awq(32), AWQ_PARTS)
    assert (found.name, found.shape, found.dtype.name) == ("t.weight", (8, 32), "awq4_g32")
    assert found.numpy()[:, 0].tolist() == [-0.5, 0, 0.5, 1, 1.5, 2, 2.5, 24]
    assert found.numpy()[:, 1].tolist() == [-0.5] * 7 + [-4]
    assert found.nbytes == found.dtype.nbytes(256)


def test_gptq_words_hold_inputs_in_order_and_zeros_less_one(tmp_path: Path) -> None:
    found = table(tmp_path, Gptq(32, ordered=False, zero_offset=1), GPTQ_PARTS)
    assert (found.shape, found.dtype.name) == ((8, 32), "gptq4_g32")
    assert found.numpy()[0, :8].tolist() == [-0.5, 0, 0.5, 1, 1.5, 2, 2.5, 3]
    assert found.numpy()[7, :8].tolist() == [-32, -28, -24, -20, -16, -12, -8, -4]
    second = table(tmp_path, Gptq(32, ordered=False, zero_offset=0), GPTQ_PARTS)
    assert second.numpy()[0, :8].tolist() == [0, 0.5, 1, 1.5, 2, 2.5, 3, 3.5]


def test_a_gptq_zero_of_fifteen_less_one_is_zero(tmp_path: Path) -> None:
    parts = {**GPTQ_PARTS, ".qzeros": TensorData("I32", (1, 1), words(0xFFFFFFFF))}
    found = table(tmp_path, Gptq(32, ordered=False, zero_offset=1), parts)
    assert found.numpy()[0, :3].tolist() == [0, 0.5, 1]


def test_a_row_of_f8_is_multiplied_by_its_scale(tmp_path: Path) -> None:
    found = table(tmp_path, ScaledF8((1, 0)), F8_PARTS)
    assert found.numpy().tolist() == [[2, 896, 2**-8, -3], [0, 0, -1.5, -6]]
    assert (found.dtype.name, found.nbytes) == ("f8_e4m3_scaled", 16)


def test_the_tiles_of_f8_may_end_beyond_the_table(tmp_path: Path) -> None:
    scale = TensorData("F32", (1, 2), struct.pack("<2f", 2, 10))
    parts = {".weight": F8_PARTS[".weight"], ".weight_scale_inv": scale}
    found = table(tmp_path, InverselyNamedF8((3, 3)), parts)
    assert found.numpy().tolist() == [[2, 896, 2**-8, -15], [0, 0, 1, 20]]


def test_an_mxfp4_byte_holds_two_neighbors(tmp_path: Path) -> None:
    found = table(tmp_path, Mxfp4(), MXFP4_PARTS)
    assert (found.name, found.shape) == ("t", (1, 32))
    assert found.numpy()[0, :5].tolist() == [1, 2, 12, -12, 0]


def random_grouped(outputs: int, inputs: int, groups: int) -> Grouped:
    rng = np.random.default_rng(7)
    return Grouped(
        q=rng.integers(0, 16, (outputs, inputs)),
        zeros=rng.integers(1, 16, (groups, outputs)),
        scales=rng.uniform(-1, 1, (groups, outputs)).astype(np.float16),
        groups=np.arange(inputs) * groups // inputs,
    )


@pytest.mark.parametrize("method", ["awq", "gptq"])
def test_rows_of_a_packed_table_are_those_rows_of_the_whole(tmp_path: Path, method: str) -> None:
    source = random_grouped(24, 64, 2)
    arrays = as_awq(source) if method == "awq" else as_gptq(source)
    kinds = {"int32": "I32", "float16": "F16"}
    parts = {
        f".{name}": TensorData(kinds[array.dtype.name], array.shape, array.tobytes())
        for name, array in arrays.items()
    }
    found = table(tmp_path, Awq(32) if method == "awq" else Gptq(32, False, 1), parts)
    np.testing.assert_array_equal(found.numpy(), source.values())
    for start, stop in [(0, 24), (3, 4), (7, 9), (23, 24), (5, 5), (8, 16)]:
        np.testing.assert_array_equal(found.rows(start, stop), source.values()[start:stop])
    with pytest.raises(IndexError, match="of 24"):
        found.rows(0, 25)


def named(parts: dict[str, TensorData], stem: str = "m") -> dict[str, TensorData]:
    return {f"{stem}{suffix}": tensor for suffix, tensor in parts.items()}


PLAIN = TensorData("F32", (2, 4), bytes(32))
SCHEMES: dict[str, tuple[Packing, dict[str, TensorData]]] = {
    "mlx": (Mlx(4, 32), MLX_PARTS),
    "awq": (Awq(32), AWQ_PARTS),
    "gptq": (Gptq(32, ordered=True, zero_offset=1), GPTQ_PARTS),
    "f8": (ScaledF8((1, 0)), F8_PARTS),
    "mxfp4": (Mxfp4(), MXFP4_PARTS),
}


@pytest.mark.parametrize("name", SCHEMES)
def test_each_part_that_is_missing_is_named(tmp_path: Path, name: str) -> None:
    packing, parts = SCHEMES[name]
    for suffix in parts:
        if suffix == ".g_idx":
            continue
        rest = {k: v for k, v in named(parts).items() if k != f"m{suffix}"}
        assert f"missing: m{suffix}" in refused(tmp_path, packing, rest)


def test_a_reordered_gptq_table_needs_its_order(tmp_path: Path) -> None:
    rest = {k: v for k, v in named(GPTQ_PARTS).items() if not k.endswith("g_idx")}
    text = refused(tmp_path, Gptq(32, ordered=True, zero_offset=1), rest)
    assert "m: missing: g_idx, without which desc_act has no meaning" in text
    in_order = Gptq(32, ordered=False, zero_offset=1)
    assert unpacked(folder(tmp_path, rest), Scheme(in_order)).tensors["m.weight"].numpy().any()


@pytest.mark.parametrize("name", SCHEMES)
def test_a_part_of_another_shape_or_type_is_named_with_both(tmp_path: Path, name: str) -> None:
    packing, parts = SCHEMES[name]
    suffix = list(parts)[-1] if name != "gptq" else ".scales"
    part = parts[suffix]
    wider = part._replace(shape=(*part.shape[:-1], part.shape[-1] + 1), data=None)
    text = refused(tmp_path, packing, named({**parts, suffix: wider}))
    last = suffix.rpartition(".")[2] if "." in suffix else f"m{suffix}"
    assert f"m: {last} is {' × '.join(map(str, wider.shape))}, wanted " in text
    other = TensorData("I64", part.shape, None)
    assert f"m: {last} is I64, wanted " in refused(
        tmp_path, packing, named({**parts, suffix: other})
    )


def test_a_width_that_is_no_multiple_of_the_group_is_refused(tmp_path: Path) -> None:
    text = refused(tmp_path, Mlx(4, 64), named(MLX_PARTS))
    assert "m: 32 inputs are no multiple of 64" in text
    assert "not what the config calls MLX 4 bits, groups of 64" in text


def test_a_table_of_nothing_is_refused(tmp_path: Path) -> None:
    empty = {
        ".weight": TensorData("U32", (0, 4), b""),
        ".scales": TensorData("F16", (0, 1), b""),
        ".biases": TensorData("F16", (0, 1), b""),
    }
    assert "which is nothing" in refused(tmp_path, Mlx(4, 32), named(empty))


def test_a_file_without_packed_tables_is_not_what_the_config_says(tmp_path: Path) -> None:
    text = refused(tmp_path, Awq(128), {"m.weight": PLAIN})
    assert "no table is packed, the config says AWQ 4 bits, groups of 128" in text


def test_a_table_that_is_there_twice_is_refused(tmp_path: Path) -> None:
    text = refused(tmp_path, Awq(32), {**named(AWQ_PARTS), "m.weight": PLAIN})
    assert "m.weight is there packed and plain" in text


def test_which_modules_are_plain_must_agree_with_the_config(tmp_path: Path) -> None:
    first, second = "model.layers.0.mlp.up_proj", "model.layers.1.mlp.up_proj"
    tensors = {**named(AWQ_PARTS, first), f"{second}.weight": PLAIN, "norm.weight": PLAIN}
    text = refused(tmp_path, Awq(32), tensors)
    assert f"{second} 2 × 4 is not packed, and the config does not list it" in text
    listed = Scheme(Awq(32), plain=ModuleNames((second,)))
    found = unpacked(folder(tmp_path, tensors), listed).tensors
    assert set(found) == {f"{first}.weight", f"{second}.weight", "norm.weight"}
    wrong = Scheme(Awq(32), plain=ModuleNames((second, "layers.0.mlp")))
    assert f"{first} is packed, the config says that it is not" in refused(tmp_path, wrong, tensors)


def test_what_an_mlx_config_says_of_one_module_must_be_so(tmp_path: Path) -> None:
    scheme = Scheme(Mlx(4, 32), {"m": None}, listed=False)
    assert "m is packed, the config says that it is not" in refused(
        tmp_path, scheme, named(MLX_PARTS)
    )
    scheme = Scheme(Mlx(4, 32), {"n": Mlx(8, 64)}, listed=False)
    tensors = {**named(MLX_PARTS), "n.weight": PLAIN}
    assert "n is not packed, the config gives its MLX 8 bits, groups of 64" in refused(
        tmp_path, scheme, tensors
    )


@pytest.mark.parametrize(
    ("index", "fact"),
    [
        ([0] * 31 + [1], "names group 1, there are 1"),
        ([0] * 31 + [-1], "names group -1, there are 1"),
    ],
)
def test_a_group_that_does_not_exist_is_refused_when_it_is_read(
    tmp_path: Path, index: list[int], fact: str
) -> None:
    parts = {**GPTQ_PARTS, ".g_idx": TensorData("I32", (32,), struct.pack("<32i", *index))}
    found = table(tmp_path, Gptq(32, ordered=True, zero_offset=1), parts)
    with pytest.raises(FormatError, match=f"'t.g_idx' {fact}"):
        found.numpy()


def test_an_order_that_the_config_denies_is_refused_when_it_is_read(tmp_path: Path) -> None:
    source = random_grouped(8, 64, 2)
    arrays = as_gptq(source._replace(groups=source.groups[::-1].copy()))
    kinds = {"int32": "I32", "float16": "F16"}
    parts = {
        f".{name}": TensorData(kinds[array.dtype.name], array.shape, array.tobytes())
        for name, array in arrays.items()
    }
    with pytest.raises(FormatError, match="reorders the inputs, and desc_act is false"):
        table(tmp_path, Gptq(32, ordered=False, zero_offset=1), parts).numpy()
    assert table(tmp_path, Gptq(32, ordered=True, zero_offset=1), parts).numpy().any()


def test_a_long_list_of_faults_is_cut(tmp_path: Path) -> None:
    tensors = {f"m{i}.qweight": AWQ_PARTS[".qweight"] for i in range(10)}
    assert refused(tmp_path, Awq(32), tensors).endswith("and 12 more")


@pytest.mark.parametrize(
    ("entry", "surely", "perhaps"),
    [
        ("lm_head", ["lm_head", "model.lm_head", "lm_head.inner"], ["my_lm_head"]),
        ("mlp.gate", ["a.0.mlp.gate", "mlp.gate.x"], ["a.mlp.gate_proj"]),
        ("re:.*lm_head$", ["lm_head", "a.lm_head"], ["a.lm_head_x"]),
        (
            "model.layers.*.self_attn",
            ["model.layers.3.self_attn.q_proj"],
            ["x.model.layers.3.self_attn_y"],
        ),
        (r"re:.*mlp\.(up|down)_proj", [], ["anything", "a.mlp.up_proj"]),
    ],
)
def test_an_entry_names_modules_and_what_is_in_them(
    entry: str, surely: list[str], perhaps: list[str]
) -> None:
    names = ModuleNames((entry,))
    for module in surely:
        assert names.include(module)
        assert names.may_include(module)
    for module in perhaps:
        assert not names.include(module)
        assert names.may_include(module)
    assert not names.include("model.layers.0.mlp.other")
    assert not ModuleNames().may_include("lm_head")
