"""How a file stores its parameters, beside what is unique: the lines that close the table."""

from __future__ import annotations

import re
from collections.abc import Sequence

from forwardpass.describe import Description
from forwardpass.formats.tensors import Tensor, TensorFile
from forwardpass.units import exact, size
from forwardpass.weights import Tie, Weights
from forwardpass.work.layout import Row, ledger, wrapped
from forwardpass.work.summary import Count, type_counts, unique_bytes

_EDGES = (36, 61)  # elements; bytes with their unit
_REMARK = 42
_HEAD = "lm_head.weight"
_FURTHER = re.compile(r"(language_model\.|model\.)*layers\.\d+\.")  # of layers that are not run


def storage_lines(count: Count, description: Description | None, file: TensorFile) -> list[str]:
    """Unique, stored, the difference and its reasons, the types, the file."""
    rows = []
    if description is not None and description.weights is not None:
        rows.append(_row("unique in memory", count.parameters.unique, unique_bytes(description)))
    rows.append(_row("stored in the file", count.parameters.stored, file.data_bytes))
    lines = ledger([*rows, _file_row(file)], _EDGES)
    between = []
    if description is not None and description.weights is not None:
        between += _head_lines(description, description.weights)
        between += _buffer_lines(description, description.weights)
        between += _constant_lines(description, description.weights)
        between += _not_run_lines(description.weights)
    return [*lines[:-1], *between, *_type_lines(file), lines[-1]]


def _row(label: str, elements: int | None, in_bytes: int) -> Row:
    shown = "" if elements is None else exact(elements)
    return Row(f"  {label}", (shown, f"{exact(in_bytes)} bytes"), f" {size(in_bytes, 2)}")


def _file_row(file: TensorFile) -> Row:
    remark = f" header {exact(file.header_bytes)}"
    if len(file.sources) > 1:
        remark = f" {len(file.sources)} files, headers {exact(file.header_bytes)}"
    return Row("  file", ("", f"{exact(file.file_bytes)} bytes"), remark)


def _head_lines(description: Description, weights: Weights) -> list[str]:
    """How the tables of head and embedding are stored."""
    table = weights.placed[description.family.embedding].stored
    if description.tie is Tie.STORED_TWICE:
        again = [buffer for buffer in weights.buffers if buffer.name.endswith(_HEAD)]
        remark = f"{again[0].name} is {table.name}, stored twice"
        return [_remark("the difference", again[0].elements, remark)]
    if description.tie is Tie.TWO_TABLES:
        names = [stored.name for stored in (weights.placed[_HEAD].stored, table)]
        if weights.placed[_HEAD].stored.dtype != table.dtype:
            types = (weights.placed[_HEAD].stored.dtype, table.dtype)
            names = [f"{name} {dtype.name}" for name, dtype in zip(names, types, strict=True)]
        names[0] = _remark("head and embedding", None, f"two different tables: {names[0]}")
        return wrapped(names, ", ", " " * _REMARK)
    return [_remark("head and embedding", None, f"{table.name} is both, stored once")]


def _buffer_lines(description: Description, weights: Weights) -> list[str]:
    """What is stored and read by no op, a tied table's second copy aside."""
    twice = description.tie is Tie.STORED_TWICE
    rest = [b for b in weights.buffers if not (twice and b.name.endswith(_HEAD))]
    if not rest:
        return []
    elements = sum(buffer.elements for buffer in rest)
    remark = f"buffers that no op reads: {_patterns(rest)}"
    return [_remark("also" if twice else "the difference", elements, remark)]


def _constant_lines(description: Description, weights: Weights) -> list[str]:
    """What is stored and read, and was not learned: the divisors of the rope's angles."""
    learned = {weight.name for weight in description.graph.parameters}
    rest = [placed.stored for name, placed in weights.placed.items() if name not in learned]
    if not rest:
        return []
    elements = sum(tensor.elements for tensor in rest)
    return [_remark("constants", elements, f"no parameters: {_patterns(rest)}")]


def _not_run_lines(weights: Weights) -> list[str]:
    """What is stored of parts that are not run: a tower that sees images, prediction layers."""
    further = [tensor for tensor in weights.not_run if _FURTHER.match(tensor.name)]
    towers = [tensor for tensor in weights.not_run if not _FURTHER.match(tensor.name)]
    places = dict.fromkeys(
        _printable(tensor.name.removeprefix("model.").partition(".")[0]) for tensor in towers
    )
    lines = []
    for parts, why in (
        (towers, f"images are refused: {', '.join(places)}"),
        (further, "layers that predict further tokens"),
    ):
        if parts:
            lines.append(_remark("not run", sum(tensor.elements for tensor in parts), why))
    return lines


def _patterns(buffers: Sequence[Tensor]) -> str:
    """`12 × h.*.attn.bias`: their names, layers put together."""
    counts: dict[str, int] = {}
    for buffer in buffers:
        pattern = re.sub(r"\.\d+\.", ".*.", _printable(buffer.name))
        counts[pattern] = counts.get(pattern, 0) + 1
    return ", ".join(
        f"{number} × {name}" if number > 1 else name for name, number in counts.items()
    )


def _printable(name: str) -> str:
    """A name out of a file, safe for a terminal."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in name)


def _type_lines(file: TensorFile) -> list[str]:
    """Which types there are, where there is more than one, and what they come to."""
    counts = type_counts(file.tensors.values())
    elements = sum(tensor.elements for tensor in file.tensors.values())
    if len(counts) < 2 or not elements:
        return []
    words = [f"{name} {number}" for name, number in counts.items()]
    words[0] = _remark("stored as", None, words[0])
    words[-1] += " tensors"
    words.append(f"{8 * file.data_bytes / elements:.2f} bits a weight")
    return wrapped(words, ", ", " " * _REMARK)


def _remark(label: str, elements: int | None, remark: str) -> str:
    shown = "" if elements is None else exact(elements)
    start = f"  {label}"
    start += f"{shown:>{max(_EDGES[0] - len(start), len(shown) + 2)}}"
    return f"{start:<{_REMARK}}{remark}"
