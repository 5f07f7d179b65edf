"""Whole files against the official readers and writers of their formats."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import gguf
import numpy as np
import pytest
import safetensors.torch
import torch
from huggingface_hub import save_torch_state_dict

from formats import gguf_writer, safetensors_writer
from forwardpass.formats import StoredTensor, Tensor, TensorFile, open_tensors

ModelPath = Callable[[str], Path]
ROWS = 4096

MODELS = (
    "smollm2-135m",
    "gemma3-270m",
    pytest.param("qwen2.5-coder-0.5b", marks=pytest.mark.large),
    pytest.param("qwen2.5-coder-1.5b", marks=pytest.mark.large),
)


@pytest.mark.parametrize("alias", MODELS)
def test_a_real_gguf_holds_what_the_official_reader_finds(
    model_path: ModelPath, alias: str
) -> None:
    path = model_path(alias)
    reader = gguf.GGUFReader(path)
    with open_tensors(path) as ours:
        check_metadata(ours, reader)
        assert list(ours.tensors) == [tensor.name for tensor in reader.tensors]
        for tensor, theirs in zip(ours.tensors.values(), reader.tensors, strict=True):
            check_tensor(tensor, theirs)


def check_metadata(ours: TensorFile, reader: gguf.GGUFReader) -> None:
    theirs = {
        key: field.contents() for key, field in reader.fields.items() if not key.startswith("GGUF.")
    }
    found = {
        key: value if isinstance(value, str | int | float) else list(value)  # type: ignore[call-overload]
        for key, value in ours.metadata.items()
    }
    assert found == theirs


def check_tensor(ours: Tensor, theirs: gguf.ReaderTensor) -> None:
    assert isinstance(ours, StoredTensor)
    assert ours.dtype.name.upper() == theirs.tensor_type.name
    assert ours.shape == tuple(map(int, reversed(theirs.shape)))
    assert (ours.offset, ours.nbytes) == (theirs.data_offset, theirs.n_bytes)
    whole = ours.numpy()
    for start in range(0, ours.shape[0], ROWS):
        part = slice(start, min(start + ROWS, ours.shape[0]))
        expected = gguf.quants.dequantize(theirs.data[part], theirs.tensor_type).view(np.uint32)
        np.testing.assert_array_equal(whole[part].view(np.uint32), expected, err_msg=ours.name)
        if len(ours.shape) > 1:
            rows = ours.rows(part.start, part.stop)
            np.testing.assert_array_equal(rows.view(np.uint32), expected, err_msg=ours.name)


@pytest.mark.parametrize("which", [1, 2, 4])
def test_a_model_that_the_official_package_split_is_read_as_one(tmp_path: Path, which: int) -> None:
    rng = np.random.default_rng(8)
    tensors = {f"blk.{i}.w": rng.normal(size=(3, 64)).astype(np.float32) for i in range(7)}
    writer = gguf.GGUFWriter(tmp_path / "m.gguf", "llama", split_max_tensors=2)
    writer.add_block_count(7)
    writer.add_token_list(["a", "b"])
    for name, values in tensors.items():
        writer.add_tensor(name, values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with open_tensors(tmp_path / f"m-0000{which}-of-00004.gguf") as file:
        assert file.metadata["llama.block_count"] == 7
        assert list(file.metadata["tokenizer.ggml.tokens"]) == ["a", "b"]  # type: ignore[call-overload]
        assert list(file.tensors) == list(tensors)
        for name, values in tensors.items():
            np.testing.assert_array_equal(file.tensors[name].numpy(), values)
        assert file.file_bytes == sum(path.stat().st_size for path in tmp_path.iterdir())


def state() -> dict[str, torch.Tensor]:
    """Tensors of types that are decoded, and of the types of buffers."""
    torch.manual_seed(5)
    return {
        "embed.weight": torch.randn(100, 48),
        "layer.weight": torch.randn(64, 48).half(),
        "layer.cube": torch.randn(3, 4, 5).bfloat16(),
        "norm.weight": torch.randn(48).bfloat16(),
        "scale": torch.tensor(1.5),
        "eight.weight": torch.randn(4, 6).to(torch.float8_e4m3fn),
        "wide.weight": torch.randn(4, 6).to(torch.float8_e5m2),
        "double.weight": torch.randn(4, 6).double(),
        "empty": torch.zeros(0, 7),
        "attn.bias": torch.ones(1, 1, 8, 8).tril().bool(),
        "attn.mask": torch.arange(9, dtype=torch.uint8),
        "positions": torch.arange(12).reshape(3, 4),
    }


def check_state(file: TensorFile, expected: dict[str, torch.Tensor]) -> None:
    assert set(file.tensors) == set(expected)
    for name, tensor in file.tensors.items():
        theirs = expected[name]
        assert tensor.shape == tuple(theirs.shape)
        assert tensor.raw() == theirs.contiguous().view(-1).view(torch.uint8).numpy().tobytes()
        if theirs.is_floating_point():
            np.testing.assert_array_equal(tensor.numpy(), theirs.float().numpy())


def test_a_file_of_the_official_safetensors_package_is_read_back(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    safetensors.torch.save_file(state(), path, metadata={"format": "pt"})
    with open_tensors(path) as file:
        check_state(file, state())
        assert file.metadata == {"format": "pt"}
        assert file.file_bytes == file.header_bytes + file.data_bytes


def test_a_model_that_the_hub_library_sharded_is_read_back(tmp_path: Path) -> None:
    save_torch_state_dict(state(), tmp_path, max_shard_size=10_000)
    assert len(list(tmp_path.glob("*.safetensors"))) > 1
    with open_tensors(tmp_path) as file:
        check_state(file, state())


def test_the_official_safetensors_package_reads_what_the_tests_write(tmp_path: Path) -> None:
    data = np.arange(6, dtype=np.float32)
    tensors = {
        "a": safetensors_writer.TensorData("F32", (2, 3), data.tobytes()),
        "hole": safetensors_writer.TensorData("U8", (4,), None),
    }
    path = safetensors_writer.write_safetensors(
        tmp_path / "a.safetensors", tensors, {"format": "pt"}
    )
    loaded = safetensors.torch.load_file(path)
    assert loaded["a"].tolist() == data.reshape(2, 3).tolist()
    assert loaded["hole"].tolist() == [0, 0, 0, 0]


def test_the_official_gguf_reader_reads_what_the_tests_write(tmp_path: Path) -> None:
    data = np.arange(64, dtype=np.float32)
    path = gguf_writer.write_gguf(
        tmp_path / "a.gguf",
        {"general.architecture": "llama", "words": ["a", "é"], "general.alignment": 64},
        {
            "t": gguf_writer.TensorData("f32", (2, 32), data.tobytes()),
            "q": gguf_writer.TensorData("q4_0", (32,), bytes(18)),
        },
    )
    reader = gguf.GGUFReader(path)
    with open_tensors(path) as ours:
        check_metadata(ours, reader)
        for tensor in reader.tensors:
            check_tensor(ours.tensors[tensor.name], tensor)
