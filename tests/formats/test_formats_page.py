"""The page of types, held to the types."""

from __future__ import annotations

import re
from pathlib import Path

from forwardpass.dtypes import DTYPES, GGML_TYPES, PACKED_TYPES, DType
from forwardpass.formats.blocks import DECODERS
from forwardpass.formats.quantization import READABLE_METHODS
from forwardpass.formats.safetensors import SAFETENSORS_TYPES

PAGE = Path(__file__).resolve().parents[2] / "docs" / "formats.md"


def rows(heading: str) -> list[list[str]]:
    """The cells of all tables below a heading, without their heads."""
    (section,) = re.findall(
        rf"^## {heading}$(.*?)(?=^## |\Z)", PAGE.read_text("utf-8"), re.M | re.S
    )
    lines = [line for line in section.splitlines() if line.startswith("| `")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def size_of(dtype: DType) -> list[str]:
    bits = f"{dtype.bits:.5f}".rstrip("0").rstrip(".")
    return [f"`{dtype.name}`", f"{dtype.block} in {dtype.bytes}", bits]


def test_the_page_lists_every_type_with_its_size_its_files_and_whether_it_is_read() -> None:
    files = {"GGUF": set(GGML_TYPES.values()), "safetensors": set(SAFETENSORS_TYPES.values())}
    expected = [
        [
            *size_of(dtype),
            ", ".join(name for name, types in files.items() if dtype in types),
            "yes" if dtype.name in DECODERS else "no",
        ]
        for dtype in DTYPES.values()
    ]
    assert rows("Element and block types") == expected


def test_the_page_lists_every_packed_type_and_every_method() -> None:
    listed = [row for row in rows("Quantized checkpoints") if len(row) == 3]
    assert listed == [size_of(dtype) for dtype in PACKED_TYPES.values()]
    methods = [row[0] for row in rows("Quantized checkpoints") if len(row) == 4][1:]
    assert methods == [f"`{name}`" for name in READABLE_METHODS]
