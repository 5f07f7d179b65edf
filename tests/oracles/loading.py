"""Models loaded through our own readers, and how far their logits are from a judge's."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from forwardpass.backends.backend import Backend
from forwardpass.backends.reference import Reference
from forwardpass.describe import Description, describe_file, read_json_object
from forwardpass.formats import open_tensors
from forwardpass.graph.references import F32
from oracles.families import PROMPT, Judged

# Of the largest |logit|. float32 leaves about 1e-6 and the promise is 1e-4; between the two lies
# the smallest mutation of all, GELU by its integral for the tanh form.
TOLERANCE = 1e-5


def described(path: Path, compare_tied: bool = True) -> Description:
    """The description of a folder with config.json, or of a GGUF file."""
    raw = read_json_object(path / "config.json") if path.is_dir() else None
    return describe_file(path.name, open_tensors(path), raw, compare_tied=compare_tied)


def loaded(path: Path) -> Reference:
    return runnable(described(path))


def runnable(description: Description) -> Reference:
    assert description.weights is not None
    return Reference(description.graph, description.weights)


def logits(model: Backend, tokens: list[int]) -> tuple[F32, F32]:
    """The logits of the prompt's rows, and of each decode step behind it."""
    cache = model.new_cache()
    prompt = model.run(cache, tokens[:PROMPT], wanted=range(PROMPT))
    steps = [model.run(cache, [token], generated=True) for token in tokens[PROMPT:]]
    return prompt, np.concatenate(steps)


def distance(model: Backend, judged: Judged) -> float:
    """The largest difference from the judge, as a share of its largest |logit|."""
    return relative(logits(model, judged.tokens), (judged.prompt, judged.steps))


def relative(ours: tuple[F32, ...], theirs: tuple[F32, ...]) -> float:
    largest = max(np.abs(array).max() for array in theirs)
    worst = max(np.abs(a - b).max() for a, b in zip(ours, theirs, strict=True))
    return float(worst / largest)
