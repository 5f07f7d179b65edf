"""docs/ops.md is what its script writes, and what it says of packed sizes is so."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import ops_page
from forwardpass.backends.tables import packed_bytes
from forwardpass.graph import ops
from forwardpass.graph.graph import Weight
from kernels import harness
from kernels.stored import TYPES, random_table


def test_the_page_of_ops_is_what_its_script_writes() -> None:
    written = ops_page.PAGE.read_text("utf-8")
    assert written == ops_page.page(), "python scripts/ops_page.py writes it anew"


def test_an_op_without_a_kernel_is_listed_as_computed_by_its_reference(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    new = dataclasses.replace(ops.OPS["relu"], name="relu_squared")
    monkeypatch.setitem(ops.OPS, new.name, new)
    _, how = harness.held()[new.name]
    assert how.by == "reference"
    assert how.levels == ()
    assert f"| `relu_squared` | {new.axes} | reference |" in ops_page.page()


@pytest.mark.parametrize("kind", TYPES)
def test_a_packed_table_has_the_bytes_that_the_page_says(kind: str) -> None:
    tables = harness.native().Tables(1)
    table = random_table(kind, 32, 512, np.random.default_rng(1))
    harness.add_table(tables, table)
    assert tables.nbytes == packed_bytes(kind, Weight(kind, (32, 512)))
