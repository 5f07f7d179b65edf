"""How quantized checkpoints store one table in several tensors: names, shapes, types.

    MLX, affine   X.weight u32, X.scales, X.biases          q·scale + bias, groups along a row
    AWQ, gemm     X.qweight i32, X.qzeros i32, X.scales     (q - zero)·scale, groups along a row
    GPTQ          the same, X.g_idx i32: the group of each input
    F8, scaled    X.weight F8, X.weight_scale[_inv]         w·scale: of a tile, a row, the table
    MXFP4         X_blocks u8, X_scales u8                  2**(scale - 127)·fp4, groups of 32

Sources: MLX `mx.quantize` (documentation of mlx.core); AWQ `WQLinear_GEMM` of AutoAWQ
(awq/modules/linear/gemm.py); GPTQ `QuantLinear` of AutoGPTQ (nn_modules/qlinear); F8
`FineGrainedFP8Config` and `FbgemmFp8Config` of transformers, "float-quantized" of
compressed-tensors; MXFP4 arXiv:2508.10925 and openai/gpt-oss (gpt_oss/torch/weights.py). What the
bits mean is in `unpacking.py`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from forwardpass.dtypes import DTYPES, PACKED_TYPES, DType
from forwardpass.formats.tensors import StoredTensor

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Parts = Mapping[str, StoredTensor]
Shape = tuple[int, ...]

_FLOATS = ("f32", "f16", "bf16")
_WORDS = ("i32", "u32")
_FOUR_BITS_A_WORD = 8


class Misfit(Exception):
    """The parts of a table do not make one; the text says which one is wrong."""


@dataclass(frozen=True)
class Packing(ABC):
    """One way to store a table.

    `suffixes` gives each part's end of name, the main part first; `optional` parts may be absent.
    A table is packed where a part other than a plain `weight` is there, or its main part has one
    of the types `packed`.
    """

    suffixes: ClassVar[Mapping[str, str]]
    optional: ClassVar[frozenset[str]] = frozenset()
    packed: ClassVar[tuple[str, ...]] = ()

    @property
    @abstractmethod
    def label(self) -> str:
        """What a person calls it."""

    @abstractmethod
    def table(self, parts: Parts) -> tuple[DType, Shape]:
        """The type and the shape of the table. Errors: `Misfit`."""

    @abstractmethod
    def rows(self, parts: Parts, shape: Shape, start: int, stop: int) -> NDArray[np.float32]:
        """Rows `start` to `stop` of the table. Errors: `FormatError` for values without meaning."""

    def name(self, stem: str) -> str:
        """The table's name, as an ordinary checkpoint would have it."""
        return f"{stem}.weight"


@dataclass(frozen=True)
class Mlx(Packing):
    """Affine groups of `group` elements along a row, `bits` bits each."""

    bits: int
    group: int
    suffixes: ClassVar[Mapping[str, str]] = {
        "weight": ".weight",
        "scales": ".scales",
        "biases": ".biases",
    }
    packed = ("u32",)

    @property
    def label(self) -> str:
        return f"MLX {self.bits} bits, groups of {self.group}"

    def table(self, parts: Parts) -> tuple[DType, Shape]:
        weight = parts["weight"]
        _check_type(weight, ("u32",))
        _check_axes(weight, 2, 3)
        *outer, words = weight.shape
        width = words * 32 // self.bits
        _check_multiple("inputs", width, self.group)
        for part in ("scales", "biases"):
            _check(parts[part], (*outer, width // self.group), _FLOATS)
        return PACKED_TYPES[f"mlx{self.bits}_g{self.group}"], (*outer, width)

    def rows(self, parts: Parts, shape: Shape, start: int, stop: int) -> NDArray[np.float32]:
        from forwardpass.formats import unpacking

        return unpacking.mlx(parts, self.bits, self.group, start, stop)


@dataclass(frozen=True)
class Awq(Packing):
    """4 bits, inputs × outputs; eight outputs a word, in an order of their own."""

    group: int
    suffixes: ClassVar[Mapping[str, str]] = {
        "qweight": ".qweight",
        "qzeros": ".qzeros",
        "scales": ".scales",
    }

    @property
    def label(self) -> str:
        return f"AWQ 4 bits, groups of {self.group}"

    def table(self, parts: Parts) -> tuple[DType, Shape]:
        qweight = parts["qweight"]
        _check_type(qweight, _WORDS)
        _check_axes(qweight, 2, 2)
        inputs, words = qweight.shape
        outputs = words * _FOUR_BITS_A_WORD
        _check_multiple("inputs", inputs, self.group)
        _check(parts["qzeros"], (inputs // self.group, words), _WORDS)
        _check(parts["scales"], (inputs // self.group, outputs), _FLOATS)
        return PACKED_TYPES[f"awq4_g{self.group}"], (outputs, inputs)

    def rows(self, parts: Parts, shape: Shape, start: int, stop: int) -> NDArray[np.float32]:
        from forwardpass.formats import unpacking

        return unpacking.awq(parts, self.group, start, stop)


@dataclass(frozen=True)
class Gptq(Packing):
    """4 bits, inputs × outputs; eight inputs a word. `group` None: one group for all inputs.

    `zero_offset` is what the first checkpoint format subtracted from zeros; with `ordered` the
    inputs were quantized in another order than they stand in, and g_idx says in which groups.
    """

    group: int | None
    ordered: bool
    zero_offset: int
    suffixes: ClassVar[Mapping[str, str]] = {
        "qweight": ".qweight",
        "qzeros": ".qzeros",
        "scales": ".scales",
        "g_idx": ".g_idx",
    }
    optional = frozenset({"g_idx"})

    @property
    def label(self) -> str:
        groups = f"groups of {self.group}" if self.group else "one group a column"
        return f"GPTQ 4 bits, {groups}"

    def table(self, parts: Parts) -> tuple[DType, Shape]:
        qweight = parts["qweight"]
        _check_type(qweight, _WORDS)
        _check_axes(qweight, 2, 2)
        words, outputs = qweight.shape
        inputs = words * _FOUR_BITS_A_WORD
        _check_multiple("outputs", outputs, _FOUR_BITS_A_WORD)
        groups = -(-inputs // (self.group or inputs))
        _check(parts["qzeros"], (groups, outputs // _FOUR_BITS_A_WORD), _WORDS)
        _check(parts["scales"], (groups, outputs), _FLOATS)
        if "g_idx" in parts:
            _check(parts["g_idx"], (inputs,), _WORDS)
        elif self.ordered:
            raise Misfit("missing: g_idx, without which desc_act has no meaning")
        dtype = PACKED_TYPES[f"gptq4_g{self.group}" if self.group else "gptq4"]
        return dtype, (outputs, inputs)

    def rows(self, parts: Parts, shape: Shape, start: int, stop: int) -> NDArray[np.float32]:
        from forwardpass.formats import unpacking

        group = self.group or shape[1]
        return unpacking.gptq(parts, group, self.ordered, self.zero_offset, start, stop)


@dataclass(frozen=True)
class ScaledF8(Packing):
    """F8 with a factor for each tile of `tile` (rows, columns); 0 stands for all of them."""

    tile: tuple[int, int]
    packed = ("f8_e4m3", "f8_e5m2")
    suffixes: ClassVar[Mapping[str, str]] = {"weight": ".weight", "scale": ".weight_scale"}

    @property
    def label(self) -> str:
        rows, columns = self.tile
        return "F8, a scale a " + (
            f"tile of {rows} × {columns}" if columns else "row" if rows else "table"
        )

    def table(self, parts: Parts) -> tuple[DType, Shape]:
        weight = parts["weight"]
        _check_type(weight, self.packed)
        _check_axes(weight, 2, 2)
        shape = weight.shape
        wanted = tuple(
            -(-size // (tile or size)) for size, tile in zip(shape, self.tile, strict=True)
        )
        scale = parts["scale"]
        _check_type(scale, (*_FLOATS, "f8_e8m0"))
        # A row's or a table's scales may come without the axes that they do not vary along.
        if scale.shape != wanted and not (
            not self.tile[1] and scale.shape in (wanted[:1], () if wanted == (1, 1) else wanted)
        ):
            raise Misfit(_wrong_shape(scale, wanted))
        return PACKED_TYPES[f"{weight.dtype.name}_scaled"], shape

    def rows(self, parts: Parts, shape: Shape, start: int, stop: int) -> NDArray[np.float32]:
        from forwardpass.formats import unpacking

        tile = tuple(tile or size for size, tile in zip(shape, self.tile, strict=True))
        return unpacking.scaled(parts, shape, (tile[0], tile[1]), start, stop)


@dataclass(frozen=True)
class InverselyNamedF8(ScaledF8):
    """The same, its factors called `weight_scale_inv`: what the weights were divided by."""

    suffixes: ClassVar[Mapping[str, str]] = {"weight": ".weight", "scale": ".weight_scale_inv"}


@dataclass(frozen=True)
class Mxfp4(Packing):
    """Groups of 32 elements of FP4 along a row, with a shared exponent."""

    suffixes: ClassVar[Mapping[str, str]] = {"blocks": "_blocks", "scales": "_scales"}

    @property
    def label(self) -> str:
        return "MXFP4"

    def name(self, stem: str) -> str:
        return stem

    def table(self, parts: Parts) -> tuple[DType, Shape]:
        blocks = parts["blocks"]
        _check_type(blocks, ("u8",))
        _check_axes(blocks, 3, 4)
        *outer, groups, width = blocks.shape
        if width != 16:
            raise Misfit(_wrong_shape(blocks, (*outer, groups, 16)))
        _check(parts["scales"], (*outer, groups), ("u8",))
        return DTYPES["mxfp4"], (*outer, 32 * groups)

    def rows(self, parts: Parts, shape: Shape, start: int, stop: int) -> NDArray[np.float32]:
        from forwardpass.formats import unpacking

        return unpacking.mxfp4(parts, shape, start, stop)


def by(shape: Shape) -> str:
    """A shape for people: `4 × 32`."""
    return " × ".join(f"{size:,}" for size in shape) or "a scalar"


def _check(tensor: StoredTensor, shape: Shape, types: tuple[str, ...]) -> None:
    _check_type(tensor, types)
    if tensor.shape != shape:
        raise Misfit(_wrong_shape(tensor, shape))


def _check_type(tensor: StoredTensor, types: tuple[str, ...]) -> None:
    if tensor.dtype.name not in types:
        raise Misfit(
            f"{_last(tensor)} is {tensor.dtype.name.upper()}, wanted {' or '.join(types).upper()}"
        )


def _check_axes(tensor: StoredTensor, least: int, most: int) -> None:
    if not least <= len(tensor.shape) <= most:
        raise Misfit(f"{_last(tensor)} is {by(tensor.shape)}, wanted {least} axes")
    if 0 in tensor.shape:
        raise Misfit(f"{_last(tensor)} is {by(tensor.shape)}, which is nothing")


def _check_multiple(what: str, size: int, group: int) -> None:
    if size % group:
        raise Misfit(f"{size:,} {what} are no multiple of {group}")


def _wrong_shape(tensor: StoredTensor, shape: Shape) -> str:
    return f"{_last(tensor)} is {by(tensor.shape)}, wanted {by(shape)}"


def _last(tensor: StoredTensor) -> str:
    return tensor.name.rpartition(".")[2]
