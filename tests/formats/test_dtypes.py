from __future__ import annotations

from pathlib import Path

import pytest

from forwardpass.dtypes import DTYPES, GGML_TYPES
from forwardpass.formats import blocks

# type, elements a block, bytes a block: what the fields of the structs add up to
FIELDS = """\
Q4_0 32 2+16
Q4_1 32 2+2+16
Q5_0 32 2+4+16
Q8_0 32 2+32
Q4_K 256 2+2+12+128
Q5_K 256 2+2+12+32+128
Q6_K 256 128+64+16+2"""


def block_sizes(cases: Path | None) -> dict[str, tuple[int, int]]:
    """Block sizes from outside, or of the types that can be decoded where there is no outside."""
    if cases:
        lines = (cases / "ggml_types.tsv").read_text().splitlines()[1:]
        rows = [line.split("\t")[:3] for line in lines]
    else:
        rows = [line.split() for line in FIELDS.splitlines()]
    return {name: (int(n), sum(map(int, size.split("+")))) for name, n, size in rows}


def test_every_ggml_type_has_the_block_size_that_others_found(cases: Path | None) -> None:
    ours = {dtype.name.upper(): (dtype.block, dtype.bytes) for dtype in GGML_TYPES.values()}
    assert len(ours) == len(GGML_TYPES)
    found = block_sizes(cases)
    assert {name: ours.get(name) for name in found} == found


def test_the_numbers_of_the_ggml_types_leave_out_only_the_removed_ones() -> None:
    assert set(range(42)) - set(GGML_TYPES) == {4, 5}


def test_the_layout_of_every_decoder_has_the_size_of_its_type() -> None:
    for name, (layout, _) in blocks.DECODERS.items():
        assert layout.itemsize == DTYPES[name].bytes


def test_bytes_are_counted_in_whole_blocks() -> None:
    assert DTYPES["q4_k"].nbytes(512) == 288
    assert DTYPES["q6_k"].bits == 6.5625
    with pytest.raises(ValueError, match="do not fill"):
        DTYPES["q4_k"].nbytes(511)
