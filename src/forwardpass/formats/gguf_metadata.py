"""The metadata of a GGUF file: 13 value types, arrays of them, arrays of arrays.

Every value is walked and bounds-checked when the header is read. Scalars are decoded at once;
the elements of an array (a vocabulary has some 150,000 strings) only when one is asked for.

Source: docs/gguf.md of ggml, "File Structure".
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import overload

from forwardpass.errors import FormatError
from forwardpass.formats.source import HeaderReader

_BOOL, _STRING, _ARRAY = 7, 8, 9
_SCALARS = {
    kind: struct.Struct(f"<{code}")
    for kind, code in zip((0, 1, 2, 3, 4, 5, 6, _BOOL, 10, 11, 12), "BbHhIifBQqd", strict=True)
}
_NUMBER_NAMES = ("uint8", "int8", "uint16", "int16", "uint32", "int32", "float32")
_TYPE_NAMES = (*_NUMBER_NAMES, "bool", "string", "array", "uint64", "int64", "float64")
_LENGTH = struct.Struct("<Q")
_ARRAY_HEAD = struct.Struct("<IQ")
_MAX_STRING = 1 << 25
_MAX_DEPTH = 4


class MetadataArray(Sequence[object]):
    """An array's elements, kept from the first time that one is asked for by its number.

    Who goes through them has them decoded on the way, and nothing is kept. `ends`: of strings, the
    position behind each.

    Errors: `FormatError` for a string that is not UTF-8, when it is decoded.
    """

    def __init__(
        self,
        header: HeaderReader,
        element: int,
        count: int,
        position: int,
        where: str,
        ends: Sequence[int],
    ) -> None:
        self.element_type = _TYPE_NAMES[element]
        self._header = header
        self._element = element
        self._count = count
        self._position = position
        self._where = where
        self._ends = ends

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> object: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[object]: ...

    def __getitem__(self, index: int | slice) -> object:
        return self._values[index]

    def __repr__(self) -> str:
        return f"<{self.element_type}[{self._count}]>"

    def __iter__(self) -> Iterator[object]:
        return self._decoded() if self._element == _STRING else iter(self._values)

    @cached_property
    def _values(self) -> list[object]:
        if self._element == _STRING:
            return list(self._decoded())
        if self._element == _ARRAY:
            return self._arrays()
        scalar = _SCALARS[self._element]
        data = self._header.bytes(self._position, self._position + self._count * scalar.size)
        numbers = struct.unpack(f"<{self._count}{scalar.format[1:]}", data)
        return [bool(n) for n in numbers] if self._element == _BOOL else list(numbers)

    def _decoded(self) -> Iterator[str]:
        begin = self._position
        data = self._header.bytes(begin, self._ends[-1] if self._ends else begin)
        start = 8
        for end in self._ends:
            end -= begin
            try:
                yield data[start:end].decode()
            except UnicodeDecodeError as error:
                index = self._ends.index(begin + end)
                where = f"{self._where}[{index}]"
                raise _not_utf8(self._header, begin + start, where) from error
            start = end + 8

    def _arrays(self) -> list[object]:
        values: list[object] = []
        position = self._position
        for index in range(self._count):
            value, position = _array_at(self._header, position, f"{self._where}[{index}]")
            values.append(value)
        return values


def read_value(header: HeaderReader, kind: int, position: int, where: str) -> tuple[object, int]:
    """The value of type `kind` at `position`, and the position after it.

    Errors: `FormatError` for an unknown type, a value that reaches past the end, a string that
    is too long or not UTF-8, a bool other than 0 and 1, arrays nested too deep.
    """
    if kind == _STRING:
        return read_string(header, position, _MAX_STRING, where)
    if kind == _ARRAY:
        return _array_at(header, position, where)
    end = _end_of_elements(header, kind, 1, position, where, 0, _nothing())
    (number,) = header.unpack(_SCALARS[kind], position, where)
    return bool(number) if kind == _BOOL else number, end


def read_string(header: HeaderReader, position: int, limit: int, where: str) -> tuple[str, int]:
    """The string of at most `limit` bytes at `position`, and the position after it."""
    end = _end_of_string(header, position, limit, where)
    start = position + _LENGTH.size
    try:
        return header.data[start:end].decode(), end
    except UnicodeDecodeError as error:
        raise _not_utf8(header, start, where) from error


def _not_utf8(header: HeaderReader, start: int, where: str) -> FormatError:
    return FormatError(f"{header.source.name}: {where} is not UTF-8 (string at byte {start})")


def _array_at(header: HeaderReader, position: int, where: str) -> tuple[MetadataArray, int]:
    element, count = header.unpack(_ARRAY_HEAD, position, where)
    start = position + _ARRAY_HEAD.size
    ends = _nothing()
    end = _end_of_elements(header, element, count, start, where, 1, ends)
    return MetadataArray(header, element, count, start, where, ends), end


def _nothing() -> array[int]:
    return array("I")  # positions, of which the limit of a header is far below 2^32


def _end_of_elements(
    header: HeaderReader,
    kind: int,
    count: int,
    position: int,
    where: str,
    depth: int,
    ends: array[int],
) -> int:
    """The position behind the elements; where these are strings, `ends` gets that of each."""
    if kind in _SCALARS:
        end = position + count * _SCALARS[kind].size
        header.need(end, where)
        if kind == _BOOL and header.data[position:end].strip(b"\0\1"):
            raise FormatError(f"{header.source.name}: {where} is a bool other than 0 and 1")
        return end
    if kind not in (_STRING, _ARRAY):
        raise FormatError(f"{header.source.name}: {where} has the unknown value type {kind}")
    smallest = _LENGTH.size if kind == _STRING else _ARRAY_HEAD.size
    if position + count * smallest > header.source.size:
        raise FormatError(
            f"{header.source.name}: {where} has {count} elements at byte {position}, "
            f"the file ends at byte {header.source.size}"
        )
    if kind == _STRING:
        return _end_of_strings(header, count, position, where, ends)
    if depth == _MAX_DEPTH:
        raise FormatError(
            f"{header.source.name}: {where} nests arrays deeper than {depth} at byte {position}"
        )
    for _ in range(count):
        element, inner = header.unpack(_ARRAY_HEAD, position, where)
        start = position + _ARRAY_HEAD.size
        position = _end_of_elements(header, element, inner, start, where, depth + 1, _nothing())
    return position


def _end_of_strings(
    header: HeaderReader, count: int, position: int, where: str, ends: array[int]
) -> int:
    # One long vocabulary is most of a header: here calls are spared, not checks.
    data, unpack = header.data, _LENGTH.unpack_from
    have = len(data)
    for _ in range(count):
        start = position + 8
        if start > have:
            header.need(start, where)
            have = len(data)
        (length,) = unpack(data, position)
        position = start + length
        if position > have or length > _MAX_STRING:
            _end_of_string(header, start - 8, _MAX_STRING, where)
            have = len(data)
        ends.append(position)
    return position


def _end_of_string(header: HeaderReader, position: int, limit: int, where: str) -> int:
    (length,) = header.unpack(_LENGTH, position, where)
    end = position + _LENGTH.size + length
    if end > header.source.size:
        header.need(end, where)
    if length > limit:
        raise FormatError(
            f"{header.source.name}: {where} is a string of {length} bytes, "
            f"at most {limit} are allowed"
        )
    header.need(end, where)
    return int(end)
