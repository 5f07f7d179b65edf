"""The counts of a real file that the ordinary tests do not fetch."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import forwardpass as fp
from forwardpass.work.summary import Window


def test_the_real_gemma_is_counted_with_its_windows(model_path: Callable[[str], Path]) -> None:
    found = fp.count(model_path("gemma3-270m"))
    assert found.parameters.unique == 268_098_176
    assert found.windows == (
        Window(tokens=512, layers=15, flop_per_visible_token=61_440, kv_bytes_per_token=15_360),
    )
