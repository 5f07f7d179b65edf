"""What holds of grammars from outside where their package is not installed."""

from __future__ import annotations

import subprocess
import sys

import pytest

from forwardpass.constraint.outside import outside_grammar
from forwardpass.errors import RequestError


def test_without_the_package_the_error_names_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "llguidance", None)
    with pytest.raises(RequestError, match="llguidance, which is not installed") as told:
        outside_grammar("regex", "a", [b"a", b"</s>"], [1], [1])
    assert told.value.advice == 'pip install "forwardpass[lark]"'


def test_importing_the_module_imports_no_optional_package() -> None:
    code = "import sys, forwardpass.constraint.outside; print('llguidance' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
