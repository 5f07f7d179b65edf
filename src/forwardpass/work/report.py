"""A `Count` as the tables that people read; every figure is a field of the count or of the graph.

Lines keep within 99 columns wherever the model's own names do.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from forwardpass.describe import Description
from forwardpass.formats.tensors import TensorFile
from forwardpass.graph.graph import Graph, Role
from forwardpass.units import exact, percent, short, size
from forwardpass.work.answer import pairs
from forwardpass.work.experts import expert_lines
from forwardpass.work.layout import WIDTH, Row, ledger, wrapped
from forwardpass.work.parameter_counts import variant_rows
from forwardpass.work.parameters import LayerKind, ParameterTable, Part, label, parameter_table
from forwardpass.work.stored import storage_lines
from forwardpass.work.summary import Asked, Count, FlopPerToken, type_counts

_PARAMETER_EDGES = (40, 53, 68)  # rows × columns, each, all
_FLOP_EDGE = (71,)
_ROLE_LABEL, _ROLE_FLOP, _ROLE_SHARE, _ROLE_COLUMNS = 15, 11, 8, 3
_UNITS = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""))
_LAYERS_SHOWN = 4


def report(count: Count, description: Description, asked: Asked, origin: str) -> list[str]:
    """The whole text. `origin` says what was read to count."""
    flop, graph = count.flop_per_token, description.graph
    assert flop is not None
    sections = [
        _title(count, description, origin),
        [*_parameters(parameter_table(graph)), *_totals(count, description, asked)],
        _one_token(count, flop, graph, asked),
        list(expert_lines(count.experts)),
        *_by_role(flop, graph),
        _answer(count, flop, graph, asked) if asked.answer else _prompt(count),
        _beyond(asked, description),
    ]
    return list(_spaced(sections))


def report_tensors(count: Count, file: TensorFile, origin: str) -> list[str]:
    """The text for a file of tensors without a config."""
    number = len(file.tensors)
    words = [f"{count.model}   {exact(number)} tensor{'s' * (number != 1)} without a config"]
    return [
        *wrapped([*words, *_types(file), origin], " · ", "  "),
        "",
        *storage_lines(count, None, file),
    ]


def _spaced(sections: Sequence[Sequence[str]]) -> Iterator[str]:
    for i, section in enumerate(section for section in sections if section):
        if i:
            yield ""
        yield from section


def _title(count: Count, description: Description, origin: str) -> list[str]:
    layers = description.config.num_hidden_layers
    words = [f"{count.model}   {count.architecture}", f"{layers} layer{'s' * (layers != 1)}"]
    words += _types(description.file) if description.file else [count.bytes.dtype]
    lines = wrapped([*words, origin], " · ", "  ")
    for key, value in (count.accepted_unknown or {}).items():
        lines.append(f"  not understood, and left out as you asked: {key} = {value!r:.40}")
    return lines


def _types(file: TensorFile) -> list[str]:
    names = list(type_counts(file.tensors.values()))
    if len(names) < 2:
        return names
    return [f"{names[0]} and {len(names) - 1} other type{'s' * (len(names) > 2)}"]


def _parameters(table: ParameterTable) -> list[str]:
    """Every part with its shape, size, and share."""
    unique = sum(table.by_role.values())
    rows = [Row("parameters", ("rows × columns", "each", "all"), " share")]
    rows += [_part(f"  {part.label}", part, unique) for part in table.embedding]
    layers = sum(len(kind.layers) for kind in table.layers)
    only = table.layers[0] if len(table.layers) == 1 else None
    each = exact(only.elements) if only else ""
    share = f"{percent(table.in_layers, unique):>6}"
    rows.append(Row("  layers", (exact(layers), each, exact(table.in_layers)), share))
    for kind in table.layers:
        rows += _layer_rows(kind, layers)
    rows += [_part(f"  {part.label}", part, None) for part in table.outside]
    for part in table.head:
        shared = Row(f"  {part.label}", (_shape(part), "", ""), "the embedding's table")
        rows.append(shared if table.tied else _part(f"  {part.label}", part, unique))
    lines = ledger(rows, _PARAMETER_EDGES)
    if max(map(len, lines)) <= WIDTH:
        return lines
    return ledger([replace(row, note=_brief(row.note)) for row in rows], _PARAMETER_EDGES)


def _brief(note: str) -> str:
    """A note in fewer words, for a table of large numbers."""
    return note.replace("of a layer", "of each").replace("the embedding's table", "as embedding")


def _part(label: str, part: Part, whole: int | None) -> Row:
    share = "" if whole is None else f"{percent(part.elements, whole):>6}"
    return Row(label, (_shape(part), "", exact(part.elements)), share)


def _layer_rows(kind: LayerKind, layers: int) -> list[Row]:
    times = len(kind.layers)
    rows = []
    if times < layers:
        label = f"  layers {_numbers(kind.layers)}"
        cells = (exact(times), exact(kind.elements), exact(times * kind.elements))
        rows.append(Row(label, cells))
    for label, parts in (("attention", kind.attention), ("mixer", kind.mixer)):
        rows += [_layer_row(part, times) for part in parts]
        if parts:
            rows.append(_together(f"{label} together", parts, kind))
    rows += [_layer_row(part, times, kind if len(kind.mlp) == 1 else None) for part in kind.mlp]
    if len(kind.mlp) > 1:
        rows.append(_together("MLP together", kind.mlp, kind))
    rows += [_layer_row(part, times) for part in kind.norms]
    return rows


def _layer_row(part: Part, times: int, layer: LayerKind | None = None) -> Row:
    cells = (_shape(part), exact(part.elements), exact(times * part.elements))
    return Row(f"    {part.label}", cells, _of_layer(part.elements, layer) if layer else "")


def _together(label: str, parts: Sequence[Part], kind: LayerKind) -> Row:
    each = sum(part.elements for part in parts)
    cells = ("", exact(each), exact(each * len(kind.layers)))
    return Row(f"    {label}", cells, _of_layer(each, kind))


def _of_layer(elements: int, kind: LayerKind) -> str:
    return f"{percent(elements, kind.elements, 0)} of a layer"


def _numbers(layers: Sequence[int]) -> str:
    """Layer numbers: `0, 2, 4, …, 22`, or `0 to 11` for a run."""
    if len(layers) > 2 and layers[-1] - layers[0] == len(layers) - 1:
        return f"{layers[0]} to {layers[-1]}"
    if len(layers) <= _LAYERS_SHOWN:
        return ", ".join(map(str, layers))
    return ", ".join([*map(str, layers[: _LAYERS_SHOWN - 1]), "…", str(layers[-1])])


def _shape(part: Part) -> str:
    sizes = [part.tables] if part.tables > 1 else []
    return " × ".join(map(exact, [*sizes, *part.shape]))


def _totals(count: Count, description: Description, asked: Asked) -> list[str]:
    """What all parts come to: unique, in bytes, and what the file holds."""
    unique, in_bytes = count.parameters.unique, count.bytes.unique
    assert unique is not None
    assert in_bytes is not None
    rows = [Row("  unique", ("", "", exact(unique)))]
    variants = ledger(list(variant_rows(count.parameters, description)), _PARAMETER_EDGES)
    vectors = ", vectors in f32" if asked.keeps_vectors else ""
    note = f"bytes, {size(in_bytes, 2)}"
    as_bytes = Row(f"  in {count.bytes.dtype}{vectors}", ("", "", exact(in_bytes)), note)
    if description.file is None:
        lines = ledger([*rows, as_bytes], _PARAMETER_EDGES)
        if description.quantization is not None and not asked.dtype:
            lines.append(
                f"  the checkpoint is {description.quantization}; its files say how many bytes"
            )
        return [*lines, *variants]
    lines = [*storage_lines(count, description, description.file), *variants]
    return [*ledger([as_bytes], _PARAMETER_EDGES), *lines] if asked.dtype else lines


def _one_token(count: Count, flop: FlopPerToken, graph: Graph, asked: Asked) -> list[str]:
    rows = [
        Row("one token", ("FLOP",)),
        Row(_weights_label(graph), (exact(flop.weights),)),
        Row("  of these, matrix products", (exact(flop.matmul),), "(torch counts these)"),
        *_growing("each visible token", flop.per_visible_token, count, graph, kv=False),
        _crossover(count),
        *_absorbed(count),
    ]
    assert count.kv_bytes_per_token is not None
    rows += _growing(f"KV cache, {asked.kv_type}", count.kv_bytes_per_token, count, graph, kv=True)
    return ledger([*rows, *_state(count, graph)], _FLOP_EDGE)


def _state(count: Count, graph: Graph) -> Iterator[Row]:
    """What a sequence keeps beside its cache."""
    layers = len({state.layer for state in graph.states if state.elements_per_sequence})
    if layers:
        of = f"state of {exact(layers)} recurrent layer{'s' * (layers != 1)}"
        label = f"  {of}, whatever the length"
        yield Row(label, (exact(count.state_bytes),), "bytes a sequence")


def _weights_label(graph: Graph) -> str:
    """Which parameters do no arithmetic: tables that are looked up and are not the head too."""
    idle = {weight.name for weight in graph.embedding_only}
    names = [label(node) for node in graph.nodes if node.op.lookup and node.weights[0].name in idle]
    which = "active" if graph.experts else "all"
    if not names:
        return f"  weights: 2 × {which} (the embedding is the head)"
    return f"  weights: 2 × {which} but the {' and the '.join(names)}"


def _growing(label: str, each: int, count: Count, graph: Graph, *, kv: bool) -> list[Row]:
    """What one more visible token adds: in all layers, and beyond each window or selection."""
    choosing = sum(node.op.name == "select_tokens" for node in graph.nodes)
    unit = "bytes a token" if kv else ""
    if kv and choosing and not any(window.kv_bytes_per_token for window in count.windows):
        return [Row(f"  {label}", (exact(each),), f"{unit}, read or not")]
    ends = _ends(graph, kv=kv)
    layers = len(ends)
    if not count.windows and layers in (0, graph.config.num_hidden_layers):
        return [Row(f"  {label}", (exact(each),), unit)]
    unit = f"{unit}, " if unit else ""
    rows = [Row(f"  {label}", (exact(each),), f"{unit}{layers} layer{'s' * (layers != 1)}")]
    for window in count.windows:
        if choosing and not window.kv_bytes_per_token:
            each -= window.flop_per_visible_token
            beyond = f"  {label} beyond the {exact(window.tokens)} that are read"
            note = f"{choosing} indexer{'s' * (choosing != 1)} read on"
            rows += [] if kv else [Row(beyond, (exact(each),), note)]
            continue
        layers -= sum(end == window.tokens for end in ends.values())
        each -= window.kv_bytes_per_token if kv else window.flop_per_visible_token
        beyond = f"  {label} beyond the window of {exact(window.tokens)}"
        rows.append(Row(beyond, (exact(each),), f"{unit}{layers} layer{'s' * (layers != 1)}"))
    return rows


def _ends(graph: Graph, *, kv: bool) -> dict[int | None, int | None]:
    """The window of each layer that attends; or, with `kv`, of each that has a cache of its own."""
    if kv:
        return {state.layer: state.window for state in graph.states if state.elements_per_token}
    reading = (node for node in graph.nodes if node.role is Role.READ and node.state is None)
    return {node.layer: node.reach for node in reading}


def _absorbed(count: Count) -> Iterator[Row]:
    """The other form of latent attention."""
    if count.latent is not None:
        each = exact(count.latent.per_visible_token_absorbed)
        yield Row("  absorbed: each visible token", (each,), "latent rows read directly")
        equal = count.latent.crossover_tokens_absorbed
        shown = "never" if equal is None else exact(equal)
        yield Row("  absorbed: attention equals the weights at", (shown,), "visible tokens")


def _crossover(count: Count) -> Row:
    label = "  attention equals the weights at"
    if count.crossover_tokens is None:
        why = "the windows cap it" if count.windows else "no layer reads a cache"
        return Row(label, ("never",), why)
    return Row(label, (exact(count.crossover_tokens),), "visible tokens")


def _by_role(flop: FlopPerToken, graph: Graph) -> Iterator[list[str]]:
    """FLOP and shares, three contexts side by side."""
    unit, letter = _unit(max((at.total for at in flop.at), default=0))
    for start in range(0, len(flop.at), _ROLE_COLUMNS):
        columns = flop.at[start : start + _ROLE_COLUMNS]
        width = _ROLE_FLOP + _ROLE_SHARE
        heads = "".join(f"{exact(at.visible) + ' visible':>{width}}" for at in columns)
        lines = [f"{'by role':<{_ROLE_LABEL}}{heads}"]
        for role in graph.roles:
            if role is not Role.OTHER:
                cells = (_role_cell(at.by_role[role], at.total, unit) for at in columns)
                lines.append(_labelled(role, "".join(cells)))
        totals = "".join(_flop_cell(at.total, unit) for at in columns)
        others = "".join(_flop_cell(at.other, unit) for at in columns)
        lines.append(_labelled(f"{letter}FLOP", totals))
        lines.append(_labelled("other, beside it", others) + _others(graph))
        yield lines


def _labelled(label: str, cells: str) -> str:
    """The cells behind a label that may reach into the blanks of the first one."""
    start = f"  {label}"
    return (start + (" " * _ROLE_LABEL + cells)[len(start) :]).rstrip()


def _role_cell(flop: int, whole: int, unit: float) -> str:
    return f"{flop / unit:>{_ROLE_FLOP}.2f}{percent(flop, whole):>{_ROLE_SHARE}}"


def _flop_cell(flop: int, unit: float) -> str:
    return f"{flop / unit:>{_ROLE_FLOP}.2f}{'':{_ROLE_SHARE}}"


def _others(graph: Graph) -> str:
    """What `other` consists of, in words."""
    ops = {node.op.name for node in graph.nodes}
    absent = set() if ops & {"rope", "rope_factors"} else {"rope"}
    if all(node.role is not Role.READ for node in graph.nodes):
        absent.add("softmax")
    return "   " + ", ".join(w for w in ("norms", "rope", "softmax", "adds") if w not in absent)


def _unit(largest: int) -> tuple[float, str]:
    return next((step, letter) for step, letter in _UNITS if largest >= step or step == 1.0)


def _prompt(count: Count) -> list[str]:
    """A prompt alone, by the conventions that are in use."""
    prompt = count.prompt
    if prompt is None:
        return []
    rows = [
        Row(f"a prompt of {exact(prompt.tokens)}", ("FLOP",)),
        _work("full attention square, head on every row", prompt.flop_full_square),
        _work("causal, head on every row", prompt.flop_causal),
        _work("causal, head on the last row only: ours", prompt.flop),
    ]
    return ledger(rows, _FLOP_EDGE)


def _answer(count: Count, flop: FlopPerToken, graph: Graph, asked: Asked) -> list[str]:
    """The prompt's rows before the last, then the answer's passes."""
    answer, prompt = count.answer, count.prompt
    assert answer is not None
    assert prompt is not None
    tokens = "1 token" if answer.passes == 1 else f"{exact(answer.passes)} tokens"
    rows = [
        Row(f"{tokens} after a prompt of {exact(prompt.tokens)}", ("FLOP",)),
        _work(
            f"prompt: {exact(prompt.tokens - 1)} rows before the last, causal",
            prompt.flop_rows_before,
        ),
        _work(
            f"answer: weights, {exact(answer.passes)} × {exact(flop.weights)}", answer.flop_weights
        ),
        *_attention(count, flop),
        _work("answer together", answer.flop_total),
    ]
    cache = count.kv_cache
    assert cache is not None
    what = "KV cache and state" if count.state_bytes else "KV cache"
    passes = [
        f"  passes {exact(answer.passes)} (the first one also reads the prompt)",
        f"layer runs {exact(answer.layer_runs)}",
        f"{what} at the end {size(cache.needed + count.state_bytes, 2)}",
    ]
    if cache.reserved != cache.needed:
        passes.append(f"{size(cache.reserved, 2)} reserved with what windows passed")
    return [*ledger(rows, _FLOP_EDGE), *wrapped(passes, " · ", "  ")]


def _attention(count: Count, flop: FlopPerToken) -> Iterator[Row]:
    """One line for the layers that see all, one for each window."""
    answer, prompt = count.answer, count.prompt
    assert answer is not None
    assert prompt is not None
    unlimited = flop.per_visible_token
    for window in count.windows:
        unlimited -= window.flop_per_visible_token
        seen = pairs(prompt.tokens, answer.passes, window.tokens)
        each = window.flop_per_visible_token
        where = "in the window" if window.kv_bytes_per_token else "selected"
        label = f"answer: attention, {exact(each)} × {exact(seen)} {where}"
        yield _work(label, each * seen)
    if unlimited or not count.windows:
        seen = pairs(prompt.tokens, answer.passes, None)
        label = f"answer: attention, {exact(unlimited)} × {exact(seen)} visible"
        yield _work(label, unlimited * seen)


def _work(label: str, flop: int) -> Row:
    return Row(f"  {label}", (exact(flop),), f"{short(flop):>8}")


def _beyond(asked: Asked, description: Description) -> list[str]:
    """A remark on contexts that are longer than the model's positions."""
    positions = description.config.max_position_embeddings
    longest = max([*asked.visible, (asked.prompt or 0) + (asked.answer or 0)], default=0)
    if longest <= positions:
        return []
    remark = f"{exact(longest)} is beyond the {exact(positions)} positions of the config"
    return wrapped([remark, "counted all the same"], ": ", "  ")
