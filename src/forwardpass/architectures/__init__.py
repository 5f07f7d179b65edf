"""One file a family; the file's name is the `model_type`."""

from __future__ import annotations

import importlib
import re
import textwrap
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path

from forwardpass.architectures.family import Family
from forwardpass.errors import ConfigError, nearest
from forwardpass.rope import shown

_HELPERS = ("__init__", "family")
_WIDTH = 94  # of a detail of an error
_NOTHING: Mapping[str, object] = {}


@cache
def model_types() -> tuple[str, ...]:
    """Every `model_type` that has a file here, sorted."""
    folder = Path(__file__).parent
    names = {path.stem for path in folder.glob("*.py")} - set(_HELPERS)
    return tuple(sorted(names))


def family(model_type: str, where: str = "config.json") -> Family:
    """The family of that `model_type`; ConfigError names the families that there are."""
    if not re.fullmatch(r"[a-z0-9_]+", model_type) or model_type not in model_types():
        near = nearest(model_type, model_types())
        raise ConfigError(
            f"{where}: model_type {shown(model_type)} is not an architecture of this version"
            + (f"  (near: {near})" if near else ""),
            *_listed(model_types()),
            advice="docs/architectures.md shows how a family is added",
        )
    module = importlib.import_module(f"forwardpass.architectures.{model_type}")
    found = module.FAMILY
    assert isinstance(found, Family)
    return found


def gguf_family(architecture: str, where: str, metadata: Mapping[str, object] = _NOTHING) -> Family:
    """The family of a GGUF file's `general.architecture`.

    Where families share one, that of which the metadata state the key that it alone has.
    """
    known: list[str] = []
    candidates: list[Family] = []
    for model_type in model_types():
        found = family(model_type)
        if found.gguf is None:
            continue
        if found.gguf.architecture != architecture:
            known.append(found.gguf.architecture)
        elif found.gguf.when is None:
            candidates.append(found)
        elif metadata.get(f"{architecture}.{found.gguf.when}"):
            return found
    if candidates:
        return candidates[0]
    raise ConfigError(
        f"{where}: general.architecture {shown(architecture)} is not an architecture of this "
        "version",
        *_listed(dict.fromkeys(known)),
        advice="docs/architectures.md shows how a family is added",
    )


def _listed(names: Iterable[str]) -> list[str]:
    """Lines that say which architectures there are."""
    return textwrap.wrap(f"it knows {', '.join(names)}", _WIDTH)
