"""Outcomes kept in a file that may only improve.

A file holds every outcome that is not `right`. A test that does worse than its file fails; one
that does better fails too, until the file is written anew (FORWARDPASS_RATCHET=write), so that no
step back goes unseen.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

FOLDER = Path(__file__).parent / "outcomes"


def only_improves(name: str, outcomes: dict[str, str]) -> None:
    """Hold the outcomes against their file."""
    path = FOLDER / f"{name}.json"
    found = {case: outcome for case, outcome in outcomes.items() if outcome != "right"}
    if os.environ.get("FORWARDPASS_RATCHET") == "write":
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(found, indent=1, sort_keys=True, ensure_ascii=False) + "\n")
    known = json.loads(path.read_text("utf-8"))
    worse = {case: outcome for case, outcome in found.items() if known.get(case) != outcome}
    better = [case for case in known if case not in found]
    assert not worse, f"{len(worse)} did not go wrong before: {dict(list(worse.items())[:5])}"
    assert not better, f"{len(better)} are right now; record it with FORWARDPASS_RATCHET=write"
