"""The version that a build gets: `__version__`, and after a plus sign the commit it is built from.

A plug-in of the build backend, named in pyproject.toml. 0.1.0+g1a2b3c4d5e6f.dirty says the
commit and that files differ from it; without git, or outside a checkout, the version stands
alone. A source archive keeps the version that it was made with.

Source: PEP 440, local version identifiers; PEP 517.
"""

from __future__ import annotations

import email.parser
import runpy
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def dynamic_metadata(
    settings: Mapping[str, object], project: Mapping[str, object]
) -> dict[str, str]:
    """The fields of the metadata that are computed: the version."""
    return {"version": version(ROOT)}


def version(root: Path) -> str:
    """The version of the sources in `root`, with the commit where one is known."""
    archive = root / "PKG-INFO"
    if archive.exists():
        return str(email.parser.Parser().parsestr(archive.read_text("utf-8"))["Version"])
    names = runpy.run_path(str(root / "src" / "forwardpass" / "_version.py"))
    commit = names["commit"]() if (root / ".git").exists() else None
    local = f"+g{commit.replace('-', '.')}" if commit else ""
    return f"{names['__version__']}{local}"
