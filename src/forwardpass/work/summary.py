"""`Count`: what `forwardpass count` says about a model, as one value.

Its fields are the keys of the JSON; what is unknown is None. Nothing is read but headers.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass

from forwardpass.describe import Description
from forwardpass.dtypes import DTYPES
from forwardpass.errors import RequestError, did_you_mean
from forwardpass.formats.tensors import Tensor, TensorFile
from forwardpass.graph.graph import Graph, Role
from forwardpass.work.answer import Answer, Prompt, count_answer, count_prompt
from forwardpass.work.count import kv_bytes, kv_bytes_per_token, state_bytes
from forwardpass.work.experts import ExpertCount, count_experts
from forwardpass.work.latent import LatentCount, count_latent
from forwardpass.work.parameter_counts import VARIANTS, Parameters, count_parameters
from forwardpass.work.passes import PassShape
from forwardpass.work.token import (
    Alike,
    Growth,
    alike,
    crossover,
    flop_by_role,
    growth,
    total,
    weights_flop,
)
from forwardpass.work.weight_types import WEIGHT_TYPES, bytes_in, is_blocks, type_of_config

MOST_TOKENS = 10**12
KV_WIDTH = {"bf16": 2, "f16": 2, "f32": 4}  # bytes of a cache element


@dataclass(frozen=True)
class Asked:
    """What to count beyond the model itself.

    `visible`: contexts to show one token's work at. `prompt` and `answer` are numbers of tokens.
    `dtype` replaces the type of config or file for the bytes; in block types vectors stay float32.

    Errors: RequestError for a number, type or combination that makes no sense.
    """

    visible: tuple[int, ...] = ()
    prompt: int | None = None
    answer: int | None = None
    dtype: str | None = None
    kv_type: str = "bf16"

    def __post_init__(self) -> None:
        named = (("visible", self.visible), ("prompt", (self.prompt,)), ("answer", (self.answer,)))
        for name, numbers in named:
            for number in numbers:
                if number is not None and not _is_tokens(number):
                    raise RequestError(
                        f"{name} = {number!r:.60}: wanted a number of tokens from 1 to "
                        f"{MOST_TOKENS:,}"
                    )
        if self.answer is not None and self.prompt is None:
            raise RequestError(
                "an answer without a prompt",
                advice="its first token sees the whole prompt: say how long that is",
            )
        if self.dtype is not None and self.dtype not in WEIGHT_TYPES:
            raise RequestError(
                f'there is no type of weights "{self.dtype}"'
                + did_you_mean(str(self.dtype), WEIGHT_TYPES),
                "for example bf16, f16, f32, f8_e4m3, q8_0, q6_k, q4_k, q4_0",
            )
        if self.kv_type not in tuple(KV_WIDTH):  # which may not be hashable
            raise RequestError(
                f'"{self.kv_type}" is no type of a KV cache, wanted {", ".join(KV_WIDTH)}'
            )

    @property
    def keeps_vectors(self) -> bool:
        """Whether vectors stay float32 in the type that was asked for."""
        return self.dtype is not None and is_blocks(DTYPES[self.dtype])


def _is_tokens(number: object) -> bool:
    if isinstance(number, bool) or not isinstance(number, int):
        return False
    return 1 <= number <= MOST_TOKENS


NOTHING_ASKED = Asked()


@dataclass(frozen=True)
class Bytes:
    """Bytes of the parameters in `dtype`, and of the file; `dtype` may be a mix of types."""

    unique: int | None
    stored: int | None
    dtype: str
    file: int | None
    header: int | None


@dataclass(frozen=True)
class AtVisible:
    """FLOP of one token that sees `visible` tokens; `total` leaves `other` out."""

    visible: int
    total: int
    other: int
    total_with_other: int
    by_role: Mapping[str, int]


@dataclass(frozen=True)
class FlopPerToken:
    """`weights`: 2 × parameters that do arithmetic; `matmul`: matrix products alone.

    `per_visible_token` is what one more visible token adds while no window is full.
    """

    weights: int
    matmul: int
    per_visible_token: int
    at: tuple[AtVisible, ...]


@dataclass(frozen=True)
class Window:
    """Layers that read at most `tokens` tokens, and what they stop adding from there on.

    Where they are a selection of all that is visible, the cache does not stop growing.
    """

    tokens: int
    layers: int
    flop_per_visible_token: int
    kv_bytes_per_token: int


@dataclass(frozen=True)
class KvCache:
    """The cache of `tokens` tokens.

    `needed`: bytes of rows that are ever read again. `reserved`: bytes of a cache that also keeps
    what windows have passed, as this version's backends do.
    """

    tokens: int
    needed: int
    reserved: int


@dataclass(frozen=True)
class Count:
    """A model, counted.

    `windows`, `prompt` and `accepted_unknown` are in the JSON only where there is something to
    say, `latent` only of models with latent attention. `kv_bytes_per_token` is what a token adds
    while no window is full. `state_bytes` is what a sequence keeps whatever its length, in the
    JSON only of models that have recurrent layers. `experts` is there for mixtures, `kv_cache`
    where prompt and answer were asked for.
    """

    model: str
    architecture: str | None
    parameters: Parameters
    bytes: Bytes
    flop_per_token: FlopPerToken | None
    kv_bytes_per_token: int | None
    crossover_tokens: int | None
    answer: Answer | None = None
    windows: tuple[Window, ...] = ()
    prompt: Prompt | None = None
    accepted_unknown: Mapping[str, object] | None = None
    state_bytes: int = 0
    latent: LatentCount | None = None
    experts: tuple[ExpertCount, ...] = ()
    kv_cache: KvCache | None = None

    def as_dict(self) -> dict[str, object]:
        """The JSON object."""
        optional = {"windows", "prompt", "accepted_unknown", "state_bytes", "latent"}
        optional |= {"experts", "kv_cache"}
        found = asdict(self)
        numbers = found["parameters"]
        for variant in VARIANTS:
            if numbers[variant] is None:
                del numbers[variant]
        return {key: value for key, value in found.items() if value or key not in optional}


def count_model(description: Description, asked: Asked = NOTHING_ASKED) -> Count:
    """The count of a described model.

    Errors: RequestError for a `dtype` whose blocks the rows of a table do not fill, ConfigError
    for a config whose type of weights is not known.
    """
    graph, config = description.graph, description.config
    nodes = alike(graph)
    parts = growth(graph, nodes)
    weights = weights_flop(graph)
    width = KV_WIDTH[asked.kv_type]
    answer = None
    if asked.prompt is not None and asked.answer is not None:
        layers = config.num_hidden_layers
        answer = count_answer(asked.prompt, asked.answer, layers, weights, parts)
    return Count(
        model=description.label,
        architecture=description.family.model_type,
        parameters=count_parameters(description),
        bytes=_bytes(description, asked.dtype),
        flop_per_token=_flop(graph, nodes, parts, weights, asked.visible),
        kv_bytes_per_token=width * sum(part.kv_elements for part in parts),
        crossover_tokens=crossover(weights, parts),
        answer=answer,
        windows=tuple(
            Window(part.window, part.layers, part.flop, width * part.kv_elements)
            for part in parts
            if part.window is not None
        ),
        prompt=None if asked.prompt is None else count_prompt(asked.prompt, nodes, parts),
        accepted_unknown={key: _plain(value) for key, value in config.accepted_unknown} or None,
        state_bytes=state_bytes(graph, width),
        latent=count_latent(graph, nodes, parts, weights),
        experts=count_experts(graph),
        kv_cache=_cache(graph, asked, width),
    )


def _cache(graph: Graph, asked: Asked, width: int) -> KvCache | None:
    if asked.prompt is None or asked.answer is None:
        return None
    tokens = asked.prompt + asked.answer
    reserved = tokens * kv_bytes_per_token(graph, width)
    return KvCache(tokens, kv_bytes(graph, tokens, width), reserved)


def count_tensors(label: str, file: TensorFile, asked: Asked = NOTHING_ASKED) -> Count:
    """The count of a file of tensors that no config describes: what is stored, nothing else.

    Errors: RequestError for anything asked for that needs a config.
    """
    wanted = [name for name in ("visible", "prompt", "dtype") if getattr(asked, name)]
    if wanted:
        raise RequestError(
            f"{label}: --{wanted[0]} needs a config, and the file has none beside it",
            advice="put its config.json beside it and name the folder",
        )
    return Count(
        model=label,
        architecture=None,
        parameters=Parameters(
            unique=None,
            stored=sum(tensor.elements for tensor in file.tensors.values()),
            active=None,
            embedding=None,
            layers=None,
            head=None,
            by_role=None,
        ),
        bytes=Bytes(None, file.data_bytes, mix(file), file.file_bytes, file.header_bytes),
        flop_per_token=None,
        kv_bytes_per_token=None,
        crossover_tokens=None,
    )


def type_counts(tensors: Iterable[Tensor]) -> dict[str, int]:
    """How many tensors are of each type; the type that takes most bytes comes first."""
    counts: dict[str, int] = {}
    sizes: dict[str, int] = {}
    for tensor in tensors:
        name = tensor.dtype.name
        counts[name] = counts.get(name, 0) + 1
        sizes[name] = sizes.get(name, 0) + tensor.nbytes
    return dict(sorted(counts.items(), key=lambda item: -sizes[item[0]]))


def mix(file: TensorFile) -> str:
    """The type of a file's tensors; where there are several, each with its number of tensors."""
    counts = type_counts(file.tensors.values())
    if len(counts) == 1:
        return next(iter(counts))
    return ", ".join(f"{name} {number}" for name, number in counts.items())


def unique_bytes(description: Description) -> int:
    """Bytes of the parameters that the graph reads, as stored, a shared table once."""
    assert description.weights is not None
    return sum(map(description.weights.stored_bytes, description.graph.parameters))


def _plain(value: object) -> object:
    """A value out of a config as JSON can carry it: as text where it is infinite."""
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError):
        return repr(value)
    return value


def _bytes(description: Description, dtype: str | None) -> Bytes:
    file = description.file
    if dtype is None and file is None:
        dtype = type_of_config(description.config.dtype, description.label)
    if dtype is not None:
        name, unique = dtype, bytes_in(description.graph, DTYPES[dtype])
    else:
        assert file is not None
        name, unique = mix(file), unique_bytes(description)
    return Bytes(
        unique=unique,
        stored=file.data_bytes if file else None,
        dtype=name,
        file=file.file_bytes if file else None,
        header=file.header_bytes if file else None,
    )


def _flop(
    graph: Graph, nodes: Alike, parts: Sequence[Growth], weights: int, visible: Sequence[int]
) -> FlopPerToken:
    per_visible = sum(part.flop for part in parts)
    one = flop_by_role(nodes, PassShape.decode(1))
    return FlopPerToken(
        weights=weights,
        matmul=total(one) - one[Role.READ] - one[Role.MIXER_SCAN],
        per_visible_token=per_visible,
        at=tuple(_at(graph, nodes, tokens) for tokens in visible),
    )


def _at(graph: Graph, nodes: Alike, visible: int) -> AtVisible:
    by_role = flop_by_role(nodes, PassShape.decode(visible))
    own, other = total(by_role), by_role[Role.OTHER]
    return AtVisible(
        visible=visible,
        total=own,
        other=other,
        total_with_other=own + other,
        by_role={str(role): by_role[role] for role in graph.roles},
    )
