"""What a config may say about quantization, and what is refused by name."""

from __future__ import annotations

import pytest

from forwardpass.errors import ConfigError
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
from forwardpass.formats.quantization import take_quantization

AWQ: dict[str, object] = {"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True}
GPTQ: dict[str, object] = {"quant_method": "gptq", "bits": 4, "group_size": 128}
FP8: dict[str, object] = {"quant_method": "fp8", "weight_block_size": [128, 128]}
WEIGHTS: dict[str, object] = {"num_bits": 8, "type": "float", "strategy": "channel"}


def compressed(weights: dict[str, object], **group: object) -> dict[str, object]:
    return {
        "quant_method": "compressed-tensors",
        "format": "float-quantized",
        "config_groups": {"group_0": {"weights": weights, "targets": ["Linear"], **group}},
    }


def scheme(values: dict[str, object], key: str = "quantization_config") -> Scheme:
    rest, found, taken = take_quantization({"hidden_size": 8, key: values}, "config.json")
    assert rest == {"hidden_size": 8}
    assert taken == ()
    assert found is not None
    return found


def refusal(values: object, key: str = "quantization_config") -> str:
    with pytest.raises(ConfigError) as error:
        take_quantization({key: values}, "config.json")
    assert error.value.fact.startswith("config.json: ")
    return str(error.value)


@pytest.mark.parametrize(
    ("values", "packing"),
    [
        (AWQ, Awq(128)),
        ({**AWQ, "version": "GEMM", "group_size": 32}, Awq(32)),
        ({"quant_method": "awq", "w_bit": 4, "q_group_size": 64}, Awq(64)),
        (GPTQ, Gptq(128, ordered=False, zero_offset=1)),
        ({**GPTQ, "desc_act": True, "group_size": -1}, Gptq(None, True, 1)),
        ({**GPTQ, "checkpoint_format": "gptq_v2", "sym": False}, Gptq(128, False, 0)),
        (FP8, InverselyNamedF8((128, 128))),
        ({**FP8, "activation_scheme": "dynamic", "fmt": "e4m3"}, InverselyNamedF8((128, 128))),
        ({"quant_method": "fp8"}, InverselyNamedF8((0, 0))),
        ({"quant_method": "fbgemm_fp8", "activation_scale_ub": 1200.0}, ScaledF8((1, 0))),
        (compressed(WEIGHTS), ScaledF8((1, 0))),
        (compressed({**WEIGHTS, "strategy": "tensor"}), ScaledF8((0, 0))),
        ({"quant_method": "mxfp4"}, Mxfp4()),
    ],
)
def test_a_method_is_understood_with_its_settings(
    values: dict[str, object], packing: Packing
) -> None:
    assert scheme(values).packing == packing


@pytest.mark.parametrize("group", [32, 64, 128])
@pytest.mark.parametrize("bits", [4, 8])
def test_mlx_writes_its_settings_under_one_key_or_two(bits: int, group: int) -> None:
    values: dict[str, object] = {"bits": bits, "group_size": group}
    assert scheme(values, "quantization").packing == Mlx(bits, group)
    both = {"quantization": values, "quantization_config": values}
    _, found, _ = take_quantization(both, "c")
    assert found == scheme(values, "quantization")
    with pytest.raises(ConfigError, match="contradict each other"):
        take_quantization({**both, "quantization_config": AWQ}, "c")


def test_mlx_settings_of_single_modules_are_kept() -> None:
    values: dict[str, object] = {
        "bits": 4,
        "group_size": 64,
        "lm_head": {"bits": 8},
        "a.b": False,
        "a.c": True,
    }
    found = scheme(values, "quantization")
    assert found.overrides == {"lm_head": Mlx(8, 64), "a.b": None, "a.c": Mlx(4, 64)}
    wrong = refusal({**values, "lm_head": {"bits": 3, "kind": "x"}}, "quantization")
    assert "quantization.lm_head.bits = 3  (this version reads 4, 8)" in wrong
    assert "quantization.lm_head.kind is not known" in wrong


def test_a_config_without_quantization_has_none() -> None:
    configs: tuple[dict[str, object], ...] = (
        {},
        {"quantization_config": None},
        {"quantization": {}},
    )
    for values in configs:
        assert take_quantization(values, "config.json") == ({}, None, ())


@pytest.mark.parametrize(
    "method",
    ["bitsandbytes", "hqq", "eetq", "gguf", "quanto", "torchao", "aqlm", "exl2", "modelopt", 4],
)
def test_a_method_that_cannot_be_read_is_named_with_those_that_can(method: object) -> None:
    text = refusal({"quant_method": method, "load_in_4bit": True})
    assert f"quantization_config.quant_method {method!r} cannot be read" in text
    assert "this version reads awq (4 bits, gemm), gptq (4 bits), fp8" in text
    assert "quant_method is missing" in refusal({"bits": 4})
    assert "wanted an object" in refusal("awq")


@pytest.mark.parametrize(
    ("values", "fact"),
    [
        ({**AWQ, "bits": 8}, "bits = 8  (this version reads 4)"),
        ({**AWQ, "group_size": 16}, "group_size = 16  (this version reads 32, 64, 128)"),
        ({**AWQ, "version": "gemv"}, "version = 'gemv'  (this version reads gemm)"),
        ({**AWQ, "version": "marlin"}, "version = 'marlin'"),
        ({**AWQ, "zero_point": False}, "zero_point = False  (this version reads True)"),
        ({**AWQ, "bits": True}, "bits = True"),
        ({**AWQ, "w_bit": 8}, "bits and quantization_config.w_bit contradict each other"),
        ({**AWQ, "modules_to_not_convert": "lm_head"}, "wanted a list of at most"),
        ({**AWQ, "modules_to_not_convert": [3]}, "wanted a list of at most"),
        ({**GPTQ, "bits": 2}, "bits = 2  (this version reads 4)"),
        ({**GPTQ, "bits": 3}, "bits = 3"),
        ({**GPTQ, "bits": 8}, "bits = 8"),
        ({**GPTQ, "bits": None}, "bits = None"),
        ({**GPTQ, "group_size": 1024}, "reads 32, 64, 128, -1"),
        ({**GPTQ, "desc_act": "yes"}, "desc_act = 'yes'  (this version reads False, True)"),
        ({**GPTQ, "checkpoint_format": "marlin"}, "reads gptq, gptq_v2"),
        ({**GPTQ, "pack_dtype": "int64"}, "pack_dtype = 'int64'"),
        ({**GPTQ, "is_marlin_format": True}, "is_marlin_format = True"),
        ({**GPTQ, "dynamic": {"-:.*": {}}}, "dynamic = "),
        ({**FP8, "activation_scheme": "static"}, "this version reads dynamic"),
        ({**FP8, "weight_block_size": [128]}, "wanted rows and columns"),
        ({**FP8, "weight_block_size": [0, 128]}, "wanted rows and columns"),
        ({**FP8, "group_sise": 1}, "quantization_config.group_sise = 1"),
        (compressed({**WEIGHTS, "num_bits": 4}), "weights.num_bits = 4  (this version reads 8)"),
        (compressed({**WEIGHTS, "type": "int"}), "weights.type = 'int'"),
        (compressed({**WEIGHTS, "strategy": "group"}), "reads tensor, channel, block"),
        (compressed({**WEIGHTS, "strategy": "block"}), "wanted rows and columns of a block"),
        (compressed({**WEIGHTS, "odd": 1}), "group_0.weights.odd is not known"),
        (compressed(WEIGHTS, input_activations={"dynamic": False}), "dynamic = False"),
        (compressed(WEIGHTS, output_activations={"num_bits": 8}), "output_activations is not"),
        ({**compressed(WEIGHTS), "format": "pack-quantized"}, "reads float-quantized"),
        ({**compressed(WEIGHTS), "kv_cache_scheme": {"num_bits": 8}}, "kv_cache_scheme = "),
        ({**compressed(WEIGHTS), "config_groups": {}}, "this version reads one group"),
        ({**compressed(WEIGHTS), "config_groups": {"a": 1}}, "wanted an object"),
    ],
)
def test_a_setting_that_cannot_be_honored_is_named_with_what_can(
    values: dict[str, object], fact: str
) -> None:
    assert fact in refusal(values)


@pytest.mark.parametrize(
    ("values", "fact"),
    [
        ({"bits": 3, "group_size": 64}, "quantization.bits = 3  (this version reads 4, 8)"),
        ({"bits": 4, "group_size": 16}, "group_size = 16  (this version reads 32, 64, 128)"),
        ({"bits": 4, "group_size": 32, "mode": "mxfp4"}, "mode = 'mxfp4'  (this version reads"),
        ({"group_size": 64}, "bits = None"),
    ],
)
def test_mlx_bits_groups_and_modes_that_cannot_be_read_are_named(
    values: dict[str, object], fact: str
) -> None:
    assert fact in refusal(values, "quantization")


def test_an_unknown_setting_can_be_accepted_by_its_path() -> None:
    values = {"quantization_config": {**AWQ, "new_setting": 3}}
    path = "quantization_config.new_setting"
    assert f"--accept-unknown {path}" in refusal(values["quantization_config"])
    _, found, taken = take_quantization(values, "config.json", [path])
    assert found is not None
    assert taken == ((path, 3),)
