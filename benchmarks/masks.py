"""How long a mask takes, ours beside llguidance's and XGrammar's.

    python benchmarks/masks.py my-machine model.gguf CASES
    python benchmarks/masks.py my-machine model.gguf CASES --python xgrammar=PATH

CASES is a folder of files of schemas with instances: lists of {"id", "schema", "tests": [{"data",
"valid"}]}. Schemas are drawn by `--seed`; each needs a valid instance that every side takes, token
by token, in the same text: `json.dumps` of it with the names in the order of the schema. What was
passed over is counted by side. One thread each, processes that run in turn, A B C A B C, `--turns`
times a text; the figure of a place in a text is its median over the turns, and the quantiles go
over all places of all texts. `--python` names another interpreter for a side. A side that cannot be
started is left out, and the results say why. Writes benchmarks/results/NAME.json.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE / "rivals"))

from mask_process import Side, SideError  # noqa: E402
from report import Found, Results, heading  # noqa: E402

OURS = "forwardpass"
SIDES = (OURS, "llguidance", "llguidance-free", "xgrammar", "xgrammar-strict")
QUANTILES = {"p50": 50, "p90": 90, "p99": 99, "max": 100}
PARTS = ("masks", "advances", "applies")
_MOST_DRAWN = 5  # schemas for each that is wanted, whoever refuses them
_BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True}

Encode = Callable[[str], list[int]]


def vocabulary(model: str, path: Path) -> Encode:
    """Writes a model's vocabulary for the sides to read; what encodes a text with it."""
    from forwardpass import hub
    from forwardpass.formats import open_tensors
    from forwardpass.text.from_gguf import from_gguf

    found = Path(model) if Path(model).is_file() else hub.pull(model, os.environ)
    tokenizer = from_gguf(open_tensors(found).metadata, name=model)
    # llguidance reads the file of Hugging Face's library: ours has control tokens apart.
    library = json.loads(tokenizer._libraries("a", True).to_str())
    library["decoder"] = library["decoder"] or _BYTE_LEVEL | {"use_regex": True}
    named = {added["id"] for added in library["added_tokens"]}
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    library["added_tokens"] += [
        {"id": token.id, "content": token.text, "special": True, **flags}
        for token in tokenizer.control_tokens
        if token.id not in named
    ]
    library["added_tokens"].sort(key=lambda added: added["id"])
    given = {
        "texts": [tokenizer.token_bytes(i).decode("latin-1") for i in range(tokenizer.vocab_size)],
        "control": [token.id for token in tokenizer.control_tokens],
        "ends": list(tokenizer.eos_ids),
        "tokenizer": json.dumps(library),
    }
    path.write_text(json.dumps(given), "utf-8")
    return tokenizer.encode


def in_order(schema: Any, value: Any) -> Any:
    """A value with the names of each object in the order of its schema, the others behind."""
    if isinstance(value, list):
        items = schema.get("items") if isinstance(schema, dict) else None
        return [in_order(items, item) for item in value]
    if not isinstance(value, dict):
        return value
    listed = schema.get("properties") if isinstance(schema, dict) else None
    listed = listed if isinstance(listed, dict) else {}
    names = [name for name in listed if name in value]
    names += [name for name in value if name not in listed]
    return {name: in_order(listed.get(name), value[name]) for name in names}


def cases(folder: Path, seed: int) -> list[Found]:
    """All schemas that have a valid instance, in an order drawn by `seed`, with one such text."""
    found = []
    for path in sorted(folder.glob("*.json")):
        for case in json.loads(path.read_text("utf-8")):
            valid = [test["data"] for test in case["tests"] if test["valid"]]
            if valid:
                text = json.dumps(in_order(case["schema"], valid[0]), ensure_ascii=False)
                schema = json.dumps(case["schema"])
                found.append({"id": case["id"], "schema": schema, "text": text})
    random.Random(seed).shuffle(found)
    return found


class Sample:
    """The texts that are measured, and what was passed over to find them."""

    def __init__(self, sides: Sequence[Side], encode: Encode, longest: int) -> None:
        self._sides, self._encode, self._longest = sides, encode, longest
        self.seen = self.too_long = 0
        self.refused: Counter[str] = Counter()
        self.reasons: dict[str, str] = {}

    def tokens(self, case: Found) -> list[int] | None:
        """The ids of a text that all sides take, or None; every side is asked."""
        self.seen += 1
        tokens = self._encode(case["text"])
        if len(tokens) > self._longest:
            self.too_long += 1
            return None
        taken = True
        for side in self._sides:
            try:
                reply = side.ask(do="judge", schema=case["schema"], tokens=tokens)
            except SideError as error:
                reply = {"refused": str(error)}
            if "refused" in reply:
                self.refused[side.name] += 1
                self.reasons[f"{side.name}: {case['id']}"] = str(reply["refused"])
                taken = False
        return tokens if taken else None

    def told(self) -> Found:
        return {
            "drawn": self.seen,
            "too_long": self.too_long,
            "refused": dict(self.refused),
            "reasons": dict(sorted(self.reasons.items())[:400]),
        }


class Times:
    """What one side needed: for each place of each text the median over the turns, in µs."""

    def __init__(self) -> None:
        self.compile: list[float] = []
        self.places: dict[str, list[float]] = {}

    def add(self, turns: Sequence[Found]) -> None:
        """Takes in the turns of one text."""
        self.compile.append(statistics.median(turn["compile"] for turn in turns))
        for walk in ("first", "again"):
            for part in PARTS:
                rows = np.array([turn[walk][part] for turn in turns if turn[walk][part]])
                if rows.size:
                    places = self.places.setdefault(f"{walk} {part}", [])
                    places += np.median(rows, axis=0).tolist()
            # What a step costs beyond one without a grammar: its mask, applied, and the advance.
            steps = [
                np.sum([turn[walk][part] for part in PARTS], axis=0)
                for turn in turns
                if turn[walk]["applies"]
            ]
            if steps:
                places = self.places.setdefault(f"{walk} steps", [])
                places += np.median(steps, axis=0).tolist()
            made = statistics.median(turn[walk]["guide"] for turn in turns)
            self.places.setdefault(f"{walk} guide", []).append(made)

    def summary(self) -> Found:
        """Quantiles of each part, in µs."""
        parts = {"compile": self.compile, **self.places}
        return {part: quantiles(values) for part, values in parts.items()}


def quantiles(values: Sequence[float]) -> dict[str, float]:
    """p50, p90, p99, the most, and the mean."""
    found = {name: round(float(np.percentile(values, q)), 1) for name, q in QUANTILES.items()}
    return found | {"mean": round(float(np.mean(values)), 1)}


def measure(sides: Sequence[Side], texts: Sequence[tuple[Found, list[int]]], given: Any) -> Found:
    """Times all sides on all texts, in turn; ratios are of the same place in the same turns."""
    times = {side.name: Times() for side in sides}
    for case, tokens in texts:
        turns: dict[str, list[Found]] = {side.name: [] for side in sides}
        for _ in range(given.turns):
            for side in sides:
                request = {"schema": case["schema"], "tokens": tokens}
                request["apply"] = given.apply and not turns[side.name]
                turns[side.name].append(side.ask(do="time", **request))
        for name, rows in turns.items():
            times[name].add(rows)
    first = times[sides[0].name]
    found: Found = {}
    for name, time in times.items():
        found[name] = time.summary()
        if time is not first:
            found[name]["times_first"] = _ratios(time, first)
    tokens_in_all = sum(len(tokens) for _, tokens in texts)
    load = [round(each, 2) for each in os.getloadavg()]
    return {"texts": len(texts), "tokens": tokens_in_all, "load": load, "us": found}


def _ratios(theirs: Times, ours: Times) -> dict[str, float]:
    pairs = {"compile": (theirs.compile, ours.compile)} | {
        part: (theirs.places[part], ours.places[part])
        for part in theirs.places
        if part in ours.places
    }
    return {
        part: round(float(np.median(np.divide(mine, np.maximum(own, 0.01)))), 2)
        for part, (mine, own) in pairs.items()
    }


def set_up(sides: Sequence[Side], path: Path, repeats: int) -> Found:
    """Milliseconds of making the vocabulary, once a model: each side `repeats` times, in turn."""
    rows: dict[str, list[float]] = {side.name: [] for side in sides}
    for _ in range(repeats):
        for side in sides:
            rows[side.name].append(side.ask(do="vocabulary", path=str(path))["ms"])
    return {
        name: {"median": round(statistics.median(ms)), "each": [round(each) for each in ms]}
        for name, ms in rows.items()
    }


def start(given: Any, pythons: dict[str, str]) -> tuple[list[Side], dict[str, str]]:
    """The sides that can be started, and why the others cannot."""
    sides, missing = [], {}
    for name in given.sides:
        try:
            sides.append(Side(name, pythons.get(name, sys.executable), given.seconds))
        except (SideError, OSError) as error:
            missing[name] = str(error)
    if not sides:
        sys.exit(f"no side can be started: {missing}")
    return sides, missing


def shown(entry: Found) -> str:
    """One result as lines for people."""
    if "ms" in entry:
        each = ", ".join(f"{name} {row['median']:,} ms" for name, row in entry["ms"].items())
        return f"vocabulary: {each}"
    lines = [f"{entry['set']}: {entry['texts']} texts, {entry['tokens']:,} tokens, µs"]
    for name, parts in entry["us"].items():
        for part, row in parts.items():
            if part != "times_first":
                figures = "".join(f"{row[q]:>11,.1f}" for q in (*QUANTILES, "mean"))
                lines.append(f"  {name:<16} {part:<16}{figures}")
    return "\n".join(lines)


def parsed(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description="token masks, in turn on the same texts")
    parser.add_argument("name", help="of the results")
    parser.add_argument("model", help="whose vocabulary is taken: a GGUF file or a known name")
    parser.add_argument("cases", type=Path, help="folder of schemas with instances")
    parser.add_argument("--sides", nargs="+", default=SIDES, choices=SIDES)
    parser.add_argument("--python", nargs="*", default=[], metavar="SIDE=PATH")
    parser.add_argument("--schemas", type=int, default=200)
    parser.add_argument("--longest", type=int, default=400, help="tokens of a text")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=20, help="for one reply")
    parser.add_argument("--alone", action="store_true", help="all that the first side takes, too")
    parser.add_argument("--no-apply", dest="apply", action="store_false")
    parser.add_argument("--results", type=Path, default=HERE / "results", help="folder")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measures and writes the results."""
    given = parsed(arguments)
    pythons = dict(pair.split("=", 1) for pair in given.python)
    named = ("schemas", "longest", "turns", "seed")
    settings = {name: getattr(given, name) for name in named} | {"threads": 1}
    print(f"seed {given.seed}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "vocabulary.json"
        encode = vocabulary(given.model, path)
        sides, missing = start(given, pythons)
        about = {
            "model": Path(given.model).name,
            "engines": {side.name: side.version for side in sides} | missing,
        }
        results = Results(given.results / f"{given.name}.json", heading(settings) | about)
        try:
            add(results, {"ms": set_up(sides, path, given.turns)})
            all_cases = cases(given.cases, given.seed)
            compare(results, "taken by all", sides, all_cases, encode, given)
            if given.alone:
                given.schemas = len(all_cases)
                name = f"all that {sides[0].name} takes"
                compare(results, name, sides[:1], all_cases, encode, given)
        finally:
            for side in sides:
                side.end()


def compare(
    results: Results,
    name: str,
    sides: Sequence[Side],
    drawn: Sequence[Found],
    encode: Encode,
    given: Any,
) -> None:
    """One sample, and its times."""
    sample = Sample(sides, encode, given.longest)
    texts: list[tuple[Found, list[int]]] = []
    most = _MOST_DRAWN * given.schemas
    for case in drawn:
        if len(texts) == given.schemas or sample.seen == most:
            break
        if (tokens := sample.tokens(case)) is not None:
            texts.append((case, tokens))
    if texts:
        add(results, {"set": name, **measure(sides, texts, given), **sample.told()})
    else:
        add(results, {"set": name, "texts": 0, "tokens": 0, "us": {}, **sample.told()})


def add(results: Results, entry: Found) -> None:
    """Keeps a result and shows it."""
    results.add(entry)
    print(shown(entry), flush=True)


if __name__ == "__main__":
    main()
