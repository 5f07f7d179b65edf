"""What is handed to the packer, held against what the reference computes with."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from architectures.test_weights import checkpoint, described
from backends.tiny import WITH_KERNELS, RandomWeights, tiny_graph
from forwardpass.backends import tables
from forwardpass.backends.fusion import fuse
from forwardpass.backends.ropes import RopeTables
from forwardpass.backends.steps import LinearStep, Rows
from forwardpass.describe import describe_file
from forwardpass.dtypes import DTYPES
from forwardpass.errors import TokenizerError
from forwardpass.formats import blocks, open_tensors
from forwardpass.graph import references
from forwardpass.graph.references import F32
from forwardpass.weights import Weights
from tiny_model import random_gguf

TYPES = ("f32", "f16", "bf16", "q8_0", "mlx4_f16", "mlx4_bf16")


@dataclass
class Decoding:
    """In the packer's place: decodes what it is given."""

    made: list[F32] = field(default_factory=list)
    queued: int = 0
    packed: int = 0
    stopped: bool = False

    def add(self, kind: str, rows: int, cols: int, stored: Any, order: Any) -> int:
        assert stored.dtype == np.uint8
        assert stored.flags.c_contiguous
        found = blocks.decode(DTYPES[kind], memoryview(stored.tobytes())).reshape(-1, cols)
        self.made.append(found if order is None else found[order])
        assert len(self.made[-1]) == rows
        return len(self.made) - 1

    def queue(
        self, kind: str, rows: int, cols: int, stored: Any, order: Any, *, mapped: bool
    ) -> int:
        assert mapped
        self.queued += rows * DTYPES[kind].nbytes(cols)
        return self.add(kind, rows, cols, stored, order)

    def wait(self, seconds: float) -> bool:
        """Half of what is left is packed at each look."""
        self.packed = (self.packed + self.queued + 1) // 2
        return self.packed == self.queued

    def stop(self) -> None:
        self.stopped = True


def packed(source: Weights | RandomWeights, graph: Any, types: Any = TYPES) -> tables.PackedWeights:
    kinds = {w.name: tables.packed_type(source, w.name, types) for w in tables.table_weights(graph)}
    decoding: Any = Decoding()
    return tables.PackedWeights(graph, source, decoding, kinds)


def agrees(found: tables.PackedWeights, rows: Rows) -> bool:
    decoding: Any = found.tables
    made = decoding.made[found.numbers[rows]]
    expected = found.source.numpy(rows.weight)[rows.start : rows.stop]
    return bool(np.array_equal(made, expected))


def ranges(graph: Any) -> list[Rows]:
    """All of every table, and a part of it that does not begin at its first row."""
    found = []
    for weight in tables.table_weights(graph):
        rows = weight.shape[0]
        found += [Rows(weight.name, 0, rows), Rows(weight.name, rows // 3, rows - 1)]
    return found


@pytest.mark.parametrize("name", [name for name in WITH_KERNELS if name != "llama-factors"])
def test_tables_are_packed_from_their_bytes_in_the_order_of_the_graph(
    tmp_path: Path, name: str
) -> None:
    found = described(tmp_path, name, checkpoint(name))
    assert found.weights is not None
    made = packed(found.weights, found.graph)
    made.add(ranges(found.graph))
    assert len(made.numbers) == 2 * len(tables.table_weights(found.graph))
    assert all(agrees(made, rows) for rows in made.numbers)
    assert made.converted == {}


def test_the_pairs_of_a_gguf_are_put_in_the_order_of_the_graph(tmp_path: Path) -> None:
    found = describe_file("tiny", open_tensors(random_gguf(tmp_path / "tiny.gguf")))
    assert found.weights is not None
    made = packed(found.weights, found.graph)
    made.add(ranges(found.graph))
    assert all(agrees(made, rows) for rows in made.numbers)
    name = "model.layers.0.self_attn.q_proj.weight"
    order = tables.row_order(found.weights, name)
    assert order is not None
    assert order[:16].tolist() == [*range(0, 16, 2), *range(1, 16, 2)]


def test_a_type_without_a_kernel_is_rounded_to_bf16_and_reported(tmp_path: Path) -> None:
    arrays = checkpoint("falcon")
    found = described(tmp_path, "falcon", arrays)
    assert found.weights is not None
    made = packed(found.weights, found.graph, ("bf16",))
    rows = ranges(found.graph)[::2]
    made.add(rows)
    assert made.converted == {"f32": len(rows)}
    decoding: Any = made.tables
    for each in rows:
        exact = found.weights.numpy(each.weight)
        error = np.abs(decoding.made[made.numbers[each]] - exact)
        assert (error <= np.abs(exact) * 2**-8).all()
        assert error.any()


def test_rounding_to_bf16_is_to_the_nearest_and_ties_to_even() -> None:
    x = np.array([1, 1 + 2**-8, 1 + 3 * 2**-8, 1 + 2**-8 + 2**-20, -0.0, np.inf, 3.4e38], "f4")
    found = (tables.bf16_of(x).astype(np.uint32) << 16).view(np.float32)
    assert found.tolist() == [1, 1, 1 + 2**-6, 1 + 2**-7, 0, np.inf, np.inf]
    assert np.isnan((tables.bf16_of(np.array([np.nan], "f4")).astype("u4") << 16).view("f4")).all()


def test_progress_is_told_in_bytes_up_to_the_whole() -> None:
    graph = tiny_graph("mistral")
    made = packed(RandomWeights(graph), graph)
    told: list[tuple[int, int]] = []
    made.add(ranges(graph)[::2], lambda done, total: told.append((done, total)))
    (total,) = {total for _, total in told}
    assert [done for done, _ in told] == sorted(done for done, _ in told)
    assert told[-1] == (total, total)
    assert total == sum(4 * weight.elements for weight in tables.table_weights(graph))


def test_progress_of_other_threads_is_told_while_they_pack(tmp_path: Path) -> None:
    found = describe_file("tiny", open_tensors(random_gguf(tmp_path / "tiny.gguf")))
    assert found.weights is not None
    made = packed(found.weights, found.graph)
    events: list[int | str] = []
    made.add(
        ranges(found.graph)[::2],
        lambda done, total: events.append(100 * done // total),
        lambda: events.append("meanwhile"),
    )
    assert events[:4] == ["meanwhile", 50, 75, 87]
    assert events[-1] == 100


@pytest.mark.parametrize("error", [TokenizerError("bad"), KeyboardInterrupt()])
def test_what_ends_the_meanwhile_ends_the_packing(tmp_path: Path, error: BaseException) -> None:
    found = describe_file("tiny", open_tensors(random_gguf(tmp_path / "tiny.gguf")))
    assert found.weights is not None
    made = packed(found.weights, found.graph)

    def meanwhile() -> None:
        raise error

    with pytest.raises(type(error)):
        made.add(ranges(found.graph), None, meanwhile)
    decoding: Any = made.tables
    assert decoding.stopped
    assert decoding.packed == 0


def test_gains_and_biases_are_float32_as_the_graph_wants_them(tmp_path: Path) -> None:
    found = described(tmp_path, "gemma3", checkpoint("gemma3"))
    assert found.weights is not None
    made = packed(found.weights, found.graph)
    name = "model.layers.0.input_layernorm.weight"
    np.testing.assert_array_equal(made.vector(name), found.weights.numpy(name))
    assert made.vector(name) is made.vector(name)


def test_every_table_of_a_step_is_one_of_the_tables() -> None:
    for name in WITH_KERNELS:
        graph = tiny_graph(name)
        names = {weight.name for weight in tables.table_weights(graph)}
        for step in fuse(graph, lambda name: True).steps:
            if isinstance(step, LinearStep):
                assert {segment.sums.table.weight for segment in step.segments} <= names


@pytest.mark.parametrize("name", ["mistral", "llama-scaled", "llama-yarn", "llama-factors", "gptj"])
def test_rope_s_tables_turn_as_the_reference_does(name: str) -> None:
    graph = tiny_graph(name)
    weights = RandomWeights(graph)
    node = next(node for node in graph.nodes if node.op.name.startswith("rope"))
    made = RopeTables(fuse(graph, lambda name: True).ropes, weights.numpy)
    positions = np.array([0, 1, 5, 700])
    assert made.grow(2)
    assert not made.grow(300)
    assert made.grow(701)
    cos, sin = (table[positions] for table in made.tables[0])
    heads, width = (int(size) for size in node.output.shape[1:])
    x = np.zeros((4, heads, width), np.float32)
    pairs = cos.shape[1]
    first = np.arange(pairs) * (2 if node.attributes["interleaved"] else 1)
    second = first + 1 if node.attributes["interleaved"] else first + pairs
    x[..., first] = 1
    given = [weights.numpy(weight.name) for weight in node.weights]
    turned = getattr(references, node.op.name)(x, positions, *given, **node.attributes)
    np.testing.assert_array_equal(turned[:, 0, first], cos)
    np.testing.assert_array_equal(turned[:, 0, second], sin)
