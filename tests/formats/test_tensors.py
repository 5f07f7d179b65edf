from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from formats import safetensors_writer
from formats.gguf_writer import TensorData, gguf_bytes, write_gguf
from formats.memory_source import MemorySource
from forwardpass.errors import FormatError
from forwardpass.formats import StoredTensor, open_tensors, read_gguf

RNG = np.random.default_rng(3)


def q8_0(rows: int, width: int) -> TensorData:
    values = np.zeros((rows, width // 32), np.dtype([("d", "<f2"), ("q", "32i1")]))
    values["d"] = RNG.uniform(-1, 1, values.shape)
    values["q"] = RNG.integers(-128, 128, (*values.shape, 32))
    return TensorData("q8_0", (rows, width), values.tobytes())


def test_rows_of_a_tensor_are_those_rows_of_the_whole(tmp_path: Path) -> None:
    with open_tensors(write_gguf(tmp_path / "a.gguf", {}, {"t": q8_0(11, 96)})) as file:
        tensor = file.tensors["t"]
        whole = tensor.numpy()
        assert whole.shape == tensor.shape == (11, 96)
        assert tensor.elements == 1056
        for start, stop in [(0, 11), (3, 4), (10, 11), (0, 0), (11, 11), (2, 9)]:
            np.testing.assert_array_equal(tensor.rows(start, stop), whole[start:stop])


@pytest.mark.parametrize(("start", "stop"), [(-1, 2), (3, 2), (0, 12), (12, 12)])
def test_rows_outside_the_tensor_are_refused(start: int, stop: int) -> None:
    tensor = read_gguf(MemorySource(gguf_bytes({}, {"t": q8_0(11, 32)}))).tensors["t"]
    with pytest.raises(IndexError, match="of 11"):
        tensor.rows(start, stop)


def test_only_the_bytes_of_the_rows_asked_for_are_read() -> None:
    source = MemorySource(gguf_bytes({}, {"t": q8_0(100, 64)}))
    tensor = read_gguf(source).tensors["t"]
    assert isinstance(tensor, StoredTensor)
    source.reads.clear()
    tensor.rows(40, 42)
    assert source.reads == [(tensor.offset + 40 * 68, 2 * 68)]


def test_a_vector_or_a_scalar_has_no_rows() -> None:
    vector = TensorData("f32", (3,), bytes(12))
    tensor = read_gguf(MemorySource(gguf_bytes({}, {"norm": vector}))).tensors["norm"]
    with pytest.raises(IndexError, match="'norm' of shape"):
        tensor.rows(0, 1)


def test_rows_of_three_axes_keep_the_inner_ones(tmp_path: Path) -> None:
    values = np.arange(24, dtype=np.float32).reshape(4, 3, 2)
    data = safetensors_writer.TensorData("F32", values.shape, values.tobytes())
    path = safetensors_writer.write_safetensors(tmp_path / "a.safetensors", {"t": data})
    with open_tensors(path) as file:
        np.testing.assert_array_equal(file.tensors["t"].rows(1, 3), values[1:3])


def test_raw_bytes_of_a_mapped_file_are_a_read_only_view_of_it(tmp_path: Path) -> None:
    data = q8_0(2, 32)
    path = write_gguf(tmp_path / "a.gguf", {}, {"t": data})
    with open_tensors(path) as file, file.tensors["t"].raw() as raw:
        assert raw.readonly
        assert raw.tobytes() == data.data
        assert file.data_bytes == len(data.data)


def test_arrays_outlive_the_file_that_they_came_from(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "a.gguf", {}, {"t": TensorData("f32", (2,), bytes(8))})
    with open_tensors(path) as file:
        values = file.tensors["t"].numpy()
    assert values.tolist() == [0, 0]
    assert not values.flags.writeable


def test_a_type_without_a_decoder_is_counted_and_refused_by_name_when_decoded() -> None:
    source = MemorySource(gguf_bytes({}, {"blk.0.w": TensorData("q4_0_4_4", (2, 32), bytes(36))}))
    tensor = read_gguf(source).tensors["blk.0.w"]
    assert (tensor.elements, tensor.nbytes) == (64, 36)
    for decode in (tensor.numpy, lambda: tensor.rows(0, 1)):
        with pytest.raises(FormatError, match=r"tensor 'blk\.0\.w' is stored as Q4_0_4_4, which"):
            decode()


def test_what_a_path_holds_is_found_by_its_bytes_and_its_name(tmp_path: Path) -> None:
    assert open_tensors(write_gguf(tmp_path / "blob", {}, {})).format == "gguf"
    empty = tmp_path / "empty.gguf"
    empty.touch()
    with pytest.raises(FormatError, match="magic and version reaches to byte 8"):
        open_tensors(empty)
    (tmp_path / "model.bin").write_bytes(b"\x80\x02")
    with pytest.raises(FormatError, match=r"model\.bin: neither a GGUF nor a safetensors file"):
        open_tensors(tmp_path / "model.bin")
    with pytest.raises(FormatError, match=r"holds no weights: neither model\.safetensors nor"):
        open_tensors(tmp_path)
