"""What may import what, and what a command must not load: the picture of the design, enforced."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "src" / "forwardpass"

# From the top down. A unit imports only from layers below its own: never from a neighbour.
# The leaves (constraint, sampling, text) take and give arrays and ids: they stand below the graph.
LAYERS: tuple[tuple[str, ...], ...] = (
    ("__main__",),
    ("cli",),
    ("__init__",),
    ("loading",),
    ("counting", "model", "pages", "planning"),
    ("shaping",),
    ("answer", "opening", "options"),
    ("generate", "scoring", "shape_scripts"),
    ("trace",),
    ("benching", "computing", "engine", "inspecting", "profiling"),
    ("backends", "work"),
    ("describe",),
    ("config_gguf", "text_part", "towers", "weights"),
    ("architectures",),
    ("graph",),
    ("config", "hub"),
    ("config_gguf_rope", "config_keys", "config_kinds", "config_rope"),
    ("constraint", "rope", "sampling", "text"),
    ("formats", "memory"),
    ("dtypes", "shapes", "units"),
    ("errors", "_version", "_native"),
)
RANK = {unit: -i for i, layer in enumerate(LAYERS) for unit in layer}
JUDGES = {"torch", "transformers"}
HEAVY = {"numpy", "tokenizers", "jinja2", "forwardpass._native", "huggingface_hub"}

LONG_FILE, LONG_FUNCTION = 400, 60
SOURCES = sorted(
    path
    for folder in ("src", "tests", "scripts", "benchmarks", ".ci")
    for path in (ROOT / folder).rglob("*")
    if path.is_file() and "__pycache__" not in path.parts and path.suffix not in {".so", ".pyd"}
)
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
MODULES = sorted(PACKAGE.rglob("*.py"))


def _id(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def _unit(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def _imported(path: Path) -> Iterator[tuple[int, str]]:
    """Line and dotted name of every import in a module, also those inside functions."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{_id(path)}:{node.lineno}: imports name their package"
            for alias in node.names:
                yield node.lineno, f"{node.module}.{alias.name}"


def _imported_units(path: Path) -> Iterator[tuple[int, str]]:
    for line, name in _imported(path):
        parts = name.split(".")
        if parts[0] == "forwardpass":
            inner = parts[1] if len(parts) > 1 else "__init__"
            yield line, inner if inner in RANK else "__init__"


@pytest.mark.parametrize("path", MODULES, ids=_id)
def test_imports_point_down_only(path: Path) -> None:
    unit = _unit(path)
    assert unit in RANK, f"{_id(path)}: {unit} has no layer in the picture"
    for line, other in _imported_units(path):
        below = RANK[other] < RANK[unit] or other == unit
        assert below, f"{_id(path)}:{line}: {unit} imports {other}, which is not below it"


@pytest.mark.parametrize("path", MODULES, ids=_id)
def test_the_package_imports_none_of_its_judges(path: Path) -> None:
    found = {name.split(".")[0] for _, name in _imported(path)}
    assert not found & JUDGES


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        ["--version"],
        ["count", "llama-3.1-8b"],
        ["plan", "llama-3.1-8b", "--machine", "h100"],
    ],
    ids=" ".join,
)
def test_looking_something_up_loads_no_numbers_no_templates_and_no_extension(
    arguments: list[str],
) -> None:
    command = [sys.executable, "-X", "importtime", "-m", "forwardpass", *arguments]
    done = subprocess.run(command, capture_output=True, encoding="utf-8")
    assert done.returncode == 0, done.stderr
    assert done.stdout
    loaded = set(re.findall(r"^import time: .*\| +(\S+)$", done.stderr, flags=re.MULTILINE))
    assert "forwardpass.cli.main" in loaded
    assert not loaded & HEAVY


@pytest.mark.parametrize("path", SOURCES, ids=_id)
def test_a_file_is_short_or_says_why_it_is_not(path: Path) -> None:
    lines = path.read_text("utf-8").splitlines()
    reason = f"Longer than {LONG_FILE} lines"
    assert len(lines) <= LONG_FILE or any(reason in line for line in lines[:30]), len(lines)


@pytest.mark.parametrize("path", MODULES, ids=_id)
def test_a_function_is_short_or_says_why_it_is_not(path: Path) -> None:
    source = path.read_text("utf-8")
    lines = source.splitlines()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            end = node.end_lineno or node.lineno
            reason = f"Longer than {LONG_FUNCTION} lines"
            stated = any(reason in line for line in lines[node.lineno : end])
            assert stated or end - node.lineno < LONG_FUNCTION, f"{_id(path)}: {node.name}"


# Put together here, so that this file may itself be searched.
FOREIGN = re.compile(
    "|".join(
        [
            "pypi" + r"\.org",
            "python" + r"hosted\.org",
            "npm" + r"js\.",
            "debian" + r"\.org",
            "/work" + r"/(main|shared)",
            "/tmp" + r"/\w",
            "/root" + r"/",
        ]
    )
)
TEXTS = sorted({*SOURCES, *PAGES, *(path for path in ROOT.glob("*.*") if path.is_file())})


@pytest.mark.parametrize("path", TEXTS, ids=_id)
def test_the_project_speaks_of_itself_alone(path: Path) -> None:
    assert FOREIGN.findall(path.read_text("utf-8")) == []
