"""How many bytes a model's tables take in a type, or in one of llama.cpp's mixes of types.

A single type is exact: every table in it, vectors in float32 where it stores blocks, as `count`
counts. A mix gives some tables more bits, by rules that depend on what the table does and on its
layer. They follow llama.cpp's `src/llama-quant.cpp` (function `llama_tensor_get_type`) for models
without rules of their own; a publisher may choose otherwise, so such bytes are estimates.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from forwardpass.describe import Description
from forwardpass.dtypes import DTYPES
from forwardpass.errors import RequestError, did_you_mean
from forwardpass.graph.graph import Graph, Node, Role, Weight
from forwardpass.work.count import WeightBytes
from forwardpass.work.parameters import label
from forwardpass.work.weight_types import WEIGHT_TYPES, bytes_by_weight, bytes_of

_SEVENTY_B_LAYERS = 80
_AS_GGUF = {"q3_k": "q4_0", "q4_k": "q5_0", "q5_k": "q5_1", "q6_k": "q8_0"}
"""What rows that do not fill blocks of 256 are stored in."""

Rule = Callable[[int, int], str]  # a layer's number and the number of layers -> a type


@dataclass(frozen=True)
class Mix:
    """Most tables in `base`; those of values, `down` and `output` by layer; a joint QKV table."""

    base: str
    value: Rule | None = None
    down: Rule | None = None
    output: str | None = None
    joint: str | None = None


def _more_bits(layer: int, layers: int) -> bool:
    """The first and last eighth of the layers, and every third between."""
    eighth = layers // 8
    return layer < eighth or layer >= 7 * layers // 8 or (layer - eighth) % 3 == 2


def _where_more(more: str, base: str) -> Rule:
    return lambda layer, layers: more if _more_bits(layer, layers) else base


MIXES: dict[str, Mix] = {
    "q3_k_s": Mix("q3_k"),
    "q3_k_m": Mix(
        "q3_k",
        value=lambda layer, _: "q5_k" if layer < 2 else "q4_k",
        down=lambda layer, layers: "q5_k" if layer < layers // 16 else "q4_k",
        output="q4_k",
        joint="q4_k",
    ),
    "q3_k_l": Mix("q3_k", lambda *_: "q5_k", lambda *_: "q5_k", "q5_k", "q4_k"),
    "q4_k_s": Mix(
        "q4_k",
        value=lambda layer, _: "q5_k" if layer < 4 else "q4_k",
        down=lambda layer, layers: "q5_k" if layer < layers // 8 else "q4_k",
    ),
    "q4_k_m": Mix("q4_k", _where_more("q6_k", "q4_k"), _where_more("q6_k", "q4_k"), None, "q5_k"),
    "q5_k_s": Mix("q5_k"),
    "q5_k_m": Mix("q5_k", _where_more("q6_k", "q5_k"), _where_more("q6_k", "q5_k"), None, "q6_k"),
}


def is_mix(dtype: str | None) -> bool:
    """Whether a type's name stands for a mix, whose bytes are estimates."""
    return dtype is not None and dtype in MIXES


def checked_type(dtype: str) -> str:
    """The name of a type or mix in small letters. Errors: RequestError for any other name."""
    name = dtype.strip().lower()
    if name not in WEIGHT_TYPES and name not in MIXES:
        offered = [*WEIGHT_TYPES, *MIXES]
        raise RequestError(
            f'there is no type of weights "{dtype:.40}"{did_you_mean(name, offered)}',
            f"for example bf16, f8_e4m3, q8_0, q4_0, or a mix: {', '.join(MIXES)}",
        )
    return name


def weight_bytes(description: Description, dtype: str | None) -> WeightBytes:
    """Bytes of each weight of the model: in `dtype`, or as its file stores them where it is None.

    Errors of the function: RequestError for a table whose rows do not fill the blocks.
    """
    if dtype is None:
        assert description.weights is not None
        return description.weights.stored_bytes
    if dtype in MIXES:
        types = _types(description.graph, MIXES[dtype])
        return lambda weight: bytes_of(weight, DTYPES[types.get(weight.name, "f32")])
    return bytes_by_weight(description.graph, DTYPES[dtype])


def _types(graph: Graph, mix: Mix) -> dict[str, str]:
    """The type of each table under its weight's name; vectors and what is left out stay float32."""
    layers = graph.config.num_hidden_layers
    head = {w.name for node in graph.nodes if node.role is Role.HEAD for w in node.weights}
    found: dict[str, str] = {}
    tables = graph.tables
    for node in graph.nodes:
        if not node.weights or node.op.constant or node.op.name == "add_positions":
            continue  # learned positions stay float32
        for weight in node.weights:
            if weight.name in tables and weight.name not in found:
                wanted = "q6_k" if weight.name in head else _type(node, mix, layers)
                found[weight.name] = _fitting(wanted, weight)
    return found


def _type(node: Node, mix: Mix, layers: int) -> str:
    """The type of a node's table; the router of a mixture of experts is not quantised."""
    layer = node.layer or 0
    if node.role is Role.MLP_DOWN and mix.down is not None:
        return mix.down(layer, layers)
    if node.role is Role.ATTENTION_OUTPUT:
        return mix.output or mix.base
    if node.role is Role.QKV:
        called = label(node)
        if called == "value":
            wanted = mix.value(layer, layers) if mix.value is not None else mix.base
            few_bits = wanted in ("q3_k", "q4_k")
            return "q5_k" if layers == _SEVENTY_B_LAYERS and few_bits else wanted
        if "," in called:  # query, key, value in one
            return mix.joint or mix.base
    return "f32" if node.role.endswith("router") else mix.base


def _fitting(wanted: str, weight: Weight) -> str:
    """The type, or what takes its place where the rows do not fill its blocks."""
    if weight.shape[-1] % DTYPES[wanted].block == 0:
        return wanted
    other = _AS_GGUF[wanted]
    return other if weight.shape[-1] % DTYPES[other].block == 0 else "f16"
