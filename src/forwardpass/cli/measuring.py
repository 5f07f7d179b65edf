"""What `profile` and `bench` share: the model whose passes are timed, weights stored or random."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Annotated

import typer

from forwardpass import hub
from forwardpass.describe import Description
from forwardpass.errors import RequestError
from forwardpass.opening import Opened, open_headers, open_model, weights_missing

RANDOM = "random"
Weights = Annotated[
    str | None, typer.Option(metavar=RANDOM, help="random weights: a shape is enough")
]


def is_random(weights: str | None) -> bool:
    """Whether `--weights` asks for random ones. Raises RequestError for any other word."""
    if weights not in (None, RANDOM):
        raise RequestError(
            f'--weights "{weights}": wanted {RANDOM}, or no --weights for those of the model'
        )
    return weights == RANDOM


def open_files(
    model: str,
    random: bool,
    accept_unknown: Sequence[str],
    progress: hub.Progress | None = None,
) -> Opened:
    """The model's files; with random weights only headers are read, and nothing is fetched."""
    settings = hub.settings(os.environ)
    if random:
        return open_headers(model, settings, accept_unknown=accept_unknown)
    return open_model(model, settings, accept_unknown=accept_unknown, progress=progress)


def described(opened: Opened, random: bool) -> Description:
    """What is known of the model; RequestError where that is not enough to run passes."""
    found = opened.description
    if found is None:
        raise RequestError(
            f"{opened.label}: a file of tensors alone does not say what model it is",
            advice="put its config.json beside it and name the folder",
        )
    if found.weights is None and not random:
        if (missing := weights_missing(opened)) is not None:
            advice = f"--weights {RANDOM} runs its config with random ones"
            raise RequestError(missing.fact, *missing.details, advice=advice)
        raise RequestError(
            f"{found.label} is a shape without weights, and passes need some",
            advice=f"--weights {RANDOM} runs it with random ones",
        )
    return found


def accepted_notes(found: Description) -> list[str]:
    """The settings that the model was loaded without."""
    return [f"without {key} = {value!r}" for key, value in found.config.accepted_unknown]
