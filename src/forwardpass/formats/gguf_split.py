"""GGUF files split in parts, as one.

The parts lie beside each other and are called `NAME-00001-of-00003.gguf` and so on. Each is a GGUF
file with `split.no` (from 0), `split.count` and `split.tensors.count` (tensors of all parts); the
first one has the model's metadata. Any part leads to all.

Source: tools/gguf-split/gguf-split.cpp and `llama_split_prefix` of llama.cpp.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from forwardpass.errors import FormatError
from forwardpass.formats.gguf import read_gguf_part
from forwardpass.formats.source import ByteSource, quoted
from forwardpass.formats.tensors import Tensor, TensorFile

_PART = re.compile(r"(?P<stem>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})(?P<suffix>\.gguf)", re.I)
_MOST_SHOWN = 5


class PartName(NamedTuple):
    """What a part's file name says: number `number`, from 1, of `parts` of `stem`."""

    stem: str
    number: int
    parts: int
    suffix: str

    def of(self, number: int) -> str:
        """The name of another part."""
        return f"{self.stem}-{number:05}-of-{self.parts:05}{self.suffix}"

    @property
    def all(self) -> list[str]:
        """The names of all parts, in order."""
        return [self.of(number) for number in range(1, self.parts + 1)]


def part_name(name: str) -> PartName | None:
    """What a file's name, without folders, says about parts; None where it names none."""
    found = _PART.fullmatch(name)
    if found is None:
        return None
    return PartName(found["stem"], int(found["number"]), int(found["count"]), found["suffix"])


def read_gguf(
    source: ByteSource,
    open_part: Callable[[str], ByteSource] | None = None,
    beside: Callable[[], Mapping[str, int]] = dict,
) -> TensorFile:
    """The metadata and tensors of a GGUF file, of all its parts where it is one of several.

    `open_part` turns the file name of another part, without folders, into its bytes; `beside` lists
    the files beside the source, with their sizes. Sizes and bytes read are summed over the parts.

    Errors: `FormatError` for anything that the format does not allow, and for parts that are
    missing, too many, or do not belong together.
    """
    given = read_gguf_part(source)
    if given.metadata.get("split.count") in (None, 0, 1):
        return given
    try:
        return _joined(given, open_part, beside)
    except BaseException:
        given.close()
        raise


def _joined(
    given: TensorFile,
    open_part: Callable[[str], ByteSource] | None,
    beside: Callable[[], Mapping[str, int]],
) -> TensorFile:
    count = given.metadata["split.count"]
    name = part_name(re.split(r"[/\\]", given.name)[-1])
    if name is None or name.parts != count or not 1 <= name.number <= name.parts:
        raise FormatError(
            f"{given.name}: one of {quoted(count)} parts of a split GGUF, by another name",
            "the others are found by names such as model-00001-of-00003.gguf",
        )
    if open_part is None:
        raise FormatError(f"{given.name}: one of {name.parts} parts, and no way to the others")
    _check_beside(given.name, name, beside())
    parts: list[TensorFile] = []
    try:
        for number, other in enumerate(name.all, 1):
            part = given if number == name.number else read_gguf_part(open_part(other))
            parts.append(part)
            _check_part(part, number, name.parts)
        return _merged(given.name, parts)
    except BaseException:
        for part in parts:
            part.close()
        raise


def _check_beside(file: str, name: PartName, beside: Mapping[str, int]) -> None:
    missing = [f"missing: {quoted(part)}" for part in name.all if part not in beside]
    stray = [
        f"beyond the last: {quoted(other)}, {size:,} bytes"
        for other, size in sorted(beside.items())
        if (found := part_name(other)) is not None
        and (found.stem, found.parts) == (name.stem, name.parts)
        and not 1 <= found.number <= name.parts
    ]
    if missing or stray:
        raise FormatError(
            f"{file}: {len(missing)} of {name.parts} parts missing, {len(stray)} too many",
            *(missing + stray)[:_MOST_SHOWN],
        )


def _check_part(part: TensorFile, number: int, count: int) -> None:
    for key, wanted in (("split.no", number - 1), ("split.count", count)):
        found = part.metadata.get(key)
        if type(found) is not int or found != wanted:
            raise FormatError(
                f"{part.name}: {key} is {quoted(found)}, its name says {wanted}",
                "the file was renamed, or belongs to another model",
            )


def _merged(file: str, parts: Sequence[TensorFile]) -> TensorFile:
    first = parts[0]
    tensors: dict[str, Tensor] = {}
    for part in parts:
        _check_metadata(first, part)
        for name, tensor in part.tensors.items():
            if name in tensors:
                raise FormatError(f"{part.name}: tensor {quoted(name)} is in an earlier part too")
            tensors[name] = tensor
    stated = first.metadata.get("split.tensors.count")
    if stated is not None and stated != len(tensors):
        raise FormatError(
            f"{file}: split.tensors.count is {quoted(stated)}, "
            f"the {len(parts)} parts hold {len(tensors)} tensors"
        )
    return TensorFile(
        format="gguf",
        name=file,
        metadata=first.metadata,
        tensors=tensors,
        header_bytes=sum(part.header_bytes for part in parts),
        file_bytes=sum(part.file_bytes for part in parts),
        bytes_read=sum(part.bytes_read for part in parts),
        sources=tuple(source for part in parts for source in part.sources),
    )


def _check_metadata(first: TensorFile, part: TensorFile) -> None:
    """What a later part says about the model, the first must say too."""
    for key, value in part.metadata.items():
        if key in ("split.no", "general.alignment"):
            continue
        known = first.metadata.get(key)
        if key not in first.metadata or _plain(known) != _plain(value):
            raise FormatError(
                f"{part.name}: {quoted(key)} is {quoted(value)}, in the first part "
                f"{quoted(known) if key in first.metadata else 'it is absent'}"
            )


def _plain(value: object) -> object:
    return value if isinstance(value, str | int | float) else [_plain(v) for v in value]  # type: ignore[attr-defined]
