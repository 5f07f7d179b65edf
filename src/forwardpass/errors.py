"""Every error that forwardpass raises on purpose, and how one reads.

    ForwardpassError            a fact, its details, one line of advice; exit status 1
    ├── RequestError            what was asked for is wrong; exit status 2
    │   ├── ModelNotFound       no file, alias or hub id of that name
    │   ├── SchemaError         a JSON Schema that cannot be honoured, all its problems at once
    │   └── ContextError        more tokens than the context holds
    ├── FormatError             a file's bytes are not what the format says
    ├── ConfigError             a setting that cannot be honoured
    ├── WeightsError            tensors missing, left over, misshapen or too large
    ├── TokenizerError          a vocabulary that cannot be used
    ├── TemplateError           a chat template that failed, was stopped or refused
    ├── GraphError              ops whose shapes do not fit together
    ├── ComputeError            a pass that went wrong: a wrong dtype, a NaN
    └── DownloadError           a file that could not be fetched or verified

The text is one line of fact (where, what, offered, wanted), indented details, one line of
advice. Each part is kept apart so that a terminal and an HTTP answer can lay it out.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass


class ForwardpassError(Exception):
    """The base of all errors raised on purpose.

    `fact` is one line; `details` are printed indented below it; `advice` is one line that says
    what to do, or None.
    """

    exit_status = 1

    def __init__(self, fact: str, *details: str, advice: str | None = None) -> None:
        super().__init__(fact)
        self.fact = fact
        self.details = details
        self.advice = advice

    def __str__(self) -> str:
        lines = [self.fact, *(f"  {line}" for line in self.details)]
        if self.advice:
            # A whole sentence stands at the margin, a hint below the details.
            lines.append(self.advice if self.advice[0].isupper() else f"  {self.advice}")
        return "\n".join(lines)


class RequestError(ForwardpassError):
    """What was asked for is wrong: an option, a field, a value out of range."""

    exit_status = 2


class ModelNotFound(RequestError):
    """No file, alias, shape or hub id has that name."""


class ContextError(RequestError):
    """A prompt, or a prompt and its answer, longer than the context."""


@dataclass(frozen=True, slots=True)
class SchemaProblem:
    """One thing in a JSON Schema that cannot be honoured: where, which keyword, why, what to do."""

    pointer: str
    keyword: str
    reason: str
    way_out: str = ""

    def __str__(self) -> str:
        place = f"{self.pointer or '/'}: {self.keyword} {self.reason}"
        return f"{place}; {self.way_out}" if self.way_out else place


class SchemaError(RequestError):
    """A JSON Schema that cannot be honoured; `problems` holds everything found in it.

    `unsatisfiable` says that the schema is understood, and that no value is valid under it.
    """

    def __init__(self, problems: Sequence[SchemaProblem], *, unsatisfiable: bool = False) -> None:
        self.problems = tuple(problems)
        self.unsatisfiable = unsatisfiable
        count = len(self.problems)
        found = "1 problem" if count == 1 else f"{count} problems"
        super().__init__(
            f"the JSON schema cannot be enforced: {found}",
            *(str(problem) for problem in self.problems),
            advice="An answer must not be looser than its schema, so nothing was generated.",
        )


class FormatError(ForwardpassError):
    """A file's bytes are not what its format says."""


class ConfigError(ForwardpassError):
    """A setting of a model's config that this version cannot honour."""


class WeightsError(ForwardpassError):
    """The tensors of a file are not those that the graph asks for."""


class TokenizerError(ForwardpassError):
    """A vocabulary that cannot be used as it is."""


class TemplateError(ForwardpassError):
    """A chat template failed, was stopped at a limit, or refused the conversation."""


class GraphError(ForwardpassError):
    """Ops whose shapes, roles or names do not fit together."""


class ComputeError(ForwardpassError):
    """A pass that went wrong while it ran."""


class DownloadError(ForwardpassError):
    """A file that could not be fetched, or did not have the right sha256."""


def nearest(name: str, offered: Iterable[str]) -> str | None:
    """The offered name closest to `name`, or None where none is close."""
    found = difflib.get_close_matches(name, list(offered), n=1, cutoff=0.6)
    return found[0] if found else None


def did_you_mean(name: str, offered: Iterable[str]) -> str:
    """`"  (did you mean …?)"`, or an empty string where nothing offered is close."""
    near = nearest(name, offered)
    return f"  (did you mean {near}?)" if near else ""
