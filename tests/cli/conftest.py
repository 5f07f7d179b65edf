"""What tests of commands share: how to run one, and tiny models to run it on."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli.running import Run
from forwardpass.backends.levels import missing_reason
from tiny_model import random_folder, scripted_folder

SAYS = "the Öl fox 🎉."
ODD_HEADS = 12  # elements: no multiple of 8, so that there is no kernel for them
WITHOUT_NATIVE = missing_reason()


@pytest.fixture(
    params=[
        pytest.param(
            "native",
            marks=pytest.mark.skipif(WITHOUT_NATIVE is not None, reason=str(WITHOUT_NATIVE)),
        ),
        "reference",
    ]
)
def backend(request: pytest.FixtureRequest) -> str:
    """Each backend that is here, by name."""
    name: str = request.param
    return name


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    return Run(capsys, monkeypatch)


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a random model."""
    return random_folder(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture(scope="session")
def odd(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random model whose heads have no kernel."""
    return random_folder(tmp_path_factory.mktemp("models") / "odd", head_dim=ODD_HEADS)


@pytest.fixture(scope="session")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same model without a chat template."""
    return random_folder(tmp_path_factory.mktemp("models") / "bare", template=None)


@pytest.fixture(scope="session")
def scripted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that answers `SAYS`."""
    return scripted_folder(tmp_path_factory.mktemp("models") / "scripted", SAYS)


@pytest.fixture(scope="session")
def endless(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that says "abab…" until it is stopped."""
    return scripted_folder(
        tmp_path_factory.mktemp("models") / "endless",
        "ab",
        endless=True,
        max_position_embeddings=200_000,
    )
