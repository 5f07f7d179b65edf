"""forwardpass runs open language models and shows the work.

    import forwardpass as fp

    model = fp.load("smollm2-135m")
    answer = model.generate("Name one herb for tomato soup.", temperature=1.0, seed=4)
    print(answer.text, answer.work.flop, answer.sampling.temperature.source)

Names are loaded when they are first used, so that importing the package loads nothing else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from forwardpass._version import __version__
    from forwardpass.answer import Answer, Usage
    from forwardpass.counting import count
    from forwardpass.errors import (
        ComputeError,
        ConfigError,
        ContextError,
        DownloadError,
        FormatError,
        ForwardpassError,
        GraphError,
        ModelNotFound,
        RequestError,
        TemplateError,
        TokenizerError,
        WeightsError,
    )
    from forwardpass.loading import load
    from forwardpass.model import Generation, Model, Raw, raw
    from forwardpass.planning import plan
    from forwardpass.text.messages import assistant, system, user
    from forwardpass.trace.files import read_trace, write_trace
    from forwardpass.trace.replay import Replay
    from forwardpass.trace.step import Candidate, Step
    from forwardpass.trace.trace import Trace

_HOMES = {
    "Answer": "answer",
    "Candidate": "trace.step",
    "ComputeError": "errors",
    "ConfigError": "errors",
    "ContextError": "errors",
    "DownloadError": "errors",
    "FormatError": "errors",
    "ForwardpassError": "errors",
    "Generation": "model",
    "GraphError": "errors",
    "Model": "model",
    "ModelNotFound": "errors",
    "Raw": "model",
    "Replay": "trace.replay",
    "RequestError": "errors",
    "Step": "trace.step",
    "TemplateError": "errors",
    "TokenizerError": "errors",
    "Trace": "trace.trace",
    "Usage": "answer",
    "WeightsError": "errors",
    "__version__": "_version",
    "assistant": "text.messages",
    "count": "counting",
    "load": "loading",
    "plan": "planning",
    "raw": "model",
    "read_trace": "trace.files",
    "system": "text.messages",
    "user": "text.messages",
    "write_trace": "trace.files",
}

__all__ = [
    "Answer",
    "Candidate",
    "ComputeError",
    "ConfigError",
    "ContextError",
    "DownloadError",
    "FormatError",
    "ForwardpassError",
    "Generation",
    "GraphError",
    "Model",
    "ModelNotFound",
    "Raw",
    "Replay",
    "RequestError",
    "Step",
    "TemplateError",
    "TokenizerError",
    "Trace",
    "Usage",
    "WeightsError",
    "__version__",
    "assistant",
    "count",
    "load",
    "plan",
    "raw",
    "read_trace",
    "system",
    "user",
    "write_trace",
]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'forwardpass' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(f"forwardpass.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
