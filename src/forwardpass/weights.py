"""The tensors that a graph asks for, found in a file under either world's names.

They must be equal sets: nothing missing, nothing misshapen, nothing left over but the buffers that
the family names. Tables are tied in three forms (one stored, two stored equal, two stored
different); which one it is, is found out here and reported.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from forwardpass.architectures.family import Family, Transform
from forwardpass.config import ModelConfig
from forwardpass.errors import WeightsError
from forwardpass.formats.packed import PackedTensor
from forwardpass.formats.packings import Gptq
from forwardpass.formats.parted import parted
from forwardpass.formats.source import MappedFile, quoted
from forwardpass.formats.stacked import stacked
from forwardpass.formats.tensors import StoredTensor, Tensor, TensorFile
from forwardpass.graph.graph import Graph, Weight

if TYPE_CHECKING:
    from forwardpass.graph.references import F32

_SHOWN = 8  # lines of names in an error


class Tie(Enum):
    """How the table of the head relates to the embedding."""

    ONE_TABLE = "one table, stored once"
    STORED_TWICE = "one table, stored twice"
    TWO_TABLES = "two different tables"


@dataclass(frozen=True)
class Placed:
    """A weight of the graph, where it is stored, and what turns the stored one into it."""

    weight: Weight
    stored: Tensor
    transform: Transform


@dataclass(frozen=True)
class Weights:
    """Every weight of a graph by name, and the stored tensors that no op reads.

    `not_run`: those of parts of the model that are not run: a tower that sees images, layers that
    predict further tokens.
    """

    placed: Mapping[str, Placed]
    buffers: tuple[Tensor, ...]
    config: ModelConfig
    not_run: tuple[Tensor, ...] = ()

    def numpy(self, name: str) -> F32:
        """The weight as float32 in the graph's shape; contiguous."""
        import numpy as np

        found = self.placed[name]
        array = found.stored.numpy()
        if found.transform is Transform.TRANSPOSE:
            return np.ascontiguousarray(array.T)
        if found.transform is Transform.ADD_ONE:
            return array + np.float32(1)
        if found.transform is Transform.AS_STORED:
            return np.ascontiguousarray(array)
        if found.transform is Transform.ONE_ROW:
            return np.ascontiguousarray(array).reshape(found.weight.shape)
        if found.transform is Transform.SPLIT_GROUPS:
            return _split(array, self.config)
        heads = self.config.num_attention_heads
        if found.transform is Transform.UNPAIR_KEY:
            heads = self.config.num_key_value_heads
        pairs = array.reshape(heads, -1, 2, *array.shape[1:])
        return np.ascontiguousarray(pairs.swapaxes(1, 2)).reshape(array.shape)

    def stored_bytes(self, weight: Weight) -> int:
        """The bytes that the weight takes in its file."""
        return self.placed[weight.name].stored.nbytes


def tie_of(family: Family, config: ModelConfig, file: TensorFile, compare: bool) -> Tie:
    """How embedding and head are stored.

    Where the config ties them and the file holds both, `compare` reads the two: only equal tables
    are one (as transformers 5 decides); without it the config is believed.
    """
    names = _stored_names(family, file)
    head, table = names.get("lm_head.weight"), names.get(family.embedding)
    if head is None:
        return Tie.ONE_TABLE
    if not config.tie_word_embeddings or table is None or head.shape != table.shape:
        return Tie.TWO_TABLES
    if compare and (head.dtype != table.dtype or head.raw() != table.raw()):
        return Tie.TWO_TABLES
    return Tie.STORED_TWICE


def place(graph: Graph, family: Family, file: TensorFile) -> Weights:
    """Each weight of the graph with its stored tensor.

    Raises WeightsError that names all missing, misshapen and left-over tensors.
    """
    names = _stored_names(family, file, graph.weights)
    placed: dict[str, Placed] = {}
    problems: list[str] = []
    for weight in graph.weights.values():
        stored = names.pop(weight.name, None)
        if stored is None:
            problems.append(f"missing: {weight.name} {_by(weight.shape)}")
            continue
        transform = _transform(weight.name, family, file.format)
        wanted = weight.shape[::-1] if transform is Transform.TRANSPOSE else weight.shape
        one_row = transform is Transform.ONE_ROW and stored.shape == weight.shape[1:]
        if stored.shape != wanted and not one_row:
            problems.append(
                f"{_shown(stored)} is {_by(stored.shape)}, the config asks for {_by(wanted)}"
            )
        placed[weight.name] = Placed(weight, stored, transform)
    buffers: list[Tensor] = []
    not_run: list[Tensor] = []
    for name, stored in names.items():
        tied_again = name == "lm_head.weight" and graph.config.tie_word_embeddings
        named = any(re.fullmatch(pattern, name) for pattern in family.buffers)
        if tied_again or named or _is_idle_bias(name, stored, placed):
            buffers.append(stored)
        elif any(re.fullmatch(pattern, name) for pattern in family.not_run) or _predicts(
            name, graph.config
        ):
            not_run.append(stored)
        else:
            problems.append(f"left over: {_shown(stored)} {_by(stored.shape)}")
    if problems:
        more = [f"… and {len(problems) - _SHOWN} more"] if len(problems) > _SHOWN else []
        raise WeightsError(
            f"{file.name}: {_tensors_are(len(problems))} not what the config asks for",
            *problems[:_SHOWN],
            *more,
            advice="A tensor not understood could change the answer, so loading stops here.",
        )
    return Weights(placed, tuple(buffers), graph.config, tuple(not_run))


def _predicts(name: str, config: ModelConfig) -> bool:
    """Whether it belongs to a layer behind the others that predicts a further token."""
    match = re.match(r"model\.layers\.(0|[1-9]\d{0,5})\.", name)
    further = config.own.get("num_nextn_predict_layers")
    if match is None or not isinstance(further, int):
        return False
    return 0 <= int(match[1]) - config.num_hidden_layers < further


def _is_idle_bias(name: str, stored: Tensor, placed: Mapping[str, Placed]) -> bool:
    """Whether it is the bias of zeros that GPTQ's writers give to tables that have none.

    Its values are looked at where they are on this machine; a header alone is believed.
    """
    stem = name.removesuffix(".bias")
    table = placed[f"{stem}.weight"].stored if f"{stem}.weight" in placed else None
    if stem == name or not isinstance(table, PackedTensor) or not isinstance(table.packing, Gptq):
        return False
    remote = not isinstance(stored, StoredTensor) or not isinstance(stored.source, MappedFile)
    return stored.shape == table.shape[:1] and (remote or not stored.numpy().any())


def _split(array: F32, config: ModelConfig) -> F32:
    """Rows by key/value head (its queries, its key, its value) as all queries, keys, values."""
    import numpy as np

    groups, share = config.num_key_value_heads, config.num_attention_heads
    share //= groups
    rows = array.reshape(groups, share + 2, config.head_dim, *array.shape[1:])
    parts = (rows[:, :share], rows[:, share], rows[:, share + 1])
    return np.concatenate([part.reshape(-1, *array.shape[1:]) for part in parts])


def _stored_names(
    family: Family, file: TensorFile, wanted: Collection[str] = ()
) -> dict[str, Tensor]:
    """The file's tensors under the graph's names; those without one keep their own.

    Where a stored name stands for several, the graph has the one of them that is `wanted`.
    """
    ours: dict[str, str] = {}
    if file.format == "gguf" and family.gguf is not None:
        present = {_pattern(name)[0] for name in wanted}
        for name, (theirs, _) in family.gguf.tensors.items():
            if theirs not in ours or name in present:
                ours[theirs] = name
    found: dict[str, Tensor] = {}
    for name, stored in file.tensors.items():
        pattern, layer = _pattern(name)
        if file.format != "gguf":
            graph_name = _without_prefix(name, family)
            graph_name = family.renamed.get(graph_name, graph_name)
        elif pattern in ours:
            graph_name = ours[pattern].replace("{i}", layer)
        else:
            graph_name = f"{file.format}: {name}"  # not a name of the graph, whatever it looks like
        if graph_name in found:
            raise WeightsError(
                f"{file.name}: {_shown(found[graph_name])} and {_shown(stored)} are names of one "
                "tensor"
            )
        found[graph_name] = stored
    return found if file.format == "gguf" else stacked(parted(found, family.parts), family.stacks)


def _without_prefix(name: str, family: Family) -> str:
    for place, instead in family.places.items():
        if name.startswith(place):
            name = instead + name.removeprefix(place)
            break
    for prefix in family.prefixes:
        if name.startswith(prefix):
            return name.removeprefix(prefix)
    return name


def _pattern(name: str) -> tuple[str, str]:
    """`blk.3.attn_q.weight` as `blk.{i}.attn_q.weight` and `3`."""
    match = re.search(r"\.(0|[1-9]\d*)\.", name)
    if match is None:
        return name, ""
    return f"{name[: match.start(1)]}{{i}}{name[match.end(1) :]}", match[1]


def _transform(name: str, family: Family, file_format: str) -> Transform:
    if file_format == "gguf":
        assert family.gguf is not None
        pattern, _ = _pattern(name)
        return family.gguf.tensors[pattern][1]
    for end, transform in family.transforms.items():
        if name.endswith(end):
            return transform
    return Transform.AS_STORED


def _shown(stored: Tensor) -> str:
    """The tensor's name; quoted where it could upset a terminal."""
    plain = re.fullmatch(r"[\w./-]{1,120}", stored.name, re.ASCII)
    return stored.name if plain else quoted(stored.name)


def _tensors_are(count: int) -> str:
    return "1 tensor is" if count == 1 else f"{count} tensors are"


def _by(shape: tuple[int, ...]) -> str:
    return " × ".join(f"{size:,}" for size in shape) or "a scalar"
