"""The results' file: what was measured, on what, and the table that is printed of it."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

Found = dict[str, Any]

_ROOT = Path(__file__).resolve().parents[2]


def heading(settings: Mapping[str, object]) -> Found:
    """What holds for all results: machine, commit, date and settings; no engine and no result."""
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": commit(),
        "cpu": {"model": _cpu_model(), "count": os.cpu_count(), "kernel": platform.release()},
        "settings": dict(settings),
        "engines": {},
        "results": [],
    }


def commit() -> str:
    """The commit of the checkout, with `.dirty` where files differ from it; empty if unknown."""
    described = ("git", "-C", str(_ROOT), "describe", "--always", "--abbrev=12", "--dirty=.dirty")
    done = subprocess.run(described, capture_output=True, text=True, check=False)
    return done.stdout.strip()


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text("utf-8").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


@dataclass(frozen=True)
class Results:
    """A file of results that is whole after every `add`."""

    path: Path
    found: Found

    def add(self, entry: Found) -> None:
        """Appends one result and writes the file."""
        self.found["results"].append(entry)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        started = self.path.with_name(f".{self.path.name}")
        started.write_text(_in_lines(self.found), "utf-8")
        started.replace(self.path)


def table(found: Found) -> str:
    """Results for people: a block for each model and pair of engines, a line for each measure.

    Rates are tokens a second, but for the fresh process, which has seconds. The ratio is how many
    times faster the first engine was: median, the middle half, and the extremes in brackets.
    """
    lines = [
        f"{found['cpu']['model']}, {found['settings']['threads']} threads, "
        f"commit {found['commit'] or 'unknown'}, {found['date']}"
    ]
    last = None
    for entry in found["results"]:
        first, second = entry["engines"]
        if (block := (entry["model"], first, second)) != last:
            lines += ["", f"{entry['model']}: {first} against {second}"]
            last = block
        if "reason" in entry:
            lines.append(f"  {entry['measure'] or 'nothing measured'}: {entry['reason']}")
        else:
            lines.append(_line(entry))
    return "\n".join(lines)


def _line(entry: Found) -> str:
    counts = f"{entry['kept']} pairs" + (f", {entry['dropped']} dropped" * bool(entry["dropped"]))
    if entry["ratio"] is None:
        ratio = entry["ratio_of_all"]
        return (
            f"  {entry['measure']:<32}no quiet pair; all {entry['dropped']}, to be distrusted:"
            f" × {ratio['median']:.3g}"
        )
    rates = [_amount(entry["kind"], entry[side]) for side in ("first", "second")]
    ratio = entry["ratio"]
    low, high = ratio["quarters"]
    least, most = ratio["extremes"]
    return (
        f"  {entry['measure']:<32}{rates[0]:>10} {rates[1]:>10}   × {ratio['median']:<6.3g}"
        f" {low:.3g} to {high:.3g} ({least:.3g} to {most:.3g})   {counts}"
    )


def _amount(kind: str, side: Mapping[str, Any]) -> str:
    if kind == "fresh":
        return f"{side['seconds']:.2f} s"
    return f"{side['rate']['median']:.1f}/s"


def engine_entry(reply: Mapping[str, object], environment: Mapping[str, object]) -> Found:
    """What the results say of an engine: its own words, and how its environment was made."""
    said = {name: reply[name] for name in ("version", "build")}
    return said | dict(environment)


def _in_lines(found: dict[str, Any]) -> str:
    """JSON with a line for each key and each result."""
    head = [f"{json.dumps(k)}: {json.dumps(v)}" for k, v in found.items() if k != "results"]
    results = ",\n".join(json.dumps(result) for result in found["results"])
    return "{\n" + ",\n".join([*head, f'"results": [\n{results}\n]']) + "\n}\n"
