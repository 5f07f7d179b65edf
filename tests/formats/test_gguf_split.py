"""GGUF files in parts: read as one from any of them, or refused with what is wrong."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from formats.gguf_writer import TensorData, Typed, write_gguf
from formats.memory_source import MemorySource
from forwardpass.errors import FormatError
from forwardpass.formats import open_tensors, read_gguf
from forwardpass.formats.gguf_split import part_name

WORDS = ["a", "b"]


def tensor(value: float) -> TensorData:
    return TensorData("f32", (4,), np.full(4, value, np.float32).tobytes())


def write_part(
    folder: Path,
    number: int,
    count: int = 3,
    tensors: dict[str, TensorData] | None = None,
    **changes: object,
) -> Path:
    """Part `number` of a model of `count` tensors, one a part; the first has the metadata."""
    metadata: dict[str, object] = {
        "split.no": Typed("uint16", number - 1),
        "split.count": Typed("uint16", count),
        "split.tensors.count": Typed("int32", count),
    }
    if number == 1:
        metadata |= {"general.architecture": "llama", "words": WORDS, "general.alignment": 64}
    metadata |= {key.replace("_", "."): value for key, value in changes.items()}
    path = folder / f"m-{number:05}-of-{count:05}.gguf"
    return write_gguf(path, metadata, tensors or {f"t{number}": tensor(number)})


def write_parts(folder: Path, count: int = 3) -> list[Path]:
    return [write_part(folder, number, count) for number in range(1, count + 1)]


@pytest.mark.parametrize("which", [0, 1, 2])
def test_any_part_leads_to_all(tmp_path: Path, which: int) -> None:
    paths = write_parts(tmp_path)
    with open_tensors(paths[which]) as file:
        assert list(file.tensors) == ["t1", "t2", "t3"]
        for number, found in enumerate(file.tensors.values(), 1):
            assert found.numpy().tolist() == [number] * 4
        assert file.metadata["general.architecture"] == "llama"
        assert list(file.metadata["words"]) == WORDS  # type: ignore[call-overload]
        assert file.file_bytes == sum(path.stat().st_size for path in paths)
        assert file.header_bytes == file.file_bytes - 64 - 2 * 32  # padded to each alignment
        assert len(file.sources) == 3
        assert file.name == str(paths[which])


def test_a_single_part_needs_no_others(tmp_path: Path) -> None:
    write_part(tmp_path, 1, 1)
    assert list(open_tensors(tmp_path / "m-00001-of-00001.gguf").tensors) == ["t1"]


def fault(path: Path) -> str:
    with pytest.raises(FormatError) as error:
        open_tensors(path)
    return str(error.value)


def test_parts_that_are_missing_are_named(tmp_path: Path) -> None:
    first, second, third = write_parts(tmp_path)
    second.unlink()
    for path in (first, third):
        text = fault(path)
        assert f"{path}: 1 of 3 parts missing, 0 too many" in text
        assert "missing: 'm-00002-of-00003.gguf'" in text


def test_a_part_beyond_the_last_is_named_with_its_size(tmp_path: Path) -> None:
    first, *_ = write_parts(tmp_path)
    (tmp_path / "m-00004-of-00003.gguf").write_bytes(b"12345")
    assert "beyond the last: 'm-00004-of-00003.gguf', 5 bytes" in fault(first)
    (tmp_path / "m-00004-of-00003.gguf").rename(tmp_path / "n-00004-of-00003.gguf")
    assert len(open_tensors(first).tensors) == 3


def test_a_part_whose_header_says_otherwise_than_its_name_is_refused(tmp_path: Path) -> None:
    first, second, third = write_parts(tmp_path)
    third.write_bytes(second.read_bytes())
    assert f"{third}: split.no is 1, its name says 2" in fault(first)
    write_part(tmp_path, 3, split_count=Typed("uint16", 4))
    assert f"{third}: split.count is 4, its name says 3" in fault(first)
    write_gguf(third, {"general.architecture": "llama"}, {"t3": tensor(3)})
    assert f"{third}: split.no is None, its name says 2" in fault(first)


def test_a_part_by_another_name_is_refused(tmp_path: Path) -> None:
    first, *_ = write_parts(tmp_path)
    for name in ("model.gguf", "m-00004-of-00003.gguf", "m-00001-of-00002.gguf"):
        (tmp_path / name).write_bytes(first.read_bytes())
        text = fault(tmp_path / name)
        assert "one of 3 parts of a split GGUF, by another name" in text
        (tmp_path / name).unlink()


def test_parts_must_hold_as_many_tensors_as_they_say_and_each_once(tmp_path: Path) -> None:
    first, *_ = write_parts(tmp_path)
    write_part(tmp_path, 3, tensors={"t3": tensor(3), "t4": tensor(4)})
    assert "split.tensors.count is 3, the 3 parts hold 4 tensors" in fault(first)
    write_part(tmp_path, 3, tensors={"t1": tensor(3)})
    assert "tensor 't1' is in an earlier part too" in fault(first)


def test_what_a_later_part_says_of_the_model_the_first_must_say_too(tmp_path: Path) -> None:
    first, _, third = write_parts(tmp_path)
    write_part(tmp_path, 3, words=WORDS, general_architecture="llama")
    assert len(open_tensors(first).tensors) == 3
    write_part(tmp_path, 3, general_architecture="gpt2")
    assert f"{third}: 'general.architecture' is 'gpt2', in the first part 'llama'" in fault(first)
    write_part(tmp_path, 3, words=["a", "c"])
    assert "'words' is <string[2]>, in the first part <string[2]>" in fault(first)
    write_part(tmp_path, 3, general_name="x")
    assert "'general.name' is 'x', in the first part it is absent" in fault(first)


def test_the_fault_of_a_part_is_that_of_its_file(tmp_path: Path) -> None:
    first, second, _ = write_parts(tmp_path)
    second.write_bytes(second.read_bytes()[:-17])
    assert f"{second}: tensor 't2' takes bytes" in fault(first)


def test_a_part_without_a_way_to_the_others_is_refused(tmp_path: Path) -> None:
    first, *_ = write_parts(tmp_path)
    source = MemorySource(first.read_bytes(), "org/m/sub/m-00001-of-00003.gguf")
    with pytest.raises(FormatError, match="one of 3 parts, and no way to the others"):
        read_gguf(source)


def test_parts_are_read_from_any_source_by_their_names(tmp_path: Path) -> None:
    files: dict[str, MemorySource] = {}
    for number in (1, 2):
        name = f"m-{number:05}-of-00002.gguf"
        content = write_part(tmp_path, number, 2).read_bytes()
        files[name] = MemorySource(content, f"org/m/q4/{name}")
    file = read_gguf(
        files["m-00002-of-00002.gguf"],
        files.__getitem__,
        lambda: {name: source.size for name, source in files.items()},
    )
    assert list(file.tensors) == ["t1", "t2"]


@pytest.mark.parametrize(
    "name", ["m.gguf", "m-1-of-3.gguf", "m-00001-of-00003.safetensors", "-00001-of-00003.gguf"]
)
def test_other_names_are_no_parts(name: str) -> None:
    assert part_name(name) is None
    found = part_name("a-b-00002-of-00003.GGUF")
    assert found == ("a-b", 2, 3, ".GGUF")
