from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from formats.memory_source import MemorySource, refusal
from formats.safetensors_writer import (
    TensorData,
    with_header,
    write_index,
    write_safetensors,
    write_sharded,
)
from forwardpass.errors import FormatError
from forwardpass.formats import StoredTensor, open_tensors, read_safetensors
from forwardpass.formats.blocks import can_decode
from forwardpass.formats.safetensors import SAFETENSORS_TYPES

VALUES = np.array([[1.5, -2.0, 0.25]], np.float32)
F32 = TensorData("F32", VALUES.shape, VALUES.tobytes())
F16 = TensorData("F16", VALUES.shape, VALUES.astype(np.float16).tobytes())
BF16 = TensorData("BF16", VALUES.shape, (VALUES.view(np.uint32) >> 16).astype("<u2").tobytes())
MASK = TensorData("BOOL", (2, 2), bytes([1, 0, 1, 1]))
EMPTY = TensorData("F32", (0, 4), b"")


def entry(dtype: object, shape: object, *offsets: object) -> dict[str, object]:
    return {"dtype": dtype, "shape": shape, "data_offsets": list(offsets)}


def test_tensors_of_all_three_float_types_are_read_back(tmp_path: Path) -> None:
    tensors = {"a": F32, "b": F16, "c": BF16, "empty": EMPTY}
    path = write_safetensors(tmp_path / "a.safetensors", tensors, {"format": "pt"})
    with open_tensors(path) as file:
        assert list(file.tensors) == ["a", "b", "c", "empty"]
        for name in "abc":
            np.testing.assert_array_equal(file.tensors[name].numpy(), VALUES)
        assert file.tensors["empty"].numpy().shape == (0, 4)
        assert file.tensors["empty"].rows(0, 0).shape == (0, 4)
        assert file.metadata == {"format": "pt"}
        assert file.data_bytes == 12 + 6 + 6
        assert file.file_bytes == path.stat().st_size == file.header_bytes + file.data_bytes


@pytest.mark.parametrize("label", SAFETENSORS_TYPES)
def test_a_tensor_of_every_type_is_counted_and_decoded_or_refused_by_name(label: str) -> None:
    nbytes = SAFETENSORS_TYPES[label].nbytes(24)
    content = with_header({"t": entry(label, [2, 12], 0, nbytes)}, bytes(nbytes))
    tensor = read_safetensors(MemorySource(content)).tensors["t"]
    assert (tensor.elements, tensor.nbytes) == (24, nbytes)
    if label == "F8_E8M0":
        assert (tensor.numpy() == 2.0**-127).all()
    elif can_decode(tensor.dtype):
        assert not tensor.numpy().any()
    else:
        with pytest.raises(FormatError, match=f"tensor 't' is stored as {label}, which cannot"):
            tensor.numpy()


def test_a_float32_tensor_behind_an_odd_header_is_aligned(tmp_path: Path) -> None:
    path = tmp_path / "odd.safetensors"
    text = b'{"t":{"dtype":"F32","shape":[3],"data_offsets":[0,12]}}'
    path.write_bytes(with_header(text + b" " * (1 - len(text) % 2), VALUES.tobytes()))
    with open_tensors(path) as file:
        tensor = file.tensors["t"]
        assert isinstance(tensor, StoredTensor)
        assert tensor.offset % 4
        assert file.tensors["t"].numpy().flags.aligned
        assert file.tensors["t"].numpy().tolist() == VALUES[0].tolist()


def test_a_header_is_read_in_two_reads_without_the_data() -> None:
    header = {f"t{i}": entry("F32", [1], 4 * i, 4 * i + 4) for i in range(10_000)}
    source = MemorySource(with_header(header, bytes(40_000)))
    file = read_safetensors(source)
    assert len(source.reads) == 2
    assert file.bytes_read == file.header_bytes


def test_a_scalar_and_a_file_without_tensors_are_allowed() -> None:
    content = with_header({"s": entry("F32", [], 0, 4)}, VALUES.tobytes()[:4])
    assert read_safetensors(MemorySource(content)).tensors["s"].numpy() == 1.5
    assert read_safetensors(MemorySource(with_header({}))).data_bytes == 0


def test_tensors_may_stand_in_another_order_than_the_header_lists_them() -> None:
    header = {"b": entry("U8", [1], 1, 2), "a": entry("U8", [1], 0, 1)}
    file = read_safetensors(MemorySource(with_header(header, b"xy")))
    assert [bytes(tensor.raw()) for tensor in file.tensors.values()] == [b"y", b"x"]


@pytest.mark.parametrize(
    ("content", "fact"),
    [
        (b"", "the length of the header reaches to byte 8, the file ends at byte 0"),
        (b"\x10" + bytes(7), "a header of 16 bytes reaches to byte 24, the file ends at byte 8"),
        (bytes(8), "the header begins with b''"),
        (with_header(b" {}"), "the header begins with b' {}'"),
        (with_header(b"\xef\xbb\xbf{}"), "the header begins with"),
        (with_header(b"{}\0\0"), "the header: not valid JSON"),
        (with_header(b'{"a":1,"a":2}'), "the key 'a' is given twice"),
        (with_header({"__metadata__": {"a": 1}}), "__metadata__ must map strings to strings"),
        (with_header({"__metadata__": []}), "__metadata__ must map strings to strings"),
        (with_header({"t\0": entry("F32", [], 0, 4)}, bytes(4)), "the name holds a NUL"),
        (with_header(b'{"\\ud800":{}}'), "the name is not valid Unicode"),
    ],
)
def test_a_header_that_is_malformed_is_refused(content: bytes, fact: str) -> None:
    assert fact in refusal(read_safetensors, content)


@pytest.mark.parametrize(
    ("found", "fact"),
    [
        ([], "must have exactly dtype, shape, data_offsets"),
        ({"dtype": "F32", "shape": []}, "must have exactly"),
        (entry("F32", [], 0, 4) | {"stride": 1}, "must have exactly"),
        (entry("F33", [], 0, 4), "has the unknown dtype 'F33'"),
        (entry("f32", [], 0, 4), "has the unknown dtype 'f32'"),
        (entry(32, [], 0, 4), "has the unknown dtype 32"),
        (entry("F32", [-1], 0, 4), "shape must be a list of whole numbers"),
        (entry("F32", [1.0], 0, 4), "shape must be a list of whole numbers"),
        (entry("F32", [True], 0, 4), "shape must be a list of whole numbers"),
        (entry("F32", [2**64], 0, 4), "shape must be a list of whole numbers"),
        (entry("F32", 1, 0, 4), "shape must be a list of whole numbers"),
        (entry("F32", [1] * 65, 0, 4), "has 65 axes"),
        (entry("F32", [2**63, 2], 0, 4), "more than 2**56 elements"),
        (entry("F32", [0, 2**63], 0, 0), "more than 2**56 elements"),
        (entry("F32", [], 0), "are no begin and end"),
        (entry("F32", [], 4, 0), "are no begin and end"),
        (entry("F32", [], 0, 4, 4), "are no begin and end"),
        (entry("F32", [], -4, 0), "data_offsets must be a list of whole numbers"),
        (entry("F32", [2], 0, 4), "F32 [2] takes 8 bytes, data_offsets [0, 4] hold 4"),
        (entry("F4", [3], 0, 2), "rows of 3 elements, F4 stores blocks of 2"),
        (entry("U8", [2**40], 0, 2**40), "ends at byte"),
    ],
)
def test_a_tensor_that_is_malformed_is_refused_by_name(found: object, fact: str) -> None:
    text = refusal(read_safetensors, with_header({"blk": found}, bytes(4)))
    assert "tensor 'blk'" in text
    assert fact in text


@pytest.mark.parametrize(
    ("spans", "fact"),
    [
        ([(0, 4), (2, 6)], "tensors 't0' and 't1' overlap"),
        ([(0, 6), (0, 6)], "tensors 't0' and 't1' overlap"),
        ([(0, 6), (2, 4)], "tensors 't0' and 't1' overlap"),
        ([(0, 2), (3, 6)], "before tensor 't1', belong to no tensor"),
        ([(1, 6)], "before tensor 't0', belong to no tensor"),
        ([(0, 5)], "the tensors end at byte"),
        ([], "the tensors end at byte"),
    ],
)
def test_tensors_that_do_not_cover_the_data_exactly_are_refused(
    spans: list[tuple[int, int]], fact: str
) -> None:
    header = {f"t{i}": entry("U8", [e - b], b, e) for i, (b, e) in enumerate(spans)}
    assert fact in refusal(read_safetensors, with_header(header, bytes(6)))


def test_a_sharded_model_is_read_as_one(tmp_path: Path) -> None:
    shards = {
        "model-00001-of-00002.safetensors": {"a": F32, "b": F16},
        "model-00002-of-00002.safetensors": {"c": BF16, "mask": MASK},
    }
    index = write_sharded(tmp_path, shards)
    for path in (index, tmp_path):
        with open_tensors(path) as file:
            assert list(file.tensors) == ["a", "b", "c", "mask"]
            np.testing.assert_array_equal(file.tensors["c"].numpy(), VALUES)
            assert file.data_bytes == 12 + 6 + 6 + 4
            sizes = [(tmp_path / shard).stat().st_size for shard in shards]
            assert file.file_bytes == sum(sizes) == file.header_bytes + file.data_bytes


def test_a_single_file_comes_before_an_index(tmp_path: Path) -> None:
    write_index(tmp_path, {"a": "absent.safetensors"})
    write_safetensors(tmp_path / "model.safetensors", {"whole": F32})
    assert list(open_tensors(tmp_path).tensors) == ["whole"]


def test_shards_and_index_must_name_the_same_tensors(tmp_path: Path) -> None:
    write_safetensors(tmp_path / "x.safetensors", {"a": F32, "extra": F16})
    write_safetensors(tmp_path / "y.safetensors", {"b": F32})
    place = {"a": "x.safetensors", "b": "y.safetensors", "gone": "y.safetensors"}
    with pytest.raises(FormatError) as error:
        open_tensors(write_index(tmp_path, place))
    assert "1 tensors missing from the shards, 1 too many" in error.value.fact
    assert error.value.details == (
        "'gone' is not in 'y.safetensors'",
        "'extra' of 'x.safetensors' is not in the index",
    )
    moved = {"a": "x.safetensors", "extra": "y.safetensors", "b": "y.safetensors"}
    with pytest.raises(FormatError, match="1 tensors missing from the shards, 1 too many"):
        open_tensors(write_index(tmp_path, moved))


def test_a_long_list_of_missing_tensors_is_cut(tmp_path: Path) -> None:
    write_safetensors(tmp_path / "x.safetensors", {})
    with pytest.raises(FormatError, match="40 tensors missing") as error:
        open_tensors(write_index(tmp_path, {f"t{i}": "x.safetensors" for i in range(40)}))
    assert error.value.details[-1] == "and 35 more"


def test_a_missing_shard_is_refused_by_name(tmp_path: Path) -> None:
    write_safetensors(tmp_path / "x.safetensors", {"a": F32})
    place = {"a": "x.safetensors", "b": "gone.safetensors", "c": "gone.safetensors"}
    with pytest.raises(FormatError, match="1 of 2 shards missing, 0 too many") as error:
        open_tensors(write_index(tmp_path, place))
    assert error.value.details == ("missing: 'gone.safetensors' with 2 tensors",)


def test_a_shard_that_the_index_does_not_name_is_refused_with_its_size(tmp_path: Path) -> None:
    shards = [f"model-0000{i}-of-00002.safetensors" for i in (1, 2)]
    index = write_sharded(tmp_path, {shards[0]: {"a": F32}, shards[1]: {"b": F16}})
    stray = write_safetensors(tmp_path / "model-00003-of-00003.safetensors", {"c": F32})
    write_safetensors(tmp_path / "adapter.safetensors", {"d": F32})
    with pytest.raises(FormatError, match="0 of 2 shards missing, 1 too many") as error:
        open_tensors(index)
    size = stray.stat().st_size
    assert error.value.details == (f"not in the index: {stray.name!r}, {size} bytes",)
    stray.unlink()
    assert set(open_tensors(tmp_path).tensors) == {"a", "b"}


@pytest.mark.parametrize(
    "shard",
    [
        *("../x.safetensors", "/etc/x.safetensors", "a/b.safetensors", "a\\b.safetensors"),
        *("c:x.safetensors", "x\0.safetensors", "x\n.safetensors", "\ud800.safetensors"),
        *("..", "", ".safetensors", "x.bin", 3, None, ["x.safetensors"]),
    ],
)
def test_a_shard_outside_the_folder_of_the_index_is_refused(tmp_path: Path, shard: object) -> None:
    (tmp_path / "in").mkdir()
    write_safetensors(tmp_path / "x.safetensors", {"a": F32})
    with pytest.raises(FormatError, match="weight_map places 'a' in"):
        open_tensors(write_index(tmp_path / "in", {"a": shard}))


@pytest.mark.parametrize(
    "content", [b"{}", b'{"weight_map": {}}', b'{"weight_map": []}', b"", b'{"weight_map": 1']
)
def test_an_index_without_a_weight_map_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "model.safetensors.index.json"
    path.write_bytes(content)
    with pytest.raises(FormatError, match=r"weight_map must map|not valid JSON"):
        open_tensors(path)


def test_metadata_of_an_index_that_is_no_object_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors.index.json"
    path.write_text('{"metadata": 3, "weight_map": {"a": "x.safetensors"}}')
    with pytest.raises(FormatError, match="metadata must be an object"):
        open_tensors(path)
