"""The instruction-set levels of this machine, by whether prompts are multiplied in bf16 tiles."""

from __future__ import annotations

from forwardpass.backends.levels import missing_reason


def runnable(tiles: bool) -> str | None:
    """The best level here with tiles, or without; None where there is none."""
    if missing_reason() is not None:
        return None
    from forwardpass import _native

    return next((level for level in _native.levels() if _native.has_tiles(level) == tiles), None)
