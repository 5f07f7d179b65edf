"""Two counted models side by side: what differs, by how much, and what is the same."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from forwardpass.config import ModelConfig
from forwardpass.units import exact
from forwardpass.work.layout import Row, ledger, wrapped
from forwardpass.work.summary import Count

Figure = int | str | bool | None

_CONFIG = (
    "num_hidden_layers",
    "hidden_size",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "intermediate_size",
    "vocab_size",
    "max_position_embeddings",
    "sliding_window",
    "tie_word_embeddings",
)
_EDGES = (53, 75)
_UNKNOWN = "-"


@dataclass(frozen=True)
class Pair:
    """One figure of both models; None where it is not known."""

    name: str
    first: Figure
    second: Figure

    @property
    def differs(self) -> bool:
        return self.first != self.second

    @property
    def times(self) -> str:
        """second ÷ first, where both are numbers."""
        numbers = [n for n in (self.first, self.second) if type(n) is int]
        if len(numbers) < 2 or not numbers[0]:
            return ""
        return f"× {numbers[1] / numbers[0]:.3g}"


def compared(
    first: tuple[Count, ModelConfig | None], second: tuple[Count, ModelConfig | None]
) -> list[Pair]:
    """The figures of both models, config first."""
    mixed = any(count.experts for count, _ in (first, second))
    left, right = dict(_figures(*first, mixed)), dict(_figures(*second, mixed))
    names = dict.fromkeys((*left, *right))
    return [Pair(name, left.get(name), right.get(name)) for name in names]


def compare(first: Count, second: Count, pairs: list[Pair]) -> list[str]:
    """The text: a line for each figure that differs, then the names of those that do not."""
    rows = [Row("", (_name(first.model), _name(second.model)))]
    rows += [
        Row(pair.name, (_shown(pair.first), _shown(pair.second)), pair.times)
        for pair in pairs
        if pair.differs
    ]
    alike = [pair for pair in pairs if not pair.differs and pair.first is not None]
    lines = ledger(rows, _EDGES)
    if len(rows) == 1:
        lines.append("nothing differs")
    if alike:
        words = [f"{pair.name} {_shown(pair.first)}" for pair in alike]
        lines += ["", *wrapped([f"the same in both: {words[0]}", *words[1:]], " · ", "  ")]
    return lines


def _figures(count: Count, config: ModelConfig | None, mixed: bool) -> Iterator[tuple[str, Figure]]:
    """Figures by name; `mixed`: with those of a token, as one of the two models has experts."""
    yield "architecture", count.architecture
    if config is not None:
        for name in _CONFIG:
            yield name, getattr(config, name)
    parameters = count.parameters
    yield "parameters, unique", parameters.unique
    if mixed:
        yield "parameters, active", parameters.active
    yield "parameters, stored", parameters.stored
    yield "parameters, embedding", parameters.embedding
    yield "parameters, layers", parameters.layers
    yield "parameters, head", parameters.head
    first, *more = count.bytes.dtype.split(" ")
    yield "type of the weights", f"{first} and others" if more else first
    yield "bytes, unique", count.bytes.unique
    yield "bytes, file", count.bytes.file
    yield from _work(count)


def _work(count: Count) -> Iterator[tuple[str, Figure]]:
    flop, cache = count.flop_per_token, count.kv_bytes_per_token
    if flop is None or cache is None:
        return
    yield "FLOP a token, weights", flop.weights
    yield "FLOP a token, matrix products", flop.matmul
    yield "FLOP a visible token", flop.per_visible_token
    if count.windows:
        full = sum(window.flop_per_visible_token for window in count.windows)
        yield "FLOP a visible token, windows full", flop.per_visible_token - full
    for at in flop.at:
        yield f"FLOP at {exact(at.visible)} visible", at.total
    yield "attention equals the weights at", count.crossover_tokens
    yield "KV cache, bytes a token", cache
    if count.windows:
        full = sum(window.kv_bytes_per_token for window in count.windows)
        yield "KV cache, windows full", cache - full
    yield "states, bytes a sequence", count.state_bytes or None
    if count.prompt is not None:
        yield f"FLOP, a prompt of {exact(count.prompt.tokens)}", count.prompt.flop
    if count.answer is not None:
        yield f"FLOP, {exact(count.answer.passes)} tokens after it", count.answer.flop_total


def _shown(figure: Figure) -> str:
    if figure is None:
        return _UNKNOWN
    if isinstance(figure, bool):
        return "yes" if figure else "no"
    return exact(figure) if isinstance(figure, int) else figure


def _name(model: str) -> str:
    """A model's name, its end kept where it is long."""
    return model if len(model) <= 20 else f"…{model[-19:]}"
