"""What the oracle tests of the families share."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from oracles.families import Judged

Judge = Callable[[str], "Judged"]


@pytest.fixture(scope="session")
def judged(tmp_path_factory: pytest.TempPathFactory) -> Judge:
    """Each case's saved model with transformers' logits, made once."""
    # Here and not above: pytest reads this file also where the judges are not installed.
    from oracles.families import BY_NAME, judge

    found: dict[str, Judged] = {}

    def get(name: str) -> Judged:
        if name not in found:
            found[name] = judge(BY_NAME[name], tmp_path_factory.mktemp(name))
        return found[name]

    return get
