"""Bytes of weights and cache that a pass moves, against rules written out by hand."""

from __future__ import annotations

import pytest

from backends.tiny import CONFIGS, tiny_graph
from backends.tiny_moe import CACHED_ROWS
from forwardpass.architectures import family as family_of
from forwardpass.graph.graph import Role
from forwardpass.work.count import PassWork, count_pass, kv_bytes, kv_bytes_per_token
from forwardpass.work.passes import PassShape, SequenceShape

WIDTH = 2
# Read only where logits are wanted.
AT_THE_END = (
    *("lm_head.", "model.norm.", "ln_f.", "final_layer_norm.", "model.final_layernorm."),
    "project_out.",
)
every_family = pytest.mark.parametrize("family", list(CONFIGS))


def count(family: str, *sequences: SequenceShape) -> PassWork:
    return count_pass(tiny_graph(family), PassShape(sequences), lambda w: 3 * w.elements, WIDTH)


def row_of(family: str) -> int:
    """Bytes that a token adds to the cache of each layer."""
    config = tiny_graph(family).config
    keys_and_values = 2 * config.num_key_value_heads * config.head_dim
    return WIDTH * CACHED_ROWS.get(family, keys_and_values)


def weights_read(family: str, tokens: int, rows: int) -> int:
    """Every table once; of tables that are only looked up, a row a token.

    Of experts' tables those of the experts that so many tokens are expected to choose.
    """
    graph = tiny_graph(family)
    lookups = {w.name for w in graph.embedding_only}
    if rows == 0 and graph.config.tie_word_embeddings:
        lookups.add(family_of(graph.config.model_type).embedding)
    total = 0
    for name, weight in graph.weights.items():
        if name in graph.experts:
            untouched = (1 - float(graph.experts[name])) ** tokens
            total += round(3 * weight.elements * (1 - untouched))
        elif name in lookups:
            total += 3 * tokens * weight.shape[1]
        elif rows or not name.startswith(AT_THE_END):
            total += 3 * weight.elements
    return total


@pytest.mark.parametrize(("new", "cached", "rows"), [(1, 0, 1), (1, 30, 1), (12, 4, 12), (9, 0, 0)])
@every_family
def test_weights_are_read_once_a_pass(family: str, new: int, cached: int, rows: int) -> None:
    work = count(family, SequenceShape(new, cached, rows))
    assert work.weight_bytes == weights_read(family, new, rows)


@every_family
def test_sequences_of_one_pass_share_the_weights(family: str) -> None:
    work = count(family, *(SequenceShape(1, cached) for cached in range(8)))
    assert work.weight_bytes == weights_read(family, 8, 8)


@every_family
def test_a_cache_is_read_as_far_as_its_window_and_written_once_a_token(family: str) -> None:
    graph = tiny_graph(family)
    config = graph.config
    row = row_of(family)
    sequences = (SequenceShape(1, 40), SequenceShape(6, 2), SequenceShape(20, 0, 0))
    windows = [config.window(layer) for layer in range(config.num_hidden_layers)]
    visible = [
        sum(min(one.cached + one.new, (window or 10**6) + one.new - 1) for one in sequences)
        for window in windows
    ]
    work = count(family, *sequences)
    read = sum(part.cache_read for part in work.by_role.values())
    written = sum(part.cache_written for part in work.by_role.values())
    assert read == row * sum(visible)
    assert written == row * 27 * config.num_hidden_layers
    assert work.total.cache_read + work.other.cache_read == read


@every_family
def test_a_full_window_stops_the_cache_from_growing(family: str) -> None:
    graph = tiny_graph(family)
    config = graph.config
    row = row_of(family)
    assert kv_bytes_per_token(graph, WIDTH) == row * config.num_hidden_layers
    for tokens in (0, 1, 6, 7, 8, 9, 10, 100):
        windows = [config.window(layer) or tokens for layer in range(config.num_hidden_layers)]
        kept = sum(min(tokens, window) for window in windows)
        assert kv_bytes(graph, tokens, WIDTH) == row * kept


@every_family
def test_the_roles_bytes_add_up(family: str) -> None:
    work = count(family, SequenceShape(5, 3, 2))
    parts = list(work.by_role.values())
    assert sum(part.weight_bytes for part in parts) == work.weight_bytes
    assert sum(part.bytes for part in parts) == work.total.bytes + work.other.bytes
    assert (work.by_role[Role.EMBEDDING].flop == 0) == (family != "opt-after")
    assert (work + work).weight_bytes == 2 * work.weight_bytes
