"""`forwardpass profile MODEL`: work and time by role, predicted beside measured."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated

import typer

from forwardpass._version import __version__, commit
from forwardpass.cli.console import as_json, data
from forwardpass.cli.measuring import (
    RANDOM,
    Weights,
    accepted_notes,
    described,
    is_random,
    open_files,
)
from forwardpass.cli.options import (
    AcceptUnknown,
    Backend,
    Json,
    KvTypeOfRun,
    Model,
    Threads,
    numbers,
)
from forwardpass.cli.profile_tables import about, by_role, by_tokens, by_visible, joined, plural
from forwardpass.cli.progress import TerminalProgress
from forwardpass.computing import NATIVE, Computing
from forwardpass.describe import Description
from forwardpass.errors import ContextError, RequestError
from forwardpass.memory import require_memory
from forwardpass.units import exact

if TYPE_CHECKING:
    from forwardpass.backends.backend import Backend as Computes
    from forwardpass.backends.backend import WeightSource
    from forwardpass.profiling import Profiler, Row
    from forwardpass.work.machine import Machine

DEFAULT_VISIBLE = (128, 1_024, 8_192)


@dataclass(frozen=True)
class Asked:
    """What is to be measured: contexts for one token, sizes of prompts, and how often."""

    visible: tuple[int, ...]
    tokens: tuple[int, ...]
    repetitions: int
    each: int

    @property
    def longest(self) -> int:
        """Positions that the longest pass needs."""
        return max(*self.visible, *self.tokens, 1)


def command(
    model: Model,
    weights: Weights = None,
    visible: Annotated[
        str | None,
        typer.Option(metavar="N,N", help="one token's pass that sees N tokens, itself included"),
    ] = None,
    tokens: Annotated[
        str | None, typer.Option(metavar="N,N", help="passes over a prompt of N tokens")
    ] = None,
    repeat: Annotated[int, typer.Option(min=1, metavar="N", help="repetitions of each")] = 3,
    each: Annotated[
        int, typer.Option(min=1, metavar="N", help="tokens in a repetition, at least")
    ] = 30,
    backend: Backend = None,
    threads: Threads = None,
    kv_type: KvTypeOfRun = None,
    accept_unknown: AcceptUnknown = None,
    json: Json = False,
) -> None:
    """Runs passes and shows their work and time by role, beside the time predicted."""
    random = is_random(weights)
    contexts = None if visible is None else _sizes(visible, "--visible")
    sizes = () if tokens is None else _sizes(tokens, "--tokens")
    computing = Computing(backend, threads, kv_type)
    computing.check()
    with open_files(model, random, accept_unknown or (), TerminalProgress()) as opened:
        found = described(opened, random)
        if contexts is None:
            contexts = () if sizes else _default_visible(found)
        asked = Asked(contexts, sizes, repeat, each)
        found, notes = _with_positions(found, asked.longest, random)
        Session(found, asked, notes, random, computing).run(json)


@dataclass
class Session:
    """One profile on its way: measures row after row and shows each as soon as it is there."""

    described: Description
    asked: Asked
    notes: list[str]
    random: bool
    computing: Computing

    def run(self, json: bool) -> None:
        """Measures and prints; what was measured before Ctrl-C is printed too."""
        from forwardpass.profiling import Profiler, Repeat, memory_needed, this_machine

        graph, longest = self.described.graph, self.asked.longest
        backend, notes = self.computing.backend_of(
            graph, self._weights(), self.described.label, decode=False
        )
        if backend.name != NATIVE:
            what = f"{self.described.label}: float32 weights and a cache of {longest:,} tokens"
            require_memory(memory_needed(graph, longest), what)
        self.notes += notes if backend.name == NATIVE else ()
        machine = this_machine(backend.threads) if backend.name == NATIVE else this_machine()
        if not json:
            self._head(machine, backend)
        repeat = Repeat(self.asked.each, self.asked.repetitions)
        profiler = Profiler(backend, machine.ceilings, repeat)
        rows: list[Row] = []
        stopped = False
        try:
            for row in self._rows(profiler):
                rows.append(row)
                if not json and len(rows) <= len(self.asked.visible):
                    self._section(row)
        except KeyboardInterrupt:
            stopped = True
        if json:
            as_json(self._object(machine, backend, rows))
        else:
            self._end(rows)
        if stopped:
            raise KeyboardInterrupt

    def _weights(self) -> WeightSource:
        if self.described.weights is not None and not self.random:
            return self.described.weights
        from forwardpass.backends.random_weights import RandomWeights

        return RandomWeights(self.described.graph)

    def _rows(self, profiler: Profiler) -> Iterator[Row]:
        for visible in self.asked.visible:
            with _progress(f"{exact(visible)} visible", profiler.passes(1)) as advance:
                row = replace(profiler, advance=advance).decode(visible)
            yield row
        for tokens in self.asked.tokens:
            with _progress(f"{exact(tokens)} tokens a pass", profiler.passes(tokens)) as advance:
                row = replace(profiler, advance=advance).prompt(tokens)
            yield row

    def _head(self, machine: Machine, backend: Computes) -> None:
        label = self.described.label
        run = [
            f"{label} shape, random weights" if self.random else label,
            f"{_what_computes(backend)}, {plural(machine.threads, 'thread')}",
            f"{plural(self.asked.each, 'token')} × {self.asked.repetitions}, median (spread)",
        ]
        program = f"forwardpass {__version__}, commit {commit() or 'unknown'}"
        for line in [*joined(run), *joined([*about(machine), program]), *self.notes]:
            data(line)

    def _section(self, row: Row) -> None:
        from forwardpass.profiling import small_steps

        data()
        for line in by_role(row, small_steps(self.described.graph)):
            data(line)

    def _end(self, rows: list[Row]) -> None:
        """The tables that set several rows side by side."""
        decoded = rows[: len(self.asked.visible)]
        prompts = rows[len(self.asked.visible) :]
        tables = [by_visible(decoded)] if len(decoded) > 1 else []
        tables += [by_tokens(prompts)] if prompts else []
        for table in tables:
            data()
            for line in table:
                data(line)

    def _object(self, machine: Machine, backend: Computes, rows: list[Row]) -> dict[str, object]:
        return {
            "model": self.described.label,
            "weights": RANDOM if self.random else "stored",
            "backend": backend.name,
            "dtype": "as packed" if backend.name == NATIVE else "float32",
            "version": __version__,
            "commit": commit(),
            "notes": self.notes,
            "machine": machine.as_dict(),
            "rows": [row.as_dict() for row in rows],
        }


def _what_computes(backend: Computes) -> str:
    return backend.words if backend.name == NATIVE else f"{backend.name} backend, float32"


def _sizes(text: str, option: str) -> tuple[int, ...]:
    found = numbers(text, option)
    if 0 in found:
        raise RequestError(f"{option} {text}: a pass has at least one token, which sees itself")
    return found


def _default_visible(described: Description) -> tuple[int, ...]:
    positions = described.config.context
    return tuple(n for n in DEFAULT_VISIBLE if n <= positions) or (positions,)


def _with_positions(
    described: Description, tokens: int, random: bool
) -> tuple[Description, list[str]]:
    """The description with room for `tokens` positions, and what there is to say about that.

    Only learned positions are a table that ends; random weights can have a longer one. Positions
    beyond those that a model was trained for can be computed, and take the same time.
    """
    positions = described.config.max_position_embeddings
    notes = accepted_notes(described)
    if tokens <= positions:
        return described, notes
    learned = any(node.op.name == "add_positions" for node in described.graph.nodes)
    beyond = f"{exact(tokens)} is beyond the {exact(positions)} positions of the "
    if not learned:
        return described, [*notes, f"{beyond}model: its words there mean little, the time does"]
    if not random:
        raise ContextError(
            f"{described.label}: {beyond}model, which are a table in its file",
            advice=f"--weights {RANDOM} makes a longer table for the run",
        )
    config = replace(described.config, max_position_embeddings=tokens)
    longer = replace(described, config=config, graph=described.family.build(config))
    return longer, [*notes, f"{beyond}shape: the position table was made longer for this run"]


@contextmanager
def _progress(what: str, passes: int) -> Iterator[Callable[[], None]]:
    """A bar on the terminal that each call moves by one pass; none where nobody looks."""
    if not sys.stderr.isatty():
        yield lambda: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    columns = (TextColumn("{task.description}"), BarColumn(26), MofNCompleteColumn())
    bar = Progress(*columns, console=Console(stderr=True), transient=True, redirect_stdout=False)
    with bar:
        task = bar.add_task(what, total=passes)
        yield lambda: bar.advance(task)
