"""`Description`: everything about a model that its files' headers tell, no weight read.

This is what counting, planning and loading start from: the family, the config, the graph, and,
where there is a file, its tensors by name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from forwardpass.architectures import family as family_of
from forwardpass.architectures import gguf_family
from forwardpass.architectures.family import Family
from forwardpass.config import ModelConfig, read_config
from forwardpass.config_gguf import config_from_gguf
from forwardpass.config_gguf_rope import SHORT_FACTORS
from forwardpass.errors import ConfigError, FormatError
from forwardpass.formats.packed import Scheme, unpacked
from forwardpass.formats.quantization import KEYS, READABLE_METHODS, take_quantization
from forwardpass.formats.strict_json import parse_object
from forwardpass.formats.tensors import TensorFile
from forwardpass.graph.graph import Graph
from forwardpass.text_part import text_part, within
from forwardpass.towers import tower_elements
from forwardpass.weights import Tie, Weights, place, tie_of

ROPE_FACTORS = frozenset({"rope_freqs.weight", SHORT_FACTORS})
_MAX_CONFIG_BYTES = 16 * 2**20


@dataclass(frozen=True)
class Description:
    """A model as its headers describe it.

    `file` and `weights` are None for a shape or a lone config. `tie` says how embedding and head
    are stored (None without a file). `quantization` is what the config says of it; `file` then has
    the tables that it makes of several stored tensors. `tower`: parameters of what the model has
    besides its text part, where its config alone was read and tells them.
    """

    label: str
    family: Family
    config: ModelConfig
    graph: Graph
    file: TensorFile | None = None
    weights: Weights | None = None
    tie: Tie | None = None
    quantization: str | None = None
    tower: int | None = None

    @property
    def unique_parameters(self) -> int:
        """Elements of all parameters, a tied table counted once."""
        return sum(weight.elements for weight in self.graph.parameters)

    @property
    def stored_parameters(self) -> int | None:
        """Elements of all tensors in the file; None without one."""
        if self.file is None:
            return None
        return sum(tensor.elements for tensor in self.file.tensors.values())


def describe_config(
    label: str,
    raw: Mapping[str, object],
    where: str = "config.json",
    accept_unknown: Iterable[str] = (),
) -> Description:
    """The description of a config alone."""
    outer_raw = raw
    raw, outer, where = text_part(raw, where)
    family = within(family_of(_model_type(raw, where), where), outer)
    raw, quantization, taken = _said_of_quantization(raw, where, accept_unknown)
    config = read_config(raw, family.spec, where, accept_unknown)
    config = replace(config, accepted_unknown=(*config.accepted_unknown, *taken))
    graph = family.build(config)
    return Description(
        label, family, config, graph, quantization=quantization, tower=tower_elements(outer_raw)
    )


def _said_of_quantization(
    raw: Mapping[str, object], where: str, accept_unknown: Iterable[str]
) -> tuple[Mapping[str, object], str | None, tuple[tuple[str, object], ...]]:
    """The config without what it says of quantization, and that in words.

    No file is to be read here, so a known method that this version cannot read is only named.
    """
    try:
        raw, scheme, taken = take_quantization(raw, where, accept_unknown)
    except ConfigError:
        said = raw.get(KEYS[0])
        method = said.get("quant_method") if isinstance(said, Mapping) else None
        if method not in READABLE_METHODS:
            raise
        rest = {key: value for key, value in raw.items() if key not in KEYS}
        return rest, f"{method} that this version cannot read", ()
    return raw, scheme.packing.label if scheme else None, taken


def describe_file(
    label: str,
    file: TensorFile,
    raw: Mapping[str, object] | None = None,
    where: str = "config.json",
    accept_unknown: Iterable[str] = (),
    compare_tied: bool = False,
) -> Description:
    """The description of a file of tensors, with its config (`raw`) where it holds none itself.

    `compare_tied` reads the tables of embedding and head where both are stored, to see whether they
    are one; without it the config is believed.
    """
    scheme: Scheme | None = None
    taken: tuple[tuple[str, object], ...] = ()
    if file.format == "gguf":
        where = file.name
        architecture = file.metadata.get("general.architecture")
        if not isinstance(architecture, str):
            raise FormatError(f"{where}: general.architecture is missing")
        family = gguf_family(architecture, where, file.metadata)
        shapes = {name: tensor.shape for name, tensor in file.tensors.items()}
        raw = config_from_gguf(file.metadata, shapes, family, where)
    elif raw is None:
        raise ConfigError(
            f"{file.name}: a file of tensors alone does not say what model it is",
            advice="put its config.json beside it and name the folder",
        )
    else:
        raw, outer, where = text_part(raw, where)
        family = within(family_of(_model_type(raw, where), where), outer)
        raw, scheme, taken = take_quantization(raw, where, accept_unknown)
        file = unpacked(file, scheme)
    config = read_config(raw, family.spec, where, accept_unknown)
    config = replace(config, accepted_unknown=(*config.accepted_unknown, *taken))
    scaled = file.format == "gguf" and not ROPE_FACTORS.isdisjoint(file.tensors)
    config = replace(config, rope_factors=scaled)
    tie = tie_of(family, config, file, compare_tied)
    config = replace(config, tie_word_embeddings=_tied(config, tie))
    graph = family.build(config)
    weights = place(graph, family, file)
    quantization = scheme.packing.label if scheme else None
    return Description(label, family, config, graph, file, weights, tie, quantization)


def read_json_object(path: Path) -> dict[str, object]:
    """The JSON object in a config of at most 16 MiB."""
    try:
        with path.open("rb") as file:
            data = file.read(_MAX_CONFIG_BYTES + 1)
    except OSError as error:
        raise FormatError(f"{path}: cannot be read: {error.strerror}") from error
    if len(data) > _MAX_CONFIG_BYTES:
        raise ConfigError(f"{path}: more than {_MAX_CONFIG_BYTES:,} bytes are no config")
    return parse_object(data, str(path), infinity=True)


def _tied(config: ModelConfig, tie: Tie) -> bool:
    """Whether the graph has one table. A config that ties nothing needs a head that is stored."""
    return tie is not Tie.TWO_TABLES and (config.tie_word_embeddings or tie is Tie.STORED_TWICE)


def _model_type(raw: Mapping[str, object], where: str) -> str:
    model_type = raw.get("model_type")
    if not isinstance(model_type, str):
        raise ConfigError(
            f"{where}: model_type is missing", advice="Is it the config of a language model?"
        )
    return model_type
