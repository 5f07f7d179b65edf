"""`look`: one pass over a prompt, looked at from inside at one of its tokens.

Only the reference backend shows the values of its nodes; natively they are fused and overwritten.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from forwardpass.backends.reference import Reference
from forwardpass.errors import RequestError
from forwardpass.graph.graph import Node, Value
from forwardpass.graph.references import F32, Ids
from forwardpass.inspecting.residual import LayerStream, Residual, Update, residual
from forwardpass.sampling.distribution import Distribution
from forwardpass.sampling.outcome import Ranked

F64 = npt.NDArray[np.float64]

BEST = 5  # tokens of each layer's lens
_BLOCK = 512  # tokens whose attention weights are asked for at a time


@dataclass(frozen=True)
class Added:
    """An update: its Euclidean norm, and the cosine of its angle to what it is added to.

    The cosine is None where one of the two is zero.
    """

    norm: float
    cosine: float | None


@dataclass(frozen=True)
class LayerLook:
    """What one layer does to the running vector of one token.

    `before`, `after`: its Euclidean norm. `lens`: the likeliest next tokens if the pass ended
    here, best first. `rank`: the place, from 1, that the pass's own best token has there.
    """

    before: float
    attention: Added
    mlp: Added
    after: float
    lens: tuple[Ranked, ...]
    rank: int


@dataclass(frozen=True, eq=False)
class Attention:
    """How one head of one layer weighs the tokens of the prompt, n.

    `sink`: the share that goes to no token, in models with attention sinks; None in others.
    """

    layer: int
    head: int
    weights: F64
    sink: float | None

    @property
    def sum(self) -> float:
        """All weights and the sink's share together: 1, up to rounding."""
        return float(self.weights.sum()) + (self.sink or 0.0)


@dataclass(frozen=True, eq=False)
class Look:
    """One pass over `tokens`, seen at the token in place `position`.

    `logits`: the scores of the token behind it, v. `normed`: norms of the layers stand on the
    running vector itself, so that a layer's vectors do not add up.
    """

    tokens: tuple[int, ...]
    position: int
    layers: tuple[LayerLook, ...]
    attention: Attention
    logits: F32
    normed: bool

    @cached_property
    def best(self) -> Ranked:
        """The likeliest next token."""
        return Distribution(self.logits, self.logits.size).top(1)[0]


def look(
    backend: Reference,
    tokens: Sequence[int],
    *,
    layer: int | None = None,
    head: int = 0,
    position: int | None = None,
) -> Look:
    """One pass over the prompt `tokens`, looked at from inside.

    `layer` and `head`: whose attention is wanted (the last layer's unless given). `position`: the
    place in the prompt of the token that is looked at (the last unless given).

    Raises RequestError for a layer, head or position that there is not; GraphError where the
    running vector cannot be followed; the errors of `Reference.run`.
    """
    stream = residual(backend.graph)
    layer = _within("layer", layer, len(stream.layers), "the model has layers")
    read = stream.layers[layer].read
    heads = read.sizes["h"]
    assert isinstance(heads, int)
    head = _within("head", head, heads, f"layer {layer} has heads")
    position = _within("position", position, len(tokens), "the prompt has tokens")
    rows, whole = {}, {}
    wanted = _values(stream)

    def watch(node: Node, made: F32) -> None:
        if node.output in wanted:
            rows[node.output] = made[position].copy()
        if node.output in read.inputs:
            whole[node.output] = made

    logits = backend.run(backend.new_cache(), tokens, wanted=[position], watch=watch)[0]
    weights = attention_weights(backend, read, whole, position)[head]
    return Look(
        tuple(tokens),
        position,
        _layers(backend, stream, rows),
        _attention(layer, head, weights, len(tokens), sinks=read.op.name == "attention_sinks"),
        logits,
        any(each.normed for each in stream.layers),
    )


def attention_weights(
    backend: Reference, read: Node, values: Mapping[Value, F32], position: int
) -> F32:
    """The weight that each head gives to each token up to `position`, h s.

    A mix is linear in the values that it mixes. So the op itself, whatever its scale, window, cap,
    slopes or sinks, gives its weights where each token's value is a vector of its own with a single
    1, for some tokens at a time.
    """
    queries, keys = (values[value] for value in read.inputs[:2])
    seen, places = position + 1, np.array([position], np.int64)
    found: list[F32] = []
    for start in range(0, seen, _BLOCK):
        units = np.eye(seen, min(_BLOCK, seen - start), -start, dtype=np.float32)
        every = np.broadcast_to(units, (len(keys), *units.shape))
        inputs: list[F32 | Ids] = [queries[position : position + 1], keys[:, :seen], every, places]
        # As a generated row: alone, with no others to fill its tile.
        found.append(backend.apply(read, inputs, generated=True)[0])
    return np.concatenate(found, axis=-1)


def logit_lens(backend: Reference, stream: Residual, vectors: F32) -> F32:
    """The scores that the end of the graph makes of running vectors, r d: r v.

    Source: nostalgebraist, "interpreting GPT: the logit lens" (2020); arXiv:2303.08112 section 2.
    """
    known: dict[Value, F32] = {stream.tail[0].inputs[0]: vectors}
    for node in stream.tail:
        known[node.output] = backend.apply(node, [known[value] for value in node.inputs])
    return known[backend.graph.logits]


def _layers(
    backend: Reference, stream: Residual, rows: Mapping[Value, F32]
) -> tuple[LayerLook, ...]:
    """What each layer does, from the row of each value that is looked at."""
    # The last one first: in the place that it has in the pass, so that all its bits are the same.
    vectors = np.stack([rows[layer.after] for layer in reversed(stream.layers)])
    scores = logit_lens(backend, stream, vectors)[::-1]
    best = Distribution(scores[-1], scores.shape[1]).top(1)[0].id
    return tuple(
        LayerLook(
            _norm(rows[layer.before]),
            _added(layer.attention, rows),
            _added(layer.mlp, rows),
            _norm(rows[layer.after]),
            Distribution(row, row.size).top(BEST),
            _rank(row, best),
        )
        for layer, row in zip(stream.layers, scores, strict=True)
    )


def _attention(layer: int, head: int, seen: F32, tokens: int, *, sinks: bool) -> Attention:
    """The weights with those of the tokens behind, which are not seen; a sink has what is left."""
    weights = np.zeros(tokens)
    weights[: seen.size] = seen
    return Attention(layer, head, weights, max(0.0, 1 - float(weights.sum())) if sinks else None)


def _values(stream: Residual) -> frozenset[Value]:
    """The values of which a row is looked at."""

    def of(layer: LayerStream) -> tuple[Value, ...]:
        updates = (layer.attention, layer.mlp)
        return (layer.before, layer.after, *(v for u in updates for v in (u.added, u.to)))

    return frozenset(value for layer in stream.layers for value in of(layer))


def _added(update: Update, rows: Mapping[Value, F32]) -> Added:
    added, to = (rows[value].astype(np.float64) for value in (update.added, update.to))
    together = _norm(added) * _norm(to)
    return Added(_norm(added), float(added @ to) / together if together else None)


def _norm(vector: F32 | F64) -> float:
    return float(np.linalg.norm(vector.astype(np.float64)))


def _rank(scores: F32, token: int) -> int:
    """The place of a token among all, from 1, best first; of equals the lower id is first."""
    score = scores[token]
    return 1 + int((scores > score).sum()) + int((scores[:token] == score).sum())


def _within(name: str, value: int | None, count: int, there: str) -> int:
    """The number that was asked for, the last unless given."""
    if value is None:
        return count - 1
    if not 0 <= value < count:
        raise RequestError(f"{name} = {value}: {there} 0 to {count - 1:,}")
    return value
