"""The types that weights are counted in, and the bytes of each weight in them.

In block types only tables are blocks: vectors, taps of convolutions and constants of recurrences
stay float32, as in GGUF files.
"""

from __future__ import annotations

from forwardpass.dtypes import DTYPES, DType
from forwardpass.errors import ConfigError, RequestError
from forwardpass.graph.graph import Graph, Weight
from forwardpass.work.count import WeightBytes

_CONFIG_TYPES = {
    "bfloat16": "bf16",
    "float16": "f16",
    "half": "f16",
    "float32": "f32",
    "float": "f32",
    "float64": "f64",
    "float8_e4m3fn": "f8_e4m3",
    "float8_e5m2": "f8_e5m2",
}
_NO_WEIGHTS = {"bool", "c64", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64"}
WEIGHT_TYPES = tuple(name for name in DTYPES if name not in _NO_WEIGHTS)
_SMALLEST_QUANTISED_BLOCK = 32


def is_blocks(dtype: DType) -> bool:
    """Whether it is a quantised type, which only tables are stored in."""
    return dtype.block >= _SMALLEST_QUANTISED_BLOCK


def bytes_by_weight(graph: Graph, dtype: DType) -> WeightBytes:
    """Bytes of each weight in `dtype`.

    Errors of the function: RequestError for a table whose rows do not fill the blocks.
    """
    tables = graph.tables

    def found(weight: Weight) -> int:
        kept = DTYPES["f32"] if is_blocks(dtype) and weight.name not in tables else dtype
        if weight.name in tables and weight.shape[-1] % kept.block:
            raise RequestError(
                f"{dtype.name} stores blocks of {kept.block} elements, "
                f"and the rows of {weight.name} have {weight.shape[-1]:,}"
            )
        return bytes_of(weight, kept)

    return found


def bytes_of(weight: Weight, dtype: DType) -> int:
    """Bytes of a weight in one type; types narrower than a byte may end a vector inside one."""
    return -(-weight.elements // dtype.block) * dtype.bytes


def bytes_in(graph: Graph, dtype: DType) -> int:
    """Bytes of all parameters in `dtype`. Errors: as `bytes_by_weight`."""
    return sum(map(bytes_by_weight(graph, dtype), graph.parameters))


def type_of_config(name: str, where: str) -> str:
    """The type that a config's `dtype` names. Errors: ConfigError for one that is not known."""
    known = _CONFIG_TYPES.get(name)
    if known is None:
        raise ConfigError(
            f"{where}: dtype {name!r:.40} is no type of weights that this version knows",
            advice="--dtype bf16 counts in bf16 all the same",
        )
    return known
