"""`forwardpass bench MODEL`: prefill and decode speed beside their bounds, load time, memory."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated

import typer

from forwardpass import hub
from forwardpass._version import __version__, commit
from forwardpass.backends.levels import missing_reason
from forwardpass.backends.threads import native_threads, set_threads
from forwardpass.cli.bench_tables import decodes, load_line, prefills, program
from forwardpass.cli.console import as_json, data, patience
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
from forwardpass.cli.profile_tables import about, joined
from forwardpass.cli.progress import TerminalProgress
from forwardpass.computing import REFERENCE, Computing
from forwardpass.describe import Description
from forwardpass.errors import ContextError, RequestError
from forwardpass.memory import require_memory
from forwardpass.opening import Opened
from forwardpass.units import exact, size
from forwardpass.work.count import kv_bytes

if TYPE_CHECKING:
    from forwardpass.backends.backend import Backend as Computes
    from forwardpass.benching import Bench, Decode, Figure, Peak, Prefill

PROMPTS, VISIBLE, BATCHES = "16,64,512", "80,4096", "1,8"
FEWEST = 3  # repetitions


@dataclass(frozen=True)
class Asked:
    """What is to be measured, within the context, and how often."""

    prompts: tuple[int, ...]
    visible: tuple[int, ...]
    batches: tuple[int, ...]
    repetitions: int


def command(
    model: Model,
    prompt: Annotated[
        str | None,
        typer.Option("--prompt", metavar="N,N", help=f"tokens of prompts ({PROMPTS})"),
    ] = None,
    visible: Annotated[
        str | None,
        typer.Option(metavar="N,N", help=f"tokens that a generated one sees ({VISIBLE})"),
    ] = None,
    batch: Annotated[
        str | None,
        typer.Option("--batch", metavar="N,N", help=f"sequences in one pass ({BATCHES})"),
    ] = None,
    repeat: Annotated[
        int, typer.Option(min=FEWEST, metavar="N", help="repetitions of each")
    ] = FEWEST,
    weights: Weights = None,
    context: Annotated[
        int | None,
        typer.Option("--context", metavar="N", help="the most tokens of a sequence"),
    ] = None,
    backend: Backend = None,
    threads: Threads = None,
    kv_type: KvTypeOfRun = None,
    accept_unknown: AcceptUnknown = None,
    json: Json = False,
) -> None:
    """Measures prefill and decode speed beside their bounds, the time to load, and memory."""
    random = is_random(weights)
    given = {"--prompt": prompt, "--visible": visible, "--batch": batch}
    sizes = {name: _sizes(text, name) for name, text in given.items() if text is not None}
    computing = Computing(backend, threads, kv_type)
    computing.check()
    if backend != REFERENCE and missing_reason() is None:
        set_threads(native_threads(threads))  # of the products that are the bound
    loading = Loading(model, random, computing, accept_unknown or ())
    with loading.open(TerminalProgress()) as opened:
        most = _context(described(opened, random), context)
    asked = Asked(
        _within(sizes.get("--prompt"), PROMPTS, most, "--prompt"),
        _within(sizes.get("--visible"), VISIBLE, most, "--visible"),
        sizes.get("--batch") or _sizes(BATCHES, "--batch"),
        repeat,
    )
    Session(loading, asked).run(json)


@dataclass
class Loading:
    """Loads the model, several times one after another: never is it in memory twice."""

    reference: str
    random: bool
    computing: Computing
    accept_unknown: list[str] | tuple[str, ...]
    opened: Opened | None = None

    def open(self, progress: hub.Progress | None = None) -> Opened:
        """The model's files."""
        return open_files(self.reference, self.random, self.accept_unknown, progress)

    def load(self, times: int, peak: Peak) -> Loaded:
        """The backend with its weights; seconds of each time, none of random weights."""
        if self.random:
            shape = described(self.open(), random=True)
            return Loaded(shape, *self._backend(shape), None)
        from forwardpass.benching import Figure

        seconds: list[float] = []
        while True:
            peak.begin()
            start = time.perf_counter()
            opened = self.open()
            found = described(opened, random=False)
            backend, notes = self._backend(found)
            seconds.append(time.perf_counter() - start)
            peak.end()
            if len(seconds) == times:
                self.opened = opened
                return Loaded(found, backend, notes, Figure.of(seconds))
            del backend
            opened.close()
            gc.collect()

    def close(self) -> None:
        """Gives the files up."""
        if self.opened is not None:
            self.opened.close()

    def _backend(self, found: Description) -> tuple[Computes, tuple[str, ...]]:
        if not self.random:
            return self.computing.backend_for(found, found.label)
        from forwardpass.backends.random_weights import RandomWeights

        return self.computing.backend_of(found.graph, RandomWeights(found.graph), found.label)


@dataclass(frozen=True)
class Loaded:
    """A model that is ready for passes. `seconds`: None for random weights."""

    described: Description
    backend: Computes
    notes: tuple[str, ...]
    seconds: Figure | None


@dataclass
class Session:
    """One benchmark on its way, with the rows that are measured."""

    loading: Loading
    asked: Asked
    prefill: list[Prefill] = field(default_factory=list)
    decode: list[Decode] = field(default_factory=list)

    def run(self, json: bool) -> None:
        """Measures and prints; what was measured before Ctrl-C is printed too."""
        from forwardpass.benching import Peak

        peak = Peak()
        try:
            with patience(f"loading {self.loading.reference}"):
                loaded = self.loading.load(self.asked.repetitions, peak)
            self._require_memory(loaded)
            self._measure(loaded, self._bench(loaded, peak), json)
        finally:
            self.loading.close()

    def _measure(self, loaded: Loaded, bench: Bench, json: bool) -> None:
        notes = [*_notes(loaded, bench, self.loading.random)]
        if not json:
            what = self._what(loaded)
            for line in [*program(what, loaded.backend, self.asked.repetitions), *notes]:
                data(line)
        stopped = False
        try:
            self._rows(bench)
        except KeyboardInterrupt:
            stopped = True
        if json:
            as_json(self._object(loaded, bench, notes))
        else:
            self._show(loaded, bench)
        if stopped:
            raise KeyboardInterrupt

    def _rows(self, bench: Bench) -> None:
        for tokens in self.asked.prompts:
            with patience(f"prompts of {exact(tokens)} tokens"):
                self.prefill.append(bench.prefill(tokens))
        for visible, batch in self._decodes():
            with patience(f"tokens that see {exact(visible)}, {exact(batch)} a pass"):
                self.decode.append(bench.decode(visible, batch))

    def _decodes(self) -> Iterator[tuple[int, int]]:
        return ((visible, batch) for visible in self.asked.visible for batch in self.asked.batches)

    def _bench(self, loaded: Loaded, peak: Peak) -> Bench:
        from forwardpass.benching import SECONDS, Bench, NativeProbe, NumpyProbe

        backend, stored = loaded.backend, loaded.described.weights
        native = backend.name != REFERENCE
        tiles = str(getattr(backend, "level", "")) if getattr(backend, "has_tiles", False) else ""
        return Bench(
            backend,
            NativeProbe(backend.threads, tiles) if native else NumpyProbe(),
            backend.weight_bytes if stored is None or self.loading.random else stored.stored_bytes,
            together=native,
            repetitions=self.asked.repetitions,
            seconds=SECONDS,
            peak=peak,
        )

    def _require_memory(self, loaded: Loaded) -> None:
        tokens, batch = max(self.asked.visible), max(self.asked.batches)
        wanted = batch * kv_bytes(loaded.described.graph, tokens, loaded.backend.kv_width)
        sequences = f"{exact(batch)} × {exact(tokens)} tokens"
        require_memory(wanted, f"{loaded.described.label}: the caches of {sequences}")

    def _what(self, loaded: Loaded) -> str:
        label = loaded.described.label
        return f"{label} shape, random weights" if self.loading.random else label

    def _show(self, loaded: Loaded, bench: Bench) -> None:
        tables = [prefills(self.prefill)] if self.prefill else []
        tables += [decodes(self.decode)] if self.decode else []
        last = [load_line(loaded.seconds, bench.peak), *joined(about(bench.machine()))]
        for table in [*tables, last]:
            data()
            for line in table:
                data(line)

    def _object(self, loaded: Loaded, bench: Bench, notes: list[str]) -> dict[str, object]:
        backend, seconds = loaded.backend, loaded.seconds
        return {
            "model": loaded.described.label,
            "weights": RANDOM if self.loading.random else "stored",
            "backend": backend.name,
            "level": getattr(backend, "level", None),
            "threads": backend.threads,
            "kv_type": getattr(backend, "kv_type", "f32"),
            "version": __version__,
            "commit": commit(),
            "notes": notes,
            "fallbacks": bench.fallbacks(),
            "machine": bench.machine().as_dict(),
            "prefill": [row.as_dict() for row in self.prefill],
            "decode": [row.as_dict() for row in self.decode],
            "load_seconds": None if seconds is None else seconds.value,
            "peak_rss_bytes": bench.peak.bytes,
            "repetitions": self.asked.repetitions,
            "spread": {
                "prefill": [{"tokens_per_second": row.rate.spread} for row in self.prefill],
                "decode": [{"tokens_per_second": row.rate.spread} for row in self.decode],
                "load_seconds": None if seconds is None else seconds.spread,
            },
            "ceilings": {
                "prefill": [
                    {"flop_per_second": row.ceiling.value, "spread": row.ceiling.spread}
                    for row in self.prefill
                ],
                "decode": [
                    {"bytes_per_second": row.ceiling.value, "spread": row.ceiling.spread}
                    for row in self.decode
                ],
            },
        }


def _notes(loaded: Loaded, bench: Bench, random: bool) -> Iterator[str]:
    """What there is to say about the run beside its figures."""
    backend = loaded.backend
    yield from accepted_notes(loaded.described)
    yield from loaded.notes
    if backend.name != REFERENCE and not bench.fallbacks():
        yield "every op has a kernel"
    if backend.name == REFERENCE and not random:
        held = sum(backend.weight_bytes(weight) for weight in loaded.described.graph.parameters)
        there = f"this backend reads {size(held)} of float32 in their place"
        yield f"bytes of weights are those of the file; {there}"


def _sizes(text: str, option: str) -> tuple[int, ...]:
    found = numbers(text, option)
    if 0 in found:
        what = "a pass has at least one sequence" if option == "--batch" else "a pass has tokens"
        raise RequestError(f"{option} {text}: {what}")
    return tuple(dict.fromkeys(found))


def _within(given: tuple[int, ...] | None, text: str, most: int, option: str) -> tuple[int, ...]:
    """The sizes that were given; those that are usual end at the context."""
    if given is None:
        return tuple(dict.fromkeys(min(number, most) for number in _sizes(text, option)))
    if max(given) > most:
        raise ContextError(
            f"{option} {max(given)}: the context is {exact(most)} tokens",
            advice="--context N sets another one, up to the model's own",
        )
    return given


def _context(described: Description, asked: int | None) -> int:
    from forwardpass.options import whole_number

    most = described.config.context
    return most if asked is None else whole_number("context", asked, most)
