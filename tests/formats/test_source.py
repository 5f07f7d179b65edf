from __future__ import annotations

import os
import struct
from pathlib import Path

import pytest

from formats.memory_source import MemorySource
from forwardpass.errors import FormatError
from forwardpass.formats.source import HeaderReader, MappedFile, quoted


def test_a_mapped_file_gives_the_bytes_of_a_range_as_a_view_or_a_copy(tmp_path: Path) -> None:
    path = tmp_path / "ten"
    path.write_bytes(bytes(range(10)))
    with MappedFile(path) as file:
        assert (file.size, file.name) == (10, str(path))
        with file.view(2, 3) as view:
            assert view.readonly
            assert view.tobytes() == b"\2\3\4"
        assert file.read(9, 1) == b"\t"
        assert file.read(10, 0) == b""


def test_an_empty_file_can_be_mapped(tmp_path: Path) -> None:
    path = tmp_path / "empty"
    path.touch()
    with MappedFile(path) as file:
        assert file.size == 0
        assert file.read(0, 0) == b""


@pytest.mark.parametrize(("offset", "length"), [(-1, 2), (0, -1), (0, 11), (11, 0), (2**63, 1)])
def test_a_range_outside_the_file_is_refused(tmp_path: Path, offset: int, length: int) -> None:
    path = tmp_path / "ten"
    path.write_bytes(bytes(10))
    with MappedFile(path) as file, pytest.raises(FormatError, match="the file has 10"):
        file.view(offset, length)


def test_a_view_outlives_its_closed_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"content")
    with MappedFile(path) as file:
        view = file.view(0, 7)
    assert bytes(view) == b"content"


def test_a_missing_file_a_folder_and_a_pipe_are_refused(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match=r"absent: cannot be opened: No such file"):
        MappedFile(tmp_path / "absent")
    with pytest.raises(FormatError, match="not a regular file"):
        MappedFile(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(FormatError, match="not a regular file"):
        MappedFile(tmp_path / "pipe")
    with pytest.raises(FormatError, match="cannot be opened"):
        MappedFile("a\0b")


def test_a_header_is_read_in_pieces_that_double_and_no_byte_twice() -> None:
    source = MemorySource(bytes(10_000_000))
    header = HeaderReader(source, limit=10_000_000)
    for end in range(8, 4_000_000, 1000):
        header.need(end, "it")
    assert len(source.reads) <= 7
    ends = [offset + length for offset, length in source.reads]
    assert [offset for offset, _ in source.reads] == [0, *ends[:-1]]


def test_a_header_that_ends_too_early_or_is_too_long_is_refused_naming_the_byte() -> None:
    header = HeaderReader(MemorySource(bytes(10)), limit=8)
    with pytest.raises(FormatError, match="the length reaches to byte 12, the file ends at byte"):
        header.unpack(struct.Struct("<Q"), 4, "the length")
    with pytest.raises(FormatError, match="may take 8 bytes"):
        header.need(9, "the length")


def test_a_source_that_gives_fewer_bytes_than_asked_for_is_refused() -> None:
    class Short(MemorySource):
        def read(self, offset: int, length: int) -> bytes:
            return super().read(offset, length - 1)

    with pytest.raises(FormatError, match="10 bytes wanted at byte 0, 9 came"):
        HeaderReader(Short(bytes(10)), limit=100).need(4, "it")


def test_names_out_of_files_are_shown_short_and_without_control_characters() -> None:
    assert quoted("\x1b[31mred\n") == r"'\x1b[31mred\n'"
    assert len(quoted("x" * 10_000)) <= 80
    assert len(quoted(list(range(10_000)))) <= 80
