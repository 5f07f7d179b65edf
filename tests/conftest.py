"""What all tests share: outside cases, real models, and where the oracle tests run."""

from __future__ import annotations

import importlib.util
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

if "PYTEST_XDIST_WORKER" in os.environ:
    # One of several processes: threads of BLAS and torch in each would wait for one another.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    os.environ.setdefault("OMP_NUM_THREADS", "1")

ROOT = Path(__file__).resolve().parents[1]
ORACLES = ROOT / "tests" / "oracles"
JUDGES = ("gguf", "llguidance", "mlx", "safetensors", "torch", "transformers")

_own_cases_only = pytest.StashKey[int]()
_oracles_left_out = pytest.StashKey[int]()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_own_cases_only] = 0
    config.stash[_oracles_left_out] = 0
    config.pluginmanager.register(_Processes(config))
    # A run in a shell's background inherits SIGINT ignored, and so would the programs that are
    # started here to see what Ctrl-C does.
    signal.signal(signal.SIGINT, signal.default_int_handler)


def _judges_are_here() -> bool:
    return all(importlib.util.find_spec(name) is not None for name in JUDGES)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    if ORACLES not in collection_path.parents or _judges_are_here():
        return None
    if collection_path.name.startswith("test_"):
        config.stash[_oracles_left_out] += 1
    return True


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if ORACLES in item.path.parents:
            item.add_marker(pytest.mark.oracle)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Where several processes run the tests, each tells the first what it left out."""
    told = getattr(session.config, "workeroutput", None)
    if told is not None:
        told["own_cases_only"] = session.config.stash[_own_cases_only]
        told["oracles_left_out"] = session.config.stash[_oracles_left_out]


class _Processes:
    """What the first of several processes is told; every one of them collects all files."""

    def __init__(self, config: pytest.Config) -> None:
        self.stash = config.stash

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        told = getattr(node, "workeroutput", {})
        self.stash[_own_cases_only] += told.get("own_cases_only", 0)
        left_out = max(self.stash[_oracles_left_out], told.get("oracles_left_out", 0))
        self.stash[_oracles_left_out] = left_out


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    if own := config.stash[_own_cases_only]:
        terminalreporter.write_line(
            f"{own} tests ran on small cases of their own: FORWARDPASS_CASES names no folder"
        )
    if files := config.stash[_oracles_left_out]:
        terminalreporter.write_line(
            f"{files} files of oracle tests left out: pip install '.[oracles]' brings the judges"
        )


@pytest.fixture
def cases(request: pytest.FixtureRequest) -> Path | None:
    """The folder of outside cases, or None: the test then runs small ones of its own."""
    named = os.environ.get("FORWARDPASS_CASES")
    if named:
        folder = Path(named)
        assert folder.is_dir(), f"FORWARDPASS_CASES={named} is not a folder"
        return folder.resolve()
    request.config.stash[_own_cases_only] += 1
    return None


@pytest.fixture(scope="session")
def model_path() -> Callable[[str], Path]:
    """From an alias to the model's file, fetched on first use into the cache of downloads."""
    from forwardpass import hub

    environ = {**os.environ, "FORWARDPASS_CATALOGUE": str(ROOT / "tests" / "models.toml")}
    return lambda alias: hub.pull(alias, environ)
