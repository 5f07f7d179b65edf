"""`count` of quantized checkpoints: elements of the tables, bytes of the files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cli.counting import TINY, Counting, count_at_hub, leave_alone
from cli.range_hub import range_hub
from formats.safetensors_writer import TensorData, write_safetensors

SIZES: dict[str, object] = {"hidden_size": 64, "intermediate_size": 128, "vocab_size": 32}
AWQ = {"quant_method": "awq", "bits": 4, "group_size": 64, "zero_point": True, "version": "gemm"}
LINEAR = {
    **{f"self_attn.{side}_proj": (64, 64) for side in "qkvo"},
    **{f"mlp.{side}_proj": (128, 64) for side in ("gate", "up")},
    "mlp.down_proj": (64, 128),
}
PACKED_BYTES = sum(
    inputs * outputs // 2 + inputs // 64 * outputs * 2 + inputs // 64 * outputs // 2
    for outputs, inputs in LINEAR.values()
)
PLAIN = {
    "model.layers.0.input_layernorm.weight": (64,),
    "model.layers.0.post_attention_layernorm.weight": (64,),
    "model.norm.weight": (64,),
    "model.embed_tokens.weight": (32, 64),
    "lm_head.weight": (32, 64),
}
UNIQUE = 4 * 64 * 64 + 3 * 128 * 64 + 3 * 64 + 2 * 32 * 64


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    leave_alone(monkeypatch, tmp_path / "home")


@pytest.fixture
def count(capsys: pytest.CaptureFixture[str]) -> Counting:
    return Counting(capsys)


def awq_folder(folder: Path, tensors: bool = True, **changes: object) -> Path:
    folder.mkdir()
    config = {**TINY, **SIZES, "quantization_config": {**AWQ, **changes}}
    (folder / "config.json").write_text(json.dumps(config))
    parts = {name: TensorData("F16", shape, None) for name, shape in PLAIN.items()}
    for name, (outputs, inputs) in LINEAR.items():
        stem = f"model.layers.0.{name}"
        parts[f"{stem}.qweight"] = TensorData("I32", (inputs, outputs // 8), None)
        parts[f"{stem}.qzeros"] = TensorData("I32", (inputs // 64, outputs // 8), None)
        parts[f"{stem}.scales"] = TensorData("F16", (inputs // 64, outputs), None)
    if tensors:
        write_safetensors(folder / "model.safetensors", parts)
    return folder


def test_packed_tables_count_their_elements_and_the_bytes_of_all_their_parts(
    count: Counting, tmp_path: Path
) -> None:
    folder = awq_folder(tmp_path / "awq")
    found = count.json(folder)
    assert found["parameters"]["unique"] == found["parameters"]["stored"] == UNIQUE
    in_bytes = PACKED_BYTES + 2 * (3 * 64 + 2 * 32 * 64)
    assert found["bytes"]["unique"] == found["bytes"]["stored"] == in_bytes
    assert found["bytes"]["dtype"] == "awq4_g64 7, f16 5"
    assert found["bytes"]["file"] == found["bytes"]["header"] + in_bytes
    text = "\n".join(count(folder))
    bits = f"{8 * in_bytes / UNIQUE:.2f} bits a weight"
    assert "stored as" in text
    assert f"awq4_g64 7, f16 5 tensors, {bits}" in text


def test_a_quantized_model_on_the_hub_is_counted_from_its_header(tmp_path: Path) -> None:
    folder = awq_folder(tmp_path / "awq")
    with range_hub("org/awq", folder) as hub:
        done = count_at_hub(hub.url, "org/awq", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["bytes"]["dtype"] == "awq4_g64 7, f16 5"


def test_a_config_alone_says_that_its_files_hold_other_bytes(
    count: Counting, tmp_path: Path
) -> None:
    folder = awq_folder(tmp_path / "awq", tensors=False)
    assert count.json(folder)["parameters"]["unique"] == UNIQUE
    said = "  the checkpoint is AWQ 4 bits, groups of 64; its files say how many bytes"
    assert said in count(folder)
    assert said not in count(folder, "--dtype", "f16")


def test_what_cannot_be_read_is_refused_by_name(count: Counting, tmp_path: Path) -> None:
    status, text = count.refused(awq_folder(tmp_path / "eight", bits=8))
    assert status == 1
    assert "quantization_config.bits = 8  (this version reads 4)" in text
    _, text = count.refused(awq_folder(tmp_path / "bnb", quant_method="bitsandbytes"))
    assert "quant_method 'bitsandbytes' cannot be read" in text


def test_an_accepted_setting_of_the_quantization_is_said(count: Counting, tmp_path: Path) -> None:
    folder = awq_folder(tmp_path / "odd", brand_new=3)
    _, text = count.refused(folder)
    assert "--accept-unknown quantization_config.brand_new" in text
    lines = count(folder, "--accept-unknown", "quantization_config.brand_new")
    said = "not understood, and left out as you asked: quantization_config.brand_new = 3"
    assert any(said in line for line in lines)
