from __future__ import annotations

import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from formats.gguf_writer import (
    KINDS,
    TYPE_NUMBERS,
    TensorData,
    Typed,
    gguf_bytes,
    string,
    write_gguf,
)
from formats.memory_source import MemorySource, refusal
from forwardpass.dtypes import DTYPES
from forwardpass.errors import FormatError
from forwardpass.formats import StoredTensor, TensorFile, open_tensors, read_gguf

F32 = TensorData("f32", (2, 4), np.arange(8, dtype=np.float32).tobytes())


def read(metadata: dict[str, object], tensors: dict[str, TensorData] | None = None) -> TensorFile:
    return read_gguf(MemorySource(gguf_bytes(metadata, tensors or {})))


def plain(value: object) -> object:
    """Arrays as lists, all the way down."""
    return value if isinstance(value, str | int | float) else [plain(item) for item in value]  # type: ignore[attr-defined]


SCALARS = {
    "uint8": 255,
    "int8": -128,
    "uint16": 65535,
    "int16": -32768,
    "uint32": 2**32 - 1,
    "int32": -(2**31),
    "float32": 0.5,
    "bool": True,
    "string": "naïve ☕",
    "uint64": 2**64 - 1,
    "int64": -(2**63),
    "float64": 0.1,
}


@pytest.mark.parametrize("version", [2, 3])
def test_values_of_all_types_and_arrays_of_them_are_read_back(version: int) -> None:
    assert {*SCALARS, "array"} == set(KINDS)
    values: dict[str, object] = {kind: Typed(kind, value) for kind, value in SCALARS.items()}
    values |= {f"{kind}s": Typed(kind, [value, value]) for kind, value in SCALARS.items()}
    values["empty"] = Typed("string", [])
    values["nested"] = [["a", "b"], Typed("uint8", [1, 2, 3]), [], [[True]]]
    file = read_gguf(MemorySource(gguf_bytes(values, {}, version)))
    expected = SCALARS | {f"{kind}s": [value, value] for kind, value in SCALARS.items()}
    expected |= {"empty": [], "nested": [["a", "b"], [1, 2, 3], [], [[True]]]}
    assert {key: plain(value) for key, value in file.metadata.items()} == expected
    assert type(file.metadata["bool"]) is bool
    assert repr(file.metadata["strings"]) == "<string[2]>"


def test_an_array_is_a_sequence() -> None:
    array = read({"a": [5, 6, 7]}).metadata["a"]
    assert len(array) == 3  # type: ignore[arg-type]
    assert (array[1], array[-1], array[:2]) == (6, 7, [5, 6])  # type: ignore[index]
    assert 7 in array  # type: ignore[operator]


def test_a_vocabulary_is_decoded_only_when_one_of_its_strings_is_asked_for() -> None:
    file = read({"tokenizer.ggml.tokens": Typed("string", ["ok", b"\xff"])})
    tokens = file.metadata["tokenizer.ggml.tokens"]
    with pytest.raises(FormatError, match=r"the value of 'tokenizer\.ggml\.tokens'\[1\] is not"):
        list(tokens)  # type: ignore[call-overload]


def test_tensors_are_found_with_their_shape_type_and_place(tmp_path: Path) -> None:
    half = TensorData("f16", (3,), np.array([1, 2, 3], np.float16).tobytes())
    tensors = {"token_embd.weight": F32, "output_norm.weight": half}
    metadata = {"general.architecture": "llama", "general.alignment": 64}
    with open_tensors(write_gguf(tmp_path / "a.gguf", metadata, tensors)) as file:
        table, norm = file.tensors.values()
        assert (table.name, table.dtype.name, table.shape) == ("token_embd.weight", "f32", (2, 4))
        np.testing.assert_array_equal(table.numpy(), np.arange(8).reshape(2, 4))
        np.testing.assert_array_equal(norm.numpy(), [1, 2, 3])
        assert isinstance(table, StoredTensor)
        assert isinstance(norm, StoredTensor)
        assert table.offset == file.header_bytes == 256
        assert norm.offset == table.offset + 64
        assert file.data_bytes == 32 + 6
        assert file.file_bytes == (tmp_path / "a.gguf").stat().st_size == 256 + 64 + 64


def test_a_scalar_tensor_has_one_element() -> None:
    file = read({}, {"s": TensorData("f32", (), struct.pack("<f", 2.5))})
    assert file.tensors["s"].numpy().shape == ()
    assert file.tensors["s"].numpy() == 2.5


def test_a_header_is_read_from_any_source_in_few_reads_without_the_data() -> None:
    words = [f"token {i}" for i in range(100_000)]
    data = TensorData("f32", (1 << 20,), bytes(4 << 20))
    source = MemorySource(gguf_bytes({"tokens": words}, {"t": data}))
    file = read_gguf(source)
    assert file.header_bytes > 1_500_000
    assert file.bytes_read == sum(length for _, length in source.reads) < 2 * file.header_bytes
    assert len(source.reads) <= 7
    assert list(file.metadata["tokens"]) == words  # type: ignore[call-overload]


def test_reading_a_header_does_not_import_numpy(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "a.gguf", {"a": ["b"]}, {"t": F32})
    code = (
        "import sys; from pathlib import Path; from forwardpass.formats import open_tensors\n"
        f"assert open_tensors(Path({str(path)!r})).tensors['t'].elements == 8\n"
        "assert 'numpy' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    ("start", "fact"),
    [
        (b"GGML\3\0\0\0", "begins with b'GGML', a GGUF with b'GGUF'"),
        (b"GGUF\1\0\0\0", "GGUF version 1; versions 2 and 3 can be read"),
        (b"GGUF\4\0\0\0", "GGUF version 4; versions 2 and 3 can be read"),
        (b"GGUF\0\0\0\3", "a big-endian GGUF"),
        (b"GGUF\0\0\0\1", "a big-endian GGUF"),
        (b"GGUF", "the magic and version reaches to byte 8, the file ends at byte 4"),
    ],
)
def test_what_is_no_gguf_that_can_be_read_is_refused_by_name(start: bytes, fact: str) -> None:
    assert fact in refusal(read_gguf, start + bytes(16) if len(start) == 8 else start)


def test_a_part_that_is_not_called_like_one_is_refused() -> None:
    assert read({"split.count": Typed("uint16", 1)}).format == "gguf"
    assert "one of 3 parts of a split GGUF, by another name" in refusal(
        read_gguf, gguf_bytes({"split.count": Typed("uint16", 3)}, {})
    )


def test_a_key_or_a_tensor_given_twice_is_refused() -> None:
    once = gguf_bytes({"a": 1}, {})[24:41]
    twice = b"GGUF" + struct.pack("<IQQ", 3, 0, 2) + once + once
    assert "metadata key 1 is a duplicate: 'a'" in refusal(read_gguf, twice)
    content = gguf_bytes({}, {"t.a": F32, "t.b": F32}).replace(b"t.b", b"t.a")
    assert "the name of tensor 1 is a duplicate: 't.a'" in refusal(read_gguf, content)


@pytest.mark.parametrize("name", ["a\0b", "\0"])
def test_a_name_with_a_nul_is_refused(name: str) -> None:
    assert "metadata key 0 holds a NUL" in refusal(read_gguf, gguf_bytes({name: 1}, {}))
    assert "the name of tensor 0 holds a NUL" in refusal(read_gguf, gguf_bytes({}, {name: F32}))


def test_a_name_or_a_string_that_is_not_utf8_is_refused() -> None:
    content = gguf_bytes({"key": "value"}, {"name": F32})
    assert "metadata key 0 is not UTF-8" in refusal(read_gguf, content.replace(b"key", b"k\xffy"))
    assert "the value of 'key' is not UTF-8" in refusal(
        read_gguf, content.replace(b"value", b"val\xc3e")
    )
    assert "the name of tensor 0 is not UTF-8" in refusal(
        read_gguf, content.replace(b"name", b"\xed\xa0\x80e")
    )


def test_a_bool_other_than_0_and_1_and_an_unknown_value_type_are_refused() -> None:
    entry = string("k") + struct.pack("<I", 7)
    start = b"GGUF" + struct.pack("<IQQ", 3, 0, 1)
    assert "the value of 'k' is a bool other" in refusal(read_gguf, start + entry + b"\2")
    assert "unknown value type 13" in refusal(
        read_gguf, start + string("k") + struct.pack("<I", 13) + b"\0" * 9
    )
    bools = struct.pack("<IIQ", 9, 7, 3) + b"\0\2\1"
    assert "the value of 'k' is a bool other" in refusal(read_gguf, start + string("k") + bools)


def test_arrays_nest_up_to_four_deep() -> None:
    value: object = [1]
    for _ in range(3):
        value = [value]
    assert plain(read({"deep": value}).metadata["deep"]) == [[[[1]]]]
    assert "nests arrays deeper than 4" in refusal(read_gguf, gguf_bytes({"deep": [value]}, {}))
    many = struct.pack("<I", 9) + struct.pack("<IQ", 9, 1) * 100_000
    content = b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + string("deep") + many
    assert "nests arrays deeper than 4" in refusal(read_gguf, content)


@pytest.mark.parametrize("value", [0, 4, 24, 33, 1 << 21, -32, 32.0, True, "32", [32]])
def test_an_alignment_that_is_no_power_of_two_from_8_on_is_refused(value: object) -> None:
    content = gguf_bytes({"general.alignmenT": value}, {}).replace(b"alignmenT", b"alignment")
    assert "general.alignment is" in refusal(read_gguf, content)


def test_tensors_that_overlap_are_refused() -> None:
    tensors = {"a": TensorData("f32", (16,), bytes(64)), "b": F32._replace(offset=32)}
    assert "tensors 'a' and 'b' overlap" in refusal(read_gguf, gguf_bytes({}, tensors))
    same = {"a": F32, "b": F32._replace(offset=0)}
    assert "tensors 'a' and 'b' overlap" in refusal(read_gguf, gguf_bytes({}, same))


def test_a_tensor_that_is_misaligned_or_beyond_the_file_is_refused() -> None:
    assert "tensor 't' has offset 16, no multiple of 32" in refusal(
        read_gguf, gguf_bytes({}, {"t": F32._replace(offset=16)})
    )
    for offset in (32, 2**63, 2**64 - 32):
        assert "tensor 't' takes bytes" in refusal(
            read_gguf, gguf_bytes({}, {"t": F32._replace(offset=offset)})
        )


def test_a_shape_that_cannot_be_is_refused() -> None:
    def shaped(kind: str | int, *shape: int) -> str:
        return refusal(read_gguf, gguf_bytes({}, {"t": TensorData(kind, shape, bytes(32))}))

    assert "tensor 't' has 5 axes, at most 4" in shaped("f32", 1, 1, 1, 1, 1)
    assert "tensor 't' has an axis of size 0: (4, 0)" in shaped("f32", 4, 0)
    assert "more than 2**56 elements" in shaped("f32", 2**32, 2**32)
    assert "more than 2**56 elements" in shaped("f32", 2**64 - 1)
    assert "rows of 16 elements, Q4_0 stores blocks of 32" in shaped("q4_0", 2, 16)
    assert "rows of 128 elements, Q4_K stores blocks of 256" in shaped("q4_k", 2, 128)
    assert "rows of 1 elements, Q8_0" in shaped("q8_0")
    for number in (4, 5, 42, 2**32 - 1):
        assert f"unknown type {number}" in shaped(number, 1)


@pytest.mark.parametrize("name", TYPE_NUMBERS)
def test_a_tensor_of_every_known_type_is_counted(name: str) -> None:
    data = TensorData(name, (2, 768), bytes(DTYPES[name].nbytes(1536)))
    tensor = read({}, {"t": data}).tensors["t"]
    assert (tensor.dtype, tensor.elements, tensor.nbytes) == (DTYPES[name], 1536, len(data.data))


def test_counts_that_the_file_cannot_hold_are_refused_before_anything_is_read() -> None:
    for counts in [(2**63, 0), (0, 2**63), (3, 0), (0, 5)]:
        content = b"GGUF" + struct.pack("<IQQ", 3, *counts) + bytes(40)
        assert "the file has 64" in refusal(read_gguf, content)
