"""Paths and references as people and programs write them."""

from __future__ import annotations

import os
from pathlib import Path

from forwardpass.errors import RequestError


def written(text: str, where: str = "") -> Path:
    """The path that a person wrote, `~` and `~name` at its start replaced by a home folder.

    `where` begins the error. Raises RequestError where nobody of that name has a home folder.
    """
    try:
        return Path(text).expanduser()
    except RuntimeError:
        user = text.split("/", 1)[0]
        raise RequestError(
            f"{where}{text}: the home folder of {user} is not known",
            advice=f"./{text} names a folder that is called so",
        ) from None


def reference_text(reference: object) -> str:
    """What a program calls a model, as text. Raises RequestError for anything but text or path."""
    found = os.fspath(reference) if isinstance(reference, os.PathLike) else reference
    if not isinstance(found, str):
        raise RequestError(f"reference = {reference!r:.60}: wanted a text or a path")
    return found
