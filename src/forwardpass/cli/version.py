"""What `forwardpass --version` prints."""

from __future__ import annotations

from forwardpass._version import __version__, commit
from forwardpass.backends.levels import level_by_kernel, missing_reason


def version_text() -> str:
    """Version and commit; the backend that runs compute, and the level of this processor."""
    reason = missing_reason()
    backend = "native backend" if reason is None else f"reference backend (NumPy): {reason}"
    level = level_by_kernel() or "unknown"
    return (
        f"forwardpass {__version__} · commit {commit() or 'unknown'}\n"
        f"{backend}\n"
        f"instruction-set level {level}"
    )
