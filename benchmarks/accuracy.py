"""How far a backend's probabilities are from the reference's, on a text that it never saw.

The text (`text/*.txt`, joined in the order of their names) is cut into windows of tokens, each
behind the model's first token where it has one, and read as it stands: every position is scored,
whatever the model would have said. For each, KL(reference || other) in nats, in float64 over the
whole vocabulary, and whether both like the same token best. The same numbers stand for llama.cpp,
on the same tokens and in the same phase.

Phases: `prompt` reads each window as a prompt; `generated` runs every token as the model's own, one
at a time; `after-prompt` reads the first half as a prompt and scores the second, as generated. The
reference always reads prompts. `rounded` is no engine: it is the reference's own logits in float16,
to show what the numbers say of a small error that is known.

Engines run in processes of their own and write logits to a pipe, so that no two models are in
memory at once. The reference's logits are written to --cache once and streamed from there: float32,
positions × vocabulary, 1 GB or more for a large vocabulary.

    python benchmarks/accuracy.py MODEL.gguf --cache DIR --llama-python OTHER/bin/python
"""

from __future__ import annotations

import argparse
import hashlib
import importlib
import json
import math
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

F32 = npt.NDArray[np.float32]
F64 = npt.NDArray[np.float64]

HERE = Path(__file__).resolve().parent
PHASES = ("prompt", "generated", "after-prompt")
CLEAR = 0.05  # logits between the reference's two best, above which its choice is clear
ROWS = 32  # of logits compared at a time: float64 copies of more would be gigabytes
PASS = 128  # tokens of a pass on our backends; a multiple of the reference's tile


def log_softmax(logits: F32) -> F64:
    """Natural logs of the probabilities, r v, in float64."""
    wide = logits.astype(np.float64)
    wide -= wide.max(axis=-1, keepdims=True)
    wide -= np.log(np.exp(wide).sum(axis=-1, keepdims=True))
    return wide


def kl_divergence(reference: F32, other: F32) -> F64:
    """KL(reference || other) of each row, in nats. Rounding can leave ±1e-15 where it is 0."""
    ours = log_softmax(reference)
    divergence: F64 = (np.exp(ours) * (ours - log_softmax(other))).sum(axis=-1)
    return divergence


def lead(logits: F32) -> F64:
    """By how much each row's best logit exceeds the second best; 0 where two are equal."""
    best = np.partition(logits, -2, axis=-1)[:, -2:].astype(np.float64)
    gap: F64 = best[:, 1] - best[:, 0]
    return gap


@dataclass
class Comparison:
    """Numbers of each position compared so far: KL, whether the best token agrees, the lead."""

    kl: list[float] = field(default_factory=list)
    agrees: list[bool] = field(default_factory=list)
    leads: list[float] = field(default_factory=list)

    def add(self, reference: F32, other: F32) -> None:
        """Compares rows r v. Raises ValueError for rows that are not finite or not alike."""
        if reference.shape != other.shape:
            raise ValueError(f"logits of {other.shape}, the reference's are {reference.shape}")
        for name, logits in (("reference", reference), ("other", other)):
            if not np.isfinite(logits).all():
                raise ValueError(f"the {name}'s logits are not finite")
        self.kl += kl_divergence(reference, other).tolist()
        self.agrees += (reference.argmax(axis=-1) == other.argmax(axis=-1)).tolist()
        self.leads += lead(reference).tolist()

    def summary(self) -> dict[str, Any]:
        """The keys of a run in JSON. `percentile_99_9` is interpolated between two positions."""
        clear = [agrees for agrees, gap in zip(self.agrees, self.leads, strict=True) if gap > CLEAR]
        return {
            "positions": len(self.kl),
            "kl": {
                "mean": math.fsum(self.kl) / len(self.kl),
                "percentile_99_9": float(np.percentile(self.kl, 99.9)),
                "max": max(self.kl),
            },
            "top1": {"agree": sum(self.agrees), "positions": len(self.agrees)},
            "top1_clear": {"lead_over": CLEAR, "agree": sum(clear), "positions": len(clear)},
        }


@dataclass(frozen=True)
class Reading:
    """What is read: a model's windows of tokens. `digest` stands for the model and the tokens."""

    model: Path
    windows: tuple[tuple[int, ...], ...]
    digest: str
    facts: Mapping[str, Any]

    @property
    def positions(self) -> int:
        """Tokens of all windows."""
        return sum(map(len, self.windows))


def cut(ids: Sequence[int], bos: int | None, length: int) -> tuple[tuple[int, ...], ...]:
    """The tokens in windows of up to `length`, `bos` at the head of each where there is one."""
    head = () if bos is None else (bos,)
    step = length - len(head)
    return tuple((*head, *ids[at : at + step]) for at in range(0, len(ids), step))


def prompt_tokens(phase: str, length: int) -> int:
    """How many of a window's first tokens are read as a prompt."""
    return {"prompt": length, "generated": 0, "after-prompt": length // 2}[phase]


def reading(model: Path, text: Path, length: int, limit: int | None) -> Reading:
    """The windows of the text in `text`/*.txt, as many as hold `limit` tokens where given."""
    from forwardpass.loading import load_text

    words = "\n".join(path.read_text("utf-8") for path in sorted(text.glob("*.txt")))
    tokenizer, _ = load_text(model)
    bos = tokenizer.bos_id if tokenizer.add_bos else None
    windows = cut(tokenizer.encode(words)[:limit], bos, length)
    with model.open("rb") as file:
        sha256 = hashlib.file_digest(file, "sha256").hexdigest()
    digest = hashlib.sha256(json.dumps([sha256, windows]).encode()).hexdigest()
    facts = {
        "model": {"file": model.name, "bytes": model.stat().st_size, "sha256": sha256},
        "text": {
            "bytes": len(words.encode()),
            "sha256": hashlib.sha256(words.encode()).hexdigest(),
            "windows": len(windows),
            "window_tokens": length,
            "bos": bos,
            "positions": sum(map(len, windows)),
        },
    }
    return Reading(model, windows, digest, facts)


def passes(phase: str, window: Sequence[int], most: int) -> Iterator[tuple[Sequence[int], bool]]:
    """A window's passes: their tokens, `most` at a time in a prompt, and whether generated."""
    prompt = prompt_tokens(phase, len(window))
    for at in range(0, prompt, most):
        yield window[at : min(at + most, prompt)], False
    for token in window[prompt:]:
        yield (token,), True


def forwardpass_logits(request: Mapping[str, Any]) -> Iterator[dict[str, Any] | F32]:
    """A backend of ours: its header, then the logits of every token of every window, r v."""
    import forwardpass

    with forwardpass.load(
        request["model"], backend=request["engine"], threads=request["threads"]
    ) as model:
        backend = model.runner.backend
        yield {"vocabulary": model.description.config.vocab_size, "version": forwardpass_version()}
        for window in request["windows"]:
            cache = backend.new_cache()
            for tokens, generated in passes(request["phase"], window, PASS):
                rows = range(len(tokens))
                yield backend.run(cache, tokens, wanted=rows, generated=generated)


def llama_logits(request: Mapping[str, Any]) -> Iterator[dict[str, Any] | F32]:
    """llama.cpp with its own defaults, so with a cache in float16: header, then logits, r v."""
    llama = importlib.import_module("llama_cpp")
    quiet = llama.llama_log_callback(lambda level, text, data: None)
    llama.llama_log_set(quiet, None)
    llama.llama_backend_init()
    model = llama.llama_model_load_from_file(
        request["model"].encode(), llama.llama_model_default_params()
    )
    settings = llama.llama_context_default_params()
    settings.n_ctx = settings.n_batch = settings.n_ubatch = max(map(len, request["windows"]))
    settings.n_threads = settings.n_threads_batch = request["threads"]
    context = llama.llama_init_from_model(model, settings) if model else None
    if not context:
        raise SystemExit(f"llama.cpp cannot load {request['model']}")
    vocabulary = llama.llama_vocab_n_tokens(llama.llama_model_get_vocab(model))
    yield {
        "vocabulary": vocabulary,
        "version": f"llama-cpp-python {llama.__version__}",
        "build": llama.llama_print_system_info().decode().strip(),
    }
    batch = llama.llama_batch_init(settings.n_batch, 0, 1)
    for window in request["windows"]:
        llama.llama_memory_clear(llama.llama_get_memory(context), True)
        position = 0
        for tokens, _ in passes(request["phase"], window, settings.n_batch):
            batch.n_tokens = len(tokens)
            for row, token in enumerate(tokens):
                batch.token[row], batch.pos[row], batch.logits[row] = token, position + row, True
                batch.n_seq_id[row], batch.seq_id[row][0] = 1, 0
            position += len(tokens)
            if (status := llama.llama_decode(context, batch)) != 0:
                raise SystemExit(f"llama_decode returned {status}")
            scores = llama.llama_get_logits(context)
            yield np.ctypeslib.as_array(scores, shape=(len(tokens), vocabulary))


def serve() -> None:
    """The worker: a request in JSON on stdin; a line of JSON and raw float32 rows on stdout."""
    # What an engine prints must not get between the numbers.
    with os.fdopen(os.dup(1), "wb") as out:
        os.dup2(2, 1)
        request = json.load(sys.stdin)
        source = llama_logits if request["engine"] == "llama.cpp" else forwardpass_logits
        for part in source(request):
            if isinstance(part, dict):
                out.write(json.dumps(part).encode() + b"\n")
            else:
                out.write(np.ascontiguousarray(part, dtype="<f4").data)


@dataclass
class Stream:
    """Logits as a worker writes them, row after row."""

    header: dict[str, Any]
    source: IO[bytes]

    def read(self, rows: int) -> F32:
        """The next rows, r v. Raises SystemExit where the worker has ended."""
        wanted = 4 * rows * int(self.header["vocabulary"])
        data = self.source.read(wanted)
        if len(data) != wanted:
            raise SystemExit("the engine's process ended early; its own message is above")
        return np.frombuffer(data, "<f4").reshape(rows, -1)


@contextmanager
def running(python: str, engine: str, phase: str, what: Reading, threads: int) -> Iterator[Stream]:
    """The logits of an engine, from a process of that Python."""
    command = [python, str(Path(__file__).resolve()), "--serve"]
    request = {"engine": engine, "model": str(what.model), "phase": phase, "threads": threads}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps({**request, "windows": what.windows}).encode())
        process.stdin.close()
        line = process.stdout.readline()
        if not line:
            raise SystemExit(f"{engine}: its process ended early; its own message is above")
        yield Stream(json.loads(line), process.stdout)


def blocks(what: Reading, phase: str) -> Iterator[tuple[slice, bool]]:
    """Positions in blocks of up to `ROWS`, and whether the phase scores them."""
    start = 0
    for window in what.windows:
        first = 0 if phase == "prompt" else prompt_tokens(phase, len(window))
        for low, high, scored in ((0, first, False), (first, len(window), True)):
            for at in range(low, high, ROWS):
                yield slice(start + at, start + min(at + ROWS, high)), scored
        start += len(window)


def reference_logits(what: Reading, folder: Path, threads: int) -> tuple[F32, dict[str, Any]]:
    """The reference's logits, positions v, mapped from the cache; and how they were made.

    They are computed where the cache has none for this model and these tokens. A newer reference
    does not make them stale: the commit that made them is among the results.
    """
    path = folder / f"{what.model.stem}-{what.digest[:16]}.npy"
    made = path.with_suffix(".json")  # written last: without it, the numbers are not complete
    if not made.exists():
        folder.mkdir(parents=True, exist_ok=True)
        with running(sys.executable, "reference", "prompt", what, threads) as stream:
            shape = (what.positions, int(stream.header["vocabulary"]))
            store = np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=shape)
            for rows, _ in blocks(what, "prompt"):
                store[rows] = stream.read(rows.stop - rows.start)
                if sys.stderr.isatty():
                    print(f"  reference: {rows.stop:,}", end="\r", file=sys.stderr)
            store.flush()
            made.write_text(json.dumps(stream.header), "utf-8")
    return np.load(path, mmap_mode="r"), json.loads(made.read_text("utf-8"))


def compared(what: Reading, reference: F32, phase: str, stream: Stream | None) -> dict[str, Any]:
    """The numbers of one engine in one phase; without a stream, of the rounded reference."""
    comparison = Comparison()
    for rows, scored in blocks(what, phase):
        ours = np.asarray(reference[rows])
        rounded = ours.astype(np.float16).astype(np.float32)
        other = rounded if stream is None else stream.read(len(ours))
        if scored:
            comparison.add(ours, other)
    return {"phase": phase, **({} if stream is None else stream.header), **comparison.summary()}


def measured(options: argparse.Namespace, what: Reading) -> dict[str, Any]:
    """All that is asked for of one model, as it is written to its file."""
    reference, made = reference_logits(what, options.cache, options.threads)
    runs = [{"engine": "rounded", **compared(what, reference, "prompt", None)}]
    show(runs[-1])
    engines = [(sys.executable, name) for name in options.backend]
    if options.llama_python is not None:
        engines.append((options.llama_python, "llama.cpp"))
    for python, engine in engines:
        for phase in options.phase:
            with running(python, engine, phase, what, options.threads) as stream:
                runs.append({"engine": engine, **compared(what, reference, phase, stream)})
            show(runs[-1])
    return {**what.facts, **circumstances(options.threads), "reference": made, "runs": runs}


def show(run: Mapping[str, Any]) -> None:
    """One line of the table."""
    kl, all_, clear = run["kl"], run["top1"], run["top1_clear"]
    print(
        f"  {run['engine']:<10} {run['phase']:<13} {run['positions']:>6,}"
        f"  {kl['mean']:>10.2e} {kl['percentile_99_9']:>10.2e} {kl['max']:>10.2e}"
        f"  {100 * all_['agree'] / all_['positions']:>7.2f} %"
        f"  {100 * clear['agree'] / max(1, clear['positions']):>7.2f} %"
        f" of {clear['positions']:,}",
        flush=True,
    )


def forwardpass_version() -> str:
    """Our version and commit."""
    from forwardpass._version import __version__, commit

    return f"forwardpass {__version__} {commit() or 'of no known commit'}"


def circumstances(threads: int) -> dict[str, Any]:
    """Where and with what the numbers were made."""
    from forwardpass.backends.levels import native_report
    from forwardpass.backends.threads import usable_cores
    from forwardpass.work.machine import cpu_name

    return {
        "machine": {
            "cpu": cpu_name(),
            "cores": usable_cores(),
            "threads": threads,
            "level": native_report().level,
        },
        "forwardpass": forwardpass_version(),
        "numpy": np.__version__,
    }


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description="KL and top-1 agreement with the reference")
    parser.add_argument("models", nargs="+", type=Path, metavar="MODEL.gguf")
    parser.add_argument("--cache", type=Path, required=True, help="folder of reference logits")
    parser.add_argument("--backend", nargs="*", default=["native"], help="ours, to be compared")
    parser.add_argument("--phase", nargs="+", choices=PHASES, default=list(PHASES))
    parser.add_argument("--llama-python", help="a Python that has llama_cpp")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--window", type=int, default=512, help="tokens (512)")
    parser.add_argument("--limit", type=int, help="read the first so many tokens of the text only")
    parser.add_argument("--text", type=Path, default=HERE / "text", help="folder of *.txt")
    parser.add_argument("--results", type=Path, default=HERE / "results")
    return parser.parse_args()


def main() -> None:
    """Measures each model, prints its table and writes its results."""
    options = arguments()
    for model in options.models:
        what = reading(model, options.text, options.window, options.limit)
        print(f"{model.stem}: {what.positions:,} positions in {len(what.windows)} windows")
        print(f"  {'':<24} {'scored':>6}  {'mean KL':>10} {'99.9 %':>10} {'max':>10}", end="")
        print(f"  {'top-1':>9}  {f'lead > {CLEAR}':>11}", flush=True)
        results = measured(options, what)
        options.results.mkdir(parents=True, exist_ok=True)
        path = options.results / f"accuracy-{model.stem}.json"
        path.write_text(json.dumps(results, indent=2) + "\n", "utf-8")


if __name__ == "__main__":
    if sys.argv[1:] == ["--serve"]:
        serve()
    else:
        main()
