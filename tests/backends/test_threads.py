"""The number of threads of matrix products can be chosen before and after NumPy is loaded."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

from forwardpass.backends.threads import set_threads, threads_in_force, usable_cores
from forwardpass.errors import RequestError


def test_threads_are_those_chosen_before_numpy_was_loaded() -> None:
    program = (
        "from forwardpass.backends.threads import *\n"
        "import sys\n"
        "set_threads(1)\n"
        "assert 'numpy' not in sys.modules\n"
        "import numpy\n"
        "print(threads_in_force())\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, encoding="utf-8")
    assert done.stdout == "1\n", done.stderr


def test_threads_can_be_changed_once_numpy_is_loaded() -> None:
    assert np.__name__ in sys.modules
    before = threads_in_force()
    environment: dict[str, str] = {}
    try:
        for count in range(1, usable_cores() + 1):
            set_threads(count, environment)
            assert threads_in_force() == count
    finally:
        set_threads(min(before, usable_cores()))
    assert environment == {}


@pytest.mark.parametrize("count", [0, -1, 10**6])
def test_threads_are_between_one_and_the_cores(count: int) -> None:
    with pytest.raises(RequestError, match="may use 1 to"):
        set_threads(count)
    assert os.environ.get("OMP_NUM_THREADS") != str(count)
