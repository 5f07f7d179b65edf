"""Element and block types: their names, elements a block and bytes a block.

A plain type is a block of one element. The sizes of the GGUF types follow from the layout of
the ggml structs (ggml/src/ggml-common.h of llama.cpp); the tests hold them to an outside table.
Being listed here means that a type can be counted; which types can also be decoded is the
business of `formats/blocks.py`. `PACKED_TYPES` names what quantized safetensors checkpoints store
in several tensors (`formats/packings.py`).
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class DType:
    """`block` elements are stored together in `bytes` bytes."""

    name: str
    block: int
    bytes: int

    def nbytes(self, elements: int) -> int:
        """Bytes of `elements` elements, which must fill whole blocks."""
        if elements % self.block:
            raise ValueError(f"{elements} elements do not fill {self.name} blocks of {self.block}")
        return elements // self.block * self.bytes

    @property
    def bits(self) -> float:
        """Bits an element, scales included."""
        return 8 * self.bytes / self.block


_PLAIN = (
    DType("f64", 1, 8),
    DType("f32", 1, 4),
    DType("f16", 1, 2),
    DType("bf16", 1, 2),
    DType("i64", 1, 8),
    DType("i32", 1, 4),
    DType("i16", 1, 2),
    DType("i8", 1, 1),
    DType("u64", 1, 8),
    DType("u32", 1, 4),
    DType("u16", 1, 2),
    DType("u8", 1, 1),
    DType("bool", 1, 1),
    DType("c64", 1, 8),
    DType("f8_e4m3", 1, 1),
    DType("f8_e5m2", 1, 1),
    DType("f8_e8m0", 1, 1),
    DType("f8_e4m3fnuz", 1, 1),
    DType("f8_e5m2fnuz", 1, 1),
    # Narrower than a byte: the smallest number of elements that fills whole bytes is a block.
    DType("f6_e2m3", 4, 3),
    DType("f6_e3m2", 4, 3),
    DType("f4", 2, 1),
)

_GGML_BLOCKS = (
    DType("q4_0", 32, 18),
    DType("q4_1", 32, 20),
    DType("q5_0", 32, 22),
    DType("q5_1", 32, 24),
    DType("q8_0", 32, 34),
    DType("q8_1", 32, 36),
    DType("q2_k", 256, 84),
    DType("q3_k", 256, 110),
    DType("q4_k", 256, 144),
    DType("q5_k", 256, 176),
    DType("q6_k", 256, 210),
    DType("q8_k", 256, 292),
    DType("iq2_xxs", 256, 66),
    DType("iq2_xs", 256, 74),
    DType("iq3_xxs", 256, 98),
    DType("iq1_s", 256, 50),
    DType("iq4_nl", 32, 18),
    DType("iq3_s", 256, 110),
    DType("iq2_s", 256, 82),
    DType("iq4_xs", 256, 136),
    DType("iq1_m", 256, 56),
    DType("q4_0_4_4", 32, 18),
    DType("q4_0_4_8", 32, 18),
    DType("q4_0_8_8", 32, 18),
    DType("tq1_0", 256, 54),
    DType("tq2_0", 256, 66),
    DType("iq4_nl_4_4", 32, 18),
    DType("iq4_nl_4_8", 32, 18),
    DType("iq4_nl_8_8", 32, 18),
    DType("mxfp4", 32, 17),
    DType("nvfp4", 64, 36),
    DType("q1_0", 128, 18),
)

DTYPES = {dtype.name: dtype for dtype in (*_PLAIN, *_GGML_BLOCKS)}

# The numbers of `enum ggml_type` (ggml/include/ggml.h of llama.cpp). 4 and 5 were removed
# before GGUF existed.
_GGML_NUMBERS = {
    **dict(enumerate(("f32", "f16", "q4_0", "q4_1"))),
    **dict(enumerate(("q5_0", "q5_1", "q8_0", "q8_1", "q2_k", "q3_k", "q4_k", "q5_k"), 6)),
    **dict(enumerate(("q6_k", "q8_k", "iq2_xxs", "iq2_xs", "iq3_xxs", "iq1_s", "iq4_nl"), 14)),
    **dict(enumerate(("iq3_s", "iq2_s", "iq4_xs", "i8", "i16", "i32", "i64", "f64"), 21)),
    **dict(enumerate(("iq1_m", "bf16", "q4_0_4_4", "q4_0_4_8", "q4_0_8_8", "tq1_0"), 29)),
    **dict(enumerate(("tq2_0", "iq4_nl_4_4", "iq4_nl_4_8", "iq4_nl_8_8", "mxfp4"), 35)),
    **dict(enumerate(("nvfp4", "q1_0"), 40)),
}
GGML_TYPES = {number: DTYPES[name] for number, name in _GGML_NUMBERS.items()}


def _grouped(name: str, bits: int, group: int, columns: int, beside: int) -> DType:
    """`columns` columns of `group` elements of `bits` bits, and `beside` bytes that they share."""
    elements = columns * group
    return DType(f"{name}{bits}_g{group}", elements, elements * bits // 8 + beside)


PACKING_GROUPS = (32, 64, 128)
_MLX = (_grouped("mlx", bits, g, 1, 2 * 2) for bits in (4, 8) for g in PACKING_GROUPS)
# Eight columns share a word of zeros.
_COLUMNS = (_grouped(n, 4, g, 8, 8 * 2 + 4) for n in ("awq", "gptq") for g in PACKING_GROUPS)
_SCALED = (DType(f"{name}_scaled", 1, 1) for name in ("f8_e4m3", "f8_e5m2"))

# Elements and bytes are those of a group with scales of 16 bits. What a whole row, column or
# tensor shares (the scales of gptq4 and of scaled F8) is left out.
PACKED_TYPES = {dtype.name: dtype for dtype in (*_MLX, *_COLUMNS, DType("gptq4", 2, 1), *_SCALED)}
