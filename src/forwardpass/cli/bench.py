"""`forwardpass bench MODEL`: prefill and decode speed beside their bounds, load time, memory."""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated

import typer

from forwardpass import hub
from forwardpass._version import __version__, commit
from forwardpass.backends.levels import missing_reason
from forwardpass.backends.threads import native_threads, set_threads
from forwardpass.cli.bench_tables import about, decodes, load_line, prefills, program
from forwardpass.cli.console import as_json, data, patience
from forwardpass.cli.options import (
    AcceptUnknown,
    Backend,
    Json,
    KvTypeOfRun,
    Model,
    Threads,
    numbers,
)
from forwardpass.cli.progress import TerminalProgress
from forwardpass.computing import REFERENCE, Computing
from forwardpass.describe import Description
from forwardpass.errors import ContextError, RequestError
from forwardpass.memory import require_memory
from forwardpass.opening import Opened, open_headers, open_model, weights_missing
from forwardpass.units import exact, size
from forwardpass.work.count import kv_bytes

if TYPE_CHECKING:
    from forwardpass.backends.backend import Backend as Computes
    from forwardpass.benching import Bench, Decode, Figure, Peak, Prefill
    from forwardpass.graph.graph import Weight

PROMPTS, VISIBLE, BATCHES = "16,64,512", "80,4096", "1,8"
FEWEST = 3  # repetitions
RANDOM = "random"
_WIDTH = 4  # bytes of a float32, which random weights are


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
    weights: Annotated[
        str | None, typer.Option(metavar="random", help="random weights: a shape is enough")
    ] = None,
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
    if weights not in (None, RANDOM):
        raise RequestError(
            f'--weights "{weights}": wanted {RANDOM}, or no --weights for those of the model'
        )
    given = {"--prompt": prompt, "--visible": visible, "--batch": batch}
    sizes = {name: _sizes(text, name) for name, text in given.items() if text is not None}
    computing = Computing(backend, threads, kv_type)
    computing.check()
    if backend != REFERENCE and missing_reason() is None:
        set_threads(native_threads(threads))  # of the products that are the bound
    loading = Loading(model, weights == RANDOM, computing, accept_unknown or ())
    with loading.open(TerminalProgress()) as opened:
        described = _described(opened, loading.random)
        most = _context(described, context)
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
        """The model's files; with random weights only headers are read, and nothing is fetched."""
        settings, accept = hub.settings(os.environ), self.accept_unknown
        if self.random:
            return open_headers(self.reference, settings, accept_unknown=accept)
        return open_model(self.reference, settings, accept_unknown=accept, progress=progress)

    def load(self, times: int, peak: Peak) -> Loaded:
        """The backend with its weights; seconds of each time, none of random weights."""
        if self.random:
            opened = self.open()
            described = _described(opened, random=True)
            return Loaded(described, *self._backend(described), None)
        from forwardpass.benching import Figure

        seconds: list[float] = []
        while True:
            peak.begin()
            start = time.perf_counter()
            opened = self.open()
            described = _described(opened, random=False)
            backend, notes = self._backend(described)
            seconds.append(time.perf_counter() - start)
            peak.end()
            if len(seconds) == times:
                self.opened = opened
                return Loaded(described, backend, notes, Figure.of(seconds))
            del backend
            opened.close()
            gc.collect()

    def close(self) -> None:
        """Gives the files up."""
        if self.opened is not None:
            self.opened.close()

    def _backend(self, described: Description) -> tuple[Computes, tuple[str, ...]]:
        if not self.random:
            return self.computing.backend_for(described, described.label)
        from forwardpass.backends.random_weights import RandomWeights

        random = RandomWeights(described.graph)
        return self.computing.backend_of(described.graph, random, described.label)


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
        return Bench(
            backend,
            NativeProbe(backend.threads) if native else NumpyProbe(),
            _float32_bytes if stored is None or self.loading.random else stored.stored_bytes,
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
        last = [load_line(loaded.seconds, bench.peak), *about(bench)]
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
    config, backend = loaded.described.config, loaded.backend
    yield from (f"without {key} = {value!r}" for key, value in config.accepted_unknown)
    yield from loaded.notes
    if backend.name != REFERENCE and not bench.fallbacks():
        yield "every op has a kernel"
    if backend.name == REFERENCE and not random:
        held = sum(_float32_bytes(weight) for weight in loaded.described.graph.parameters)
        there = f"this backend reads {size(held)} of float32 in their place"
        yield f"bytes of weights are those of the file; {there}"


def _float32_bytes(weight: Weight) -> int:
    return _WIDTH * weight.elements


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
    from forwardpass.model import whole_number

    most = described.config.context
    return most if asked is None else whole_number("context", asked, most)


def _described(opened: Opened, random: bool) -> Description:
    """What is known of the model, if that is enough to run passes."""
    described = opened.description
    if described is None:
        raise RequestError(
            f"{opened.label}: a file of tensors alone does not say what model it is",
            advice="put its config.json beside it and name the folder",
        )
    if described.weights is None and not random:
        fact = RequestError(f"{described.label} is a shape without weights, and passes need some")
        missing = weights_missing(opened) or fact
        raise RequestError(
            missing.fact, *missing.details, advice=f"--weights {RANDOM} runs it with random ones"
        )
    return described
