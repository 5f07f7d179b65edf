"""A trace as JSON says it: version 1 of the format. docs/trace.md describes every key.

reading.py turns it into a trace again.
"""

from __future__ import annotations

import base64
import math
from typing import TYPE_CHECKING

import numpy as np

from forwardpass.errors import ComputeError
from forwardpass.sampling.outcome import BestScores, StageResult
from forwardpass.trace.masks import notes_dict
from forwardpass.trace.step import Step

if TYPE_CHECKING:
    from forwardpass.trace.trace import Trace

FORMAT, VERSION = "forwardpass trace", 1
LONGEST_LIST = 4_096  # scores that are written as a list; more are written in base64


def as_dict(trace: Trace) -> dict[str, object]:
    """The trace, ready for JSON; `reading.from_dict` gives an equal one back."""
    model = trace.model
    masks = {} if trace.masks is None else {"masks": notes_dict(trace.masks)}
    return {
        "format": FORMAT,
        "version": VERSION,
        "program": trace.program,
        "model": {
            "label": model.label,
            "architecture": model.architecture,
            "vocabulary": model.vocabulary,
            "backend": model.backend,
        },
        "prompt": {"ids": list(trace.prompt)},
        "text": trace.text,
        "finish_reason": trace.finish_reason,
        "ends": sorted(trace.ends),
        "breakers": sorted(trace.breakers),
        "max_tokens": trace.max_tokens,
        "choice": trace.choice,
        "sampling": trace.sampling.as_dict(),
        "tokens": {
            str(token): {"text": note.text, "bytes": list(note.bytes)}
            for token, note in trace.tokens.items()
        },
        "steps": [_step(step) for step in trace.steps],
        **masks,
    }


def _step(step: Step) -> dict[str, object]:
    outcome = step.outcome
    held = {} if step.mask is None else {
        "held": {"forced": step.forced, "steered": step.mask.steered}
    }  # fmt: skip
    return {
        "index": step.index,
        "id": step.id,
        "text": step.text,
        "finish_reason": step.finish_reason,
        "taken": step.taken,
        "logprob": _finite(step.logprob),
        "sampled_logprob": _finite(step.sampled_logprob),
        "drawn": outcome.token,
        "drawn_logprob": outcome.logprob,
        "drawn_sampled_logprob": outcome.sampled_logprob,
        "random": outcome.random,
        "interval": None if outcome.interval is None else list(outcome.interval),
        "rank": outcome.rank,
        "masked": outcome.masked,
        "best": _best(outcome.best),
        "stages": [stage_as_dict(stage) for stage in outcome.stages],
        "after": [{"id": ranked.id, "logprob": ranked.logprob} for ranked in outcome.after],
        "wanted": [
            {"id": token, "logprob": _finite(own), "sampled_logprob": _finite(sampled)}
            for token, own, sampled in outcome.wanted
        ],
        **held,
    }


def stage_as_dict(stage: StageResult) -> dict[str, object]:
    """One stage, its names as in `StageResult`."""
    value = stage.value
    return {
        "name": stage.name,
        "value": list(value) if isinstance(value, tuple) else value,
        "source": stage.source,
        "acts": stage.acts,
        "survivors": stage.survivors,
        "mass": stage.mass,
        "best": stage.best,
        "best_probability": stage.best_probability,
    }


def _best(best: BestScores) -> dict[str, object]:
    if best.scores.dtype != np.float32:
        raise ComputeError(f"scores: {best.scores.dtype}: a trace holds float32")
    kept: dict[str, object]
    if best.ids.size > LONGEST_LIST:
        kept = {
            "ids_base64": base64.b64encode(best.ids.astype("<i4").tobytes()).decode("ascii"),
            "scores_base64": base64.b64encode(best.scores.astype("<f4").tobytes()).decode("ascii"),
        }
    else:
        # NumPy writes the shortest decimal that reads back as the same float32.
        scores = [float(str(score)) for score in best.scores]
        kept = {"ids": best.ids.tolist(), "scores": scores}
    return {
        **kept, "rest": best.rest, "log_sum": best.log_sum, "rest_mass": best.rest_mass
    }  # fmt: skip


def _finite(logprob: float) -> float | None:
    """A log probability; null for a token that cannot come, as JSON has no infinity."""
    return None if logprob == -math.inf else logprob
